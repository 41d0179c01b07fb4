"""Read tables for tests: the contents of a file, or its error, and runs of rows."""

import pyarrow as pa

from tt.model.errors import BadFileError
from tt.pipelines.tables import reading


def scan_file(path):
    """Return the contents of a file, or the error that explains why it is bad."""
    try:
        return reading.scan_file(str(path))
    except BadFileError as error:
        return error


def read_runs(table, sizes):
    """Return the rows of an open table in runs of these sizes."""
    return [pa.Table.from_batches(run, schema=table.schema) for run in table.batch_runs(sizes)]
