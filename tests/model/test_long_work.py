"""Long tasks count exactly the work that they do."""

from __future__ import annotations

import threading

import pytest
from trainers import changed, ignore, make_trainer
from works import remember_works

from tt.model.long_work import current_work, long_work
from tt.model.text.scores import score_corpus


@pytest.fixture
def works(monkeypatch):
    """All tasks that begin in a test."""
    return remember_works(monkeypatch)


def told(works):
    return [(work.name, work.total, work.unit) for work in works]


def test_current_work_is_the_most_recent_unfinished_task():
    with long_work("outer", total=2) as outer:
        with long_work("inner", total=1):
            assert current_work().name == "inner"
        assert current_work() is outer
        threads = [threading.Thread(target=outer.add, args=(1,)) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert outer.done == 50
    with pytest.raises(KeyError), long_work("broken", total=1):
        raise KeyError
    assert current_work() is None


def test_scoring_counts_metrics(works):
    texts = ["one two three four", "two three four five", "three four"]
    lines = [each.line for each in score_corpus(texts, [texts, texts[::-1]])]
    assert all(" = 100.0" in line for line in lines)
    assert told(works) == [("scoring by BLEU and chrF", 2, "metrics")]
    assert works[0].done == works[0].total


@pytest.mark.usefixtures("eager")
def test_validation_counts_pairs_and_sentences(toy_dataset, tmp_path, works):
    training = changed(steps=1, validate_every=1, score_every=1, score_sentences=20)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(ignore)
    validating, translating = works[:2]
    assert (validating.name, validating.unit) == ("validating", "pairs")
    assert validating.done == validating.total > 20
    assert told([translating]) == [("translating", 20, "validation sentences")]
    assert translating.done == 20
