"""Tables of Delta Lake and Iceberg on this machine, with one interface."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from pyiceberg import catalog as pyiceberg_catalog
from pyiceberg.catalog import load_catalog
from pyiceberg.types import DoubleType, LongType, StringType
from pyiceberg.utils.config import Config

from tt.pipelines.tables import delta, iceberg

STRINGS = pa.list_(pa.field("element", pa.string()))
ADDED_TYPES = {
    "translation": pa.string(),
    "translation_score": pa.float32(),
    "translation_status": pa.string(),
    "translation_error": pa.string(),
    "translation_flags": STRINGS,
}
ICEBERG_TYPES = {pa.float64(): DoubleType(), pa.int64(): LongType(), pa.string(): StringType()}


def iceberg_catalog(folder: Path, monkeypatch):
    """Configure a catalog named "lake" on SQLite, with the namespace "ns"."""
    folder.mkdir(parents=True, exist_ok=True)
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__URI", f"sqlite:///{folder}/catalog.db")
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__WAREHOUSE", str(folder))
    reload_settings(monkeypatch)
    catalog = load_catalog("lake")
    catalog.create_namespace_if_not_exists("ns")
    return catalog


def reload_settings(monkeypatch):
    """Let PyIceberg read its environment variables again, which it does once per process."""
    monkeypatch.setattr(pyiceberg_catalog, "_ENV_CONFIG", Config())


def read_delta(folder) -> pa.Table:
    return DeltaTable(folder).to_pyarrow_table()


def read_iceberg(catalog, name: str) -> pa.Table:
    return catalog.load_table(name).scan().to_arrow()


class DeltaLake:
    """Delta tables in a folder."""

    def __init__(self, folder: Path, catalog):
        self._folder = folder

    def folder(self, name):
        return self._folder / name

    def address(self, name):
        return f"delta:{self.folder(name)}"

    def append(self, name, table, partition_by=None) -> int:
        options = {"mode": "append", "schema_mode": "merge", "partition_by": partition_by}
        write_deltalake(self.folder(name), table, **options)
        return DeltaTable(self.folder(name)).version()

    def update(self, name, number, text):
        """Set the text of a row; delta-rs then writes a file with the type `string_view`."""
        DeltaTable(self.folder(name)).update(
            updates={"text": f"'{text}'"}, predicate=f"id={number}"
        )

    def delete(self, name, condition=None):
        DeltaTable(self.folder(name)).delete(condition)

    def merge(self, name, table):
        """Replace the rows with the same IDs, and add the other rows."""
        merger = DeltaTable(self.folder(name)).merge(
            table, "old.id = new.id", source_alias="new", target_alias="old"
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()

    def create(self, name, schema):
        DeltaTable.create(self.folder(name), Schema.from_arrow(schema))

    def overwrite(self, name, table):
        write_deltalake(self.folder(name), table, mode="overwrite")

    def add_column(self, name, column, kind):
        fields = Schema.from_arrow(pa.schema([(column, kind)])).fields
        DeltaTable(self.folder(name)).alter.add_columns(fields)

    def read(self, name):
        return read_delta(self.folder(name))

    def exists(self, name):
        return DeltaTable.is_deltatable(str(self.folder(name)))

    def commits(self, name):
        return DeltaTable(self.folder(name)).version() + 1

    def rewrite(self, name):
        table = DeltaTable(self.folder(name))
        table.optimize.compact()
        table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)

    def paths(self, name):
        return DeltaTable(self.folder(name)).file_uris()

    def break_commits(self, monkeypatch):
        def failing(*_, **__):
            raise DeltaError("the store is gone")

        monkeypatch.setattr(delta, "create_table_with_add_actions", failing)


class IcebergLake:
    """Iceberg tables in the catalog "lake"."""

    def __init__(self, folder: Path, catalog):
        self._folder = folder
        self.catalog = catalog

    def folder(self, name):
        return self._folder / "ns" / name

    def address(self, name):
        return f"iceberg:lake.ns.{name}"

    def append(self, name, table, partition_by=None) -> int:
        found = self.catalog.create_table_if_not_exists(f"ns.{name}", schema=table.schema)
        if partition_by and not found.snapshots():
            with found.update_spec() as spec:
                spec.add_identity(partition_by)
        found.append(table)
        return found.current_snapshot().snapshot_id

    def overwrite(self, name, table):
        self.catalog.load_table(f"ns.{name}").overwrite(table)

    def update(self, name, number, text):
        """Set the text of a row."""
        table = self.catalog.load_table(f"ns.{name}")
        rows = table.scan(f"id = {number}").to_arrow()
        place = rows.schema.get_field_index("text")
        rows = rows.set_column(place, "text", pa.array([text] * rows.num_rows, pa.string()))
        table.overwrite(rows, overwrite_filter=f"id = {number}")

    def delete(self, name, condition="true"):
        self.catalog.load_table(f"ns.{name}").delete(condition)

    def merge(self, name, table):
        """Replace the rows with the same IDs, and add the other rows."""
        if table.num_rows:
            self.catalog.load_table(f"ns.{name}").upsert(table, ["id"])

    def create(self, name, schema):
        self.catalog.create_table(f"ns.{name}", schema=schema)

    def add_column(self, name, column, kind):
        with self.catalog.load_table(f"ns.{name}").update_schema() as update:
            update.add_column(column, ICEBERG_TYPES[kind])

    def read(self, name):
        return read_iceberg(self.catalog, f"ns.{name}")

    def exists(self, name):
        return self.catalog.table_exists(f"ns.{name}")

    def commits(self, name):
        return len(self.catalog.load_table(f"ns.{name}").snapshots())

    def rewrite(self, name):
        table = self.catalog.load_table(f"ns.{name}")
        rows = table.scan().to_arrow()
        old = [task.file.file_path for task in table.scan().plan_files()]
        with table.transaction() as transaction:
            transaction.overwrite(rows)
        for path in old:
            Path(path.removeprefix("file://")).unlink()

    def paths(self, name):
        tasks = self.catalog.load_table(f"ns.{name}").scan().plan_files()
        return [task.file.file_path for task in tasks]

    def break_commits(self, monkeypatch):
        def failing(*_, **__):
            raise OSError("the store is gone")

        monkeypatch.setattr(iceberg, "_commit", failing)


LAKE = {"delta": DeltaLake, "iceberg": IcebergLake}
