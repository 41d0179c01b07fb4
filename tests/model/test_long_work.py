"""Long tasks count exactly the work that they do."""

from __future__ import annotations

import shutil
import threading

import pytest
from trainers import changed, ignore, make_trainer
from translation_jobs import translate, write
from works import remember_works

from tt.model.dataset.manifest import DatasetManifest
from tt.model.formats.model_folder import check_files, model_fingerprint
from tt.model.inspection.dataset import dataset_sections
from tt.model.long_work import current_work, long_work
from tt.model.text.scores import score_corpus
from tt.model.training.exporting import AverageRequest
from tt.pipelines.reports.translated import translated_sections


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


def test_checks_of_a_model_count_all_bytes(trained_toy, works):
    folder = trained_toy.run / "model"
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}
    check_files(folder)
    assert works[0].done == works[0].total
    model_fingerprint(folder)
    assert works[1].done == works[1].total
    assert sum(sizes.values()) - sizes["config.json"] <= works[0].total <= sum(sizes.values())
    assert {work.name for work in works} == {"verifying the model's checksums"}


def test_summaries_count_pairs_and_rows(dataset, tmp_path, works):
    dataset_sections(dataset)
    [work] = [each for each in works if each.name == "reading training pairs"]
    assert work.done == work.total == DatasetManifest.load(dataset).splits["train"].records
    write(tmp_path / "in.parquet", {"text": ["one", None, "two"]})
    translate(tmp_path / "in.parquet", tmp_path / "out")
    translated_sections(tmp_path / "out", rows=2)
    [work] = [each for each in works if each.name == "examining rows"]
    assert work.done == work.total == 2


def test_scoring_counts_metrics(works):
    texts = ["one two three four", "two three four five", "three four"]
    lines = [each.line for each in score_corpus(texts, [texts, texts[::-1]])]
    assert all(" = 100.0" in line for line in lines)
    assert told(works) == [("scoring by BLEU and chrF", 2, "metrics")]
    assert works[0].done == works[0].total


def test_averaging_counts_checkpoints(trained_toy, tmp_path, works):
    run = shutil.copytree(trained_toy.run, tmp_path / "run")
    names = AverageRequest(run=str(run), output=str(tmp_path / "mean")).write()
    [work] = [each for each in works if each.unit == "checkpoints"]
    assert work.done == work.total == len(names) == 1


def test_validation_counts_pairs_and_sentences(toy_dataset, tmp_path, works):
    training = changed(steps=1, validate_every=1, score_every=1, score_sentences=20)
    make_trainer(toy_dataset, tmp_path / "run", training=training).train(ignore)
    validating, translating = works[:2]
    assert (validating.name, validating.unit) == ("validating", "pairs")
    assert validating.done == validating.total > 20
    assert told([translating]) == [("translating", 20, "validation sentences")]
    assert translating.done == 20
