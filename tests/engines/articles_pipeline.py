"""A user's pipeline, which translates two columns of rows with one model.

It has its own module, because workers in other processes import it.
"""

import json
from typing import NamedTuple

import apache_beam as beam

from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.inference.transforms import TranslateRows


class Article(NamedTuple):
    """A row of the input."""

    id: int
    title: str | None
    body: str


beam.coders.registry.register_coder(Article, beam.coders.RowCoder)


def articles(texts: list[str]) -> list[Article]:
    """Return rows for texts; some rows have no title, and some have an empty body."""
    return [
        Article(i, None if i % 7 == 3 else text, "" if i % 5 == 4 else f"{text} one")
        for i, text in enumerate(texts)
    ]


def _as_json(row: beam.Row) -> str:
    return json.dumps(row._asdict(), default=list)


def translate_articles(
    pipeline: beam.Pipeline, rows: list[Article], *, loader: ModelLoader, output: str
) -> None:
    """Build the pipeline; `output` is the prefix of its files, with one row per line."""
    _ = (
        pipeline
        | beam.Create(rows).with_output_types(Article)
        | "Spread" >> beam.Reshuffle()
        | "Translate titles" >> TranslateRows(loader, field="title", output="turned_title")
        | "Translate bodies" >> TranslateRows(loader, field="body", output="turned_body")
        | beam.Map(_as_json)
        | beam.io.WriteToText(output)
    )
