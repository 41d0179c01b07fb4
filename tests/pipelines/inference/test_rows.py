"""Rows with added translations: types of rows, names of fields, and rows without texts."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import apache_beam as beam
import pytest
from fakes import Reverser

from tt.model.engines.translator import Hypothesis
from tt.model.errors import NotFiniteError, UserError
from tt.pipelines.inference.rows import OpenRow, RowFields
from tt.pipelines.inference.text_model import TextModel, translate_by_language
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import TranslatedText

TEXT = RowFields(fields=("text",))
BOTH = RowFields(fields=("title", "tags"), output="german")
BEST = RowFields(fields=("text",), has_n_best=True)


class Article(NamedTuple):
    """A row with attributes."""

    id: int
    text: str | None


def upper(row, *, fields=TEXT):
    """Return a row whose translations are its texts in upper case."""
    opened = OpenRow.of(row, fields=fields)
    made = [
        TranslatedText(translation=cell.decode().upper(), score=-1.5, status="ok")
        if cell is not None
        else TranslatedText(status="null")
        for cell in opened.cells
    ]
    return opened.with_translations(opened.take(iter(made)))


ADDED = {
    "translation": "A", "translation_score": -1.5, "translation_status": "ok",
    "translation_error": None, "translation_flags": [],
}  # fmt: skip


def test_dict_is_copied_and_not_changed():
    row = {"id": 1, "text": "a", "rest": [1]}
    assert upper(row) == {**row, **ADDED}
    assert list(row) == ["id", "text", "rest"]
    assert upper({"text": b"a"})["translation"] == "A"


@pytest.mark.parametrize("row", [beam.Row(id=1, text="a"), Article(1, "a")], ids=["Row", "tuple"])
def test_rows_with_attributes_become_rows(row):
    found = upper(row)
    assert found == beam.Row(id=1, text="a", **ADDED)
    assert (found.id, found.translation) == (1, "A")


def test_several_fields_and_lists():
    found = upper({"title": "a", "tags": ["b", None, "c"]}, fields=BOTH)
    assert found["title_german"] == "A"
    assert found["tags_german"] == ["B", None, "C"]
    assert found["tags_german_status"] == ["ok", "null", "ok"]
    assert found["tags_german_flags"] == [[], [], []]
    assert list(found)[2:7] == [f"title_german{end}" for end in ENDINGS]
    assert upper({"title": "a", "tags": []}, fields=BOTH)["tags_german"] == []


ENDINGS = ("", "_score", "_status", "_error", "_flags")


def test_n_best_has_the_type_of_the_row():
    best = TranslatedText(status="ok", n_best=(Hypothesis("A", -1.0), Hypothesis("B", -2.0)))
    for row, first in (({"text": "a"}, {"text": "A", "score": -1.0}),
                       (beam.Row(text="a"), beam.Row(text="A", score=-1.0))):  # fmt: skip
        found = OpenRow.of(row, fields=BEST).with_translations({"text": [best]})
        value = found["translation_n_best"] if isinstance(row, dict) else found.translation_n_best
        assert len(value) == 2
        assert value[0] == first


@pytest.mark.parametrize(
    ("row", "error"),
    [
        ({"body": "a", "id": 1}, "the row has no field text; it has body, id"),
        ({}, "the row has no field text; it has none"),
        ({"text": 5}, "text must be a text or a list of texts. Received: int"),
        ({"text": ["a", 5]}, "text must be a text or a list of texts. Received: int"),
    ],
)
def test_row_with_an_invalid_text_fails(row, error):
    found = upper(row)
    assert found == {
        **row, "translation": None, "translation_score": None, "translation_status": "failed",
        "translation_error": error, "translation_flags": [],
    }  # fmt: skip


@pytest.mark.parametrize("row", ["a text", 5, None, ("a", "b")])
def test_value_that_is_not_a_row_is_refused(row):
    with pytest.raises(UserError, match=r"^a row must be a dict, .* Received: \w+$"):
        upper(row)


def test_existing_field_with_an_added_name_is_refused():
    rule = "^the rows already have a field translation_status. Choose another `output` than "
    with pytest.raises(UserError, match=rule):
        upper({"text": "a", "translation_status": "seen"})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"fields": ()}, "`field` must name a field"),
        ({"fields": ("",)}, "`field` must name a field"),
        ({"fields": ("a", "b", "a")}, "`field` must name each field only once. Received: a twice"),
        ({"fields": ("a",), "output": ""}, "`output` must be the name of a field"),
    ],
)
def test_invalid_names_are_refused(fields, message):
    with pytest.raises(UserError, match=message):
        RowFields(**fields)


class Multilingual(Reverser):
    """A translator that has only Spanish, and fails at each text if it has a fault."""

    def prepare(self, texts, *, languages=("", ""), most_tokens=None):
        if languages[1] != "es":
            raise UserError(f"no {languages[1]}")
        return super().prepare(texts, languages=languages, most_tokens=most_tokens)

    def translate(self, inputs):
        if isinstance(self.fault, NotFiniteError):
            raise self.fault
        return super().translate(inputs)


def test_unknown_language_fails_its_rows_but_a_broken_model_fails_the_job():
    rows = {"cells": [b"ab", b"cd"], "codes": [("", "es"), ("", "fr")]}
    model = TextModel(translator=Multilingual(), options=TextOptions())
    found = translate_by_language(**rows, model=model).translations
    assert [(each.status, each.error) for each in found] == [("ok", None), ("failed", "no fr")]
    unnamed = translate_by_language([b"ab", None], [("", ""), ("", "")], model=model)
    assert [each.status for each in unnamed.translations] == ["failed", "null"]
    broken = dataclasses.replace(
        model, translator=Multilingual(fault=NotFiniteError("not a number"))
    )
    with pytest.raises(NotFiniteError):
        translate_by_language(**rows, model=broken)
