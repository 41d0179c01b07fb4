"""Extend the schemas that other programs store in the footer of a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from tt.pipelines.tables.columns import is_list

Keeps = Callable[[str], bool]
# Some programs store their own schema in the footer. This module adds the new columns to the
# schemas of Spark and Hugging Face datasets, and adapts the schema of pandas. It drops the schemas
# of other programs, whose readers then use the schema of Parquet.
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


def with_added_fields(
    schema: pa.Schema, added: Sequence[pa.Field], *, keeps: Keeps = lambda name: True
) -> pa.Schema:
    """Return a schema with more fields at its end, and with metadata that describes all fields.

    Metadata is dropped if it cannot be extended, because it does not have the expected form or
    describes other columns.

    Args:
      schema: The schema of the kept columns, with the metadata of the file.
      added: The fields to add.
      keeps: Returns whether a column of the file has been kept.

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
                extended = extend(stored, schema, added, keeps)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                del kept[key]
                continue
            if extended != stored:
                kept[key] = json.dumps(extended, separators=(",", ":")).encode()
    return whole.with_metadata(kept or None)


def _extend_spark(stored: Any, schema: pa.Schema, added: Sequence[pa.Field], keeps: Keeps) -> Any:
    fields = [field for field in stored["fields"] if keeps(field["name"])]
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


def _extend_pandas(stored: Any, schema: pa.Schema, added: Sequence[pa.Field], keeps: Keeps) -> Any:
    """Remove columns that are not kept, and the type of column labels unless it is text.

    Pandas applies this type to all labels. The new columns need no entry, because an entry only
    adds information that is missing in the column's type.
    """
    is_kept: dict[str, Callable[[Any], bool]] = {
        "columns": lambda each: keeps(each.get("field_name", each["name"])),
        # An index of row numbers is a dict without a column.
        "index_columns": lambda each: isinstance(each, dict) or keeps(each),
    }
    stored = {
        key: list(filter(is_kept[key], value)) if key in is_kept else value
        for key, value in stored.items()
    }
    levels = stored.get("column_indexes", [])
    if levels and [level["pandas_type"] for level in levels] != ["unicode"]:
        return {**stored, "column_indexes": []}
    return stored


def _extend_hugging_face(
    stored: Any, schema: pa.Schema, added: Sequence[pa.Field], keeps: Keeps
) -> Any:
    info = stored["info"]
    features = {name: each for name, each in info["features"].items() if keeps(name)}
    features |= {each.name: _feature(each.type) for each in added}
    return {**stored, "info": {**info, "features": features}}


def _feature(kind: pa.DataType) -> Any:
    """Return a feature in the form that all versions of `datasets` can read."""
    if pa.types.is_struct(kind):
        return {field.name: _feature(field.type) for field in kind}
    if is_list(kind):
        return [_feature(kind.value_type)]
    return {"dtype": _FEATURE_NAMES[kind], "_type": "Value"}


_EXTEND: dict[bytes, Callable[[Any, pa.Schema, Sequence[pa.Field], Keeps], Any]] = {
    SPARK: _extend_spark, PANDAS: _extend_pandas, HUGGING_FACE: _extend_hugging_face,
}  # fmt: skip
