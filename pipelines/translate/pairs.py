"""Turn translated tables into pairs, whose sources are the translations.

Sennrich et al., "Improving Neural Machine Translation Models with Monolingual Data", 2016.
Caswell et al., "Tagged Back-Translation", 2019.
"""

from __future__ import annotations

import collections
from collections.abc import Iterable

import pyarrow as pa

from tt.pipelines.tables.columns import read_text_column
from tt.pipelines.texts.flags import TRANSLATED
from tt.pipelines.texts.options import TRANSLATION
from tt.pipelines.texts.results import EMPTY, ROW_FLAGS, STATUS, TextFields
from tt.pipelines.translate.column_choice import ColumnChoice
from tt.pipelines.translate.options import BackTranslation

# `tt preprocess` finds columns with these names without options.
PAIR_SCHEMA = pa.schema([("source", pa.string()), ("target", pa.string())])


def choose_texts(text_columns: Iterable[str]) -> ColumnChoice:
    """Return the choice of only the text columns, because pairs need no other column.

    A name such as "a.b" can mean a column, or a field of the column "a".

    >>> choose_texts(["translation.de"]).keep
    ('translation.de', 'translation')
    """
    keep = dict.fromkeys(part for name in text_columns for part in (name, name.partition(".")[0]))
    return ColumnChoice(keep=tuple(keep))


def make_pairs(
    table: pa.Table, *, fields: TextFields, options: BackTranslation
) -> tuple[pa.Table, dict[str, int]]:
    """Return the pairs of a translated table, and the number of other rows by reason.

    A row becomes a pair if its text has a translation without flags. The reasons are the ones of
    `tt preprocess` for a corpus of translations.

    Args:
      table: The table, with a single text column.
      fields: The text column and the names of the added columns.
      options: The options of the corpus.
    """
    [name] = fields.fields
    texts = read_text_column(table, name).cells
    translations, statuses, flags = (
        table.column(fields.name(name, added)).to_pylist()
        for added in (TRANSLATION, STATUS, ROW_FLAGS)
    )
    prefix = f"{options.tag} " if options.tag else ""
    pairs: list[tuple[str, str]] = []
    dropped: collections.Counter[str] = collections.Counter()
    for cell, translation, status, found in zip(texts, translations, statuses, flags, strict=True):
        if reason := _find_reason(translation, status=status, flags=found):
            dropped[reason] += 1
        else:
            assert cell is not None  # A missing text has no translation.
            pairs.append((prefix + translation, cell.decode()))
    columns = zip(*pairs, strict=True) if pairs else ((), ())
    arrays = [pa.array(column, pa.string()) for column in columns]
    return pa.Table.from_arrays(arrays, schema=PAIR_SCHEMA), dict(sorted(dropped.items()))


def _find_reason(translation: str | None, *, status: str, flags: list[str] | None) -> str:
    """Return why a row is no pair, or "" if it is a pair."""
    if status not in TRANSLATED:
        return f"translation_{status}"
    if flags:
        return f"flag_{flags[0]}"
    return "" if translation and translation.strip() else f"translation_{EMPTY}"
