"""Columns of texts: strings, lists of strings, and such fields of structs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from pipelines.storage.parquet import cell_bytes, is_text


def is_text_list(kind: pa.DataType) -> bool:
    """Tells whether a type is a list of strings."""
    is_list = (
        pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    )
    return bool(is_list and (is_text(kind.value_type) or pa.types.is_null(kind.value_type)))


def path_in(schema: pa.Schema, name: str) -> list[str]:
    """Returns a column and the fields in it that a name says: "a.b" is the field "b" of "a".

    A column that is itself called "a.b" comes first.

    >>> path_in(pa.schema([("a", pa.struct([("b", pa.string())]))]), "a.b")
    ['a', 'b']
    """
    return [name] if name in schema.names else name.split(".")


def type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Returns the type of a column or field, or None where there is not exactly one of the name."""
    kind: pa.DataType = pa.struct(list(schema))
    for part in path_in(schema, name):
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


@dataclasses.dataclass(frozen=True)
class TextColumn:
    """The texts of a column, one after the other, and how they stand in its rows."""

    cells: list[bytes | None]
    # Texts of each row, None of a null list; None where each row is one text.
    lengths: list[int | None] | None
    is_large: bool = False  # whether the lists are large ones

    def type_with(self, kind: pa.DataType) -> pa.DataType:
        """Returns the type of a column that has a value for each text of this one."""
        if self.lengths is None:
            return kind
        # As Parquet calls it: so that a table that is read and written again has the same bytes.
        element = pa.field("element", kind)
        return pa.large_list(element) if self.is_large else pa.list_(element)

    def flatten(self, column: pa.ChunkedArray) -> list[Any]:
        """Returns the values of a column that `arrange` made, one for each text."""
        values: list[Any] = (
            column if self.lengths is None else pc.list_flatten(column)
        ).to_pylist()
        return values

    def arrange(self, values: Sequence[Any]) -> list[Any]:
        """Puts a value for each text into the rows."""
        if self.lengths is None:
            return list(values)
        rows: list[Any] = []
        first = 0
        for length in self.lengths:
            rows.append(None if length is None else list(values[first : first + length]))
            first += length or 0
        return rows


def read_text_column(table: pa.Table, name: str) -> TextColumn:
    """Reads the texts of a column or field of a table."""
    first, *fields = path_in(table.schema, name)
    column = table.column(first)
    if fields:
        column = pc.struct_field(column, fields)
    if not is_text_list(column.type):
        return TextColumn(cell_bytes(column), None)
    return TextColumn(
        cell_bytes(pc.list_flatten(column)),
        pc.list_value_length(column).to_pylist(),
        is_large=pa.types.is_large_list(column.type),
    )
