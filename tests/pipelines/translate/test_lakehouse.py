"""Jobs that read and write tables of Delta Lake and Iceberg."""

from __future__ import annotations

import datetime

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from fakes import fail_at
from lake_jobs import failing
from lake_tables import ADDED_TYPES, LAKE, read_delta, read_iceberg
from translation_jobs import (
    ADDED,
    manifest,
    numbered,
    outputs,
    read_all,
    refused,
    translate,
    turned,
    write,
)

from tt.model.errors import ServiceError

DAY = datetime.date(2026, 1, 31)


def ids(lake):
    return sorted(lake.read("out")["id"].to_pylist())


def test_a_table_is_translated_into_a_new_table_in_one_commit(lake):
    """A finished job has nothing to do, even after its table was compacted."""
    lake.append("in", numbered(10))
    lake.append("in", pa.table({"id": [10], "text": ["row 10"]}))
    fail_at.add("row 1")
    options = {"text_columns": ("text",), "unit_rows": 4}
    assert translate(lake.address("in"), lake.address("out"), **options).rows == 11
    table = lake.read("out").sort_by("id")
    assert table.schema.names == ["id", "text", *ADDED]
    assert table["translation"].to_pylist() == ["0 wor", None, *turned(11)[2:]]
    assert table["translation_status"].to_pylist() == ["ok", "failed", *["ok"] * 9]
    assert lake.commits("out") == 1
    lake.rewrite("out")
    commits = lake.commits("out")
    assert translate(lake.address("in"), lake.address("out"), **options).already_finished
    assert lake.commits("out") == commits
    assert lake.read("out").num_rows == 11


def test_a_folder_of_parquet_files_is_translated_into_an_existing_table(lake, tmp_path):
    write(tmp_path / "in/a.parquet", numbered(3))
    translate(tmp_path / "in", lake.address("first"), text_columns=("text",))
    lake.append("out", lake.read("first"))
    translate(tmp_path / "in", lake.address("out"), text_columns=("text",), unit_rows=2)
    assert lake.read("out").column("translation").to_pylist() == [*turned(3)] * 2
    assert lake.commits("out") == 2


def test_a_table_is_translated_into_a_folder(lake, tmp_path):
    """Files from before a new column get the columns of the table."""
    first = lake.append("in", numbered(2))
    lake.add_column("in", "price", pa.float64())
    lake.append("in", numbered(3).append_column("price", pa.array([1.5, 2.5, None])))
    options = {"text_columns": ("text",), "where": "price > 1"}
    translate(lake.address("in"), tmp_path / "out", **options)
    schemas = {str(pq.read_schema(tmp_path / "out" / name)) for name in outputs(tmp_path / "out")}
    assert len(schemas) == 1
    table = read_all(tmp_path / "out").sort_by([("id", "ascending"), ("price", "ascending")])
    assert table.column("price").to_pylist() == [1.5, None, 2.5, None, None]
    assert table.schema.field("price").type == pa.float64()
    assert table["translation"].to_pylist() == ["0 wor", None, "1 wor", None, None]
    translate(f"{lake.address('in')}@{first}", tmp_path / "earlier", text_columns=("text",))
    assert read_all(tmp_path / "earlier")["translation"].to_pylist() == turned(2)


def test_a_job_that_fails_around_its_commit_commits_once(lake, monkeypatch):
    lake.append("in", numbered(6))
    options = {"text_columns": ("text",), "unit_rows": 2}
    with failing():
        translate(lake.address("in"), lake.address("out"), **options)
    assert not lake.exists("out"), "readers see no change"
    with monkeypatch.context() as patch:
        lake.break_commits(patch)
        with pytest.raises(ServiceError, match="could not be committed"):
            translate(lake.address("in"), lake.address("out"), **options)
    with failing(after_commit=True):
        translate(lake.address("in"), lake.address("out"), **options)
    assert lake.commits("out") == 1
    summary = translate(lake.address("in"), lake.address("out"), **options)
    assert summary.reused_units == 3
    assert lake.commits("out") == 1
    assert sorted(lake.read("out")["translation"].to_pylist()) == turned(6)


def test_a_table_that_grows(lake):
    """The second run translates only the appended rows, and the third one follows an overwrite."""
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"))
    lake.append("in", numbered(6).slice(4))
    summary = translate(lake.address("in"), lake.address("out"))
    assert (summary.run_rows, summary.rows) == (2, 6)
    assert ids(lake) == list(range(6))
    assert lake.commits("out") == 2
    assert translate(lake.address("in"), lake.address("out")).already_finished
    lake.overwrite("in", numbered(9).slice(3))
    translate(lake.address("in"), lake.address("out"), removed="delete")
    found = lake.read("out").sort_by("id")
    assert found["id"].to_pylist() == list(range(3, 9))
    assert found["translation"].to_pylist() == turned(9)[3:]
    assert lake.commits("out") == 3


def test_a_table_that_changes_before_its_changes_are_committed(lake):
    def run():
        return translate(lake.address("in"), lake.address("out"))

    lake.append("in", numbered(4))
    with failing():
        run()
    lake.append("in", numbered(6).slice(4))
    with failing():
        run()
    before = set(outputs(lake.folder("out")))
    lake.overwrite("in", numbered(9).slice(3))
    assert run().rows == 6
    assert (ids(lake), lake.commits("out")) == ([*range(3, 9)], 1)
    assert before.isdisjoint(outputs(lake.folder("out")))
    lake.overwrite("in", numbered(12).slice(8))
    with failing():
        run()
    lake.append("in", numbered(13).slice(12))
    run()
    assert (ids(lake), lake.commits("out")) == ([*range(8, 13)], 2)


def test_a_table_that_changes_after_a_compaction_of_its_output(lake):
    """The job adds rows, but it cannot remove rows whose files are gone."""
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"), unit_rows=2)
    lake.rewrite("out")
    commits = lake.commits("out")
    lake.append("in", numbered(6).slice(4))
    summary = translate(lake.address("in"), lake.address("out"), unit_rows=2)
    assert (summary.run_rows, summary.rows) == (2, 6)
    assert (ids(lake), lake.commits("out")) == ([*range(6)], commits + 1)
    lake.overwrite("in", numbered(9).slice(3))
    message = refused(lake.address("in"), lake.address("out"), unit_rows=2)
    assert "another program has rewritten the table" in message
    assert lake.commits("out") == commits + 1


def test_partition_columns_of_a_delta_table_are_in_the_output(tmp_path):
    table = numbered(4).append_column("day", pa.array([DAY, DAY, None, DAY]))
    table = table.append_column("shop", pa.array(["a b", "é=1", "a b", None]))
    write_deltalake(tmp_path / "in", table, partition_by=["day", "shop"])
    options = {"text_columns": ("text",)}
    translate(f"delta:{tmp_path}/in", tmp_path / "folder", **options)
    with duckdb.connect() as database:
        [*rows] = database.execute(
            f"SELECT id, day, shop, translation FROM '{tmp_path}/folder/**/*.parquet' ORDER BY id"
        ).fetchall()
    assert rows == [
        (0, DAY, "a b", "0 wor"),
        (1, DAY, "é=1", "1 wor"),
        (2, None, "a b", "2 wor"),
        (3, DAY, None, "3 wor"),
    ]
    translate(f"delta:{tmp_path}/in", f"delta:{tmp_path}/out", **options)
    found = DeltaTable(tmp_path / "out")
    assert found.metadata().partition_columns == ["day", "shop"]
    assert found.to_pyarrow_table(filters=[("shop", "=", "é=1")]).num_rows == 1
    assert read_delta(tmp_path / "out").sort_by("id").select(table.column_names).equals(table)
    # A second table with the same partitions takes the rows, and one without them does not.
    write_deltalake(tmp_path / "flat", numbered(1))
    message = refused(f"delta:{tmp_path}/flat", f"delta:{tmp_path}/out", **options)
    assert "is partitioned by 'day', but" in message


def test_delta_knows_the_files_of_a_job(tmp_path):
    """Delta Lake counts the rows of each file, and a vacuum keeps the files of the job."""
    write(tmp_path / "in.parquet", numbered(5))
    options = {"text_columns": ("text",), "unit_rows": 2}
    translate(tmp_path / "in.parquet", f"delta:{tmp_path}/out", **options)
    actions = pa.table(DeltaTable(tmp_path / "out").get_add_actions())
    assert sorted(actions.column("num_records").to_pylist()) == [1, 2, 2]
    stored = {row["path"]: row["size_bytes"] for row in actions.to_pylist()}
    assert stored == manifest(tmp_path / "out")["output_bytes"]
    vacuum = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    assert DeltaTable(tmp_path / "out").vacuum(full=True, **vacuum) == []
    assert translate(tmp_path / "in.parquet", f"delta:{tmp_path}/out", **options).already_finished


def test_a_version_whose_data_files_were_deleted(tmp_path):
    write_deltalake(tmp_path / "in", numbered(2))
    write_deltalake(tmp_path / "in", numbered(3), mode="overwrite")
    DeltaTable(tmp_path / "in").vacuum(
        retention_hours=0, enforce_retention_duration=False, dry_run=False
    )
    message = refused(f"delta:{tmp_path}/in@0", tmp_path / "out")
    assert "has lost its data file" in message
    assert message.endswith("Choose a newer version")
    assert not (tmp_path / "out").exists()


def test_names_with_special_characters(lake, tmp_path):
    write(tmp_path / "in/a %41+é.parquet", numbered(2))
    translate(tmp_path / "in", lake.address("out"), text_columns=("text",))
    assert lake.read("out").num_rows == 2
    [path] = lake.paths("out")
    assert path == str(lake.folder("out") / "a %41+é-00000-of-00001.parquet")


def test_inputs_that_tables_do_not_support(lake, tmp_path):
    lake.append("in", numbered(2))
    (tmp_path / "in.csv").write_text("text\nrow 1\n")
    message = refused(tmp_path / "in.csv", lake.address("out"))
    assert "can only be written from Parquet files and tables" in message
    write(tmp_path / "in/a.parquet", numbered(2))
    write(tmp_path / "in/b.parquet", {"text": ["x"], "id": [1.5]})
    message = refused(tmp_path / "in", lake.address("out"), text_columns=("text",))
    assert "b.parquet has other columns than the files before it" in message
    table = numbered(1).append_column("wait", pa.array([1], pa.duration("s")))
    write(tmp_path / "wait.parquet", table)
    message = refused(tmp_path / "wait.parquet", lake.address("out"), text_columns=("text",))
    assert "cannot store all columns" in message
    assert not lake.exists("out")


def test_an_existing_table_must_fit(lake, tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    lake.append("out", numbered(1))
    message = refused(tmp_path / "in.parquet", lake.address("out"))
    assert "has no column 'translation', which the output contains" in message
    wrong = numbered(1).set_column(0, "id", pa.array(["a"]))
    for name, kind in ADDED_TYPES.items():
        wrong = wrong.append_column(name, pa.nulls(1, kind))
    lake.append("wrong", wrong)
    message = refused(tmp_path / "in.parquet", lake.address("wrong"), text_columns=("text",))
    assert "stores the column 'id' as" in message
    assert lake.commits("wrong") == 1


def test_a_table_accepts_the_output_of_only_one_job(lake, tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    write(tmp_path / "other.parquet", numbered(2))
    translate(tmp_path / "in.parquet", lake.address("out"))
    message = refused(tmp_path / "other.parquet", lake.address("out"), unit_rows=1)
    assert str(lake.folder("out")) in message
    assert lake.commits("out") == 1


def test_a_table_grows_although_the_snapshots_of_its_job_expired(lake, monkeypatch):
    monkeypatch.setattr("tt.pipelines.tables.lakehouse.last_commit", lambda table, *, job: 0)
    for rows in (4, 6):
        lake.append("in", numbered(rows).slice(rows - rows % 4 if rows > 4 else 0))
        translate(lake.address("in"), lake.address("out"))
    assert (ids(lake), lake.commits("out")) == ([*range(6)], 2)


def test_files_in_the_folder_of_an_output_table(tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    write_deltalake(tmp_path / "out", numbered(1))
    write(tmp_path / "out/in-00000-of-00001.parquet", numbered(1))
    table = DeltaTable(tmp_path / "out")
    table.alter.add_columns(Schema.from_arrow(pa.schema(list(ADDED_TYPES.items()))).fields)
    message = refused(tmp_path / "in.parquet", f"delta:{tmp_path}/out")
    assert "in-00000-of-00001.parquet" in message
    translate(tmp_path / "in.parquet", tmp_path / "folder")
    assert refused(tmp_path / "in.parquet", f"delta:{tmp_path}/folder")
    assert not DeltaTable.is_deltatable(str(tmp_path / "folder"))


def test_iceberg_tables_have_no_column_ids_in_new_files(catalog, tmp_path):
    """Readers find the columns by name, because the added columns have no IDs."""
    lake = LAKE["iceberg"](tmp_path / "lake", catalog)
    lake.append("in", numbered(2))
    translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    [name] = outputs(lake.folder("out"))
    fields = pq.ParquetFile(lake.folder("out") / name).schema_arrow
    assert {(field.metadata or {}).get(b"PARQUET:field_id") for field in fields} == {None}
    assert read_iceberg(catalog, "ns.out").num_rows == 2
