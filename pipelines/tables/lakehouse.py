"""Tables of Delta Lake and Iceberg, as the input and the output of jobs.

Before a job starts, `find_table_files` finds the data files of a table. After that, each data file
is an ordinary input file. The last step of a job commits all output files at once (`publish`).

`tt.pipelines.tables.delta` and `tt.pipelines.tables.iceberg` contain the functions for one kind of
table. They import packages that `tt` does not require.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Collection, Sequence
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tt.model.errors import BadFileError, ServiceError, UserError, first_line
from tt.model.extras import PROJECT, install_extra
from tt.pipelines.tables.columns import is_list, is_text, map_type
from tt.pipelines.tables.finding import FoundFile

DELTA, ICEBERG = "delta", "iceberg"
_FORMS = {
    DELTA: "delta:PATH or delta:PATH@VERSION",
    ICEBERG: "iceberg:CATALOG.NAMESPACE.TABLE or iceberg:CATALOG.NAMESPACE.TABLE@SNAPSHOT",
}
_FIELD_ID = b"PARQUET:field_id"  # Arrow's name of a column's ID in a Parquet file


@dataclasses.dataclass(frozen=True, kw_only=True)
class Address:
    """The address of a table.

    Attributes:
      kind: DELTA or ICEBERG.
      name: The path of a Delta table, or "catalog.namespace.table" of an Iceberg table.
      version: The version of a Delta table or the snapshot of an Iceberg table; None for the
        newest.
    """

    kind: str
    name: str
    version: int | None = None

    def __str__(self) -> str:
        name = {DELTA: "Delta", ICEBERG: "Iceberg"}[self.kind]
        return f"the {name} table {self.name}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class TableFile(FoundFile):
    """A data file of a table.

    Attributes:
      address: The address of the table.
      table_id: The ID of the table, which does not change when its files or columns change.
      schema: The schema of the table. It contains the IDs of the columns if the table has IDs.
      partitions: Names and values of the partition columns, as in the table's metadata. The values
        are strings, or None for null.
      is_empty: Whether this stands for a table without data files. No file exists at its path.
    """

    address: Address
    table_id: str
    schema: pa.Schema
    partitions: tuple[tuple[str, str | None], ...] = ()
    is_empty: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class OutputTable:
    """A table to which a job adds its output files.

    Attributes:
      address: The address of the table.
      location: The folder of the table, which is also the output folder of the job.
      uri: The location as it is in the catalog of an Iceberg table, with its scheme.
      schema: The schema of the table; None if the job creates the table.
      partition_columns: The partition columns of the table.
      files_schema: The schema of the output files; None until the input has been inspected.
    """

    address: Address
    location: str
    uri: str = ""
    schema: pa.Schema | None = None
    partition_columns: tuple[str, ...] = ()
    files_schema: pa.Schema | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddedFile:
    """An output file to add to a table.

    Attributes:
      path: The path relative to the location of the table.
      size: The size, in bytes.
      rows: The number of rows.
      partitions: See `TableFile`.
    """

    path: str
    size: int
    rows: int
    partitions: tuple[tuple[str, str | None], ...] = ()


def parse_address(argument: str) -> Address | None:
    """Parse the address of a table; return None for a path or a glob.

    Raises:
      UserError: The address is incomplete.

    >>> parse_address("delta:s3://lake/products@7")
    Address(kind='delta', name='s3://lake/products', version=7)
    """
    kind, _, rest = argument.partition(":")
    if kind not in _FORMS:
        return None
    name, version = rest, None
    if match := re.fullmatch(r"(.+)@(\d+)", rest):
        name, version = match[1], int(match[2])
    parts = name.split(".")
    if not name or (kind == ICEBERG and (len(parts) < 3 or not all(parts) or "@" in name)):
        raise UserError(f"a table must have the form {_FORMS[kind]}. Received: {argument}")
    return Address(kind=kind, name=name, version=version)


def find_table_files(address: Address) -> list[TableFile]:
    """Find the data files of a table, or one `TableFile` that stands for an empty table.

    Raises:
      UserError: The table does not exist, or has a feature that `tt` does not support; or the
        package for this kind of table is not installed.
    """
    found: list[TableFile] = _functions(address.kind).find_files(address)
    return found


def empty_file(location: str, *, table_id: str, **of_table: Any) -> TableFile:
    """Return the file that stands for a table without data files."""
    name = f"empty-{table_id}.parquet"
    return TableFile(
        path=f"{location}/{name}", relative_path=name, size=0, table_id=table_id, is_empty=True,
        **of_table,
    )  # fmt: skip


def open_output(argument: str) -> OutputTable | None:
    """Return the output table that the option `output` names; None if it names a folder.

    Raises:
      UserError: `tt` cannot add files to the table, or the address contains a version.
    """
    address = parse_address(argument)
    if address is None:
        return None
    if address.version is not None:
        raise UserError(
            f"`output` adds rows to the newest version of a table. Remove @{address.version} from "
            f"{argument}"
        )
    output: OutputTable = _functions(address.kind).open_output(address)
    return output


def publish(
    table: OutputTable,
    added: Sequence[AddedFile],
    *,
    job: str,
    generation: int,
    removed: Collection[str] = (),
) -> None:
    """Add output files to a table in one commit, unless the table has the commit already.

    Args:
      table: The table.
      added: The files to add.
      job: A name of the job, which distinguishes its commits from other commits.
      generation: The number of the commit within the job, from 1.
      removed: Paths of earlier output files to remove from the table, relative to its location.

    Raises:
      UserError: The table was changed, so that the files no longer fit.
      ServiceError: The commit failed.
    """
    _functions(table.address.kind).publish(
        table, added, job=job, generation=generation, removed=removed
    )


def last_commit(table: OutputTable, *, job: str) -> int:
    """Return the number of the last commit of a job to a table; 0 if the table has none.

    Raises:
      ServiceError: The table or its catalog does not answer.
    """
    number: int = _functions(table.address.kind).last_commit(table, job=job)
    return number


def check_contains(table: OutputTable, paths: Collection[str]) -> None:
    """Check that output files are still part of a table, so that a commit can remove them.

    Args:
      table: The table.
      paths: Paths relative to the location of the table.

    Raises:
      UserError: Another program has rewritten or removed the files.
      ServiceError: The table or its catalog does not answer.
    """
    active = _functions(table.address.kind).active_paths(table) if paths else ()
    if missing := sorted(set(paths) - set(active)):
        raise UserError(
            f"{table.address} no longer contains {missing[0]}, because another program has "
            "rewritten the table. So tt cannot remove the translations of removed files. Choose a "
            "new table as the `output`"
        )


def _functions(kind: str) -> Any:
    """Return the module for a kind of table, which imports an optional package."""
    try:
        return importlib.import_module(f"tt.pipelines.tables.{kind}")
    except ModuleNotFoundError as error:
        raise UserError(
            f"{kind}: tables need a package that is not installed. Install the extra {kind!r} of "
            f"{PROJECT}: {install_extra(kind)}"
        ) from error


def unsupported(address: Address, feature: str, fix: str) -> UserError:
    """Return the error for a table with a feature that `tt` does not support."""
    return UserError(f"{address} uses {feature}, which tt does not support. {fix}")


def table_error(address: Address, problem: str, error: BaseException) -> ServiceError:
    """Return the error for a table or a catalog that does not answer."""
    return ServiceError(f"{address} {problem}: {first_line(error)}. Check it, and try again")


def relative_path(path: str, *, location: str) -> str:
    """Return the path of a data file relative to its table, without "=".

    Programs that read a folder would take names such as "day=7" for partition columns, although
    the output files contain these columns.

    Raises:
      UserError: The path leads out of its folder, so that the output could overwrite any file.

    >>> relative_path("/lake/t/day=7/a.parquet", location="/lake/t")
    'day-7/a.parquet'
    """
    root = location.rstrip("/") + "/"
    name = path.removeprefix(root) if path.startswith(root) else path.partition("://")[2] or path
    if ".." in unquote(name).split("/"):
        raise UserError(
            f"the table in {location} contains the data file {path}, which leads out of the table. "
            "Check who wrote the table, and write a copy without such paths"
        )
    return name.lstrip("/").replace("=", "-")


def as_path(uri: str, *, is_encoded: bool = False) -> str:
    """Return the path of a URI as Beam writes it.

    >>> as_path("file:///lake/t"), as_path("s3a://lake/t")
    ('/lake/t', 's3://lake/t')
    """
    uri = unquote(uri) if is_encoded else uri
    return re.sub(r"^s3[an]://", "s3://", re.sub(r"^file:(//)?(?=/)", "", uri))


def plain_type(kind: pa.DataType) -> pa.DataType:
    """Return the type that table formats store instead of one of Arrow's variants.

    >>> plain_type(pa.large_list(pa.dictionary(pa.int8(), pa.large_string())))
    ListType(list<element: string>)
    """
    return map_type(kind, _plain)


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if is_text(kind):
        return pa.string()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if is_list(kind):
        return pa.list_(kind.value_field.with_name("element").remove_metadata())
    if types.is_struct(kind):
        return pa.struct([field.remove_metadata() for field in kind])
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), kind.item_type)
    if types.is_timestamp(kind) and kind.unit != "ns":
        return pa.timestamp("us", kind.tz and "UTC")
    return kind


def _without_zone(kind: pa.DataType) -> pa.DataType:
    return pa.timestamp(kind.unit) if pa.types.is_timestamp(kind) else kind


def fits(kind: pa.DataType, target: pa.DataType) -> bool:
    """Return whether every value of a type is also a value of another type.

    >>> fits(pa.int32(), pa.int64()), fits(pa.uint8(), pa.int8()), fits(pa.uint8(), pa.int16())
    (True, False, True)
    """
    types = pa.types
    kind, target = plain_type(kind), plain_type(target)
    if kind == target or types.is_null(kind):
        return True
    if types.is_integer(kind) and types.is_signed_integer(target):
        return bool(kind.bit_width + types.is_unsigned_integer(kind) <= target.bit_width)
    if types.is_floating(kind) and types.is_floating(target):
        return bool(kind.bit_width <= target.bit_width)
    if types.is_decimal(kind) and types.is_decimal(target):
        whole = kind.precision - kind.scale <= target.precision - target.scale
        return bool(whole and kind.scale <= target.scale)
    return False


def fit_file(schema: pa.Schema, file: TableFile) -> pa.Schema:
    """Return the schema to which the rows of a data file are cast; see `fit_rows`.

    Args:
      schema: The schema of the data file.
      file: The data file.

    Raises:
      BadFileError: A column was renamed, or its type was changed, after the file was written.
    """
    partitions = dict(file.partitions)
    renamed = table_names(schema.names, schema=file.schema)
    schema = pa.schema([field.with_name(n) for field, n in zip(schema, renamed, strict=True)])
    names = {_id_of(field): field.name for field in schema if _id_of(field)}
    for field in file.schema:
        if field.name in partitions:
            continue
        stored = schema.field(field.name) if field.name in schema.names else None
        known = names.get(_id_of(field), field.name)
        has_other = names and stored is not None and _id_of(stored) != _id_of(field)
        if known != field.name or (has_other and _id_of(field)):
            raise _changed_column(
                file, f"the column {field.name!r} was renamed, or replaced a column of this name"
            )
        # Spark's data files may contain INT96 timestamps, which Arrow reads without a time zone.
        kinds = field.type, map_type(field.type, _without_zone)
        if stored is not None and not any(fits(stored.type, kind) for kind in kinds):
            raise _changed_column(
                file, f"the column {field.name!r} is {stored.type}, but now is {field.type}"
            )
    return pa.schema([_plain_field(field) for field in file.schema])


def table_names(stored: Sequence[str], *, schema: pa.Schema) -> list[str]:
    """Return the names of the columns of a data file in the schema of its table.

    Writers of Iceberg tables encode characters that Avro does not allow in names.

    >>> table_names(["my_x20id", "_2nd"], schema=pa.schema([("my id", "int64"), ("2nd", "int64")]))
    ['my id', '2nd']
    """
    names = {_stored_name(name): name for name in schema.names}
    return [name if name in schema.names else names.get(name, name) for name in stored]


def _stored_name(name: str) -> str:
    encoded = re.sub(r"\W", lambda found: f"_x{ord(found[0]):X}", name)
    return f"_{encoded}" if encoded[:1].isdigit() else encoded


def _changed_column(file: TableFile, problem: str) -> BadFileError:
    error = BadFileError(f"after {file.path} of {file.address} was written, {problem}")
    error.remedy = "Write the data files again, for example with rewrite_data_files of Spark"
    return error


def _id_of(field: pa.Field) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(_FIELD_ID)
    return found


def _plain_field(field: pa.Field) -> pa.Field:
    return pa.field(field.name, plain_type(field.type), nullable=field.nullable)


def fit_rows(
    table: pa.Table, schema: pa.Schema, partitions: Sequence[tuple[str, str | None]]
) -> pa.Table:
    """Return rows with the columns of a schema, in its order and with its types.

    Partition columns get their values. Other columns that the rows lack are null.

    >>> rows = pa.table({"id": pa.array([1], pa.int32())})
    >>> schema = pa.schema([("day", pa.date32()), ("id", pa.int64()), ("new", pa.string())])
    >>> fit_rows(rows, schema, [("day", "2026-01-31")]).to_pylist()
    [{'day': datetime.date(2026, 1, 31), 'id': 1, 'new': None}]
    """
    values = dict(partitions)
    metadata = table.schema.metadata
    table = table.rename_columns(table_names(table.column_names, schema=schema))
    columns = []
    for field in schema:
        if field.name in values:
            value = pa.scalar(values[field.name], pa.string()).cast(field.type)
            columns.append(pa.repeat(value, table.num_rows))
        elif field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        else:
            columns.append(pa.nulls(table.num_rows, field.type))
    return pa.Table.from_arrays(columns, schema=schema.with_metadata(metadata))


def fit_output(table: OutputTable, schema: pa.Schema) -> pa.Schema:
    """Return the schema that the rows need so that they can be added to a table.

    Args:
      table: The table.
      schema: The schema of the rows, with the columns that `tt` adds.

    Raises:
      UserError: The table cannot store the rows, or its columns differ.
    """
    stored = table.schema if table.schema is not None else _new_schema(table, schema)
    for field in schema:
        if field.name not in stored.names:
            raise UserError(
                f"{table.address} has no column {field.name!r}, which the output contains. Choose "
                "a new table, or add the column"
            )
        column = stored.field(field.name)
        if not fits(field.type, column.type):
            raise UserError(
                f"{table.address} stores the column {field.name!r} as {column.type}, but it is "
                f"{field.type}. Choose another table, or convert the column first"
            )
    required = {field.name for field in stored if not field.nullable}
    given = {field.name for field in schema if not field.nullable}
    if missing := sorted(required - given):
        raise UserError(
            f"{table.address} requires values in the column {missing[0]!r}, but the output may "
            "lack them. Choose another table"
        )
    return pa.schema([_plain_field(stored.field(name)) for name in schema.names])


def _new_schema(table: OutputTable, schema: pa.Schema) -> pa.Schema:
    plain = pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])
    try:
        stored: pa.Schema = _functions(table.address.kind).stored_schema(table, plain)
    except Exception as error:  # the Delta Lake package raises plain exceptions
        raise UserError(
            f"{table.address} cannot store all columns: {first_line(error)}. Convert the column "
            "first, or write Parquet files"
        ) from error
    return stored
