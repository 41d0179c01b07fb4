"""Replicas whose memory is really too small for their rows."""

from __future__ import annotations

import re

import pytest
from multi_worker import TRAINING, little_memory, make_trainer
from toy import write_dataset
from trainers import ignore, two_replicas

from tt.model.errors import UserError


def test_replica_without_memory_names_a_size_that_fits(tmp_path):
    (tmp_path / "dataset").mkdir()
    write_dataset(tmp_path / "dataset", train=300, validation=20)
    trainer = make_trainer(tmp_path / "dataset", tmp_path / "run", two_replicas())
    with little_memory(replica=1, tokens=30), pytest.raises(UserError) as caught:
        trainer.train(ignore)
    found = re.fullmatch(
        r"out of memory at step 1 of 1000, .* \(OOM when allocating tensor with shape.*\)\. "
        r"In a new `run`, set `batch_tokens=(\d+)`, which fits, and `effective_batch_size=128`, .*",
        str(caught.value),
    )
    assert found, caught.value
    assert int(found[1]) <= 32 < TRAINING["batch_tokens"]
