"""Each distinct sentence of a job is translated once, before the units."""

from __future__ import annotations

import collections
import random
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
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

from tt.model.errors import UserError
from tt.pipelines.memory.entries import list_entries
from tt.pipelines.memory.index import MemoryIndex
from tt.pipelines.translate import deduplication, job_folder, units
from tt.pipelines.translate.deduplication import count_groups, estimate_saving
from tt.pipelines.translate.plan import InputFile

SENTENCES = [f"sentence {i}." for i in range(30)]


def rows(count: int, *, seed: int = 1) -> pa.Table:
    """Return texts of one to three sentences; most sentences occur many times."""
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(SENTENCES, k=chance.randint(1, 3))) for _ in range(count)]
    return pa.table({"id": range(count), "text": [*texts[:-1], None]})


@pytest.fixture
def calls(monkeypatch):
    """Return the number of translations of each source."""
    found: collections.Counter[tuple[int, ...]] = collections.Counter()
    translate_ids = Reverser.translate_ids

    def count(self, sources):
        found.update(map(tuple, sources))
        return translate_ids(self, sources)

    monkeypatch.setattr(Reverser, "translate_ids", count)
    return found


def counts(folder):
    found = manifest(folder)
    return found["texts"], found["distinct_texts"], found["remembered_texts"]


@pytest.mark.parametrize("arguments", [(), TWO_WORKERS])
@pytest.mark.parametrize("groups", [1, 7])
def test_job_translates_each_sentence_once(tmp_path, calls, monkeypatch, arguments, groups):
    monkeypatch.setattr("tt.pipelines.translate.job.count_groups", lambda *a, **k: groups)
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
    assert not MemoryIndex(str(tmp_path / "job/_tt/memory"), is_temporary=True).path.exists()


def test_sentences_of_a_plan_that_was_replaced_do_not_count(tmp_path, calls):
    source = write(tmp_path / "in.parquet", rows(50))
    translate(source, tmp_path / "one", deduplicate="job", unit_rows=10)
    [record] = (tmp_path / "one/_tt/sentences").glob("*.json")
    other = tmp_path / "two/_tt/sentences/0123456789.json"
    other.parent.mkdir(parents=True)
    shutil.copy(record, other)
    translate(source, tmp_path / "two", deduplicate="job", unit_rows=10)
    assert counts(tmp_path / "two") == counts(tmp_path / "one")


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


def test_a_second_generation_adds_to_the_counts_of_the_first(tmp_path, calls):
    folder = tmp_path / "in"
    write(folder / "1.parquet", rows(40))
    options = {"unit_rows": 5, "deduplicate": "job"}
    translate(folder, tmp_path / "out", **options)
    first = counts(tmp_path / "out")
    write(folder / "2.parquet", rows(40, seed=2))
    calls.clear()
    translate(folder, tmp_path / "out", **options)
    assert calls.total() == len(calls) <= len(SENTENCES)
    assert counts(tmp_path / "out")[1] == first[1] + calls.total()
    fresh = tmp_path / "fresh"
    translate(folder, fresh, **options)
    assert output_bytes(tmp_path / "out") == output_bytes(fresh)


@pytest.mark.parametrize("stopped", ["_TranslateSentences", "record", "units"])
def test_a_resumed_job_translates_no_sentence_again(tmp_path, calls, monkeypatch, stopped):
    monkeypatch.setattr("tt.pipelines.translate.job.count_groups", lambda *a, **k: 4)
    source = write(tmp_path / "in.parquet", rows(100))
    options = {"unit_rows": 10, "deduplicate": "job", "load": Reverser}

    def fail(*arguments, **named):
        raise UserError("stopped")

    with monkeypatch.context() as patch:
        if stopped == "record":
            patch.setattr(deduplication, "sentences_path", fail)
        elif stopped == "units":
            patch.setattr(units, "record_unit", fail)
        else:
            done = deduplication._TranslateSentences.process
            begun = []

            def process(self, group):
                begun.append(group[0])
                if len(begun) > 1:
                    fail()
                return done(self, group)

            patch.setattr(deduplication._TranslateSentences, "process", process)
        with pytest.raises(UserError, match="stopped"):
            translate(source, tmp_path / "out", **options)
    assert calls.total() > 0
    assert (tmp_path / "out/_tt/memory").exists()
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


def test_failed_rows_and_damaged_files_keep_their_reasons(tmp_path):
    folder = tmp_path / "in"
    write(folder / "1.parquet", {"text": ["good.", b"\xff".decode("latin-1"), "good."]})
    path = write(folder / "2.parquet", {"text": [f"text {i}" for i in range(1000)]})
    content = bytearray(path.read_bytes())
    content[100:200] = bytes(100)
    path.write_bytes(content)
    for name in ("unit", "job"):
        translate(
            folder, tmp_path / name, unit_rows=2, deduplicate=name, on_bad_file="skip", max_failed=1
        )
    a, b = (manifest(tmp_path / name) for name in ("unit", "job"))
    for key in ("rows_by_status", "skipped_units", "skipped_files", "failed_rows"):
        assert a[key] == b[key]
    assert a["skipped_units"] or a["skipped_files"]


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


@pytest.mark.parametrize("name", ["in.csv", "in.jsonl"])
def test_auto_uses_the_head_of_other_formats(tmp_path, monkeypatch, name):
    monkeypatch.setattr(deduplication, "_LEAST_TEXTS", 50)
    lines = rows(100)["text"].to_pylist()[:-1]
    if name == "in.csv":
        content = "\n".join(["text", *lines])
    else:
        content = "\n".join(f'{{"text": "{line}"}}' for line in lines)
    (tmp_path / name).write_text(content + "\n")
    job = request(tmp_path / name, tmp_path / "out", unit_rows=10).plan()
    assert job.is_deduplicated
    job.run()
    assert counts(tmp_path / "out")[1] == len(SENTENCES)


def test_auto_reads_rows_from_several_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(deduplication, "_LEAST_TEXTS", 50)
    table = pa.table({"text": [*[f"text {i}" for i in range(100)], *["same"] * 300]})
    path = tmp_path / "in.parquet"
    pq.write_table(table, path, row_group_size=100)
    samples: list[list[list[str]]] = []

    def keep(found, *, units):
        samples.append([list(texts) for texts in found])
        return 0.0

    monkeypatch.setattr(deduplication, "estimate_saving", keep)
    request(path, tmp_path / "out", unit_rows=10).plan()
    [(first, *others)] = samples
    assert len(set(first)) == 100
    assert [set(texts) for texts in others] == [{"same"}] * 3


def test_the_estimate_is_close_for_texts_with_a_zipf_law():
    """Draw texts with probabilities proportional to 1/rank, and compare with the exact saving."""
    chance = random.Random(5)
    ranks = range(1, 20_001)
    texts = chance.choices(ranks, weights=[1 / rank for rank in ranks], k=200_000)
    names = [str(text) for text in texts]
    unit = 8192
    parts = [names[first : first + unit] for first in range(0, len(names), unit)]
    exact = 1 - len(set(names)) / sum(len(set(part)) for part in parts)
    samples = [names[first : first + 2048] for first in range(0, 200_000, 50_000)]
    estimate = estimate_saving(samples, units=len(parts))
    assert exact > 0.6
    assert exact - 0.25 < estimate < exact + 0.05


def test_groups_are_as_many_as_units_within_limits():
    small, large = (InputFile(path="", relative_path="", size=size) for size in (1, 2**40))
    assert count_groups([small], units=0) == 1
    assert count_groups([small], units=12) == 12
    assert count_groups([large], units=12) == 4096


def test_the_progress_counts_groups_before_units(tmp_path):
    watch = job_folder.TranslateWatch(
        output=str(tmp_path), unit_rows={}, groups=4, plan_digest="7f"
    )
    for group in range(3):
        path = tmp_path / job_folder.group_path(group, plan_digest="7f")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    assert watch.find_phase().describe() == "translating distinct sentences: 3 of 4 groups"
    path = tmp_path / job_folder.sentences_path("7f")
    path.parent.mkdir()
    path.write_text("{}")
    assert watch.find_phase().phase == "writing the manifest"


def test_auto_keeps_to_units_if_most_rows_are_known(tmp_path, monkeypatch):
    monkeypatch.setattr(deduplication, "_LEAST_TEXTS", 50)
    source = write(tmp_path / "in.parquet", rows(100))
    options = {"unit_rows": 10, "key": ("id",)}
    job = request(source, tmp_path / "out", **options).plan()
    assert job.is_deduplicated
    job.run()
    write(source, rows(110, seed=4))
    assert not request(source, tmp_path / "out", **options).plan().is_deduplicated
