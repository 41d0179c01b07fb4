"""Iceberg tables that `tt` refuses to read or to write, and concurrent commits."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from lake_tables import iceberg_catalog, reload_settings
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent, ManifestWriterV2
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import DateType, IntegerType, LongType, NestedField, StringType

from tt.model.errors import BadFileError, ServiceError, UserError
from tt.pipelines.tables import iceberg
from tt.pipelines.tables.lakehouse import (
    AddedFile,
    find_table_files,
    fit_file,
    fit_rows,
    open_output,
    parse_address,
)

ROWS = pa.table({"id": [1, 2], "text": ["a", "b"]})


@pytest.fixture
def catalog(tmp_path, monkeypatch):
    return iceberg_catalog(tmp_path / "lake", monkeypatch)


@pytest.fixture
def table(catalog):
    table = catalog.create_table("ns.t", schema=ROWS.schema)
    table.append(ROWS)
    return table


def found(argument="iceberg:lake.ns.t"):
    return find_table_files(parse_address(argument))


def refused(function, argument="iceberg:lake.ns.t", kind=UserError) -> str:
    with pytest.raises(kind) as caught:
        function(argument)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def fitted_rows(file):
    table = pq.ParquetFile(file.path).read()
    return fit_rows(table, fit_file(table.schema, file), file.partitions)


def test_data_files_have_the_schema_of_the_table(table):
    [file] = found()
    [task] = table.scan().plan_files()
    assert file.path == task.file.file_path
    assert f"{table.location()}/{file.relative_path}" == file.path
    assert fitted_rows(file).equals(ROWS)


def test_no_table(catalog):
    assert "does not exist. Check the names" in refused(found)
    assert "does not exist. Check the names" in refused(found, "iceberg:lake.other.t")
    message = refused(open_output, "iceberg:lake.other.t")
    assert "the namespace of the Iceberg table lake.other.t does not exist" in message


def test_a_table_without_rows(catalog):
    catalog.create_table("ns.t", schema=ROWS.schema)
    [file] = found()
    assert (file.is_empty, file.size, file.schema.names) == (True, 0, ROWS.schema.names)


def test_an_expired_snapshot(table):
    first = table.current_snapshot().snapshot_id
    table.append(ROWS)
    table.maintenance.expire_snapshots().by_id(first).commit()
    message = refused(found, f"iceberg:lake.ns.t@{first}")
    assert f"has no snapshot {first}, or it has expired" in message
    assert str(table.refresh().current_snapshot().snapshot_id) in message


def test_catalogs_that_do_not_answer(monkeypatch, tmp_path):
    monkeypatch.setenv("PYICEBERG_CATALOG__FAR__URI", "http://127.0.0.1:9")  # the discard port
    monkeypatch.setenv("PYICEBERG_CATALOG__GONE__URI", f"sqlite:///{tmp_path}/no/catalog.db")
    reload_settings(monkeypatch)
    for name in ("far", "gone", "unknown"):
        for function in (found, open_output):
            message = refused(function, f"iceberg:{name}.ns.t", ServiceError)
            assert f"the Iceberg catalog '{name}' cannot be opened: " in message


def test_a_catalog_without_a_folder_for_tables(monkeypatch, tmp_path):
    catalog = iceberg_catalog(tmp_path / "lake", monkeypatch)
    monkeypatch.delenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE")
    reload_settings(monkeypatch)
    assert catalog.namespace_exists("ns")
    assert "Set the `warehouse` of the catalog" in refused(open_output)


def add_deletes(table, *, content, file_format=FileFormat.PARQUET):
    """Commit a delete file, which PyIceberg itself does not write."""

    class DeleteWriter(ManifestWriterV2):
        def content(self):
            return ManifestContent.DELETES

    path = f"{table.location()}/deletes.parquet"
    [task] = table.scan().plan_files()
    pq.write_table(pa.table({"file_path": [task.file.file_path], "pos": [0]}), path)
    with table.transaction() as transaction:
        producer = transaction.update_snapshot().fast_append()
        [file] = parquet_files_to_data_files(table.io, table.metadata, iter([task.file.file_path]))
        file[0] = content
        file[1] = path
        file[2] = file_format
        producer.append_data_file(file)

        def new_writer(spec):
            return DeleteWriter(
                spec, table.schema(), producer.new_manifest_output(), producer.snapshot_id, "gzip"
            )

        producer.new_manifest_writer = new_writer
        producer.commit()


@pytest.mark.parametrize(
    ("content", "file_format", "name"),
    [
        (DataFileContent.POSITION_DELETES, FileFormat.PARQUET, "position deletes"),
        (DataFileContent.EQUALITY_DELETES, FileFormat.PARQUET, "equality deletes"),
        (DataFileContent.POSITION_DELETES, FileFormat.PUFFIN, "deletion vectors"),
    ],
)
def test_delete_files(table, content, file_format, name):
    add_deletes(table, content=content, file_format=file_format)
    assert f"uses {name}, which tt does not support. Rewrite the data files" in refused(found)


def test_data_files_of_other_formats(table):
    [task] = table.scan().plan_files()
    [file] = parquet_files_to_data_files(table.io, table.metadata, iter([task.file.file_path]))
    file[1], file[2] = f"{table.location()}/data/b.orc", FileFormat.ORC
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        append.append_data_file(file)
    assert "uses ORC files, which tt does not support" in refused(found)


def test_a_renamed_column(table):
    with table.update_schema() as update:
        update.rename_column("id", "number")
    table.append(ROWS.rename_columns(["number", "text"]))
    files = {pq.read_schema(file.path).names[0]: file for file in found()}
    assert fitted_rows(files["number"]).schema.names == ["number", "text"]
    with pytest.raises(BadFileError, match="the column 'number' was renamed"):
        fitted_rows(files["id"])


def test_a_column_that_replaced_another_column_of_its_name(table):
    with table.update_schema() as update:
        update.delete_column("id")
    with table.update_schema() as update:
        update.add_column("id", LongType())
    [file] = found()
    with pytest.raises(BadFileError, match="the column 'id' was renamed, or replaced"):
        fitted_rows(file)


def test_a_widened_type_is_cast(catalog):
    schema = IcebergSchema(NestedField(1, "n", IntegerType()), NestedField(2, "text", StringType()))
    table = catalog.create_table("ns.t", schema=schema)
    table.append(pa.table({"n": pa.array([7], pa.int32()), "text": ["a"]}))
    with table.update_schema() as update:
        update.update_column("n", LongType())
    [file] = found()
    assert fitted_rows(file).schema.field("n").type == pa.int64()


def test_a_name_mapping_with_renamed_columns(table):
    mapping = NameMapping(
        [{"names": ["id", "number"], "field-id": 1}, {"names": ["text"], "field-id": 2}]
    )
    table.transaction().set_properties(
        {"schema.name-mapping.default": mapping.model_dump_json()}
    ).commit_transaction()
    assert "uses renamed columns (id, number)" in refused(found)


def test_partition_values_that_the_files_do_not_contain(catalog, tmp_path):
    """Tables that were migrated from Hive have such files."""
    day = datetime.date(2026, 1, 31)
    schema = IcebergSchema(
        NestedField(1, "id", LongType()), NestedField(2, "text", StringType()),
        NestedField(3, "day", DateType()),
    )  # fmt: skip
    spec = PartitionSpec(PartitionField(3, 1000, IdentityTransform(), "day"))
    table = catalog.create_table("ns.t", schema=schema, partition_spec=spec)
    table.append(ROWS.append_column("day", pa.array([day, None], pa.date32())))
    for task in table.scan().plan_files():
        rows = pq.ParquetFile(task.file.file_path).read().drop_columns(["day"])
        pq.write_table(rows, task.file.file_path)
    tables = pa.concat_tables([fitted_rows(file) for file in found()]).sort_by("id")
    assert tables.column("day").to_pylist() == [day, None]
    assert not any("=" in file.relative_path for file in found())
    assert "is partitioned, and tt writes Iceberg tables without" in refused(open_output)


def test_a_table_of_a_newer_version(catalog):
    table = catalog.create_table("ns.t", schema=ROWS.schema)
    path = Path(table.metadata_location)  # PyIceberg reads this version but does not write it
    path.write_text(
        json.dumps({**json.loads(path.read_text()), "format-version": 3, "next-row-id": 0})
    )
    assert "uses version 3 of the format" in refused(open_output)


def copied(table, name):
    [task, *_] = table.scan().plan_files()
    path = Path(table.location()) / name
    path.write_bytes(Path(task.file.file_path).read_bytes())
    return AddedFile(path=name, size=path.stat().st_size, rows=2)


def stripped(path):
    """Rewrite a file without column IDs, like the output files of a job."""
    table = pq.ParquetFile(path).read()
    fields = [field.remove_metadata() for field in table.schema]
    pq.write_table(table.cast(pa.schema(fields)), path)


def test_two_attempts_at_the_same_commit(table, catalog, monkeypatch):
    """The first attempt commits while the second one is about to commit."""
    output = open_output("iceberg:lake.ns.t")
    added = [copied(table, "new.parquet")]
    commit = iceberg._commit

    def commit_twice(*arguments, **options):
        monkeypatch.setattr(iceberg, "_commit", commit)
        iceberg.publish(output, added, job="j", generation=1)
        commit(*arguments, **options)

    monkeypatch.setattr(iceberg, "_commit", commit_twice)
    iceberg.publish(output, added, job="j", generation=1)
    assert len(table.refresh().snapshots()) == 2
    assert table.scan().to_arrow().num_rows == 4


def test_a_commit_of_another_program_at_the_same_time(table, monkeypatch):
    output = open_output("iceberg:lake.ns.t")
    added = [copied(table, "new.parquet")]
    commit = iceberg._commit

    def commit_after_another(*arguments, **options):
        monkeypatch.setattr(iceberg, "_commit", commit)
        table.append(ROWS)
        commit(*arguments, **options)

    monkeypatch.setattr(iceberg, "_commit", commit_after_another)
    iceberg.publish(output, added, job="j", generation=1)
    assert table.refresh().scan().to_arrow().num_rows == 6


def test_a_table_that_was_changed_before_the_commit(table):
    output = open_output("iceberg:lake.ns.t")
    added = [copied(table, "new.parquet")]
    stripped(f"{table.location()}/new.parquet")
    with table.update_schema() as update:
        update.delete_column("id")
    with pytest.raises(UserError, match="has changed, so that the output no longer fits"):
        iceberg.publish(output, added, job="j", generation=1)
    assert len(table.refresh().snapshots()) == 1
