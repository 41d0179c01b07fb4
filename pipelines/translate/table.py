"""Translate the text columns of a table, and add columns with the results."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import itertools
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tt.model.engines.translator import Languages, Translator
from tt.model.errors import UserError
from tt.pipelines.inference.text_model import (
    NamedGlossary,
    TextModel,
    translate_by_language,
)
from tt.pipelines.tables.columns import TextColumn, is_text_list, path_in, read_text_column
from tt.pipelines.tables.conditions import parse_condition
from tt.pipelines.tables.faults import FAULT
from tt.pipelines.tables.jsonl import RAW_LINE
from tt.pipelines.tables.partitions import PartitionValue, with_partitions
from tt.pipelines.texts.flags import FLAGS, Limits
from tt.pipelines.texts.known import Memory
from tt.pipelines.texts.options import TRANSLATION, TextOptions
from tt.pipelines.texts.results import (
    EMPTY,
    ERROR,
    FAILED,
    N_BEST,
    NULL,
    ROW_FLAGS,
    SCORE,
    SKIPPED,
    SOURCE_LANGUAGE,
    STATUS,
    STATUSES,
    VALUES,
    WORST_FIRST,
    TextFields,
    TranslatedText,
    TranslatedTexts,
)
from tt.pipelines.translate.column_choice import ColumnChoice
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.schemas import with_added_fields

Partitions = Sequence[tuple[str, PartitionValue]]  # names and values of partition columns
_HYPOTHESIS = pa.struct([("text", pa.string()), ("score", pa.float32())])
# Parquet names the field of a list "element", and Arrow names it "item". With Parquet's name, a
# table that is read and written again keeps its bytes.
_TYPES = {
    TRANSLATION: pa.string(),
    SCORE: pa.float32(),
    STATUS: pa.string(),
    ERROR: pa.string(),
    ROW_FLAGS: pa.list_(pa.field("element", pa.string())),
    N_BEST: pa.list_(pa.field("element", _HYPOTHESIS)),
    SOURCE_LANGUAGE: pa.string(),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions(TextFields):
    """How to translate the columns of a table, which are the inherited `fields`.

    Attributes:
      texts: The options for translating texts.
      glossary: A glossary of required translations, or None.
      limits: The thresholds of flags.
      source_column: The column with the source language of each row, or None.
      target_column: The column with the target language of each row, or None.
      where: The condition for translating a row, or None.
      choice: The input columns that the output contains.
    """

    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    glossary: NamedGlossary | None = None
    limits: Limits = dataclasses.field(default_factory=Limits)
    source_column: str | None = None
    target_column: str | None = None
    where: str | None = None
    choice: ColumnChoice = dataclasses.field(default_factory=ColumnChoice)

    @classmethod
    def of(cls, options: TranslateOptions, *, has_n_best: bool) -> TableOptions:
        """Return the options of a job, without those that depend on its model."""
        return cls(
            fields=options.text_columns,
            output=options.output_column,
            has_n_best=has_n_best,
            has_language=options.texts.detect_language,
            source_column=options.source_language_column,
            target_column=options.target_language_column,
            where=options.where,
            choice=options.column_choice,
        )

    @property
    def language_columns(self) -> tuple[str, ...]:
        """The columns with languages."""
        return tuple(name for name in (self.source_column, self.target_column) if name is not None)

    def columns_to_read(self, schema: pa.Schema, *, partitions: Collection[str]) -> list[int]:
        """Return the indices of the columns that the output contains or the translation needs.

        Args:
          schema: The schema of a file.
          partitions: The names of the file's partition columns.
        """
        names: list[str] = schema.names
        if not self.choice:
            return list(range(len(names)))
        used = self.used_columns(schema, partitions=partitions)
        return [i for i, name in enumerate(names) if self.choice.keeps(name) or name in used]

    def used_columns(self, schema: pa.Schema, *, partitions: Collection[str]) -> set[str]:
        """Return the names of the columns that the translation needs; see `columns_to_read`."""
        needed = [*self.fields, *self.language_columns]
        used = {path_in(schema, name)[0] for name in needed if name not in partitions}
        if self.where is not None:
            known = list(dict.fromkeys([*schema.names, *partitions]))
            used.update(parse_condition(self.where).columns(known, path="the file"))
        return used

    def can_retry(self, *, partitions: Collection[str]) -> bool:
        """Return whether the output contains all columns that `retry_table` reads."""
        needed = [*self.fields]
        needed += [name for name in self.language_columns if name not in partitions]
        # "a.b" can be a column, or a field of the column "a".
        parts = {part for name in needed for part in (name, name.partition(".")[0])}
        return all(map(self.choice.keeps, parts))


def added_fields(schema: pa.Schema, *, options: TableOptions) -> list[pa.Field]:
    """Return the columns to add to a table with this schema.

    >>> schema = pa.schema([("title", pa.string()), ("tags", pa.list_(pa.string()))])
    >>> fields = added_fields(schema, options=TableOptions(fields=("title", "tags")))
    >>> [(field.name, str(field.type)) for field in fields[4:6]]
    [('title_translation_flags', 'list<element: string>'), \
('tags_translation', 'list<element: string>')]
    """
    # Other columns may have types for which Arrow cannot make an empty table, such as unions.
    named = {path_in(schema, column)[0] for column in options.fields}
    empty = pa.schema([field for field in schema if field.name in named]).empty_table()
    return [
        pa.field(
            options.name(column, added), read_text_column(empty, column).type_with(_TYPES[added])
        )
        for column, added in options.added()
    ]


def choose_rows(table: pa.Table, *, where: str | None, partitions: Partitions = ()) -> list[bool]:
    """Return whether to translate each row of a table.

    Raises:
      UserError: The condition fails at a value.
    """
    if where is None:
        return [True] * table.num_rows
    condition = parse_condition(where)
    table = with_partitions(table, dict(partitions))
    columns = condition.columns(table.column_names, path="the file")
    return condition.choose_rows(table.select(columns))


def find_corrected(
    table: pa.Table, *, options: TableOptions, memory: Memory, partitions: Partitions = ()
) -> list[bool]:
    """Return whether a memory contains a human translation of a whole text of each row."""
    is_corrected = [False] * table.num_rows
    for name in options.fields:
        column = read_text_column(table, name)
        texts_options = options.texts
        codes = [
            (source or texts_options.source_language, target or texts_options.target_language)
            for source, target in _codes_of([column], table, options=options, partitions=partitions)
        ]
        texts = [(cell or b"").decode(errors="replace") for cell in column.cells]
        found: set[tuple[Languages, str]] = set()
        texts_of: dict[Languages, list[str]] = {}
        for code, text in zip(codes, texts, strict=True):
            texts_of.setdefault(code, []).append(text)
        for code, some in texts_of.items():
            found |= {(code, each) for each in memory.find_corrections(some, languages=code)}
        rows = column.arrange([each in found for each in zip(codes, texts, strict=True)])
        is_corrected = [
            known or (any(row) if isinstance(row, list) else bool(row))
            for known, row in zip(is_corrected, rows, strict=True)
        ]
    return is_corrected


def translate_table(
    table: pa.Table,
    *,
    options: TableOptions,
    translator: Translator,
    partitions: Partitions = (),
    memory: Memory | None = None,
) -> tuple[pa.Table, TranslatedTexts]:
    """Return the kept columns of the table, with the added columns at the end.

    A text that occurs several times, in the same or in different columns, is translated only once.
    For a column of lists, the added columns are lists too, with one value per text. If the
    condition is not true for a row, its texts are skipped.

    Args:
      table: The rows.
      options: The options of the translation.
      translator: The model.
      partitions: The names and values of the file's partition columns.
      memory: The translation memory, or None.
    """
    table, faults = _split_faults(table, options=options)
    fields = added_fields(table.schema, options=options)
    columns, codes, chosen = _read_columns(
        table, faults=faults, options=options, partitions=partitions
    )
    every_cell = [cell for texts in columns.values() for cell in texts.cells]
    found = _translate(
        list(itertools.compress(every_cell, chosen)),
        list(itertools.compress(codes, chosen)),
        options=options,
        translator=translator,
        memory=memory,
    )
    made, skipped = iter(found.translations), TranslatedText(status=SKIPPED)
    failed = {each: TranslatedText(status=FAILED, error=each) for each in {*faults} if each}
    of_cells = (fault for texts in columns.values() for fault in texts.spread(faults))
    rest = iter(
        [
            next(made) if is_chosen else failed.get(fault, skipped)
            for is_chosen, fault in zip(chosen, of_cells, strict=True)
        ]
    )
    kept = [i for i, name in enumerate(table.column_names) if options.choice.keeps(name)]
    table = table.select([RAW_LINE] if RAW_LINE in table.column_names else kept)
    schema = with_added_fields(table.schema, fields, keeps=options.choice.keeps)
    cells = {name: list(itertools.islice(rest, len(columns[name].cells))) for name in columns}
    for (name, added), field in zip(options.added(), fields, strict=True):
        values = columns[name].arrange([VALUES[added](cell) for cell in cells[name]])
        table = table.append_column(field, pa.array(values, field.type))
    return table.replace_schema_metadata(schema.metadata), found


def has_added(table: pa.Table, *, options: TableOptions) -> bool:
    """Return whether a table already ends with all the added columns."""
    added = [options.name(*each) for each in options.added()]
    return bool(table.schema.names[-len(added) :] == added)


def retry_table(
    table: pa.Table,
    *,
    options: TableOptions,
    translator: Translator,
    partitions: Partitions = (),
    memory: Memory | None = None,
) -> tuple[pa.Table, TranslatedTexts]:
    """Translate only the failed texts of a translated table again; see `translate_table`."""
    columns = {name: read_text_column(table, name) for name in options.fields}
    places = []  # the column and the index of each failed text
    for column, texts in columns.items():
        statuses = texts.flatten(table.column(options.name(column, STATUS)))
        cells = zip(statuses, texts.cells, strict=True)
        places += [  # a failed text that is null was not UTF-8
            (column, place)
            for place, (status, cell) in enumerate(cells)
            if status == FAILED and cell is not None
        ]
    failed = [columns[column].cells[place] for column, place in places]
    codes = {
        name: _codes_of([texts], table, options=options, partitions=partitions)
        for name, texts in columns.items()
    }
    asked = [codes[column][place] for column, place in places]
    found = _translate(failed, asked, options=options, translator=translator, memory=memory)
    for column, added in options.added():
        texts = columns[column]
        index = table.column_names.index(options.name(column, added))
        field = table.schema.field(index)
        values = texts.flatten(table.column(index))
        for (of_column, place), cell in zip(places, found.translations, strict=True):
            if of_column == column:
                values[place] = VALUES[added](cell)
        table = table.set_column(index, field, pa.array(texts.arrange(values), field.type))
    return table, found


def _codes_of(
    columns: Iterable[TextColumn],
    table: pa.Table,
    *,
    options: TableOptions,
    partitions: Partitions,
) -> list[Languages]:
    """Return the languages of each text of columns, which are "" if the row names none."""
    sides = [[""] * table.num_rows, [""] * table.num_rows]
    for side, name in enumerate((options.source_column, options.target_column)):
        if name is not None:
            named = read_text_column(with_partitions(table, dict(partitions)), name).cells
            sides[side] = [(code or b"").decode(errors="replace").strip() for code in named]
    rows = list(zip(*sides, strict=True))
    return [languages for column in columns for languages in column.spread(rows)]


def _split_faults(table: pa.Table, *, options: TableOptions) -> tuple[pa.Table, list[str | None]]:
    """Return a table without its column of faults, and the fault of each row or None.

    In a row with a fault, a list of texts becomes a list with a null, which has a status.
    """
    if FAULT not in table.schema.names:
        return table, [None] * table.num_rows
    faults = table.column(FAULT)
    table = table.drop_columns(FAULT)
    if faults.null_count < table.num_rows:
        for index, field in enumerate(table.schema):
            if field.name in options.fields and is_text_list(field.type):
                one = pa.scalar([None], field.type)
                column = pc.if_else(pc.is_valid(faults), one, table.column(index))
                table = table.set_column(index, field, column)
    return table, faults.to_pylist()


def _read_columns(
    table: pa.Table,
    *,
    faults: Sequence[str | None],
    options: TableOptions,
    partitions: Partitions,
) -> tuple[dict[str, TextColumn], list[Languages], list[bool]]:
    """Return the text columns, and each text's languages and whether to translate it."""
    columns = {name: read_text_column(table, name) for name in options.fields}
    rows = choose_rows(table, where=options.where, partitions=partitions)
    rows = [is_chosen and fault is None for is_chosen, fault in zip(rows, faults, strict=True)]
    chosen = [is_chosen for texts in columns.values() for is_chosen in texts.spread(rows)]
    codes = _codes_of(columns.values(), table, options=options, partitions=partitions)
    return columns, codes, chosen


def find_sentences(
    table: pa.Table,
    *,
    options: TableOptions,
    translator: Translator,
    partitions: Partitions = (),
    memory: Memory | None = None,
) -> set[tuple[Languages, str]]:
    """Return the distinct sentences of a table, with their languages; see `translate_table`."""
    table, faults = _split_faults(table, options=options)
    columns, codes, chosen = _read_columns(
        table, faults=faults, options=options, partitions=partitions
    )
    every_cell = (cell for texts in columns.values() for cell in texts.cells)
    cells: dict[Languages, list[bytes | None]] = {}
    for cell, code, is_chosen in zip(every_cell, codes, chosen, strict=True):
        if is_chosen:
            cells.setdefault(code, []).append(cell)
    model = text_model(options, translator=translator, memory=memory)
    found: set[tuple[Languages, str]] = set()
    for code, some in cells.items():
        with contextlib.suppress(UserError):  # the model lacks a language, so these rows will fail
            found |= {(code, text) for text in model.between(code).find_sentences(some)}
    return found


def text_model(
    options: TableOptions, *, translator: Translator, memory: Memory | None
) -> TextModel:
    """Return a model with the options of a table."""
    return TextModel(
        translator=translator,
        options=options.texts,
        glossary=options.glossary.read() if options.glossary else None,
        limits=options.limits,
        memory=memory,
    )


def _translate(
    cells: list[bytes | None],
    codes: list[Languages],
    *,
    options: TableOptions,
    translator: Translator,
    memory: Memory | None,
) -> TranslatedTexts:
    """Translate each cell between its languages; "" stands for the language of the options."""
    model = text_model(options, translator=translator, memory=memory)
    return translate_by_language(cells, codes, model=model)


def count_table(
    table: pa.Table, found: TranslatedTexts, *, options: TableOptions
) -> dict[str, Any]:
    """Return counts of a translated table, named like the fields of `UnitStatistics`."""
    statuses = {column: _row_statuses(table, column, options=options) for column in options.fields}
    flags = {column: _row_flags(table, column, options=options) for column in options.fields}
    worst = [min(row, key=WORST_FIRST.index) for row in zip(*statuses.values(), strict=True)]
    return {
        "rows": table.num_rows,
        "failed_rows": worst.count(FAILED),
        "rows_by_worst_status": _count(worst, STATUSES),
        "rows_by_status": {name: _count(each, STATUSES) for name, each in statuses.items()},
        "rows_by_flag": {name: _count(each, FLAGS) for name, each in flags.items()},
        "texts": found.texts,
        "distinct_texts": found.distinct_texts,
        "remembered_texts": found.remembered_texts,
        "source_characters": found.source_characters,
        "terms_found": found.terms["found"],
        "terms_kept": found.terms["kept"],
        "work": dataclasses.asdict(found.work),
    }


def _count(found: Sequence[str], choices: Sequence[str]) -> dict[str, int]:
    counts = collections.Counter(found)
    return {choice: counts[choice] for choice in choices}


def _row_statuses(table: pa.Table, column: str, *, options: TableOptions) -> list[str]:
    """Return the status of each row; the status of a list is the worst status of its texts."""
    statuses: list[str | list[str] | None] = table.column(options.name(column, STATUS)).to_pylist()
    return [
        min(each, key=WORST_FIRST.index, default=EMPTY) if isinstance(each, list) else each or NULL
        for each in statuses
    ]


def _row_flags(table: pa.Table, column: str, *, options: TableOptions) -> list[str]:
    """Return the flags of all rows; a list has each flag of its texts once."""
    found = table.column(options.name(column, ROW_FLAGS))
    if not pa.types.is_nested(found.type.value_type):
        return list(pc.list_flatten(found).to_pylist())
    rows = found.to_pylist()
    return [flag for row in rows for flag in {each for flags in row or () for each in flags}]
