"""A table with translations beside its texts: the columns that are added, and what is in them."""

from __future__ import annotations

import collections
import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tt.model.engines.translator import Translator, Work
from tt.model.text.glossary import Glossary
from tt.pipelines.inference.text_model import translate_by_language
from tt.pipelines.tables.columns import TextColumn, is_list, path_in, read_text_column
from tt.pipelines.texts.limits import FLAGS, Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import (
    COPIED,
    EMPTY,
    ERROR,
    FAILED,
    FLAGGED,
    INCOMPLETE,
    N_BEST,
    NULL,
    OK,
    ROW_FLAGS,
    SCORE,
    SPLIT,
    STATUS,
    STATUSES,
    TOO_LONG,
    TRANSLATION,
    UNKNOWN,
    VALUES,
    TranslatedText,
    TranslatedTexts,
    added_names,
)

# A row with a list of texts counts once, under the first of these that one of its texts has.
LIST_STATUSES = (
    FAILED, UNKNOWN, FLAGGED, TOO_LONG, INCOMPLETE, SPLIT, OK, COPIED, EMPTY, NULL,
)  # fmt: skip

# Parquet calls what is in a list "element", Arrow "item": so that a table that is read and written
# again has the same bytes, Parquet's name is given.
_FLAGS = pa.list_(pa.field("element", pa.string()))
_HYPOTHESES = pa.list_(
    pa.field("element", pa.struct([("text", pa.string()), ("score", pa.float32())]))
)


_KINDS = {
    TRANSLATION: pa.string(),
    SCORE: pa.float32(),
    STATUS: pa.string(),
    ERROR: pa.string(),
    ROW_FLAGS: _FLAGS,
    N_BEST: _HYPOTHESES,
}
# Name, type, and the value of a cell.
_Added = tuple[str, pa.DataType, Callable[[TranslatedText], Any]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is translated."""

    text_columns: tuple[str, ...]  # the columns to translate, at least one
    has_n_best: bool = False  # whether a column of n best translations is added
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)  # how texts are treated
    glossary: Glossary | None = None  # terms whose translations are given
    limits: Limits = dataclasses.field(default_factory=Limits)  # what is usual for the model
    language_column: str | None = None  # the column of the language to translate each row into

    def added(self) -> list[_Added]:
        """Returns what is added for each text column."""
        names = added_names(has_n_best=self.has_n_best)
        return [(name, _KINDS[name], VALUES[name]) for name in names]

    def name(self, column: str, added: str) -> str:
        """Returns the name of an added column: with the text column's before it if several."""
        return added if len(self.text_columns) == 1 else f"{column}_{added}"


def added_fields(schema: pa.Schema, *, options: TableOptions) -> list[pa.Field]:
    """Returns the columns that are added to a table of this schema.

    >>> schema = pa.schema([("title", pa.string()), ("tags", pa.list_(pa.string()))])
    >>> fields = added_fields(schema, options=TableOptions(text_columns=("title", "tags")))
    >>> [(field.name, str(field.type)) for field in fields[4:6]]
    [('title_translation_flags', 'list<element: string>'), \
('tags_translation', 'list<element: string>')]
    """
    # Of the other columns there may be types of which Arrow makes no empty table, such as unions.
    named = {path_in(schema, column)[0] for column in options.text_columns}
    empty = pa.schema([field for field in schema if field.name in named]).empty_table()
    return [
        pa.field(options.name(column, added), texts.type_with(kind))
        for column in options.text_columns
        for texts in [read_text_column(empty, column)]
        for added, kind, _ in options.added()
    ]


def translate_table(
    table: pa.Table, *, options: TableOptions, translator: Translator
) -> tuple[pa.Table, TranslatedTexts]:
    """Return the table with the added columns at its end; a text of two columns counts once.

    A column of lists gets columns of lists, with a value for each text.
    """
    schema = with_added_fields(table.schema, added_fields(table.schema, options=options))
    columns = [read_text_column(table, name) for name in options.text_columns]
    every_cell = [cell for column in columns for cell in column.cells]
    codes = [code for column in columns for code in _codes_of(column, table, options=options)]
    found = _translate(every_cell, codes, options=options, translator=translator)
    first = 0
    for name, texts in zip(options.text_columns, columns, strict=True):
        of_column = found.translations[first : first + len(texts.cells)]
        first += len(texts.cells)
        for added, kind, value in options.added():
            values = texts.arrange([value(cell) for cell in of_column])
            column = pa.array(values, texts.type_with(kind))
            table = table.append_column(options.name(name, added), column)
    return table.replace_schema_metadata(schema.metadata), found


def has_added(table: pa.Table, *, options: TableOptions) -> bool:
    """Says whether a table has all columns that are added."""
    names: list[str] = table.schema.names
    return names[-len(options.text_columns) * len(options.added()) :] == [
        options.name(column, added)
        for column in options.text_columns
        for added, _, _ in options.added()
    ]


def retry_table(
    table: pa.Table, *, options: TableOptions, translator: Translator
) -> tuple[pa.Table, TranslatedTexts]:
    """Translates the failed texts of a translated table again; all others stay as they are."""
    columns = {name: read_text_column(table, name) for name in options.text_columns}
    places = []  # column and number of each failed text
    for column, texts in columns.items():
        statuses = texts.flatten(table.column(options.name(column, STATUS)))
        places += [(column, place) for place, each in enumerate(statuses) if each == FAILED]
    failed = [columns[column].cells[place] for column, place in places]
    codes = {name: _codes_of(texts, table, options=options) for name, texts in columns.items()}
    asked = [codes[column][place] for column, place in places]
    found = _translate(failed, asked, options=options, translator=translator)
    for column, texts in columns.items():
        for added, kind, value in options.added():
            name = options.name(column, added)
            values = texts.flatten(table.column(name))
            for (of_column, place), cell in zip(places, found.translations, strict=True):
                if of_column == column:
                    values[place] = value(cell)
            index = table.column_names.index(name)
            new = pa.array(texts.arrange(values), texts.type_with(kind))
            table = table.set_column(index, table.schema.field(index), new)
    return table, found


def _codes_of(column: TextColumn, table: pa.Table, *, options: TableOptions) -> list[str]:
    """Returns the language to translate each text of a column into; "" where none is named."""
    if options.language_column is None:
        return [""] * len(column.cells)
    named = read_text_column(table, options.language_column).cells
    codes = [(code or b"").decode(errors="replace").strip() for code in named]
    if column.lengths is None:
        return codes
    rows = zip(codes, column.lengths, strict=True)
    return [code for code, length in rows for _ in range(length or 0)]


def _translate(
    cells: list[bytes | None], codes: list[str], *, options: TableOptions, translator: Translator
) -> TranslatedTexts:
    """Translates cells, each into the language of its code, or into that of the options."""
    found = translate_by_language(
        cells,
        codes,
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
        found = collections.Counter(_row_statuses(table, column, options=options))
        counts[column] = {status: found[status] for status in STATUSES}
    return counts


def _row_statuses(table: pa.Table, column: str, *, options: TableOptions) -> list[str]:
    """Returns the status of each row: of several texts, the first in the order of LIST_STATUSES."""
    statuses: list[str | list[str] | None] = table.column(options.name(column, STATUS)).to_pylist()
    return [
        each if isinstance(each, str) else NULL if each is None else _list_status(each)
        for each in statuses
    ]


def _list_status(statuses: list[str]) -> str:
    return min(statuses, key=LIST_STATUSES.index, default=EMPTY)


def count_flags(table: pa.Table, *, options: TableOptions) -> dict[str, dict[str, int]]:
    """Counts the rows of each flag, those with none included, by text column."""
    counts: dict[str, dict[str, int]] = {}
    for column in options.text_columns:
        found = table.column(options.name(column, ROW_FLAGS))
        if pa.types.is_nested(found.type.value_type):  # the flags of each text of a list
            rows = [{flag for flags in row or () for flag in flags} for row in found.to_pylist()]
            by_flag = collections.Counter(flag for row in rows for flag in row)
        else:
            by_flag = collections.Counter(pc.list_flatten(found).to_pylist())
        counts[column] = {flag: by_flag[flag] for flag in FLAGS}
    return counts


def count_failed_rows(table: pa.Table, *, options: TableOptions) -> int:
    """Counts the rows of which a text failed."""
    columns = [_row_statuses(table, each, options=options) for each in options.text_columns]
    return sum(FAILED in row for row in zip(*columns, strict=True))


@dataclasses.dataclass(kw_only=True)
class TableCounts:
    """What translated tables hold, added up."""

    options: TableOptions
    rows: int = 0
    failed_rows: int = 0  # rows of which a text failed
    # Rows of each of the STATUSES, and of each of the FLAGS, by text column.
    rows_by_status: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    rows_by_flag: dict[str, dict[str, int]] = dataclasses.field(default_factory=dict)
    texts: int = 0  # texts that had to be translated, each occurrence counted
    distinct_texts: int = 0  # texts that the model translated
    source_characters: int = 0  # characters of all texts
    terms_found: int = 0  # terms of the glossary in all texts
    terms_kept: int = 0  # those of them whose translation stands in the text's
    work: Work = dataclasses.field(default_factory=Work)  # work of the model

    def add(self, table: pa.Table, found: TranslatedTexts) -> None:
        """Adds a table, and how its texts were translated."""
        self.rows += table.num_rows
        self.failed_rows += count_failed_rows(table, options=self.options)
        statuses = count_statuses(table, options=self.options)
        self.rows_by_status = _sums(self.rows_by_status, statuses)
        self.rows_by_flag = _sums(self.rows_by_flag, count_flags(table, options=self.options))
        self.texts += found.texts
        self.distinct_texts += found.distinct_texts
        self.source_characters += found.source_characters
        self.terms_found += found.terms.found
        self.terms_kept += found.terms.kept
        self.work += found.work

    def as_statistics(self) -> dict[str, Any]:
        """Returns the counts by their names in `UnitStatistics`."""
        return {name: value for name, value in vars(self).items() if name not in _NOT_COUNTED}


_NOT_COUNTED = ("options", "rows")


def _sums(
    some: Mapping[str, Mapping[str, int]], more: Mapping[str, Mapping[str, int]]
) -> dict[str, dict[str, int]]:
    return {
        column: {name: some.get(column, {}).get(name, 0) + count for name, count in counts.items()}
        for column, counts in more.items()
    }


# The schemas that Spark and Hugging Face's datasets store in footers get the new columns, and that
# of pandas is made to allow them. Schemas of other programs are dropped: their readers then use the
# schema of Parquet.
SPARK = b"org.apache.spark.sql.parquet.row.metadata"
PANDAS = b"pandas"
HUGGING_FACE = b"huggingface"
# Avro and Hudi; Iceberg; Spark before 1.3; Protocol Buffers; Thrift.
DROPPED = (
    b"parquet.avro.schema", b"avro.schema", b"iceberg.schema",
    b"org.apache.spark.sql.parquet.row.attributes", b"parquet.proto.class",
    b"parquet.proto.descriptor", b"thrift.class", b"thrift.descriptor",
)  # fmt: skip

_SPARK_NAMES = {pa.string(): "string", pa.float32(): "float"}
_FEATURE_NAMES = {pa.string(): "string", pa.float32(): "float32"}


def with_added_fields(schema: pa.Schema, added: Sequence[pa.Field]) -> pa.Schema:
    """Return a schema with more fields at its end, and with metadata that describes all fields.

    Metadata that cannot be extended is dropped: it is not of its program's form, or it described
    other columns already.

    >>> stored = {SPARK: b'{"type":"struct","fields":[]}', b"avro.schema": b"{}", b"owner": b"me"}
    >>> schema = with_added_fields(pa.schema([], stored), [pa.field("score", pa.float32())])
    >>> schema.metadata[SPARK]
    b'{"type":"struct","fields":[{"name":"score","type":"float","nullable":true,"metadata":{}}]}'
    >>> sorted(schema.metadata)
    [b'org.apache.spark.sql.parquet.row.metadata', b'owner']
    """
    whole = pa.schema([*schema, *added])
    if schema.metadata is None:
        return whole
    kept = {key: value for key, value in schema.metadata.items() if key not in DROPPED}
    for key, extend in _EXTEND.items():
        if key in kept:
            try:
                stored = json.loads(kept[key])
                extended = extend(stored, schema, added)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                del kept[key]
                continue
            if extended != stored:
                kept[key] = json.dumps(extended, separators=(",", ":")).encode()
    return whole.with_metadata(kept or None)


def _extend_spark(stored: Any, schema: pa.Schema, added: Sequence[pa.Field]) -> Any:
    fields = stored["fields"]
    if [field["name"] for field in fields] != schema.names:
        raise ValueError("the schema describes other columns")
    return {**stored, "fields": [*fields, *map(_spark_field, added)]}


def _spark_field(field: pa.Field) -> dict[str, Any]:
    kind = _spark_type(field.type)
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}


def _spark_type(kind: pa.DataType) -> Any:
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_spark_field(field) for field in kind]}
    if is_list(kind):
        element = kind.value_field
        return {
            "type": "array",
            "elementType": _spark_type(element.type),
            "containsNull": element.nullable,
        }
    return _SPARK_NAMES[kind]


def _extend_pandas(stored: Any, schema: pa.Schema, added: Sequence[pa.Field]) -> Any:
    """Read all labels as text, if the stored ones are not: pandas converts every label alike.

    Columns need no entry. An entry restores only what the column's type does not say.
    """
    levels = stored.get("column_indexes", [])
    if levels and [level["pandas_type"] for level in levels] != ["unicode"]:
        return {**stored, "column_indexes": []}
    return stored


def _extend_hugging_face(stored: Any, schema: pa.Schema, added: Sequence[pa.Field]) -> Any:
    info = stored["info"]
    features = {**info["features"], **{each.name: _feature(each.type) for each in added}}
    return {**stored, "info": {**info, "features": features}}


def _feature(kind: pa.DataType) -> Any:
    """Return a feature in the form that all versions of `datasets` read."""
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    if is_list(kind):
        return [_feature(kind.value_type)]
    return {"dtype": _FEATURE_NAMES[kind], "_type": "Value"}


_EXTEND: dict[bytes, Callable[[Any, pa.Schema, Sequence[pa.Field]], Any]] = {
    SPARK: _extend_spark, PANDAS: _extend_pandas, HUGGING_FACE: _extend_hugging_face,
}  # fmt: skip
