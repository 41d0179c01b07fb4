"""The curve of the learning rate and the masks in the output of `tt train --describe`."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.manifest import DatasetManifest
from tt.model.inspection.masks import masks_section
from tt.model.inspection.run import schedule_section
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.options import TrainingConfig


@pytest.mark.parametrize(
    ("steps", "schedule", "last"), [(400, "inverse-sqrt", 0.5), (400, "constant", 1), (50, "", 0.5)]
)
def test_schedule_contains_the_first_peak_and_last_rate(steps, schedule, last):
    fields = {"schedule": schedule} if schedule else {}
    training = TrainingConfig(steps=steps, warmup_steps=100, peak_learning_rate=1.0, **fields)
    [curves] = schedule_section(training, width=8).blocks
    [line] = curves.lines
    rates = dict(zip(line.x, line.y, strict=True))
    assert (rates[1], rates[steps]) == (0.01, last)
    assert max(rates.values()) == rates[min(steps, 100)] == min(1, steps / 100)


def test_masks_hide_padding_and_later_positions(toy_dataset):
    manifest = DatasetManifest.load(toy_dataset)
    vocabularies = load_vocabularies(toy_dataset)
    section = masks_section(toy_dataset, manifest, vocabularies, batch_tokens=256)
    note, padding, _, look_ahead = section.blocks
    assert len(padding.lines) == int(re.search(r"Padding mask, (\d) rows", note.text)[1])
    widths = {batch.source.shape[1] for batch in batches_of(toy_dataset, manifest)}
    for line in padding.lines:
        marks, *tokens = line.split()
        assert len(marks) == len(tokens)
        assert len(marks) in widths
        assert marks == "".join("." if token == "<pad>" else "#" for token in tokens)
    triangle = [line.split() for line in look_ahead.lines]
    assert triangle[0][1] == "<bos>"
    seen = np.array([[mark == "#" for mark in marks] for marks, _ in triangle])
    np.testing.assert_array_equal(seen, np.tri(len(triangle), dtype=bool))


def batches_of(folder, manifest):
    batches = TokenBatches(
        files=[folder / name for name in manifest.splits["train"].shards], max_tokens=256, seed=1
    )
    return batches.epoch(Position())
