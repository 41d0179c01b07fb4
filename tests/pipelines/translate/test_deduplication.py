"""Each distinct sentence of a job is translated once, before the units."""

from __future__ import annotations

import collections
import random

import pyarrow as pa
import pytest
from fakes import Reverser
from translation_jobs import (
    TWO_WORKERS,
    files_below,
    manifest,
    output_bytes,
    read_all,
    request,
    translate,
    without_run,
    write,
)

from tt.pipelines.memory.entries import list_entries
from tt.pipelines.translate import deduplication

SENTENCES = [f"sentence {i}." for i in range(30)]


def rows(count: int, *, seed: int = 1) -> pa.Table:
    """Return texts of one to three sentences; most sentences occur many times."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(SENTENCES, k=chance.randint(1, 3))) for _ in range(count)]
    return pa.table({"id": range(count), "text": [*texts[:-1], None]})


@pytest.fixture
def calls(monkeypatch):
    """Return the number of translations of each source."""
    found: collections.Counter[str] = collections.Counter()
    translate = Reverser.translate

    def count(self, inputs):
        found.update(each.text for each in inputs)
        return translate(self, inputs)

    monkeypatch.setattr(Reverser, "translate", count)
    return found


class Stopping(Reverser):
    """Stops the job in its third call."""

    calls_of_all = 0

    def translate(self, inputs):
        Stopping.calls_of_all += 1
        if Stopping.calls_of_all == 3:
            raise KeyboardInterrupt
        return super().translate(inputs)


def counts(folder):
    found = manifest(folder)
    return found["texts"], found["distinct_texts"], found["remembered_texts"]


@pytest.mark.parametrize("arguments", [(), TWO_WORKERS])
def test_job_translates_each_sentence_once(tmp_path, calls, arguments):
    source = write(tmp_path / "in.parquet", rows(100))
    translate(source, tmp_path / "unit", unit_rows=10, deduplicate="unit", arguments=arguments)
    texts, distinct, _ = counts(tmp_path / "unit")
    assert distinct == calls.total() > 2 * len(SENTENCES)
    calls.clear()
    translate(source, tmp_path / "job", unit_rows=10, deduplicate="job", arguments=arguments)
    assert calls.total() == len(calls) == len(SENTENCES)
    assert counts(tmp_path / "job") == (texts, len(SENTENCES), 0)
    assert output_bytes(tmp_path / "job") == output_bytes(tmp_path / "unit")
    assert not (tmp_path / "job/_tt/memory").exists()


def test_a_memory_receives_the_sentences_and_provides_known_ones(tmp_path, calls):
    memory = str(tmp_path / "memory")
    first = write(tmp_path / "first.parquet", {"text": SENTENCES[:10]})
    translate(first, tmp_path / "first", memory=memory)
    calls.clear()
    source = write(tmp_path / "in.parquet", rows(100))
    translate(source, tmp_path / "out", unit_rows=10, deduplicate="job", memory=memory)
    assert calls.total() == len(SENTENCES) - 10
    assert counts(tmp_path / "out")[1:] == (len(SENTENCES) - 10, 10)
    assert len(list_entries(memory)) == 2, "the last step merges the files of each job"


def test_a_resumed_job_translates_no_sentence_again(tmp_path, calls):
    source = write(tmp_path / "in.parquet", rows(100))
    options = {"unit_rows": 10, "deduplicate": "job"}
    with pytest.raises(BaseException):  # noqa: B017, PT011 -- simulates a kill
        translate(source, tmp_path / "out", load=Stopping, **options)
    assert 0 < calls.total() < len(SENTENCES)
    translate(source, tmp_path / "out", **options)
    assert calls.total() == len(calls) == len(SENTENCES)
    assert counts(tmp_path / "out")[1:] == (len(SENTENCES), 0)
    translate(source, tmp_path / "fresh", **options)
    assert output_bytes(tmp_path / "out") == output_bytes(tmp_path / "fresh")
    a, b = (without_run(manifest(tmp_path / name)) for name in ("out", "fresh"))
    assert a == b
    assert files_below(tmp_path / "out") == files_below(tmp_path / "fresh")


def test_skipped_and_null_rows_are_not_collected(tmp_path, calls):
    table = {"id": [1, 2, 3, 4], "text": ["one.", "two.", None, "one."]}
    source = write(tmp_path / "in.parquet", table)
    options = {"unit_rows": 1, "deduplicate": "job", "where": "id != 2"}
    translate(source, tmp_path / "out", **options)
    assert calls.total() == 1
    assert read_all(tmp_path / "out")["translation"].to_pylist() == [".eno", None, None, ".eno"]


def test_auto_chooses_by_the_repetition_in_a_sample(tmp_path, monkeypatch):
    monkeypatch.setattr(deduplication, "_LEAST_TEXTS", 50)
    repeated = write(tmp_path / "repeated.parquet", rows(100))
    job = request(repeated, tmp_path / "a", unit_rows=10).plan()
    assert job.is_deduplicated
    assert any("each distinct sentence once" in line for line in job.notices)
    unique = write(tmp_path / "unique.parquet", {"text": [f"text {i}" for i in range(100)]})
    job = request(unique, tmp_path / "b", unit_rows=10).plan()
    assert (job.is_deduplicated, job.notices) == (False, ())
    one_unit = request(repeated, tmp_path / "c").plan()
    assert not one_unit.is_deduplicated
    chosen = request(repeated, tmp_path / "d", unit_rows=10, deduplicate="unit").plan()
    assert (chosen.is_deduplicated, chosen.notices) == (False, ())


def test_auto_counts_all_sentences_that_the_local_runner_holds(tmp_path, monkeypatch):
    monkeypatch.setattr(deduplication, "_LEAST_TEXTS", 50)
    chance = random.Random(1)
    sentences = [f"предложение с номером {i}." for i in range(3000)]
    texts = [" ".join(chance.choices(sentences, k=40)) for _ in range(400)]
    source = write(tmp_path / "in.parquet", {"a": texts, "b": texts[::-1]})
    options = {"text_columns": ("a", "b"), "unit_rows": 20}
    held = 0
    for first in range(0, 400, 20):
        rows = [*texts[first : first + 20], *texts[::-1][first : first + 20]]
        unit = {f"{each.rstrip('.')}." for text in rows for each in text.split(". ")}
        held += sum(len(each.encode()) for each in unit)
    for share, is_chosen in ((0.9, False), (40, True)):
        monkeypatch.setattr(deduplication, "_MOST_LOCAL_BYTES", share * held)
        job = request(source, tmp_path / "out", **options).plan()
        assert job.is_deduplicated == is_chosen
