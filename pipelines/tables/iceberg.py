"""Read and write Iceberg tables, with the catalogs that PyIceberg is configured for."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, NoSuchTableError
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.manifest import DataFile, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import BinaryType, FixedType, UUIDType

from tt.model.errors import ServiceError, UserError, first_line
from tt.model.storage.paths import normalize_path
from tt.pipelines.tables.lakehouse import (
    AddedFile,
    Address,
    OutputTable,
    TableFile,
    as_path,
    check_contains,
    empty_file,
    relative_path,
    table_error,
    unsupported,
)

_JOB, _GENERATION = "tt.job", "tt.generation"  # properties of a snapshot
_MOST_ATTEMPTS = 5  # of a commit, if other programs commit to the table at the same time
_MOST_VERSION = 2  # the newest version of the format for output
_REWRITE = "Rewrite the data files first, for example with rewrite_data_files of Spark"
_KINDS = {1: "position deletes", 2: "equality deletes"}


def find_files(address: Address) -> list[TableFile]:
    """Find the data files of a table; see `lakehouse.find_table_files`."""
    table = _find_table(_open_catalog(address), address)
    if table is None:
        raise UserError(f"{address} does not exist. Check the names of its namespace and table")
    if address.version is not None and table.snapshot_by_id(address.version) is None:
        newest = table.current_snapshot()
        raise UserError(
            f"{address} has no snapshot {address.version}, or it has expired. Choose another "
            f"snapshot, such as {newest and newest.snapshot_id}"
        )
    try:
        return _find_files(table, address)
    except OSError as error:
        raise table_error(address, "cannot be read", error) from error


def _find_files(table: Table, address: Address) -> list[TableFile]:
    scan = table.scan(snapshot_id=address.version)
    schema = scan.projection()
    _check_columns(table, schema, address)
    snapshot = scan.snapshot()
    for manifest in snapshot.manifests(table.io) if snapshot else ():
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(table.io):
                is_vector = entry.data_file.file_format == FileFormat.PUFFIN
                kind = "deletion vectors" if is_vector else _KINDS[entry.data_file.content]
                raise unsupported(address, kind, _REWRITE)
    location = as_path(table.location())
    of_table = {
        "address": address, "table_id": str(table.metadata.table_uuid), "schema": schema.as_arrow(),
    }  # fmt: skip
    found = []
    for task in scan.plan_files():
        if task.file.file_format != FileFormat.PARQUET:
            kind = f"{task.file.file_format.value} files"
            raise unsupported(address, kind, "Rewrite the data files as Parquet first")
        path = as_path(task.file.file_path)
        found.append(
            TableFile(
                path=path,
                relative_path=relative_path(path, location=location),
                partitions=_partitions(table, task.file, schema),
                **of_table,
            )
        )
    found = found or [empty_file(location, **of_table)]
    return sorted(found, key=lambda file: file.relative_path)


def _partitions(table: Table, file: DataFile, schema: Schema) -> tuple[tuple[str, str | None], ...]:
    """Return the values of the columns that have one value in the whole file."""
    found = []
    for index, field in enumerate(table.specs()[file.spec_id].fields):
        column = next((each for each in schema.fields if each.field_id == field.source_id), None)
        if column is None or not isinstance(field.transform, IdentityTransform):
            continue
        # These types have no common form as text. Writers store them in the data files anyway.
        if not isinstance(column.field_type, BinaryType | FixedType | UUIDType):
            value = file.partition[index]
            text = None if value is None else field.transform.to_human_string(
                column.field_type, value
            )  # fmt: skip
            found.append((column.name, text))
    return tuple(found)


def _check_columns(table: Table, schema: Schema, address: Address) -> None:
    for column in schema.fields:
        if column.initial_default is not None:
            raise unsupported(address, f"a default of the column {column.name!r}", _REWRITE)
    mapping = table.name_mapping()
    for mapped in mapping or ():
        if len(mapped.names) > 1:
            raise unsupported(address, f"renamed columns ({', '.join(mapped.names)})", _REWRITE)


def open_output(address: Address) -> OutputTable:
    """Open an output table, which may not exist yet; see `lakehouse.open_output`."""
    catalog = _open_catalog(address)
    table = _find_table(catalog, address)
    if table is None:
        # This only plans a table. Nothing is visible before the commit.
        planned = _plan_table(catalog, address, schema=pa.schema([]))
        return OutputTable(address=address, location=normalize_path(as_path(planned)), uri=planned)
    if table.format_version > _MOST_VERSION:
        raise unsupported(
            address, f"version {table.format_version} of the format", "Choose another table"
        )
    if not table.spec().is_unpartitioned():
        raise UserError(
            f"{address} is partitioned, and tt writes Iceberg tables without partitions. Choose "
            "another table"
        )
    return OutputTable(
        address=address,
        location=normalize_path(as_path(table.location())),
        uri=table.location(),
        schema=table.schema().as_arrow(),
    )


def _plan_table(catalog: Catalog, address: Address, *, schema: pa.Schema) -> str:
    try:
        planned = catalog.create_table_transaction(_identifier(address), schema=schema)
    except NoSuchNamespaceError as error:
        raise UserError(
            f"the namespace of {address} does not exist. Create it, or choose another namespace"
        ) from error
    except ValueError as error:  # the catalog has no folder for tables
        raise UserError(
            f"{address} cannot be created: {first_line(error)}. Set the `warehouse` of the catalog"
        ) from error
    return str(planned.table_metadata.location)


def stored_schema(output: OutputTable, schema: pa.Schema) -> pa.Schema:
    """Return the schema that a new table with the columns of a schema has."""
    catalog = _open_catalog(output.address)
    planned = catalog.create_table_transaction(_identifier(output.address), schema=schema)
    return planned.table_metadata.schema().as_arrow()


def publish(
    output: OutputTable,
    added: Sequence[AddedFile],
    *,
    job: str,
    generation: int,
    removed: Collection[str] = (),
) -> None:
    """Commit files to a table; see `lakehouse.publish`.

    The properties of the snapshot name the job and the generation. A commit succeeds only if the
    table has not changed since these properties were checked.
    """
    catalog = _open_catalog(output.address)
    for _ in range(_MOST_ATTEMPTS):
        table = _find_table(catalog, output.address)
        if table is not None and _last_commit(table, job=job) >= generation:
            return
        check_contains(output, removed)
        try:
            _commit(
                output,
                [f"{output.uri.rstrip('/')}/{file.path}" for file in added],
                catalog=catalog,
                table=table,
                properties={_JOB: job, _GENERATION: str(generation)},
                removed=[f"{output.uri.rstrip('/')}/{path}" for path in removed],
            )
            return
        except CommitFailedException as error:
            failure = error
        except OSError as error:
            raise table_error(output.address, "could not be committed", error) from error
        except ValueError as error:  # PyIceberg's error for files that do not fit the table
            raise UserError(
                f"{output.address} has changed, so that the output no longer fits: "
                f"{first_line(error)}. Choose another table"
            ) from error
    raise table_error(output.address, "could not be committed", failure) from failure


def _commit(
    output: OutputTable,
    paths: list[str],
    *,
    catalog: Catalog,
    table: Table | None,
    properties: dict[str, str],
    removed: list[str],
) -> None:
    if table is None:
        created = catalog.create_table_transaction(
            _identifier(output.address), schema=output.files_schema, location=output.uri
        )
        created.add_files(paths, snapshot_properties=properties)
        created.commit_transaction()
        return
    # PyIceberg would repeat a failed commit without another check for a commit of this job.
    once = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": once})
    with table.transaction() as transaction:
        if not removed:
            transaction.add_files(paths, snapshot_properties=properties)
            return
        gone = {file.file_path: file for file in (task.file for task in table.scan().plan_files())}
        with transaction.update_snapshot(snapshot_properties=properties).overwrite() as overwrite:
            for file in parquet_files_to_data_files(
                table.io, transaction.table_metadata, iter(paths)
            ):
                overwrite.append_data_file(file)
            for path in removed:
                overwrite.delete_data_file(gone[path])


def last_commit(output: OutputTable, *, job: str) -> int:
    """Return the number of the last commit of a job; see `lakehouse.last_commit`."""
    table = _find_table(_open_catalog(output.address), output.address)
    return 0 if table is None else _last_commit(table, job=job)


def _last_commit(table: Table, *, job: str) -> int:
    """Return the highest number among the snapshots that have not expired."""
    found = [
        snapshot.summary.additional_properties for snapshot in table.snapshots() if snapshot.summary
    ]
    return max((int(each[_GENERATION]) for each in found if each.get(_JOB) == job), default=0)


def active_paths(output: OutputTable) -> set[str]:
    """Return the data files of a table, relative to its location."""
    table = _find_table(_open_catalog(output.address), output.address)
    tasks = () if table is None else table.scan().plan_files()
    root = output.uri.rstrip("/") + "/"
    return {task.file.file_path.removeprefix(root) for task in tasks}


def _open_catalog(address: Address) -> Catalog:
    name = address.name.partition(".")[0]
    try:
        return load_catalog(name)
    except Exception as error:  # each catalog raises the errors of its own client
        raise ServiceError(
            f"the Iceberg catalog {name!r} cannot be opened: {first_line(error)}. Check its "
            "entry in .pyiceberg.yaml, and that the catalog runs"
        ) from error


def _find_table(catalog: Catalog, address: Address) -> Table | None:
    try:
        return catalog.load_table(_identifier(address))
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:  # each catalog raises the errors of its own client
        raise table_error(address, "cannot be opened", error) from error


def _identifier(address: Address) -> str:
    return address.name.partition(".")[2]
