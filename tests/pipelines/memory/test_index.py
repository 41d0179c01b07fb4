"""The index of a memory, and the files from which it is built."""

from __future__ import annotations

import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.memory import entries
from tt.pipelines.memory.entries import (
    corrections_table,
    learned_table,
    list_entries,
    write_corrections,
    write_unit,
)
from tt.pipelines.memory.index import MemoryIndex
from tt.pipelines.memory.keys import Keys, model_context
from tt.pipelines.texts.known import Learned

NOW = datetime.datetime(2026, 11, 1, tzinfo=datetime.UTC)
LANGUAGES = ("en", "de")
KEYS = Keys.of_model("context", LANGUAGES)
TEXT_KEYS = Keys.of_people(LANGUAGES)


def learn(*numbers):
    """Return translations of the texts with the given numbers."""
    return [
        Learned(f"text {n}", ("", ""), Translation((Hypothesis(f"Text {n}", -n / 7),)), ())
        for n in numbers
    ]


def store(folder, learned, *, job="job"):
    table = learned_table(learned, context="context", created=NOW, languages=LANGUAGES)
    write_unit(table, folder=str(folder), job=job)


def correct(folder, *, created=NOW, **pairs):
    source, target = LANGUAGES
    table = corrections_table(
        pairs.items(), created=created, source_language=source, target_language=target
    )
    write_corrections(table.to_batches(), folder=str(folder), created=created)


def find(memory, *numbers):
    """Return the numbers of those texts that the index contains, after a check of the results."""
    found = memory.find_translations([KEYS.make(f"text {n}") for n in numbers])
    expected = {KEYS.make(each.text): each.translation for each in learn(*numbers)}
    assert found.items() <= expected.items()
    return {n for n in numbers if KEYS.make(f"text {n}") in found}


def updated(folder):
    memory = MemoryIndex(str(folder))
    assert memory.update() == []
    return memory


HYPOTHESES = st.builds(
    Hypothesis,
    st.text(st.characters(exclude_categories=("Cs",)), max_size=5),
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.integers(0, 600),
)
TEXTS = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
TRANSLATIONS = st.lists(HYPOTHESES, min_size=1, max_size=3).map(tuple).map(Translation)


@settings(max_examples=20)
@given(st.dictionaries(TEXTS, TRANSLATIONS, max_size=5), TEXTS)
def test_stored_translations_are_found_exactly(tmp_path_factory, translations, other):
    folder = tmp_path_factory.mktemp("memory")
    store(folder, [Learned(s, ("", ""), t, ("copy",)) for s, t in translations.items()])
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
        Keys.of_model(context, (source, target)).make("a")
        for context in ("c", "d")
        for source in ("en", "en-US")
        for target in ("de", "nl")
    }
    assert len(keys) == 8


def test_keys_of_texts_ignore_regions_but_not_scripts():
    def key(source, target, text="a"):
        return Keys.of_people((source, target)).make(text)

    assert key("en-US", "deu") == key("eng", "de")
    distinct = [key("en", "de"), key("de", "en"), key("en", "zh"), key("en", "zh-TW")]
    assert len({*distinct, key("en", "de", "A"), key("en", "de", "a ")}) == 6


def test_deleted_file_is_forgotten(tmp_path):
    store(tmp_path, learn(1))
    store(tmp_path, learn(2))
    assert find(updated(tmp_path), 1, 2) == {1, 2}
    for name, file in list_entries(str(tmp_path)).items():
        if entries.read_table(file.path)["source"].to_pylist() == ["text 1"]:
            (tmp_path / "entries" / name).unlink()
    assert find(updated(tmp_path), 1, 2) == {2}


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


@pytest.mark.parametrize("content", [b"", b"no database" * 999])
def test_damaged_index_is_built_again(tmp_path, content):
    store(tmp_path, learn(1))
    memory = updated(tmp_path)
    memory.path.write_bytes(content)
    assert find(updated(tmp_path), 1) == {1}


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
