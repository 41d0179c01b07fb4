"""Texts of columns of Parquet files on this machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from model.errors import UserError
from model.folders.access import check_readable
from pipelines.storage.parquet import cell_bytes, is_text


def read_column(
    files: Sequence[Path], column: str, *, field: str
) -> Iterator[tuple[Path, list[str | None]]]:
    """Yields the texts of a column, file by file; `field` is the option that chooses it.

    Raises:
      UserError: A file cannot be read, or has no such column of strings.
    """
    for file in files:
        try:
            check_readable(file)
            schema = pq.read_schema(file)
            if column not in schema.names:
                raise UserError(
                    f"{file} has no column {column!r}: choose one of "
                    f"{', '.join(schema.names)} with `{field}`"
                )
            if schema.names.count(column) > 1:
                raise UserError(f"{file} has several columns {column!r}: rename all but one")
            kind = schema.field(column).type
            if not is_text(kind):
                raise UserError(
                    f"a column must hold strings. Received: {kind} in {column!r} of {file}. Choose "
                    f"another with `{field}`"
                )
            cells = cell_bytes(pq.ParquetFile(file).read(columns=[column])[column])
            yield file, [None if cell is None else cell.decode() for cell in cells]
        except UnicodeDecodeError as error:
            raise UserError(
                f"column {column!r} of {file} has texts that are not UTF-8: choose another with "
                f"`{field}`"
            ) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{file} cannot be read as Parquet: {error}. Name another file"
            ) from error
