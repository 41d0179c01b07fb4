"""Cells of a text column to translations, with a translator that turns texts round."""

from __future__ import annotations

import pytest

from model.translation import Hypothesis, Translation, Work
from pipelines.cells import CellOptions, translate_cells

BOS, EOS = 2, 3


class Reverser:
    """Ids are ordinals between BOS and EOS; the score is minus the number of them."""

    def __init__(self) -> None:
        self.translated: list[str] = []

    def encode(self, texts):
        return [[BOS, *map(ord, text.replace("\u200b", "").strip()), EOS] for text in texts]

    def translate_ids(self, source_ids):
        texts = ["".join(map(chr, ids[1:-1])) for ids in source_ids]
        self.translated += texts
        found = [Translation((Hypothesis(text[::-1], -float(len(text))),)) for text in texts]
        return found, Work(sources=len(texts))

    def is_input_error(self, error):
        return False


def test_each_row_has_a_status_and_each_distinct_text_is_translated_once():
    translator = Reverser()
    texts = ["abc", None, "", " \t", "\u200b", "12345", "123456", "abc", "ä"]
    cells = [*(text if text is None else text.encode() for text in texts), b"\xe4"]
    result = translate_cells(cells, translator=translator, options=CellOptions(max_source_tokens=7))
    assert [c.translation for c in result.cells] == [
        "cba",
        None,
        "",
        "",
        "",
        "54321",
        None,
        "cba",
        "ä",
        None,
    ]
    assert [c.score for c in result.cells] == [
        -3.0,
        None,
        None,
        None,
        None,
        -5.0,
        None,
        -3.0,
        -1.0,
        None,
    ]
    assert [c.status for c in result.cells] == [
        *("ok", "null", "empty", "empty", "empty", "ok", "too_long", "ok", "ok", "failed")
    ]
    assert translator.translated == ["abc", "12345", "ä"]
    assert (result.texts, result.distinct_texts) == (4, 3)


def test_no_cells():
    assert translate_cells([], translator=Reverser(), options=CellOptions()).cells == []


def test_translate_cells_raises_when_the_model_loses_a_sentence():
    class Loser(Reverser):
        def translate_ids(self, source_ids):
            found, work = super().translate_ids(source_ids)
            return found[1:], work

    with pytest.raises(ValueError, match="shorter"):
        translate_cells([b"a", b"b"], translator=Loser(), options=CellOptions())
