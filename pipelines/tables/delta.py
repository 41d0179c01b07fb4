"""Read and write Delta Lake tables."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import DeltaError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from tt.model.errors import UserError
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

# Features that do not change which rows the data files contain.
_READABLE = {"timestampNtz", "v2Checkpoint", "deletionVectors", "columnMapping"}
# Features that allow a writer to add files without more work.
_WRITABLE = {
    "appendOnly", "invariants", "checkConstraints", "changeDataFeed", "generatedColumns",
    "columnMapping", "timestampNtz", "v2Checkpoint", "deletionVectors",
}  # fmt: skip
_COMPUTED = {  # keys in the metadata of columns
    "delta.invariants": "invariants",
    "delta.generationExpression": "generated columns",
    "delta.identity.start": "identity columns",
}


def find_files(address: Address) -> list[TableFile]:
    """Find the data files of a table; see `lakehouse.find_table_files`."""
    table = _open(address)
    _check_columns(table, address)
    protocol = table.protocol()
    if unknown := set(protocol.reader_features or ()) - _READABLE:
        raise unsupported(address, ", ".join(sorted(unknown)), "Write a copy without this feature")
    if "deletionVectors" in (protocol.reader_features or ()) and any(
        batch.num_rows for batch in table.deletion_vectors()
    ):
        raise unsupported(
            address, "deletion vectors", "Run REORG TABLE ... APPLY (PURGE) in Spark first"
        )
    schema = pa.schema(table.schema().to_arrow())
    actions = pa.table(table.get_add_actions()).combine_chunks()
    names = table.metadata().partition_columns
    values = [
        pc.struct_field(actions.column("partition"), name).cast(pa.string()).to_pylist()
        for name in names
    ]
    rows = zip(*values, strict=True) if names else [()] * actions.num_rows
    location = as_path(table.table_uri, is_encoded=True).rstrip("/")
    of_table = {"address": address, "table_id": str(table.metadata().id), "schema": schema}
    found = []
    for stored, partition in zip(actions.column("path").to_pylist(), rows, strict=True):
        path = as_path(stored, is_encoded=True)
        path = path if path.startswith("/") or "://" in path else f"{location}/{path}"
        found.append(
            TableFile(
                path=path,
                relative_path=relative_path(path, location=location),
                partitions=tuple(zip(names, partition, strict=True)),
                **of_table,
            )
        )
    found = found or [empty_file(location, partitions=tuple((n, None) for n in names), **of_table)]
    return sorted(found, key=lambda file: file.relative_path)


def open_output(address: Address) -> OutputTable:
    """Open an output table, which may not exist yet; see `lakehouse.open_output`."""
    location = normalize_path(address.name)
    table = _open_newest(address)
    if table is None:
        return OutputTable(address=address, location=location)
    _check_columns(table, address)
    _check_writable(table, address)
    return OutputTable(
        address=address,
        location=location,
        schema=pa.schema(table.schema().to_arrow()),
        partition_columns=tuple(table.metadata().partition_columns),
    )


def stored_schema(output: OutputTable, schema: pa.Schema) -> pa.Schema:
    """Return the schema that a new table with the columns of a schema has."""
    del output  # Iceberg needs its catalog
    return pa.schema(Schema.from_arrow(schema).to_arrow())


def publish(
    output: OutputTable,
    added: Sequence[AddedFile],
    *,
    job: str,
    generation: int,
    removed: Collection[str] = (),
) -> None:
    """Commit files to a table; see `lakehouse.publish`.

    The commit contains a transaction of the job. The format guarantees that a table has at most one
    commit with the same job and generation, even if several processes try at the same time.
    """
    location = output.location
    now = int(1000 * time.time())
    properties = CommitProperties(app_transactions=[Transaction(job, generation)])
    adds = [
        AddAction(
            path=file.path,
            size=file.size,
            partition_values={name: value or None for name, value in file.partitions},
            modification_time=now,
            data_change=True,
            stats=json.dumps({"numRecords": file.rows}),
        )
        for file in added
    ]
    try:
        if not DeltaTable.is_deltatable(location):
            create_table_with_add_actions(
                location,
                Schema.from_arrow(output.files_schema),
                adds,
                partition_by=list(output.partition_columns),
                commit_properties=properties,
            )
            return
        table = DeltaTable(location)
        if (table.transaction_version(job) or 0) >= generation:
            return
        check_contains(output, removed)
        removes = [RemoveAction(path, True, now) for path in removed]
        table.create_write_transaction(
            [*adds, *removes],
            "append",
            table.schema(),
            table.metadata().partition_columns,
            commit_properties=properties,
        )
    except (DeltaError, OSError) as error:
        # Another attempt at this step may have committed the same files meanwhile.
        if last_commit(output, job=job) >= generation:
            return
        raise table_error(output.address, "could not be committed", error) from error


def last_commit(output: OutputTable, *, job: str) -> int:
    """Return the number of the last commit of a job; see `lakehouse.last_commit`."""
    table = _open_newest(output.address)
    return 0 if table is None else table.transaction_version(job) or 0


def active_paths(output: OutputTable) -> set[str]:
    """Return the data files of a table, relative to its location."""
    table = _open_newest(output.address)
    paths = [] if table is None else pa.table(table.get_add_actions()).column("path").to_pylist()
    return {as_path(path, is_encoded=True) for path in paths}


def _open_newest(address: Address) -> DeltaTable | None:
    """Open the newest version of a table; return None if there is no table."""
    location = normalize_path(address.name)
    try:
        return DeltaTable(location) if DeltaTable.is_deltatable(location) else None
    except (DeltaError, OSError) as error:
        raise table_error(address, "cannot be opened", error) from error


def _open(address: Address) -> DeltaTable:
    newest = _open_newest(address)
    if newest is None:
        raise UserError(
            f"{address.name} is not a Delta table. Check the path, or choose a folder of files "
            "without delta:"
        )
    if address.version is None:
        return newest
    try:
        return DeltaTable(normalize_path(address.name), version=address.version)
    except (DeltaError, OSError) as error:
        raise UserError(
            f"version {address.version} of {address} does not exist or was cleaned up. Choose "
            f"another version, up to {newest.version()}"
        ) from error


def _check_columns(table: DeltaTable, address: Address) -> None:
    configuration = table.metadata().configuration
    if configuration.get("delta.columnMapping.mode", "none") != "none":
        raise unsupported(address, "column mapping", "Write a copy without column mapping")


def _check_writable(table: DeltaTable, address: Address) -> None:
    fix = "Choose another table"
    if unknown := set(table.protocol().writer_features or ()) - _WRITABLE:
        raise unsupported(address, ", ".join(sorted(unknown)), fix)
    if any(key.startswith("delta.constraints.") for key in table.metadata().configuration):
        raise unsupported(address, "constraints", fix)
    for field in table.schema().fields:
        for key, name in _COMPUTED.items():
            if key in field.metadata:
                raise unsupported(address, name, fix)
