"""Augmented sources depend only on the seed and the position, and a run can resume."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from shards import write_shards
from trainers import changed, make_trainer
from vocabularies import TEXTS, make_vocabulary

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.changes import Augmentation, Side, SubwordDropout
from tt.model.dataset.manifest import TRAIN, VALIDATION
from tt.model.text.vocabulary import UNK_ID


@pytest.fixture
def vocabulary(tmp_path):
    return make_vocabulary(tmp_path)


def change(vocabulary, share, *, texts, seed=1, longest=100):
    """Return the texts as rows of ids after augmentation."""
    ids = vocabulary.encode(texts)
    side = Side(
        np.concatenate([np.array(row, np.int64) for row in ids]),
        np.concatenate([[0], np.cumsum([len(row) for row in ids])]),
    )
    generator = np.random.default_rng(seed)
    found = Augmentation(vocabulary, share)(side, generator=generator, longest=longest)
    return [row.tolist() for row in np.split(found.ids, found.starts[1:-1])]


def test_about_the_wanted_share_of_texts_changes(vocabulary):
    texts = TEXTS * 40
    plain = vocabulary.encode(texts)
    found = change(vocabulary, 0.25, texts=texts)
    differ = sum(a != b for a, b in zip(found, plain, strict=True)) / len(texts)
    assert 0.05 < differ <= 0.32
    assert found == change(vocabulary, 0.25, texts=texts)
    assert found != change(vocabulary, 0.25, texts=texts, seed=2)
    assert change(vocabulary, 0, texts=texts) == plain


def test_texts_get_neither_too_long_nor_more_unknown_tokens(vocabulary):
    texts = TEXTS * 10
    plain = vocabulary.encode(texts)
    longest = max(map(len, plain))
    found = change(vocabulary, 1, texts=texts, longest=longest)
    assert max(map(len, found)) <= longest
    unknown = [[row.count(UNK_ID) for row in rows] for rows in (plain, found)]
    assert all(after <= before for before, after in zip(*unknown, strict=True))


def test_only_sources_change_and_a_run_can_resume(tmp_path, vocabulary):
    ids = vocabulary.encode(TEXTS * 20)
    dropout = SubwordDropout(vocabulary, 0.1)
    for subwords in (None, (dropout, dropout)):
        batches = TokenBatches(
            files=write_shards(tmp_path, list(zip(ids, ids, strict=True)), 2), max_tokens=200,
            seed=5, augmentation=Augmentation(vocabulary, 0.5), subword_dropout=subwords,
        )  # fmt: skip
        whole = list(itertools.islice(batches.forever(Position()), 40))
        targets = [row for batch in whole if not batch.start.epoch for row in batch.target.tolist()]
        texts = sorted(text for text in vocabulary.decode(targets) if text)
        assert texts == sorted(TEXTS * 20)
        epochs = [
            sorted(
                text
                for batch in whole
                if batch.start.epoch == epoch
                for text in vocabulary.decode(batch.source.tolist())
                if text
            )
            for epoch in (0, 1)
        ]
        assert epochs[0] != epochs[1]
        assert set(epochs[0]) - set(TEXTS)
        for stop in range(0, 35, 6):
            resumed = next(batches.forever(whole[stop].following))
            np.testing.assert_array_equal(resumed.source, whole[stop + 1].source)
            np.testing.assert_array_equal(resumed.target, whole[stop + 1].target)


def test_only_training_is_augmented(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(augment=0.5))
    assert trainer.data.batches(TRAIN).augmentation
    assert trainer.data.batches(VALIDATION).augmentation is None
