"""Schemas that other programs store in the footers of Parquet files, kept true for new columns.

The schemas of Spark and of Hugging Face's datasets get the new columns, and that of pandas is made
to allow them. Schemas of other programs are dropped: their readers then use the schema of Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

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
    if _is_list(kind):
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
    if _is_list(kind):
        return [_feature(kind.value_type)]
    return {"dtype": _FEATURE_NAMES[kind], "_type": "Value"}


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


_EXTEND: dict[bytes, Callable[[Any, pa.Schema, Sequence[pa.Field]], Any]] = {
    SPARK: _extend_spark, PANDAS: _extend_pandas, HUGGING_FACE: _extend_hugging_face,
}  # fmt: skip
