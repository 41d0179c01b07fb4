"""Subword dropout splits texts into different pieces, depending on the seed and the epoch."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from shards import rows, write_shards
from trainers import changed, make_trainer
from vocabularies import TEXTS, make_vocabulary

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.changes import SubwordDropout
from tt.model.dataset.manifest import TRAIN, VALIDATION


@pytest.fixture
def vocabulary(tmp_path):
    return make_vocabulary(tmp_path)


def segment(vocabulary, rate, *, texts=TEXTS, seed=1, longest=1000):
    """Return the ids of each text after dropout."""
    encoded = vocabulary.encode_flat(texts)
    ids, starts = SubwordDropout(vocabulary, rate)(
        encoded.ids.astype(np.int64),
        np.concatenate([[0], encoded.ends]),
        generator=np.random.default_rng(seed),
        longest=longest,
    )
    assert len(starts) == len(texts) + 1
    assert starts[-1] == len(ids)
    return [ids[begin:end].tolist() for begin, end in itertools.pairwise(starts)]


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_dropout_changes_pieces_but_not_texts(tmp_path, kind):
    vocabulary = make_vocabulary(tmp_path, kind=kind)
    plain = vocabulary.encode(TEXTS)
    found = segment(vocabulary, 0.3)
    assert vocabulary.decode(found) == TEXTS
    assert sum(map(len, found)) > sum(map(len, plain))
    assert found != segment(vocabulary, 0.3, seed=2)
    assert found == segment(vocabulary, 0.3)


def test_rate_near_one_splits_into_characters(vocabulary):
    (found,) = segment(vocabulary, 1 - 1e-9, texts=["a man"])
    assert [vocabulary.piece(i) for i in found] == [
        "<s>", "\N{LOWER ONE EIGHTH BLOCK}", "a", "\N{LOWER ONE EIGHTH BLOCK}", "m", "a", "n",
        "</s>",
    ]  # fmt: skip


def test_share_of_split_pieces_equals_the_rate(vocabulary):
    texts = ["a man in a blue shirt"] * 2000
    plain = vocabulary.encode(texts[:1])[0]
    (whole,) = [i for i in plain if vocabulary.piece(i).endswith("man")]
    kept = sum(whole in row for row in segment(vocabulary, 0.2, texts=texts))
    assert kept / 2000 == pytest.approx(0.8, abs=0.04)


def test_texts_stay_within_the_maximum_length(vocabulary):
    plain = [len(row) for row in vocabulary.encode(TEXTS)]
    longest = max(plain) + 3
    found = [len(row) for row in segment(vocabulary, 0.9, longest=longest)]
    assert max(found) <= longest
    assert found != plain


def test_user_symbols_are_not_split(tmp_path):
    vocabulary = make_vocabulary(tmp_path, symbols=["shirt"])
    (found,) = segment(vocabulary, 1 - 1e-9, texts=["a shirt"])
    assert [vocabulary.piece(i) for i in found][-2] == "shirt"


def test_each_epoch_has_different_pieces_and_can_resume(tmp_path, vocabulary):
    pairs = list(zip(vocabulary.encode(TEXTS * 20), vocabulary.encode(TEXTS * 20), strict=True))
    dropout = SubwordDropout(vocabulary, 0.2)
    batches = TokenBatches(
        files=write_shards(tmp_path, pairs, 2), max_tokens=200, seed=5,
        subword_dropout=(dropout, dropout),
    )  # fmt: skip
    whole = list(itertools.islice(batches.forever(Position()), 60))
    epochs = [
        [row for batch in whole if batch.start.epoch == epoch for row in rows(batch)]
        for epoch in (0, 1)
    ]
    for epoch in epochs:
        sources, targets = zip(*epoch, strict=True)
        for side in (sources, targets):
            texts = vocabulary.decode([list(row) for row in side])
            assert sorted(texts) == sorted(TEXTS * 20)
        assert sources != targets, "both sides use the same random numbers"
    assert sorted(epochs[0]) != sorted(epochs[1])
    for stop in range(0, 50, 7):
        resumed = next(batches.forever(whole[stop].following))
        np.testing.assert_array_equal(resumed.source, whole[stop + 1].source)
        np.testing.assert_array_equal(resumed.target, whole[stop + 1].target)


def test_pieces_depend_on_seed_epoch_and_window(tmp_path, vocabulary, monkeypatch):
    monkeypatch.setattr("tt.model.dataset.batches.WINDOW", 64)
    monkeypatch.setattr("tt.model.dataset.batches.RECORDS_PER_TOKEN", 0)
    # One shard with two windows, which have the same texts in the same order.
    ids = vocabulary.encode(TEXTS * 32)
    files = write_shards(tmp_path, list(zip(ids, ids, strict=True)), 1)
    dropout = SubwordDropout(vocabulary, 0.2)

    def pieces(seed, epoch):
        """Return the pieces of each window, in the order of its records."""
        batches = TokenBatches(
            files=files, max_tokens=200, seed=seed, subword_dropout=(dropout, dropout)
        )
        found = {
            record: row
            for batch in batches.epoch(Position(epoch))
            for (_, record), row in zip(batch.records, rows(batch), strict=False)
        }
        ordered = [found[record] for record in range(128)]
        return [tuple(ordered[:64]), tuple(ordered[64:])]

    windows = [w for seed in (5, 6) for epoch in (0, 1) for w in pieces(seed, epoch)]
    assert len(set(windows)) == 8
    assert pieces(5, 1) == windows[2:4]


def test_only_training_uses_subword_dropout(toy_dataset, tmp_path):
    trainer = make_trainer(toy_dataset, tmp_path / "run", training=changed(subword_dropout=0.5))
    assert trainer.data.batches(TRAIN).subword_dropout
    assert trainer.data.batches(VALIDATION).subword_dropout is None
