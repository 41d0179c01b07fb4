"""Read tables for tests: the contents of a file, or its error, and runs of rows."""

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.pipelines.tables import reading
from tt.pipelines.tables.faults import split_faults


def scan_file(path):
    """Return the contents of a file, or the error that explains why it is bad."""
    try:
        return reading.scan_file(str(path))
    except BadFileError as error:
        return error


def read_runs(table, sizes):
    """Return the rows of an open table in runs of these sizes."""
    return [pa.Table.from_batches(run, schema=table.schema) for run in table.batch_runs(sizes)]


def read_faults(path):
    """Return the row, the line and the reason of each bad row, and the number of all rows."""
    found, rows = [], 0
    with reading.OpenTable(str(path)) as table:
        for batch in table.batches():
            _, faults = split_faults(batch)
            found += [(rows + row, each.line, each.reason) for row, each in faults.items()]
            rows += batch.num_rows
    return found, rows
