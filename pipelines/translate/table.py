"""A table with translations beside its texts: the columns that are added, and what is in them."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from model.engines.translator import Translator
from model.text.glossary import Glossary
from pipelines.storage.parquet import cell_bytes
from pipelines.texts.flags import FLAGS, Limits
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import (
    FAILED,
    STATUSES,
    TranslatedText,
    TranslatedTexts,
    translate_texts,
)

TRANSLATION = "translation"
SCORE = "translation_score"
STATUS = "translation_status"
ERROR = "translation_error"
FLAGGED = "translation_flags"
N_BEST = "translation_n_best"

# Parquet calls what is in a list "element", Arrow "item": so that a table that is read and written
# again has the same bytes, Parquet's name is given.
_FLAGS = pa.list_(pa.field("element", pa.string()))
_HYPOTHESES = pa.list_(
    pa.field("element", pa.struct([("text", pa.string()), ("score", pa.float32())]))
)


def _hypotheses(cell: TranslatedText) -> list[dict[str, Any]] | None:
    found = [{"text": each.text, "score": each.score} for each in cell.n_best]
    return found or None


# Name, type, and the value of a cell.
_Added = tuple[str, pa.DataType, Callable[[TranslatedText], Any]]

_ADDED: tuple[_Added, ...] = (
    (TRANSLATION, pa.string(), lambda cell: cell.translation),
    (SCORE, pa.float32(), lambda cell: cell.score),
    (STATUS, pa.string(), lambda cell: cell.status),
    (ERROR, pa.string(), lambda cell: cell.error),
    (FLAGGED, _FLAGS, lambda cell: list(cell.flags)),
)

_ADDED_N_BEST: _Added = (N_BEST, _HYPOTHESES, _hypotheses)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is translated."""

    text_columns: tuple[str, ...]  # the columns to translate, at least one
    has_n_best: bool = False  # whether a column of n best translations is added
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)  # how texts are treated
    glossary: Glossary | None = None  # terms whose translations are given
    limits: Limits = dataclasses.field(default_factory=Limits)  # what is usual for the model

    def added(self) -> tuple[_Added, ...]:
        """Returns what is added for each text column."""
        return (*_ADDED, _ADDED_N_BEST) if self.has_n_best else _ADDED

    def name(self, column: str, added: str) -> str:
        """Returns the name of an added column: with the text column's before it if several."""
        return added if len(self.text_columns) == 1 else f"{column}_{added}"


def added_names(text_columns: Sequence[str], *, has_n_best: bool) -> list[str]:
    """Names the columns that are added.

    >>> added_names(["title", "body"], has_n_best=False)[3:6]
    ['title_translation_error', 'title_translation_flags', 'body_translation']
    """
    options = TableOptions(text_columns=tuple(text_columns), has_n_best=has_n_best)
    return [
        options.name(column, added)
        for column in options.text_columns
        for added, _, _ in options.added()
    ]


def translate_table(
    table: pa.Table, *, options: TableOptions, translator: Translator
) -> tuple[pa.Table, TranslatedTexts]:
    """Returns the table with the added columns at its end; a text of two columns counts once."""
    cells = [cell_bytes(table.column(name)) for name in options.text_columns]
    every_cell = [cell for column in cells for cell in column]
    found = _translate(every_cell, options=options, translator=translator)
    for index, column in enumerate(options.text_columns):
        first = index * table.num_rows
        of_column = found.translations[first : first + table.num_rows]
        for added, kind, value in options.added():
            values = pa.array([value(cell) for cell in of_column], kind)
            table = table.append_column(options.name(column, added), values)
    return table, found


def retry_table(
    table: pa.Table, *, options: TableOptions, translator: Translator
) -> tuple[pa.Table, TranslatedTexts]:
    """Translates the failed cells of a translated table again; all others stay as they are."""
    texts = {name: cell_bytes(table.column(name)) for name in options.text_columns}
    places = []  # column and row of each failed cell
    for column in options.text_columns:
        statuses = table.column(options.name(column, STATUS)).to_pylist()
        places += [(column, row) for row, status in enumerate(statuses) if status == FAILED]
    failed = [texts[column][row] for column, row in places]
    found = _translate(failed, options=options, translator=translator)
    for column in options.text_columns:
        for added, kind, value in options.added():
            name = options.name(column, added)
            values = table.column(name).to_pylist()
            for (place, row), cell in zip(places, found.translations, strict=True):
                if place == column:
                    values[row] = value(cell)
            index = table.column_names.index(name)
            table = table.set_column(index, table.schema.field(index), pa.array(values, kind))
    return table, found


def _translate(
    cells: list[bytes | None], *, options: TableOptions, translator: Translator
) -> TranslatedTexts:
    found = translate_texts(
        cells,
        translator=translator,
        options=options.texts,
        glossary=options.glossary,
        limits=options.limits,
    )
    if len(found.translations) != len(cells):
        raise RuntimeError(f"{len(cells)} cells in, {len(found.translations)} out")
    return found


def count_statuses(table: pa.Table, *, options: TableOptions) -> dict[str, dict[str, int]]:
    """Counts the rows of each status, those with none included, by text column."""
    counts = {}
    for column in options.text_columns:
        found = collections.Counter(table.column(options.name(column, STATUS)).to_pylist())
        counts[column] = {status: found[status] for status in STATUSES}
    return counts


def count_flags(table: pa.Table, *, options: TableOptions) -> dict[str, dict[str, int]]:
    """Counts the rows of each flag, those with none included, by text column."""
    counts = {}
    for column in options.text_columns:
        found = pc.list_flatten(table.column(options.name(column, FLAGGED)))
        by_flag = collections.Counter(found.to_pylist())
        counts[column] = {flag: by_flag[flag] for flag in FLAGS}
    return counts


def count_failed_rows(table: pa.Table, *, options: TableOptions) -> int:
    """Counts the rows of which a cell failed."""
    failed = pa.array([False] * table.num_rows, pa.bool_())
    for column in options.text_columns:
        failed = pc.or_(failed, pc.equal(table.column(options.name(column, STATUS)), FAILED))
    return int(pc.sum(failed, min_count=0).as_py())
