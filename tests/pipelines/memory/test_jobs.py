"""Jobs with a translation memory: several jobs, killed jobs, retries and invalid folders."""

from __future__ import annotations

import concurrent.futures
import functools
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from fakes import Reverser, fail_at, reverse
from memory_store import MemoryStore
from permissions import enforced_modes
from translation_jobs import (
    files_below,
    manifest,
    numbered,
    output_bytes,
    read_all,
    refused,
    request,
    translate,
    turned,
    unit_statistics,
    write,
)

from tt.model.text.glossary import read_glossary
from tt.model.transformer.search_options import Decoding
from tt.pipelines.memory import entries
from tt.pipelines.memory.actions import add
from tt.pipelines.memory.entries import list_entries, read_table
from tt.pipelines.memory.options import MemoryRequest
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate import last_step, units
from tt.pipelines.translate.manifest import summary_blocks


@pytest.fixture
def source(tmp_path):
    return write(tmp_path / "in.parquet", numbered(20))


@pytest.fixture
def memory(tmp_path):
    return str(tmp_path / "memory")


def counts(summary):
    names = ("texts", "distinct_texts", "remembered_texts")
    return tuple(summary.manifest[name] for name in names)


def all_entries(memory):
    """Return the translations in all files by source; every file is valid."""
    tables = [read_table(file.path) for file in list_entries(memory).values()]
    rows = [row for table in tables for row in table.to_pylist()]
    assert all(row["target"] == reverse(row["source"]) for row in rows)
    return {row["source"]: row["target"] for row in rows}


@pytest.mark.parametrize("unit_rows", [6, 10])
def test_second_job_uses_the_translations_of_the_first(tmp_path, source, memory, unit_rows):
    plain = translate(source, tmp_path / "plain", unit_rows=unit_rows)
    assert counts(plain) == (20, 20, 0)
    first = translate(source, tmp_path / "first", memory=memory, unit_rows=unit_rows)
    assert counts(first) == (20, 20, 0)
    assert len(list_entries(memory)) == 1, "the last step merges the files of the units"
    assert [name for name in files_below(tmp_path / "memory") if name.endswith(".tmp")] == []

    more = write(tmp_path / "more.parquet", numbered(25))
    second = translate(more, tmp_path / "second", memory=memory, unit_rows=unit_rows)
    assert counts(second) == (25, 5, 20)
    [facts, *_] = summary_blocks(second)
    sentences = "25 in all texts, 5 translated, 20 from the memory"
    assert dict(facts.rows)["sentences"] == sentences
    assert all_entries(memory) == {f"row {i}": reverse(f"row {i}") for i in range(25)}

    again = translate(source, tmp_path / "again", memory=memory, unit_rows=unit_rows)
    assert counts(again) == (20, 0, 20)
    expected = output_bytes(tmp_path / "plain")
    assert output_bytes(tmp_path / "first") == output_bytes(tmp_path / "again") == expected
    work = [each["work"]["sources"] for each in unit_statistics(tmp_path / "again")]
    assert work == [0] * -(-20 // unit_rows)


def test_memory_is_not_part_of_the_plan(tmp_path, source, memory):
    translate(source, tmp_path / "out")
    assert translate(source, tmp_path / "out", memory=memory).already_finished
    assert not (tmp_path / "memory").exists()


def test_translations_of_other_models_and_options_are_ignored(tmp_path, source, memory):
    translate(source, tmp_path / "first", memory=memory)
    for name, other in (
        ("model", {"fingerprint": "f1"}),
        ("search", {"decoding": Decoding(beam_size=2)}),
        ("language", {"texts": TextOptions(target_language="fr")}),
    ):
        found = translate(source, tmp_path / name, memory=memory, **other)
        assert counts(found) == (20, 20, 0)


def test_memory_on_another_file_system(tmp_path, source):
    MemoryStore.clear()
    translate(source, tmp_path / "first", memory="mem://bucket/memory", unit_rows=6)
    [path] = MemoryStore.paths()
    assert path.startswith("mem://bucket/memory/entries/")
    found = translate(source, tmp_path / "second", memory="mem://bucket/memory/")
    assert counts(found) == (20, 0, 20)


class _StoppedError(Exception):
    """The error that ends a worker at a given step."""


def stop(*_, **__):
    raise _StoppedError


@pytest.mark.parametrize("step", ["record", "manifest"])
def test_killed_job_loses_no_entry(tmp_path, source, memory, step, monkeypatch):
    """The job dies between the entries and the record of a unit, or before the manifest."""
    with monkeypatch.context() as patched:
        steps = {"record": (units, "record_unit"), "manifest": (last_step, "make_manifest")}
        place, name = steps[step]
        patched.setattr(place, name, stop)
        with pytest.raises(RuntimeError, match="_StoppedError"):
            translate(source, tmp_path / "out", memory=memory, unit_rows=6)
    known = all_entries(memory)
    assert known
    found = translate(source, tmp_path / "out", memory=memory, unit_rows=6)
    if step == "record":
        assert counts(found) == (20, 20 - len(known), len(known))
    else:
        assert counts(found) == (20, 20, 0)
    assert sorted(all_entries(memory)) == sorted(f"row {i}" for i in range(20))
    assert read_all(tmp_path / "out")["translation"].to_pylist() == turned(20)
    assert counts(translate(source, tmp_path / "other", memory=memory)) == (20, 0, 20)


def test_job_that_was_killed_during_its_last_step_merges_the_entries(
    tmp_path, source, memory, monkeypatch
):
    with monkeypatch.context() as patched:
        patched.setattr(entries, "delete", stop)
        with pytest.raises(RuntimeError, match="_StoppedError"):
            translate(source, tmp_path / "out", memory=memory, unit_rows=6)
    assert len(list_entries(memory)) == 5
    assert not (tmp_path / "out/_tt/manifest.json").exists()
    translate(source, tmp_path / "out", memory=memory, unit_rows=6)
    assert len(list_entries(memory)) == 1
    assert len(all_entries(memory)) == 20


_meeting = threading.Barrier(2)


class Meeting(Reverser):
    """A Reverser whose first call waits until the other job also translates."""

    def translate(self, inputs):
        if not self.calls:
            _meeting.wait(timeout=60)
        return super().translate(inputs)


def load_meeting(name):
    return Meeting()


def test_two_jobs_share_a_memory_at_the_same_time(tmp_path, memory):
    """Both jobs translate the rows from 10 to 19, because neither knows the other's rows yet."""
    tables = {
        "a": write(tmp_path / "a.parquet", numbered(20)),
        "b": write(tmp_path / "b.parquet", numbered(30).slice(10)),
    }

    def run(name):
        load = functools.partial(load_meeting, name)
        return translate(tables[name], tmp_path / name, memory=memory, unit_rows=20, load=load)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, tables))
    assert [counts(each) for each in found] == [(20, 20, 0), (20, 20, 0)]
    assert sorted(all_entries(memory)) == sorted(f"row {i}" for i in range(30))
    whole = write(tmp_path / "c.parquet", numbered(30))
    assert counts(translate(whole, tmp_path / "c", memory=memory)) == (30, 0, 30)


def test_retry_uses_and_extends_the_memory(tmp_path, source, memory):
    fail_at.update(["row 3", "row 4"])
    translate(source, tmp_path / "out", memory=memory)
    fail_at.clear()
    few = write(tmp_path / "few.parquet", numbered(5).slice(3, 1))
    assert counts(translate(few, tmp_path / "few", memory=memory)) == (1, 1, 0)
    found = translate(source, tmp_path / "out", memory=memory, retry_failed=True)
    assert counts(found) == (20, 19, 1)
    assert read_all(tmp_path / "out")["translation"].to_pylist() == turned(20)
    assert len(all_entries(memory)) == 20


def correct(memory, tmp_path, *, target="de", **pairs):
    table = {"source": list(pairs), "target": list(pairs.values())}
    path = write(tmp_path / "corrections.parquet", table)
    languages = {"source_language": "en", "target_language": target}
    return add(MemoryRequest(action="add", files=(str(path),), memory=memory, **languages))


LANGUAGES = TextOptions(source_language="en", target_language="de")


def test_human_translations_win_over_the_model(tmp_path, source, memory):
    translate(source, tmp_path / "first", memory=memory, texts=LANGUAGES)
    correct(memory, tmp_path, **{"row 3": "Zeile 3"})
    found = translate(source, tmp_path / "second", memory=memory, texts=LANGUAGES)
    assert counts(found) == (19, 0, 19)
    table = read_all(tmp_path / "second")
    assert table["translation"].to_pylist() == [*turned(3), "Zeile 3", *turned(20)[4:]]
    statuses = ["ok"] * 3 + ["from_memory"] + ["ok"] * 16
    assert table["translation_status"].to_pylist() == statuses
    assert table["translation_score"].to_pylist()[3] is None
    rows = manifest(tmp_path / "second")["rows_by_status"]["text"]
    assert (rows["ok"], rows["from_memory"]) == (19, 1)


def test_human_translations_need_the_languages_of_the_job(tmp_path, source, memory):
    correct(memory, tmp_path, **{"row 3": "Zeile 3"})
    lines = []
    request(source, tmp_path / "out", memory=memory).plan().run(report=lines.append)
    [line] = lines
    assert line.startswith("tt: warning: tt cannot use the human translations in the memory")
    assert read_all(tmp_path / "out")["translation"].to_pylist() == turned(20)
    french = TextOptions(source_language="en", target_language="fr")
    translate(source, tmp_path / "french", memory=memory, texts=french)
    assert read_all(tmp_path / "french")["translation"].to_pylist() == turned(20)


def test_human_translations_belong_to_the_language_of_the_row(tmp_path, memory):
    correct(memory, tmp_path, target="fr", **{"a dog": "un chien"})
    correct(memory, tmp_path, **{"a cat": "eine Katze"})
    table = {"text": ["a dog", "a dog", "a cat", "a cat"], "lang": ["fr", "de", "fr", None]}
    source = write(tmp_path / "in.parquet", table)
    options = {"target_language_column": "lang", "text_columns": ("text",), "texts": LANGUAGES}
    translate(source, tmp_path / "out", memory=memory, **options)
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == ["un chien", "god a", "tac a", "eine Katze"]
    statuses = ["from_memory", "ok", "ok", "from_memory"]
    assert found["translation_status"].to_pylist() == statuses


def test_translations_belong_to_both_languages_of_the_row(tmp_path, memory):
    table = {"text": ["a dog"] * 3, "from": ["en", "nl", None], "to": ["de", "de", "fr"]}
    source = write(tmp_path / "in.parquet", table)
    options = {"source_language_column": "from", "target_language_column": "to"}
    options |= {"text_columns": ("text",), "texts": LANGUAGES, "memory": memory}
    translate(source, tmp_path / "out", **options)
    entries = [
        row for file in list_entries(memory).values() for row in read_table(file.path).to_pylist()
    ]
    assert sorted((each["source_language"], each["target_language"]) for each in entries) == [
        ("en", "de"), ("en", "fr"), ("nl", "de"),
    ]  # fmt: skip
    assert len({each["key"] for each in entries}) == 3
    assert counts(translate(source, tmp_path / "again", **options)) == (3, 0, 3)


@pytest.mark.parametrize("key", [(), ("id",)])
def test_corrections_newer_than_finished_rows_are_one_notice(tmp_path, source, memory, key):
    options = {"memory": memory, "key": key, "text_columns": ("text",), "texts": LANGUAGES}
    correct(memory, tmp_path, **{"row 1": "before"})
    translate(source, tmp_path / "out", **options)
    assert request(source, tmp_path / "out", **options).plan().notices == ()
    correct(memory, tmp_path, **{"row 2": "Zeile", "unknown": "x"})
    correct(memory, tmp_path, target="fr", **{"row 3": "rang"})
    job = request(source, tmp_path / "out", **options).plan()
    assert job.is_finished
    [notice] = job.notices
    assert notice.startswith("2 human translations in `memory` are newer than finished rows")
    assert notice.endswith("set `overwrite`")
    assert request(source, tmp_path / "out", **{**options, "memory": None}).plan().notices == ()
    redone = translate(source, tmp_path / "out", overwrite=True, **options)
    assert redone.manifest["rows_by_status"]["text"]["from_memory"] == 2
    assert redone.manifest["distinct_texts"] == 0
    assert request(source, tmp_path / "out", **options).plan().notices == ()


def test_rows_with_a_key_use_corrections_when_the_input_changes(tmp_path, source, memory):
    options = {"memory": memory, "key": ("id",), "text_columns": ("text",), "texts": LANGUAGES}
    translate(source, tmp_path / "out", **options)
    correct(memory, tmp_path, **{"row 2": "Zeile"})
    write(source, numbered(21))
    job = request(source, tmp_path / "out", **options).plan()
    assert not any("human" in line for line in job.notices)
    assert job.run().manifest["rows_by_status"]["text"]["from_memory"] == 1
    assert request(source, tmp_path / "out", **options).plan().notices == ()


def test_lists_of_texts_count_with_their_worst_status(tmp_path, memory):
    correct(memory, tmp_path, **{"a1": "x", "b1": "y"})
    lists = pa.array([["a1", "b1"], ["a1", "c1"], ["a1", "12"]])
    path = write(tmp_path / "in.parquet", {"text": lists})
    translate(path, tmp_path / "out", memory=memory, texts=LANGUAGES, text_columns=("text",))
    assert read_all(tmp_path / "out")["translation"].to_pylist() == [
        ["x", "y"],
        ["x", "1c"],
        ["x", "12"],
    ]
    rows = manifest(tmp_path / "out")["rows_by_status"]["text"]
    assert (rows["ok"], rows["from_memory"]) == (1, 2)


def test_glossary_changes_only_the_sources_with_its_terms(tmp_path, source, memory):
    translate(source, tmp_path / "first", memory=memory, texts=TextOptions(placeholders=1))
    path = tmp_path / "glossary.tsv"
    path.write_text("row 3\tZeile drei\n")
    assert read_glossary(str(path), read=lambda name: path.read_bytes()).exact
    texts = TextOptions(placeholders=1, glossary=str(path))
    found = translate(source, tmp_path / "second", memory=memory, texts=texts)
    assert counts(found) == (19, 0, 19), "the text of row 3 is a term"
    assert read_all(tmp_path / "second")["translation"].to_pylist()[3] == "Zeile drei"


def test_damaged_file_is_one_warning(tmp_path, source, memory):
    translate(source, tmp_path / "first", memory=memory)
    [file] = list_entries(memory).values()
    with Path(file.path).open("r+b") as opened:
        opened.truncate(file.size - 9)
    lines = []
    found = request(source, tmp_path / "second", memory=memory).plan().run(report=lines.append)
    [line] = lines
    assert line.startswith(f"tt: warning: {file.path} is damaged")
    assert line.endswith("so `memory` does not use this file")
    assert counts(found) == (20, 20, 0)
    assert read_all(tmp_path / "second")["translation"].to_pylist() == turned(20)


def test_folders_that_cannot_be_a_memory_are_refused(tmp_path, source):
    out = tmp_path / "out"
    assert "must be a folder. Received the file" in refused(source, out, memory=str(source))
    inside = refused(source, out, memory=str(out / "memory"))
    assert "`memory` must not be inside the output folder" in inside
    folder = tmp_path / "tables"
    write(folder / "a.parquet", numbered(1))
    inside = refused(folder, out, memory=str(folder / "memory"))
    assert "`memory` must not be inside the input folder" in inside
    assert not out.exists()


@pytest.mark.parametrize("closed", ["memory/entries", "."])
def test_memory_without_rights_is_refused(tmp_path, source, memory, closed):
    folder = tmp_path / closed
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o555)
    try:
        with enforced_modes():
            message = refused(source, tmp_path.parent / f"{tmp_path.name}-out", memory=memory)
    finally:
        folder.chmod(0o755)
    assert message == (
        f"no access to {folder} (permission denied). Change its permissions, or choose another path"
    )
