"""Column types, casts, and the texts in columns of strings, string lists and struct fields."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tt.model.errors import UserError


def map_type(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """Apply `change` to a type and to every type nested in it, innermost first.

    >>> narrow = lambda kind: pa.int8() if kind == pa.int64() else kind
    >>> map_type(pa.list_(pa.struct([("a", pa.int64())])), narrow)
    ListType(list<item: struct<a: int8>>)
    """
    types = pa.types
    if types.is_struct(kind):
        kind = pa.struct([field.with_type(map_type(field.type, change)) for field in kind])
    elif types.is_map(kind):
        key, item = kind.key_field, kind.item_field
        kind = pa.map_(key, item.with_type(map_type(item.type, change)), kind.keys_sorted)
    elif is_list(kind):
        element = kind.value_field.with_type(map_type(kind.value_type, change))
        if types.is_large_list(kind):
            kind = pa.large_list(element)
        else:
            kind = pa.list_(element, kind.list_size if types.is_fixed_size_list(kind) else -1)
    return change(kind)


def is_list(kind: pa.DataType) -> bool:
    """Return whether a type is one of Arrow's three list types."""
    types = pa.types
    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column of this type contains text."""
    if pa.types.is_dictionary(kind):
        return is_text(kind.value_type)
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def is_bytes(kind: pa.DataType) -> bool:
    """Return whether a column contains bytes, as old programs write texts in UTF-8."""
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def is_text_list(kind: pa.DataType) -> bool:
    """Return whether a type is a list of strings."""
    return is_list(kind) and (is_text(kind.value_type) or pa.types.is_null(kind.value_type))


def is_comparable(kind: pa.DataType) -> bool:
    """Return whether values of a type can be compared on any day, as `key` needs.

    >>> is_comparable(pa.timestamp("ns")), is_comparable(pa.float16())
    (True, False)
    """
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return is_comparable(kind.storage_type)
    if types.is_dictionary(kind):
        return is_comparable(kind.value_type)
    if types.is_temporal(kind):
        return not (types.is_duration(kind) or types.is_interval(kind))
    plain = (types.is_integer, types.is_boolean, types.is_float32, types.is_float64, types.is_null)
    is_fixed = types.is_fixed_size_binary(kind) and not types.is_decimal(kind)
    is_small = types.is_decimal(kind) and not types.is_decimal256(kind)
    return bool(
        is_text(kind) or is_bytes(kind) or is_fixed or is_small or any(test(kind) for test in plain)
    )


def has_dictionary(schema: pa.Schema) -> bool:
    """Return whether a column contains a dictionary type at any nesting depth."""
    return any(map(_is_dictionary, schema.types))


def _is_dictionary(kind: pa.DataType) -> bool:
    return pa.types.is_dictionary(kind) or any(
        _is_dictionary(kind.field(index).type) for index in range(kind.num_fields)
    )


def path_in(schema: pa.Schema, name: str) -> list[str]:
    """Split a name into a column and nested fields: "a.b" is the field "b" of the column "a".

    If the schema has a column named "a.b", that column wins.

    >>> path_in(pa.schema([("a", pa.struct([("b", pa.string())]))]), "a.b")
    ['a', 'b']
    """
    return [name] if name in schema.names else name.split(".")


def type_of(schema: pa.Schema, name: str) -> pa.DataType | None:
    """Return the type of a column or field; None unless exactly one has this name."""
    kind: pa.DataType = pa.struct(list(schema))
    for part in path_in(schema, name):
        if not pa.types.is_struct(kind) or kind.get_field_index(part) < 0:
            return None
        kind = kind.field(part).type
    return kind


def column_of(table: pa.Table | pa.RecordBatch, name: str) -> pa.Array | pa.ChunkedArray:
    """Return a column or field of a table; see `path_in`."""
    first, *fields = path_in(table.schema, name)
    column = table.column(first)
    return pc.struct_field(column, fields) if fields else column


def cells_as_binary(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Cast a text column to large_binary, because cells may be invalid UTF-8."""
    if is_bytes(column.type):
        return pc.cast(column, pa.large_binary())
    plain = pc.cast(column, pa.large_string())  # decodes dictionary and view columns
    return pc.cast(plain, pa.large_binary())


def cell_bytes(column: pa.Array | pa.ChunkedArray) -> list[bytes | None]:
    """Return the cells of a text column as bytes."""
    cells: list[bytes | None] = cells_as_binary(column).to_pylist()
    return cells


def with_valid_texts(column: pa.ChunkedArray, *, is_nullable: bool = True) -> pa.ChunkedArray:
    r"""Return a column in which texts that are not UTF-8 are null.

    A nested cell that contains such a text becomes null, unless it is a list of texts. Where null
    is not allowed, U+FFFD replaces the invalid bytes of a text.

    >>> column = pa.chunked_array([pa.array([b"a\xff", b"b"]).view(pa.string())])
    >>> with_valid_texts(column).to_pylist()
    [None, 'b']
    >>> with_valid_texts(column, is_nullable=False).to_pylist()
    ['a\ufffd', 'b']
    """
    if _is_valid(column):
        return column
    plain = column.cast(map_type(column.type, _plain_text))
    if is_nullable and not (is_text(column.type) or is_text_list(column.type)):
        rows = pa.array(_valid_rows(column))
        return pc.if_else(rows, plain, pa.scalar(None, plain.type)).cast(column.type)
    if is_list(column.type):
        is_nullable = is_nullable and column.type.value_field.nullable
    decode = functools.partial(_decode, is_nullable=is_nullable)
    values = plain.cast(map_type(plain.type, _as_bytes)).to_pylist()
    return pa.chunked_array([pa.array(map(decode, values), plain.type)]).cast(column.type)


def make_valid(table: pa.Table) -> tuple[pa.Table, int]:
    """Apply `with_valid_texts` to all columns; return the table and the number of changed cells."""
    changed = 0
    for index, (field, column) in enumerate(zip(table.schema, table.columns, strict=True)):
        valid = with_valid_texts(column, is_nullable=field.nullable)
        if valid is not column:
            changed += _valid_rows(column).count(False)
            table = table.set_column(index, field, valid)
    return table, changed


def _valid_rows(column: pa.ChunkedArray) -> list[bool]:
    plain = column.cast(map_type(column.type, _plain_text))
    return [_is_valid(plain.take([row])) for row in range(len(plain))]


def _is_valid(column: pa.ChunkedArray) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _plain_text(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _plain_text(kind.value_type)
    return pa.large_string() if pa.types.is_string_view(kind) else kind


def _as_bytes(kind: pa.DataType) -> pa.DataType:
    return pa.large_binary() if is_text(kind) else kind


def _decode(value: Any, *, is_nullable: bool) -> Any:
    if not isinstance(value, bytes):
        return map_values(functools.partial(_decode, is_nullable=is_nullable), value)
    text = value.decode(errors="replace")
    return None if is_nullable and text.encode() != value else text


def map_values(function: Callable[[Any], Any], value: Any) -> Any:
    """Apply a function to the elements of a list, or to the values of a dict.

    >>> map_values(str, [1, 2]), map_values(str, {"a": 1}), map_values(str, 1)
    (['1', '2'], {'a': '1'}, 1)
    """
    if isinstance(value, list):
        return [function(each) for each in value]
    if isinstance(value, dict):
        return {key: function(each) for key, each in value.items()}
    return value


@dataclasses.dataclass(frozen=True)
class TextColumn:
    """The texts of a column in one flat list, and the number of texts in each row.

    Attributes:
      cells: The texts of all rows.
      lengths: The number of texts in each row, None for a null list; None if the column is not a
        list, so that each row is one text.
      is_large: Whether the column is a large list.
    """

    cells: list[bytes | None]
    lengths: list[int | None] | None
    is_large: bool = False

    def type_with(self, kind: pa.DataType) -> pa.DataType:
        """Return the type of a column with one value of type `kind` per text."""
        if self.lengths is None:
            return kind
        # With Parquet's field name, a table that is read and written again keeps its bytes.
        element = pa.field("element", kind)
        return pa.large_list(element) if self.is_large else pa.list_(element)

    def spread(self, values: Sequence[Any]) -> list[Any]:
        """Return the value of its row for each text."""
        if self.lengths is None:
            return list(values)
        rows = zip(values, self.lengths, strict=True)
        return [value for value, length in rows for _ in range(length or 0)]

    def flatten(self, column: pa.ChunkedArray) -> list[Any]:
        """Flatten a column that `arrange` made; return one value per text."""
        flat = column if self.lengths is None else pc.list_flatten(column)
        return list(flat.to_pylist())

    def arrange(self, values: Sequence[Any]) -> list[Any]:
        """Group values, one per text, into rows: the inverse of `flatten`."""
        if self.lengths is None:
            return list(values)
        rows: list[Any] = []
        first = 0
        for length in self.lengths:
            rows.append(None if length is None else list(values[first : first + length]))
            first += length or 0
        return rows


def read_text_column(table: pa.Table, name: str) -> TextColumn:
    """Read the texts of a column or field of a table."""
    column = column_of(table, name)
    if not is_text_list(column.type):
        return TextColumn(cell_bytes(column), None)
    return TextColumn(
        cell_bytes(pc.list_flatten(column)),
        pc.list_value_length(column).to_pylist(),
        is_large=pa.types.is_large_list(column.type),
    )


def cast_table(table: pa.Table, schema: pa.Schema, *, path: str) -> pa.Table:
    """Cast a table of the file `path` to the types of a schema.

    Columns that contain nested nulls are copied first, because Arrow casts slices of them wrongly.

    Raises:
      UserError: A value does not fit the new type, such as a date in seconds that is too far from
        1970 for milliseconds.
    """
    for index, field in enumerate(table.schema):
        if _holds_nulls(field.type):
            table = table.set_column(index, field, table.column(index).combine_chunks())
    try:
        return table.cast(schema)
    except pa.ArrowInvalid as error:
        raise UserError(
            f"{path} contains values that Parquet cannot store: {error}. Remove or convert "
            "these values"
        ) from error


def _holds_nulls(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return any(pa.types.is_null(each) or _holds_nulls(each) for each in inner)
