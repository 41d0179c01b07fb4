"""Read samples of the texts of a job before it starts."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.model.storage.paths import is_local
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.pipelines.tables.columns import read_text_column
from tt.pipelines.tables.lakehouse import fit_rows
from tt.pipelines.tables.parquet import read_rows
from tt.pipelines.translate.inputs import FoundInput
from tt.pipelines.translate.plan import InputFile
from tt.pipelines.translate.table import TableOptions, choose_rows


def first_texts(found: FoundInput, *, count: int, table: TableOptions) -> dict[str, list[str]]:
    """Return the texts in the first rows of the first file that has rows, by column.

    Args:
      found: The input of the job.
      count: The maximum number of rows.
      table: The options of the translated columns.

    Returns:
      A list of texts, without null values, for each text column; {} if the rows cannot be read.
    """
    file = next((file for file in found.files if file.rows != 0), None)
    return {} if file is None else _read_texts(found, file, first_row=0, count=count, table=table)


def spread_texts(
    found: FoundInput, *, places: int, count: int, table: TableOptions
) -> list[list[str]]:
    """Return samples of texts from several places of the input.

    Each sample consists of the first rows of a Parquet row group, because all rows before a row in
    its group must be read. If the input has fewer row groups than samples, the rows of a group are
    divided into several samples. Only one group is read from an object store, and only the head of
    the first file if the first file is not Parquet.

    Args:
      found: The input of the job.
      places: The number of samples.
      count: The maximum number of rows in a sample.
      table: The options of the translated columns.
    """
    starts = [
        (file, sum(file.group_rows[:index]), rows)
        for file in found.files
        for index, rows in enumerate(file.group_rows)
        if rows
    ]
    if found.first_rows is not None:
        starts = [(file, 0, found.first_rows.num_rows) for file in found.files if file.rows != 0]
    chosen = [starts[index] for index in _evenly(len(starts), most=places)]
    if found.first_rows is not None or not all(is_local(file.path) for file, _, _ in chosen):
        chosen = chosen[:1]
    texts: list[list[str]] = []
    for file, first_row, rows in chosen:
        most = min(rows, count * places // len(chosen))
        columns = _read_texts(found, file, first_row=first_row, count=most, table=table)
        texts.append([text for column in columns.values() for text in column])
    return _divide(texts, pieces=places)


def _evenly(length: int, *, most: int) -> list[int]:
    """Return at most `most` indices that are spread evenly over a sequence.

    >>> _evenly(10, most=4), _evenly(2, most=4)
    ([0, 2, 5, 7], [0, 1])
    """
    count = min(length, most)
    return [index * length // count for index in range(count)]


def _divide(texts: Sequence[list[str]], *, pieces: int) -> list[list[str]]:
    """Divide lists until there are at least `pieces` of them.

    >>> _divide([[*"abcd"], [*"efg"]], pieces=4)
    [['a', 'b'], ['c', 'd'], ['e'], ['f', 'g']]
    """
    each = -(-pieces // max(1, len(texts)))
    return [
        some[index * len(some) // each : (index + 1) * len(some) // each]
        for some in texts
        for index in range(each)
    ]


def _read_texts(
    found: FoundInput, file: InputFile, *, first_row: int, count: int, table: TableOptions
) -> dict[str, list[str]]:
    def choose_columns(schema: pa.Schema) -> list[int]:
        used = table.used_columns(schema, partitions=dict(file.partitions))
        return [index for index, name in enumerate(schema.names) if name in used]

    rows = min(count, file.rows or 0)
    try:
        read = found.first_rows
        if read is None:
            read = read_rows(
                path=file.path,
                first_row=first_row,
                rows=rows,
                footer_checksum=file.footer_checksum,
                choose_columns=functools.partial(file.choose_columns, choose=choose_columns),
            )
            if file.as_schema is not None:
                read = fit_rows(read, file.as_schema, file.table_partitions)
        read = read.slice(0, count)
        is_chosen = choose_rows(read, where=table.where, partitions=file.partitions)
        columns = {name: read_text_column(read, name) for name in found.text_columns}
        return {
            name: [
                cell.decode(errors="ignore")
                for cell, chosen in zip(texts.cells, texts.spread(is_chosen), strict=True)
                if chosen and cell is not None and len(cell) <= MAX_TEXT_BYTES
            ]
            for name, texts in columns.items()
        }
    except (BadFileError, KeyError):  # the job itself reports or skips the file
        return {}
