"""Read the partition columns of Hive-partitioned folders, such as `country=de/year=2024/`.

Hive, Spark and DuckDB store the values of partition columns only in the names of folders.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

import pyarrow as pa

PartitionValue = str | int | None
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MOST_DIGITS = 18  # the maximum number of digits that always fit into 64 bits


def read_all_partitions(relative_paths: Sequence[str]) -> list[dict[str, PartitionValue]]:
    """Return the values of the partition columns in the folders of each path.

    A column of digits becomes integers; all other values are strings. Names and values are
    URL-decoded, and Hive's name for null becomes None.

    Args:
      relative_paths: The paths of files, with "/" as the separator.

    >>> read_all_partitions(["country=de/year=2024/city=K%C3%B6ln/part.parquet"])
    [{'country': 'de', 'year': 2024, 'city': 'Köln'}]
    >>> read_all_partitions(["zone=1/a.csv", "zone=1b/a.csv"])
    [{'zone': '1'}, {'zone': '1b'}]
    """
    found = [_read_texts(path) for path in relative_paths]
    strings = {
        name
        for texts in found
        for name, text in texts.items()
        if text is not None and not _is_integer(text)
    }
    return [
        {
            name: text if text is None or name in strings else int(text)
            for name, text in texts.items()
        }
        for texts in found
    ]


def _read_texts(relative_path: str) -> dict[str, str | None]:
    folders = [folder.partition("=") for folder in relative_path.split("/")[:-1]]
    return {
        unquote(name): None if value == _NULL else unquote(value)
        for name, sign, value in folders
        if name and sign
    }


def _is_integer(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS


def schema_with_partitions(
    schema: pa.Schema, partitions: Mapping[str, PartitionValue]
) -> pa.Schema:
    """Return a schema with the partition columns; see `with_partitions`."""
    kept = [field for field in schema if field.name not in partitions]
    return pa.schema([*kept, *((name, pa.scalar(each).type) for name, each in partitions.items())])


def with_partitions(table: pa.Table, partitions: Mapping[str, PartitionValue]) -> pa.Table:
    """Return a table with a column for each partition value.

    Like DuckDB and PyArrow, this replaces a column that the table already has under the same
    name.

    >>> with_partitions(pa.table({"text": ["a", "b"]}), {"year": 2024}).to_pydict()
    {'text': ['a', 'b'], 'year': [2024, 2024]}
    """
    kept = [i for i, name in enumerate(table.column_names) if name not in partitions]
    table = table.select(kept)
    for name, value in partitions.items():
        table = table.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
    return table
