"""Translations with a memory: earlier translations of the model, and human translations."""

from __future__ import annotations

import pytest
from fakes import UNKNOWN, Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.model.text.glossary import Glossary
from tt.model.text.spans import Protection
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts


class Dictionary:
    """A memory in two dictionaries."""

    def __init__(self, *, learned=(), corrections=None):
        self.translations = {each.text: each.translation for each in learned}
        self.corrections = corrections or {}

    def find_translations(self, texts, *, languages):
        return {t: self.translations[t] for t in texts if t in self.translations}

    def find_corrections(self, texts, *, languages):
        return {text: self.corrections[text] for text in texts if text in self.corrections}


def translate(texts, *, translator=None, memory=None, glossary=None, **options):
    return translate_texts(
        [text if text is None else text.encode() for text in texts],
        translator=translator or Reverser(n_best=2),
        options=TextOptions(**options),
        glossary=glossary,
        memory=memory,
    )


PIECES = st.sampled_from(
    [
        "Go on.", "See https://a.de/x now.", "Call {name}.", "term here.", "12345", "<b>bold</b>",
        "\n", " ", "ж", "a long sentence, with many words, that is cut.", "€ 5.00", "x",
    ]
)  # fmt: skip
TEXTS = st.lists(st.lists(PIECES, max_size=4).map(" ".join), max_size=6)
OPTIONS = st.fixed_dictionaries(
    {
        "split": st.sampled_from(["sentences", "long"]),
        "placeholders": st.integers(0, 2),
        "max_source_tokens": st.sampled_from([20, 258]),
        "on_too_long": st.sampled_from(["split", "skip"]),
        "protection": st.booleans().map(lambda protect: Protection(protect=protect)),
    }
)
GLOSSARIES = st.sampled_from([None, Glossary({"term": "Begriff"}, {})])


@given(texts=TEXTS, options=OPTIONS, glossary=GLOSSARIES)
def test_translations_from_the_memory_equal_fresh_ones_without_the_model(texts, options, glossary):
    fresh = translate(texts, glossary=glossary, **options)
    first = translate(texts, memory=Dictionary(), glossary=glossary, **options)
    assert first.translations == fresh.translations
    assert first.remembered_texts == 0
    assert len(first.learned) == first.distinct_texts == fresh.distinct_texts

    translator = Reverser()
    memory = Dictionary(learned=first.learned)
    again = translate(texts, translator=translator, memory=memory, glossary=glossary, **options)
    assert again.translations == fresh.translations
    assert translator.translated == []
    assert again.learned == ()
    assert (again.texts, again.distinct_texts) == (fresh.texts, 0)
    assert again.remembered_texts == fresh.distinct_texts


def test_only_new_sources_are_translated_and_learned():
    first = translate(["Go on.", "Stop."], memory=Dictionary())
    translator = Reverser()
    memory = Dictionary(learned=first.learned)
    found = translate(["Stop.", "Wait."], translator=translator, memory=memory)
    assert translator.translated == ["Wait."]
    assert [each.text for each in found.learned] == ["Wait."]
    assert (found.texts, found.distinct_texts, found.remembered_texts) == (2, 1, 1)
    assert found.work.sources == 1


def test_learned_texts_have_placeholders_and_flags():
    class Looping(Reverser):
        def translate(self, inputs):
            found, work = super().translate(inputs)
            looping = found[0].hypotheses[0].__class__("no no no no no no no no", -1.0)
            return [each.__class__((looping,)) for each in found], work

    learned = translate(["Go on"], translator=Looping(), memory=Dictionary()).learned
    assert [each.flags for each in learned] == [("repeats",)]
    assert [each.languages for each in learned] == [("", "")]
    masked = translate(["See https://a.de now"], memory=Dictionary(), placeholders=1).learned
    assert next(each.text for each in masked) != "See https://a.de now"


def test_truncated_sources_are_neither_learned_nor_remembered():
    options = {"max_source_tokens": 6, "on_too_long": "truncate"}
    first = translate(["abcdef", "abcd"], memory=Dictionary(), **options)
    assert [each.text for each in first.learned] == ["abcd"]
    translation = first.learned[0].translation
    memory = Dictionary()
    memory.translations = {"abcd": translation, "abcdef": translation}
    translator = Reverser()
    found = translate(["abcdef", "abcd"], translator=translator, memory=memory, **options)
    assert (found.remembered_texts, translator.translated) == (1, ["abcd"])


def test_failed_sources_are_not_learned():
    found = translate(["good", "bad!"], translator=Reverser(poison="!"), memory=Dictionary())
    assert [each.status for each in found.translations] == ["ok", "failed"]
    assert [each.text for each in found.learned] == ["good"]


CORRECTIONS = {
    "Go on.": "Weiter.",
    "See https://a.de now.": "Siehe https://a.de jetzt.",
    f"{UNKNOWN * 9}.": "Neun.",
    "A. B.": "Beide.",
}


@pytest.mark.parametrize(
    ("text", "expected", "status"),
    [
        ("Go on.", "Weiter.", "from_memory"),
        ("Go on. Stop.", "Weiter. .potS", "ok"),
        (" Go on.\n\nGo on. 123", " Weiter.\n\nWeiter. 123", "from_memory"),
        ("go on.", ".no og", "ok"),
        ("See https://a.de now. Go on.", "Siehe https://a.de jetzt. Weiter.", "from_memory"),
        (f"{UNKNOWN * 9}. Stop.", "Neun. .potS", "ok"),
        ("A. B.", "Beide.", "from_memory"),
    ],
)
def test_corrections_replace_whole_texts_and_sentences(text, expected, status):
    translator = Reverser()
    memory = Dictionary(corrections=CORRECTIONS)
    [cell] = translate([text], translator=translator, memory=memory, placeholders=0).translations
    assert (cell.translation, cell.status, cell.error) == (expected, status, None)
    if status == "from_memory":
        assert (cell.score, cell.flags, cell.n_best, translator.calls) == (None, (), (), [])
