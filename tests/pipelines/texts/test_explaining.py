"""`explain` lists the segments of a text, what the model gets, and the evidence of flags."""

from __future__ import annotations

import pytest
from fakes import Reverser

from tt.model.engines.translator import Hypothesis, Translation
from tt.pipelines.texts.explaining import explain
from tt.pipelines.texts.options import TextOptions


def explained(text, *, translator=None, **options):
    given = TextOptions(**{"source_language": "en", "placeholders": 1, **options})
    return list(explain(text, translator=translator or Reverser(), options=given))


def test_segments_and_texts_for_the_model():
    translator = Reverser(n_best=2)
    lines = explained("<p>Ab <b>{x}</b>.</p>\n<p>THE BIG HOUSE</p>", translator=translator)
    assert sorted(translator.translated) == ["Ab", "Ab ⟦1⟧.", "The big house"], "each only once"
    assert lines == [
        "format: html",
        "0-3 structure: '<p>'",
        "3-17 sentence, replaced by its fragments: 'Ab <b>{x}</b>.'",
        "    model gets: 'Ab ⟦1⟧.' (7 tokens)",
        "    ⟦1⟧ stands for '{x}'",
        "    tags: '<b>', '</b>'",
        "    hypothesis: -7.000 '.⟧1⟦ bA'",
        '    hypothesis: -8.000 ".⟧1⟦ bA\'"',
        "3-5 sentence: 'Ab'",
        "    model gets: 'Ab' (2 tokens)",
        "    hypothesis: -2.000 'bA'",
        '    hypothesis: -3.000 "bA\'"',
        "5-6 space: ' '",
        "6-9 sentence: '<b>'",
        "9-12 sentence: '{x}'",
        "12-16 sentence: '</b>'",
        "16-17 sentence: '.'",
        "17-25 structure: '</p>\\n<p>'",
        "25-38 sentence: 'THE BIG HOUSE'",
        "    model gets: 'The big house' (13 tokens)",
        "    capitals: upper",
        "    hypothesis: -13.000 'esuoh gib ehT'",
        '    hypothesis: -14.000 "esuoh gib ehT\'"',
        "38-42 structure: '</p>'",
        "translation: '<p>bA <b>{x}</b>.</p>\\n<p>ESUOH GIB EHT</p>'",
        "status: ok",
        "flags: pieces",
    ]


class Liar(Reverser):
    """Translates everything as the same sentence."""

    def translate(self, inputs):
        found = [Translation((Hypothesis("He has 7 dogs.", -1.0, tokens=5),)) for _ in inputs]
        return found, super().translate(inputs)[1]


def test_flags_have_evidence():
    lines = explained("It costs 250 euros.", translator=Liar(), placeholders=0)
    assert "    flag number: lost 250; added 7" in lines
    assert lines[-1] == "flags: number"


def test_text_without_a_translation_has_a_reason():
    assert explained("жжжж")[-3:] == [
        "translation: None",
        "status: unknown (4 of 4 letters and symbols are unknown to the model)",
        "flags: none",
    ]


@pytest.mark.parametrize("text", [b"a\xffb <b>c</b>", "a\ud800b <b>c</b>"])
def test_text_that_is_not_utf_8_has_only_a_status(text):
    lines = explained(text)
    assert lines[0] == "translation: None"
    assert lines[1].startswith("status: failed (not UTF-8")
    assert lines[2:] == ["flags: none"]
