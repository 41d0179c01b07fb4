"""The index of a memory, and the files from which it is built."""

from __future__ import annotations

import datetime
import os
import sqlite3
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.memory import entries, index
from tt.pipelines.memory.entries import (
    corrections_table,
    learned_table,
    list_entries,
    merge_units,
    write_corrections,
    write_unit,
)
from tt.pipelines.memory.index import MemoryIndex
from tt.pipelines.memory.keys import SourceKeys, TextKeys, model_context
from tt.pipelines.texts.remembering import Learned

NOW = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
LANGUAGES = {"source_language": "en", "target_language": "de"}
KEYS = SourceKeys("context", **LANGUAGES)
TEXT_KEYS = TextKeys(**LANGUAGES)


def learn(*numbers):
    """Return translations of the sources with the given ids."""
    return [
        Learned((2, n, 3), f"text {n}", "", Translation((Hypothesis(f"Text {n}", -n / 7),)), ())
        for n in numbers
    ]


def store(folder, learned, *, job="job"):
    table = learned_table(learned, context="context", created=NOW, **LANGUAGES)
    write_unit(table, folder=str(folder), job=job)


def correct(folder, *, created=NOW, **pairs):
    table = corrections_table(pairs.items(), created=created, **LANGUAGES)
    write_corrections(table.to_batches(), folder=str(folder), created=created)


def find(memory, *numbers):
    """Return the ids of those sources that the index contains, after a check of the results."""
    found = memory.find_translations([KEYS.make((2, n, 3)) for n in numbers])
    expected = {KEYS.make(each.source): each.translation for each in learn(*numbers)}
    assert found.items() <= expected.items()
    return {n for n in numbers if KEYS.make((2, n, 3)) in found}


def updated(folder):
    memory = MemoryIndex(str(folder))
    assert memory.update() == []
    return memory


def entry_count(memory):
    return memory._reader().execute("SELECT count(*) FROM entries").fetchone()[0]


def no_build(monkeypatch):
    """Make an index that is built again fail the test."""

    def build(self, listed):
        raise AssertionError("the index is built again")

    monkeypatch.setattr(MemoryIndex, "_build", build)


HYPOTHESES = st.builds(
    Hypothesis,
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.integers(0, 600),
)
SOURCES = st.lists(st.integers(0, 2**32 - 1), min_size=2, max_size=4).map(tuple)
TRANSLATIONS = st.lists(HYPOTHESES, min_size=1, max_size=3).map(tuple).map(Translation)


@settings(max_examples=20)
@given(st.dictionaries(SOURCES, TRANSLATIONS, max_size=5), SOURCES)
def test_stored_translations_are_found_exactly(tmp_path_factory, translations, other):
    folder = tmp_path_factory.mktemp("memory")
    store(folder, [Learned(s, "", "", t, ("copy",)) for s, t in translations.items()])
    keys = {source: KEYS.make(source) for source in (*translations, other)}
    assert len(set(keys.values())) == len(keys)
    expected = {keys[source]: translation for source, translation in translations.items()}
    assert updated(folder).find_translations(list(keys.values())) == expected


def test_keys_differ_with_the_model_its_options_and_the_languages():
    engine = {"name": "tensorflow", "compute_type": "float32"}
    contexts = [
        model_context(fingerprint=fingerprint, engine=engine | other, decoding=Decoding(**options))
        for fingerprint, other, options in (
            ("f", {}, {}),
            ("g", {}, {}),
            ("f", {"name": "ctranslate2"}, {}),
            ("f", {"compute_type": "bfloat16"}, {}),
            ("f", {}, {"beam_size": 1}),
            ("f", {}, {"n_best": 2}),
            ("f", {}, {"length_penalty": 1.0}),
            ("f", {}, {"patience": 2.0}),
        )
    ]
    assert len(set(contexts)) == len(contexts)
    same = Decoding(batch_tokens=77)
    assert model_context(fingerprint="f", engine=engine, decoding=same) == contexts[0]
    keys = {
        SourceKeys(context, source_language=source, target_language=target).make((1, 2))
        for context in ("c", "d")
        for source in ("en", "en-US")
        for target in ("de", "nl")
    }
    assert len(keys) == 8


def test_keys_of_texts_ignore_regions_but_not_scripts():
    def key(source, target, text="a"):
        return TextKeys(source_language=source, target_language=target).make(text)

    assert key("en-US", "deu") == key("eng", "de")
    distinct = [key("en", "de"), key("de", "en"), key("en", "zh"), key("en", "zh-TW")]
    assert len({*distinct, key("en", "de", "A"), key("en", "de", "a ")}) == 6


def test_new_files_are_added_without_reading_the_others(tmp_path, monkeypatch):
    store(tmp_path, learn(1, 2))
    assert find(updated(tmp_path), 1, 2, 3, 4) == {1, 2}
    store(tmp_path, learn(2, 3))
    opened = []
    monkeypatch.setattr(index, "EntryFile", lambda p: opened.append(p) or entries.EntryFile(p))
    no_build(monkeypatch)
    memory = updated(tmp_path)
    assert find(memory, 1, 2, 3, 4) == {1, 2, 3}
    assert len(opened) == 1
    assert entry_count(memory) == 3, "the second entry of a key is not added"


def test_merged_files_cause_neither_a_new_index_nor_new_entries(tmp_path, monkeypatch):
    for numbers in ((1, 2), (3,), (4,)):
        store(tmp_path, learn(*numbers))
    assert find(updated(tmp_path), 1, 2, 3, 4) == {1, 2, 3, 4}
    merge_units(str(tmp_path), job="job")
    [merged] = list_entries(str(tmp_path))
    keys = entries.read_table(f"{tmp_path}/entries/{merged}")["key"].to_pylist()
    assert keys == sorted(KEYS.make((2, n, 3)) for n in (1, 2, 3, 4))
    no_build(monkeypatch)
    memory = updated(tmp_path)
    assert find(memory, 1, 2, 3, 4) == {1, 2, 3, 4}
    assert entry_count(memory) == 4


def test_merged_file_with_an_unknown_part_is_added(tmp_path, monkeypatch):
    store(tmp_path, learn(1))
    assert find(updated(tmp_path), 1) == {1}
    store(tmp_path, learn(2))
    merge_units(str(tmp_path), job="job")
    no_build(monkeypatch)
    assert find(updated(tmp_path), 1, 2) == {1, 2}


def test_only_the_files_of_one_job_are_merged(tmp_path):
    store(tmp_path, learn(1))
    store(tmp_path, learn(2))
    store(tmp_path, learn(3), job="other")
    merge_units(str(tmp_path), job="job")
    assert len(list_entries(str(tmp_path))) == 2
    assert find(updated(tmp_path), 1, 2, 3) == {1, 2, 3}


def test_large_merges_make_several_files(tmp_path, monkeypatch):
    monkeypatch.setattr(entries, "_MOST_ROWS", 4)
    for n in range(6):
        store(tmp_path, learn(2 * n, 2 * n + 1))
    merge_units(str(tmp_path), job="job")
    assert len(list_entries(str(tmp_path))) == 3
    assert find(updated(tmp_path), *range(13)) == {*range(12)}


def test_merge_that_was_killed_before_it_deleted_files_is_repeated(tmp_path, monkeypatch):
    for n in range(3):
        store(tmp_path, learn(n))
    with monkeypatch.context() as patched:
        patched.setattr(entries, "delete", interrupt)
        with pytest.raises(KeyboardInterrupt):
            merge_units(str(tmp_path), job="job")
    assert len(list_entries(str(tmp_path))) == 4
    assert find(updated(tmp_path), 0, 1, 2) == {0, 1, 2}
    merge_units(str(tmp_path), job="job")
    assert len(list_entries(str(tmp_path))) == 1
    no_build(monkeypatch)
    memory = updated(tmp_path)
    assert find(memory, 0, 1, 2) == {0, 1, 2}
    assert entry_count(memory) == 3


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_two_attempts_at_a_unit_lose_no_entry(tmp_path):
    """The second attempt finds the entries of the first one, so it learns only the others."""
    store(tmp_path, learn(1, 2))
    store(tmp_path, learn(3))
    store(tmp_path, learn(3))  # the same file again
    store(tmp_path, [])
    assert len(list_entries(str(tmp_path))) == 2
    assert find(updated(tmp_path), 1, 2, 3) == {1, 2, 3}


def test_deleted_file_is_forgotten(tmp_path):
    store(tmp_path, learn(1))
    store(tmp_path, learn(2))
    assert find(updated(tmp_path), 1, 2) == {1, 2}
    for name, file in list_entries(str(tmp_path)).items():
        if entries.read_table(file.path)["source"].to_pylist() == ["text 1"]:
            (tmp_path / "entries" / name).unlink()
    assert find(updated(tmp_path), 1, 2) == {2}


def test_file_that_another_job_merges_during_the_update_is_listed_again(tmp_path, monkeypatch):
    store(tmp_path, learn(1))
    store(tmp_path, learn(2))
    before = []

    def merge_first(path):
        if not before:
            before.append(path)
            merge_units(str(tmp_path), job="job")
        return entries.EntryFile(path)

    monkeypatch.setattr(index, "EntryFile", merge_first)
    assert find(updated(tmp_path), 1, 2) == {1, 2}
    assert len(list_entries(str(tmp_path))) == 1


@pytest.mark.parametrize("damage", ["cut", "emptied", "other", "page"])
def test_damaged_file_is_reported_and_skipped_until_it_is_repaired(tmp_path, damage):
    store(tmp_path, learn(*range(500)))
    store(tmp_path, learn(1000))
    [large] = [f for f in (tmp_path / "entries").iterdir() if f.stat().st_size > 10_000]
    content = large.read_bytes()
    changed = {
        "cut": content[:-20],
        "emptied": b"",
        "other": b"PAR1",
        "page": content[:4] + bytes(2000) + content[2004:],
    }[damage]
    large.write_bytes(changed)
    memory = MemoryIndex(str(tmp_path))
    [problem] = memory.update()
    assert str(large) in problem
    assert memory.problems() == [problem]
    assert find(memory, 1, 1000) == {1000}
    assert memory.update() == [], "a known problem is not read again"
    assert memory.problems() == [problem]
    large.write_bytes(content)
    repaired = updated(tmp_path)
    assert repaired.problems() == []
    assert find(repaired, 1, 1000) == {1, 1000}


def test_parquet_file_of_another_program_is_reported(tmp_path):
    table = learned_table(learn(1), context="c", created=NOW, **LANGUAGES)
    (tmp_path / "entries").mkdir()
    entries.pq.write_table(table.drop_columns("flags"), tmp_path / "entries/a.parquet")
    [problem] = MemoryIndex(str(tmp_path)).update()
    assert problem.endswith("entries/a.parquet is not a file of entries")


@pytest.mark.parametrize("content", [b"", b"no database" * 999])
def test_damaged_index_is_built_again(tmp_path, content):
    store(tmp_path, learn(1))
    memory = updated(tmp_path)
    memory.path.write_bytes(content)
    assert find(updated(tmp_path), 1) == {1}


def test_index_of_another_version_is_built_again(tmp_path):
    store(tmp_path, learn(1))
    database = index._connect(updated(tmp_path).path)
    database.execute("PRAGMA user_version = 99")
    database.execute("DELETE FROM entries")
    database.close()
    assert find(updated(tmp_path), 1) == {1}


def test_two_threads_build_one_index(tmp_path, monkeypatch):
    store(tmp_path, learn(*range(50)))
    builds = []
    build = MemoryIndex._build
    monkeypatch.setattr(
        MemoryIndex, "_build", lambda self, listed: builds.append(1) or build(self, listed)
    )
    memories = [MemoryIndex(str(tmp_path)) for _ in range(2)]
    threads = [threading.Thread(target=memory.update) for memory in memories]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(builds) == 1
    assert all(find(memory, *range(50)) == {*range(50)} for memory in memories)


def test_index_that_cannot_be_written_is_one_line(tmp_path, monkeypatch):
    store(tmp_path, learn(1))
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(UserError, match=r"cannot be written: Not a directory.*XDG_CACHE_HOME"):
        MemoryIndex(str(tmp_path)).update()


def test_newest_human_translation_wins(tmp_path):
    assert not updated(tmp_path).has_corrections
    later = NOW + datetime.timedelta(seconds=1)
    correct(tmp_path, created=later, a="second", b="new")
    correct(tmp_path, created=NOW, a="first", c="old")
    memory = updated(tmp_path)
    assert memory.has_corrections
    keys = [TEXT_KEYS.make(text) for text in "abcd"]
    assert memory.find_corrections(keys) == dict(zip(keys, ["second", "new", "old"], strict=False))
    correct(tmp_path, created=later + datetime.timedelta(seconds=1), a="third")
    assert updated(tmp_path).find_corrections(keys)[keys[0]] == "third"


def test_the_page_caches_of_all_threads_together_are_bounded(tmp_path, monkeypatch):
    store(tmp_path, learn(*range(50)))
    opened = []
    connect = sqlite3.connect

    def record(*args, **options):
        opened.append(connect(*args, **options))
        return opened[-1]

    memory = updated(tmp_path)
    monkeypatch.setattr(index.sqlite3, "connect", record)
    threads = [threading.Thread(target=find, args=(memory, *range(50))) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened) == 32
    kib = [-database.execute("PRAGMA cache_size").fetchone()[0] for database in opened]
    assert 0 < sum(kib) <= 256 << 10


def test_indexes_of_killed_jobs_are_deleted_after_a_week(tmp_path):
    store(tmp_path / "memory", learn(1))
    kept = updated(tmp_path / "memory").path
    killed = MemoryIndex(str(tmp_path / "killed"), is_temporary=True)
    running = MemoryIndex(str(tmp_path / "running"), is_temporary=True)
    assert killed.update() == running.update() == []
    week_ago = time.time() - 8 * 24 * 3600
    for path in (kept, killed.path, killed.path.with_suffix(".lock")):
        os.utime(path, (week_ago, week_ago))
    updated(tmp_path / "other")
    assert not killed.path.exists()
    assert not killed.path.with_suffix(".lock").exists()
    assert kept.exists(), "it belongs to a memory that still exists"
    assert running.path.exists()
