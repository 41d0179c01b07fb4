"""A replica whose memory is really too small for its rows."""

from __future__ import annotations

import re

import pytest
from multi_worker import little_memory, make_trainer
from toy import write_dataset
from trainers import ignore, two_replicas

from tt.model.errors import UserError
from tt.model.training import step


def test_replica_without_memory_names_a_size_that_fits(tmp_path, monkeypatch):
    (tmp_path / "dataset").mkdir()
    write_dataset(tmp_path / "dataset", train=300, validation=20)
    batch_sums, are_sliced = step.batch_sums, []

    def noting(*arguments, is_sliced, **options):
        are_sliced.append(is_sliced)
        return batch_sums(*arguments, is_sliced=is_sliced, **options)

    monkeypatch.setattr(step, "batch_sums", noting)
    # The loss of 64 tokens needs slices, and the loss of 32 tokens needs none: a new run with 32
    # tokens would not use slices, so the size must fit without them. The vocabulary has 16 ids.
    monkeypatch.setattr(step, "MOST_LOGITS", 32 * 16)
    trainer = make_trainer(tmp_path / "dataset", tmp_path / "run", two_replicas())
    # TensorFlow waits ten seconds before it gives up an allocation, so only one fails.
    with little_memory(replica=1, tokens=32), pytest.raises(UserError) as caught:
        trainer.train(ignore)
    assert re.fullmatch(
        r"out of memory at step 1 of 1000, .* \(OOM when allocating tensor with shape.*\)\. "
        r"In a new `run`, set `batch_tokens=32`, which fits, and `effective_batch_size=128`, .*",
        str(caught.value),
    )
    assert are_sliced == [True, True, False, False]  # each function is traced for both replicas
