"""Jobs that read and write tables of Delta Lake and Iceberg."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema, write_deltalake
from fakes import fail_at
from lake_tables import ADDED_TYPES, LAKE, iceberg_catalog, publish, read_delta, read_iceberg
from translation_jobs import (
    ADDED,
    manifest,
    numbered,
    outputs,
    read_all,
    refused,
    request,
    translate,
    turned,
    write,
    write_like_spark,
)

from tt.model.errors import ServiceError
from tt.pipelines.translate import job_folder, last_step

DAY = datetime.date(2026, 1, 31)


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    return iceberg_catalog(tmp_path / "lake", monkeypatch)


@pytest.fixture(params=["delta", "iceberg"])
def lake(request, tmp_path, catalog):
    """The two kinds of tables behind one interface."""
    return LAKE[request.param](tmp_path / "lake", catalog)


def test_a_table_is_translated_into_a_new_table_in_one_commit(lake):
    lake.append("in", numbered(10))
    lake.append("in", pa.table({"id": [10], "text": ["row 10"]}))
    summary = translate(
        lake.address("in"), lake.address("out"), text_columns=("text",), unit_rows=4
    )
    assert summary.rows == 11
    table = lake.read("out").sort_by("id")
    assert table.schema.names == ["id", "text", *ADDED]
    assert table.column("translation").to_pylist() == turned(11)
    assert lake.commits("out") == 1


def test_a_folder_of_parquet_files_is_translated_into_an_existing_table(lake, tmp_path):
    write(tmp_path / "in/a.parquet", numbered(3))
    translate(tmp_path / "in", lake.address("first"), text_columns=("text",))
    lake.append("out", lake.read("first"))
    translate(tmp_path / "in", lake.address("out"), text_columns=("text",), unit_rows=2)
    assert lake.read("out").column("translation").to_pylist() == [*turned(3)] * 2
    assert lake.commits("out") == 2


def test_a_table_is_translated_into_a_folder(lake, tmp_path):
    lake.append("in", numbered(5))
    translate(lake.address("in"), tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").column("translation").to_pylist() == turned(5)


def test_files_from_before_a_new_column_get_the_columns_of_the_table(lake, tmp_path):
    lake.append("in", numbered(2))
    lake.add_column("in", "price", pa.float64())
    lake.append("in", numbered(3).append_column("price", pa.array([1.5, 2.5, None])))
    translate(lake.address("in"), tmp_path / "out", text_columns=("text",))
    schemas = {str(pq.read_schema(tmp_path / "out" / name)) for name in outputs(tmp_path / "out")}
    assert len(schemas) == 1
    table = read_all(tmp_path / "out").sort_by([("id", "ascending"), ("price", "ascending")])
    assert table.column("price").to_pylist() == [1.5, None, 2.5, None, None]
    assert table.schema.field("price").type == pa.float64()


def test_int96_in_a_data_file_gets_the_type_of_the_table(lake, tmp_path):
    times = pa.array([-(2**55), None, 1], pa.timestamp("us", "UTC"))
    table = numbered(3).append_column("when", times)
    lake.append("in", table)
    [path] = lake.paths("in")
    write_like_spark(Path(path.removeprefix("file://")), table)
    translate(lake.address("in"), tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").select(table.column_names).equals(table)


def test_an_earlier_version_is_translated(lake, tmp_path):
    first = lake.append("in", numbered(2))
    lake.append("in", numbered(3))
    translate(f"{lake.address('in')}@{first}", tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out").num_rows == 2


def test_the_last_step_commits_once_even_if_it_is_repeated(lake, tmp_path, monkeypatch):
    lake.append("in", numbered(6))
    write_json, failed = job_folder.write_json, []

    def failing_once(content, *, path, **options):
        if path == job_folder.MANIFEST_PATH and not failed:
            failed.append(lake.commits("out"))
            raise OSError("the machine is gone")
        write_json(content, path=path, **options)

    monkeypatch.setattr(last_step, "write_json", failing_once)
    options = {"text_columns": ("text",), "unit_rows": 2}
    with pytest.raises(Exception, match="the machine is gone"):
        translate(lake.address("in"), lake.address("out"), **options)
    assert failed == [1]
    summary = translate(lake.address("in"), lake.address("out"), **options)
    assert summary.reused_units == 3
    assert lake.commits("out") == 1
    assert sorted(lake.read("out").column("translation").to_pylist()) == turned(6)


def test_a_failed_job_leaves_no_visible_change(lake, monkeypatch):
    lake.append("in", numbered(6))

    def failing(*_, **__):
        raise OSError("the disk is gone")

    monkeypatch.setattr(last_step, "make_manifest", failing)
    with pytest.raises(Exception, match="the disk is gone"):
        translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    assert not lake.exists("out")


def test_a_finished_job_has_nothing_to_do_even_after_its_table_was_compacted(lake):
    lake.append("in", numbered(6))
    options = {"text_columns": ("text",), "unit_rows": 2}
    translate(lake.address("in"), lake.address("out"), **options)
    lake.rewrite("out")
    commits = lake.commits("out")
    assert translate(lake.address("in"), lake.address("out"), **options).already_finished
    assert lake.commits("out") == commits
    assert lake.read("out").num_rows == 6


def test_rows_with_a_failed_status_are_committed(lake):
    lake.append("in", numbered(3))
    fail_at.add("row 1")
    try:
        translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    finally:
        fail_at.discard("row 1")
    statuses = lake.read("out").sort_by("id").column("translation_status").to_pylist()
    assert statuses == ["ok", "failed", "ok"]


def test_a_commit_that_fails_is_a_service_error(lake, monkeypatch):
    lake.append("in", numbered(3))
    job = request(lake.address("in"), lake.address("out"), text_columns=("text",)).plan()
    lake.break_commits(monkeypatch)
    with pytest.raises(ServiceError, match="could not be committed"):
        job.run()
    monkeypatch.undo()


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


def test_delta_counts_the_rows_of_files(tmp_path):
    write(tmp_path / "in.parquet", numbered(5))
    translate(tmp_path / "in.parquet", f"delta:{tmp_path}/out", text_columns=("text",), unit_rows=2)
    actions = pa.table(DeltaTable(tmp_path / "out").get_add_actions())
    assert sorted(actions.column("num_records").to_pylist()) == [1, 2, 2]
    sizes = manifest(tmp_path / "out")["output_bytes"]
    stored = dict(
        zip(
            actions.column("path").to_pylist(),
            actions.column("size_bytes").to_pylist(),
            strict=True,
        )
    )
    assert stored == sizes


def test_a_vacuum_of_the_output_keeps_the_files_of_the_job(tmp_path):
    write(tmp_path / "in.parquet", numbered(5))
    options = {"text_columns": ("text",)}
    translate(tmp_path / "in.parquet", f"delta:{tmp_path}/out", **options)
    vacuum = {"retention_hours": 0, "enforce_retention_duration": False, "dry_run": False}
    assert DeltaTable(tmp_path / "out").vacuum(full=True, **vacuum) == []
    assert (tmp_path / "out/_tt/manifest.json").exists()
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


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"format": "csv"}, "tables contain Parquet. Remove `format`. Received: csv"),
        ({"overwrite": True}, "`overwrite` cannot replace files that are part of a table"),
        ({"retry_failed": True}, "`retry_failed` cannot replace files that are part of a table"),
    ],
)
def test_options_that_tables_do_not_support(lake, options, problem):
    lake.append("in", numbered(2))
    message = refused(lake.address("in"), lake.address("out"), **options)
    assert message.startswith(problem)
    assert not lake.exists("out")


def test_a_table_is_not_its_own_output(lake):
    lake.append("in", numbered(2))
    assert "is in the output folder" in refused(lake.address("in"), lake.address("in"))


def test_a_table_is_not_written_from_other_formats(lake, tmp_path):
    (tmp_path / "in.csv").write_text("text\nrow 1\n")
    message = refused(tmp_path / "in.csv", lake.address("out"))
    assert "can only be written from Parquet files and tables" in message


def test_files_with_different_columns_are_not_one_table(lake, tmp_path):
    write(tmp_path / "in/a.parquet", numbered(2))
    write(tmp_path / "in/b.parquet", {"text": ["x"], "id": [1.5]})
    message = refused(tmp_path / "in", lake.address("out"), text_columns=("text",))
    assert "b.parquet has other columns than the files before it" in message


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


def test_types_that_a_table_cannot_store(lake, tmp_path):
    table = numbered(1).append_column("wait", pa.array([1], pa.duration("s")))
    write(tmp_path / "in.parquet", table)
    message = refused(tmp_path / "in.parquet", lake.address("out"), text_columns=("text",))
    assert "cannot store all columns" in message


def test_a_table_that_another_job_writes(lake, tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    write(tmp_path / "other.parquet", numbered(2))
    translate(tmp_path / "in.parquet", lake.address("out"))
    message = refused(tmp_path / "other.parquet", lake.address("out"), unit_rows=1)
    assert str(lake.folder("out")) in message
    assert lake.commits("out") == 1


def test_a_table_that_grows(lake):
    """The second run translates only the appended rows, and the third one follows an overwrite."""
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"))
    lake.append("in", numbered(6).slice(4))
    summary = translate(lake.address("in"), lake.address("out"))
    assert (summary.run_rows, summary.rows) == (2, 6)
    assert sorted(lake.read("out")["id"].to_pylist()) == list(range(6))
    assert lake.commits("out") == 2
    assert translate(lake.address("in"), lake.address("out")).already_finished
    lake.overwrite("in", numbered(9).slice(3))
    translate(lake.address("in"), lake.address("out"), removed="delete")
    found = lake.read("out").sort_by("id")
    assert found["id"].to_pylist() == list(range(3, 9))
    assert found["translation"].to_pylist() == turned(9)[3:]
    assert lake.commits("out") == 3


def stop_before_commit(lake, monkeypatch):
    """Run a job of four rows that ends after its units and before its commit."""
    lake.append("in", numbered(4))

    def failing(*_, **__):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(last_step, "make_manifest", failing)
        with pytest.raises(Exception, match="the disk is gone"):
            translate(lake.address("in"), lake.address("out"))
    assert not lake.exists("out")


def test_a_table_that_grows_before_its_first_commit(lake, monkeypatch):
    stop_before_commit(lake, monkeypatch)
    lake.append("in", numbered(6).slice(4))
    summary = translate(lake.address("in"), lake.address("out"))
    assert (summary.run_rows, summary.rows) == (2, 6)
    assert sorted(lake.read("out")["id"].to_pylist()) == list(range(6))
    assert lake.commits("out") == 1


def test_a_table_that_is_overwritten_before_its_first_commit(lake, monkeypatch):
    stop_before_commit(lake, monkeypatch)
    before = set(outputs(lake.folder("out")))
    lake.overwrite("in", numbered(9).slice(3))
    translate(lake.address("in"), lake.address("out"), removed="delete")
    assert sorted(lake.read("out")["id"].to_pylist()) == list(range(3, 9))
    assert before.isdisjoint(outputs(lake.folder("out")))


def test_removed_rows_of_a_commit_that_failed_are_removed_by_the_next_one(lake, monkeypatch):
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"))
    lake.overwrite("in", numbered(9).slice(3))

    def failing(*_, **__):
        raise OSError("the disk is gone")

    with monkeypatch.context() as patch:
        patch.setattr(last_step, "make_manifest", failing)
        with pytest.raises(Exception, match="the disk is gone"):
            translate(lake.address("in"), lake.address("out"), removed="delete")
    lake.append("in", numbered(12).slice(9))
    translate(lake.address("in"), lake.address("out"), removed="delete")
    assert sorted(lake.read("out")["id"].to_pylist()) == list(range(3, 12))
    assert lake.commits("out") == 2


def test_a_table_that_grows_after_a_compaction(lake):
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"), unit_rows=2)
    lake.rewrite("out")
    commits = lake.commits("out")
    lake.append("in", numbered(6).slice(4))
    summary = translate(lake.address("in"), lake.address("out"), unit_rows=2)
    assert (summary.run_rows, summary.rows) == (2, 6)
    assert sorted(lake.read("out")["id"].to_pylist()) == list(range(6))
    assert lake.commits("out") == commits + 1


def test_rows_cannot_be_removed_after_a_compaction(lake):
    lake.append("in", numbered(4))
    translate(lake.address("in"), lake.address("out"), unit_rows=2)
    lake.rewrite("out")
    commits = lake.commits("out")
    lake.overwrite("in", numbered(9).slice(3))
    message = refused(lake.address("in"), lake.address("out"), unit_rows=2, removed="delete")
    assert "another program has rewritten the table" in message
    assert lake.commits("out") == commits


def test_a_table_grows_although_the_snapshots_of_its_job_expired(lake, monkeypatch):
    monkeypatch.setattr("tt.pipelines.tables.lakehouse.last_commit", lambda table, *, job: 0)
    for rows in (4, 6, 7):
        lake.append("in", numbered(rows).slice(0 if rows == 4 else rows - rows % 4))
        translate(lake.address("in"), lake.address("out"))
    expected = [*range(4), *range(4, 6), *range(4, 7)]
    assert sorted(lake.read("out")["id"].to_pylist()) == sorted(expected)
    assert lake.commits("out") == 3


def test_a_file_with_the_name_of_an_output_file(tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    write_deltalake(tmp_path / "out", numbered(1))
    write(tmp_path / "out/in-00000-of-00001.parquet", numbered(1))
    table = DeltaTable(tmp_path / "out")
    table.alter.add_columns(Schema.from_arrow(pa.schema(list(ADDED_TYPES.items()))).fields)
    message = refused(tmp_path / "in.parquet", f"delta:{tmp_path}/out")
    assert "in-00000-of-00001.parquet" in message


def test_a_folder_is_not_continued_as_a_table(tmp_path):
    write(tmp_path / "in.parquet", numbered(2))
    translate(tmp_path / "in.parquet", tmp_path / "out")
    assert refused(tmp_path / "in.parquet", f"delta:{tmp_path}/out")
    assert not DeltaTable.is_deltatable(str(tmp_path / "out"))
    plan = json.loads((tmp_path / "out/_tt/plan.json").read_text())
    assert "output_table" not in plan["options"]


def test_publishing_removes_files_of_earlier_generations(lake, tmp_path):
    """The next generation of a job replaces some output files."""
    write(tmp_path / "in.parquet", numbered(4))
    translate(tmp_path / "in.parquet", lake.address("out"), text_columns=("text",), unit_rows=2)
    [first, second] = outputs(lake.folder("out"))
    new = lake.folder("out") / "new.parquet"
    pq.write_table(read_all(lake.folder("out")).slice(0, 1), new)
    publish(lake, "out", "new.parquet", rows=1, generation=2, removed=[second])
    assert sorted(lake.read("out").column("id").to_pylist()) == [0, 0, 1]
    publish(lake, "out", "new.parquet", rows=1, generation=2, removed=[second])
    assert lake.commits("out") == 2
    assert first in outputs(lake.folder("out"))


def test_iceberg_tables_have_no_column_ids_in_new_files(catalog, tmp_path):
    """Readers find the columns by name, because the added columns have no IDs."""
    lake = LAKE["iceberg"](tmp_path / "lake", catalog)
    lake.append("in", numbered(2))
    translate(lake.address("in"), lake.address("out"), text_columns=("text",))
    [name] = outputs(lake.folder("out"))
    fields = pq.ParquetFile(lake.folder("out") / name).schema_arrow
    assert {(field.metadata or {}).get(b"PARQUET:field_id") for field in fields} == {None}
    assert read_iceberg(catalog, "ns.out").num_rows == 2
