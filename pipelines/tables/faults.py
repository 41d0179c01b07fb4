"""Rows that cannot be read: their cells are null, and one column contains the faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import pyarrow as pa

# The column of faults, which only batches with such rows have. No file has a column of this name.
FAULT = "\0fault"
NOT_UTF8 = "invalid UTF-8"
MOST_BYTES = 64 << 10  # the maximum bytes of a row that a fault contains
_TYPE = pa.struct([("line", pa.int64()), ("reason", pa.string()), ("content", pa.binary())])


class Fault(NamedTuple):
    """Why a row cannot be read.

    Attributes:
      line: The line in which the row begins, counted from 1.
      reason: The reason, for users.
      content: The bytes of the row, without its line end.
    """

    line: int
    reason: str
    content: bytes

    def __str__(self) -> str:
        """Return the line and the reason."""
        return f"line {self.line:,}: {self.reason}"


def with_faults(batch: pa.RecordBatch, faults: Mapping[int, Fault]) -> pa.RecordBatch:
    """Return a batch with the faults of its rows, by row; without faults, the batch itself."""
    if not faults:
        return batch
    found: list[Fault | None] = [faults.get(row) for row in range(batch.num_rows)]
    values = [each and each._replace(content=each.content[:MOST_BYTES])._asdict() for each in found]
    column = pa.array(values, _TYPE)
    return pa.RecordBatch.from_arrays([*batch.columns, column], [*batch.schema.names, FAULT])


def split_faults(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, dict[int, Fault]]:
    """Return a batch without the column of faults, and the faults by row."""
    *names, last = batch.schema.names or [""]
    if last != FAULT:
        return batch, {}
    faults = batch.column(len(names)).to_pylist()
    kept = batch.select(list(range(len(names))))
    return kept, {row: Fault(**fault) for row, fault in enumerate(faults) if fault}
