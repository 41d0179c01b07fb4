"""Partition columns in the names of folders, compared with PyArrow and DuckDB."""

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tt.pipelines.tables.partitions import (
    read_all_partitions,
    schema_with_partitions,
    with_partitions,
)

PATHS = [
    "country=de/year=2024/part.parquet",
    "country=__HIVE_DEFAULT_PARTITION__/year=1999/part.parquet",
    "country=K%C3%B6ln%2Fa%3Db/year=7/part.parquet",
]


def test_partitions_have_the_values_that_other_readers_find(tmp_path):
    for path in PATHS:
        (tmp_path / path).parent.mkdir(parents=True)
        pq.write_table(pa.table({"path": [path]}), tmp_path / path)
    paths = sorted(PATHS)
    found = zip(paths, read_all_partitions(paths), strict=True)
    ours = [{"path": path, **partitions} for path, partitions in found]
    schema = pa.schema([("country", pa.string()), ("year", pa.int32())])
    partitioning = ds.partitioning(schema, flavor="hive")
    theirs = ds.dataset(tmp_path, partitioning=partitioning).to_table().sort_by("path").to_pylist()
    assert ours == theirs
    relation = duckdb.sql(
        f"SELECT path, country, year FROM read_parquet('{tmp_path}/*/*/*.parquet', "
        "hive_partitioning = true) ORDER BY path"
    )
    assert ours == relation.to_arrow_table().to_pylist()


@pytest.mark.parametrize(
    ("path", "partitions"),
    [
        ("part.parquet", {}),
        ("a=1.parquet", {}),  # the name of the file is not a partition
        ("x/a=1/y/b=/part.csv", {"a": 1, "b": ""}),
        ("=1/part.csv", {}),
        ("a=b=c/part.csv", {"a": "b=c"}),
        ("a%20b=1%202/part.csv", {"a b": "1 2"}),
        ("a=-1/b=1.5/c=2024-01-01/part.csv", {"a": "-1", "b": "1.5", "c": "2024-01-01"}),
        ("a=007/b=٣/part.csv", {"a": 7, "b": "٣"}),
        (f"a={'9' * 18}/b={'9' * 19}/part.csv", {"a": 10**18 - 1, "b": "9" * 19}),
    ],
)
def test_only_folders_with_a_sign_are_partitions(path, partitions):
    assert read_all_partitions([path]) == [partitions]


def test_all_values_of_a_column_have_the_same_type():
    paths = ["a=01/b=1/x.csv", "a=x/b=2/x.csv", "a=__HIVE_DEFAULT_PARTITION__/x.csv"]
    assert read_all_partitions(paths) == [
        {"a": "01", "b": 1}, {"a": "x", "b": 2}, {"a": None},
    ]  # fmt: skip


def test_the_value_of_the_folder_replaces_a_column_as_in_other_readers(tmp_path):
    folder = tmp_path / "lang=de"
    folder.mkdir()
    table = pa.table({"lang": ["own", "own"], "text": ["a", "b"]})
    pq.write_table(table, folder / "a.parquet")
    ours = with_partitions(table, {"lang": "de", "year": 1, "none": None})
    assert ours.schema == schema_with_partitions(
        table.schema, {"lang": "de", "year": 1, "none": None}
    )
    assert ours.drop_columns("none").to_pylist() == [
        {"text": "a", "lang": "de", "year": 1}, {"text": "b", "lang": "de", "year": 1},
    ]  # fmt: skip
    relation = duckdb.sql(f"FROM read_parquet('{folder}/*', hive_partitioning = true)")
    for read in (ds.dataset(tmp_path, partitioning="hive").to_table(), relation.to_arrow_table()):
        assert read.select(["text", "lang"]).equals(ours.select(["text", "lang"]))
