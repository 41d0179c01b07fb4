"""Types of columns: casts that Arrow gets wrong, and dictionaries that outgrow their indices."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from model.errors import UserError

_WIDE = pa.int32()  # indices of dictionaries of which the usual ones are too small
_Path = tuple[int, ...]  # the number of a column, and of each field on the way below it


def cast_table(table: pa.Table, schema: pa.Schema, *, path: str) -> pa.Table:
    """Return a table of the file `path` with the types of a schema.

    Arrow casts slices of structs and lists wrongly if they hold a column of nulls, so this copies
    such columns first.

    Raises:
      UserError: A value does not fit, such as a second far from 1970 that becomes milliseconds.
    """
    for index, field in enumerate(table.schema):
        if _holds_nulls(field.type):
            rows = pa.array(np.arange(table.num_rows))
            table = table.set_column(index, field, table.column(index).take(rows))
    try:
        return table.cast(schema)
    except pa.ArrowInvalid as error:
        raise UserError(
            f"{path} has values that Parquet cannot hold: {error}. Remove or convert them"
        ) from error


def _holds_nulls(kind: pa.DataType) -> bool:
    inner = [kind.field(index).type for index in range(kind.num_fields)]
    return any(pa.types.is_null(each) or _holds_nulls(each) for each in inner)


class Dictionaries:
    """The distinct values of each dictionary column, as far as they decide the type of its indices.

    Arrow files may have another dictionary in each batch. A table has one dictionary for all
    batches, which may need larger indices. Columns with indices of 32 bits need no look.

    Args:
      schema: The schema of the batches.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._values: dict[_Path, pa.Array] = {}
        self._last: dict[_Path, pa.Array] = {}
        self._too_small: set[_Path] = set()
        self._most = {
            path: np.iinfo(kind.index_type.to_pandas_dtype()).max + 1
            for path, kind in _dictionary_types(schema)
            if kind.index_type.bit_width < _WIDE.bit_width
        }

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the values of a batch."""
        if not self._most:
            return
        for path, values in _dictionary_values(batch):
            last = self._last.get(path)
            is_open = path in self._most and path not in self._too_small
            if not is_open or (last is not None and last.equals(values)):
                continue
            self._last[path] = values
            known = self._values.get(path)
            parts = [values] if known is None else [known, values]
            self._values[path] = pc.unique(pa.concat_arrays(parts))
            if len(self._values[path]) > self._most[path]:
                self._too_small.add(path)

    @property
    def schema(self) -> pa.Schema:
        """The schema in which the indices of each dictionary can count all values so far."""
        return _widen(self._schema, self._too_small)


def with_indices_of(schema: pa.Schema, other: pa.Schema) -> pa.Schema:
    """Return a schema with the wider indices of dictionaries that another one has.

    The other one may have lost parts of its types: pickling drops the names and the nullability of
    the elements of fixed-size lists.
    """
    pairs = zip(_dictionary_types(schema), _dictionary_types(other), strict=True)
    return _widen(schema, {path for (path, kind), (_, wide) in pairs if kind != wide})


def _dictionary_types(schema: pa.Schema) -> Iterator[tuple[_Path, pa.DataType]]:
    kinds: list[tuple[_Path, pa.DataType]] = [
        ((index,), kind) for index, kind in enumerate(schema.types)
    ]
    while kinds:
        path, kind = kinds.pop()
        if pa.types.is_dictionary(kind):
            yield path, kind
        elif _has_known_fields(kind):
            kinds += [((*path, index), kind.field(index).type) for index in range(kind.num_fields)]


def _dictionary_values(batch: pa.RecordBatch) -> Iterator[tuple[_Path, pa.Array]]:
    columns: list[tuple[_Path, Any]] = [
        ((index,), column) for index, column in enumerate(batch.columns)
    ]
    while columns:
        path, column = columns.pop()
        if pa.types.is_dictionary(column.type):
            yield path, column.dictionary
        elif pa.types.is_struct(column.type):
            columns += [
                ((*path, index), column.field(index)) for index in range(column.type.num_fields)
            ]
        elif _has_known_fields(column.type):
            columns.append(((*path, 0), column.values))


def _has_known_fields(kind: pa.DataType) -> bool:
    types = pa.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(types.is_struct(kind) or is_list)


def _widen(schema: pa.Schema, paths: Collection[_Path]) -> pa.Schema:
    fields = [
        field.with_type(_widen_type(field.type, (index,), paths))
        for index, field in enumerate(schema)
    ]
    return pa.schema(fields, schema.metadata)


def _widen_type(kind: pa.DataType, path: _Path, paths: Collection[_Path]) -> pa.DataType:
    if path in paths:
        return pa.dictionary(_WIDE, kind.value_type, kind.ordered)
    if not any(each[: len(path)] == path for each in paths):
        return kind
    fields = [
        field.with_type(_widen_type(field.type, (*path, index), paths))
        for index, field in enumerate(kind.field(index) for index in range(kind.num_fields))
    ]
    if pa.types.is_struct(kind):
        return pa.struct(fields)
    if pa.types.is_large_list(kind):
        return pa.large_list(fields[0])
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(fields[0], kind.list_size)
    return pa.list_(fields[0])
