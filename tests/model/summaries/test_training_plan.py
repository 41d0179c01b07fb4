"""What `tt train --describe` says of a training's learning rate and masks."""

from __future__ import annotations

import re

import numpy as np
import pytest

from model.dataset.batches import TokenBatches
from model.dataset.manifest import DatasetManifest
from model.dataset.windows import Position
from model.summaries.training_plan import describe_masks, describe_schedule
from model.text.vocabulary import load_vocabularies
from model.training.options import TrainingConfig


@pytest.mark.parametrize(
    ("steps", "schedule", "last"), [(400, "inverse-sqrt", 0.5), (400, "constant", 1), (50, "", 0.5)]
)
def test_a_schedule_has_its_first_its_peak_and_its_last_rate(steps, schedule, last):
    fields = {"schedule": schedule} if schedule else {}
    training = TrainingConfig(steps=steps, warmup_steps=100, peak_learning_rate=1.0, **fields)
    heading, _, *rows = describe_schedule(training, width=8)
    found = {}
    for row in rows:
        step, rate, *bar = row.split()
        found[int(step)] = float(rate)
        top = 1.0 if steps >= 100 else 0.5
        assert len("".join(bar)) == pytest.approx(40 * found[int(step)] / top, abs=0.6)
    assert found[1] == 0.01
    assert found[steps] == last
    if steps == 50:
        assert heading.endswith("0.5 at step 50, where the training ends; its warm-up has 100")
    else:
        assert found[100] == 1
        assert heading == (
            f"Learning rate: up in a line to 1 at step 100, then {schedule}; {last:g} at step 400"
        )


def test_masks_hide_padding_and_what_comes_later(toy_dataset):
    manifest = DatasetManifest.load(toy_dataset)
    training = TrainingConfig(batch_tokens=256)
    lines = describe_masks(toy_dataset, manifest, load_vocabularies(toy_dataset), training=training)
    padding = lines[2 : 2 + int(re.search(r"Padding mask, (\d) rows", lines[1])[1])]
    widths = {batch.source.shape[1] for batch in batches_of(toy_dataset, manifest)}
    for line in padding:
        marks, *tokens = line.split()
        assert len(marks) == len(tokens)
        assert len(marks) in widths
        assert marks == "".join("." if token == "<pad>" else "#" for token in tokens)
    triangle = [line.split() for line in lines[3 + len(padding) :]]
    assert triangle[0][1] == "<bos>"
    seen = np.array([[mark == "#" for mark in marks] for marks, _ in triangle])
    np.testing.assert_array_equal(seen, np.tri(len(triangle), dtype=bool))


def batches_of(folder, manifest):
    batches = TokenBatches(
        files=[folder / name for name in manifest.splits["train"].shards], max_tokens=256, seed=1
    )
    return batches.epoch(Position())
