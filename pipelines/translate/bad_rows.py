"""Keep the content of input rows that cannot be read.

The output has a row without values for each of them, with the status "failed". The job writes the
content to a file per input file, or per unit, and the last step joins these files.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.storage.files import delete, make_folder, open_binary, write_whole
from tt.model.storage.paths import JOB_FOLDER
from tt.pipelines.tables.faults import FAULT, split_faults
from tt.pipelines.translate.plan import InputFile
from tt.pipelines.translate.unit_records import UnitOptions

BAD_ROWS_PATH = f"{JOB_FOLDER}/bad_rows.parquet"
_FOLDER = f"{JOB_FOLDER}/bad_rows"
# Rows and lines count from 1.
_SCHEMA = pa.schema(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("line", pa.int64()),
        ("reason", pa.string()),
        ("content", pa.binary()),
    ]
)
_Write = Callable[[pa.Table], object]


class BadRows:
    """Writes the bad rows of consecutive rows to a file, which exists only if there are such rows.

    Args:
      file: The input file.
      options: The options of the run.
      opened: Closes the file.
      first_row: The index of the first row in the input file.
    """

    def __init__(
        self,
        file: InputFile,
        *,
        options: UnitOptions,
        opened: contextlib.ExitStack,
        first_row: int = 0,
    ) -> None:
        self._name = file.relative_path
        folder = _folder_of(file, plan_digest=options.plan_digest)
        self._path = f"{options.output}/{folder}/{first_row:015d}.parquet"
        temporary_folder = f"{options.output}/{JOB_FOLDER}"
        self._options = {"temporary_folder": temporary_folder, "run_id": options.run_id}
        self._opened = opened
        self._write: _Write | None = None
        self._row = first_row  # the number of rows before the next batch

    def collect(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield all rows, with the messages of the faults in the column of faults.

        Read the rows in their order.
        """
        for batch in batches:
            kept, faults = split_faults(batch)
            messages = pa.nulls(batch.num_rows, pa.string())
            if faults:
                found = [
                    {"file": self._name, "row": self._row + row + 1, **fault._asdict()}
                    for row, fault in faults.items()
                ]
                self._writer()(pa.Table.from_pylist(found, _SCHEMA))
                every = map(faults.get, range(batch.num_rows))
                messages = pa.array([each and str(each) for each in every], pa.string())
            self._row += batch.num_rows
            yield pa.RecordBatch.from_arrays([*kept.columns, messages], [*kept.schema.names, FAULT])

    def _writer(self) -> _Write:
        if self._write is None:
            self._write = self._opened.enter_context(_open_writer(self._path, **self._options))
        return self._write


def join_bad_rows(
    files: Iterable[InputFile],
    *,
    output: str,
    plan_digest: str,
    run_id: str,
    existing: Collection[str],
) -> int:
    """Write the bad rows of all input files to one file; return their number.

    Args:
      files: The input files.
      output: The output folder.
      plan_digest: The digest of the plan of files that have no digest of their own.
      run_id: The name of this run.
      existing: The relative paths of the files in the output folder.
    """
    written = [path.rpartition("/") for path in existing if path.startswith(f"{_FOLDER}/")]
    by_folder: dict[str, list[str]] = {}
    for folder, slash, name in sorted(written):
        by_folder.setdefault(folder, []).append(f"{folder}{slash}{name}")
    folders = [_folder_of(file, plan_digest=plan_digest) for file in files]
    paths = [path for folder in folders for path in by_folder.get(folder, ())]
    stale = set(map("".join, written)).difference(paths)
    if not paths and BAD_ROWS_PATH in existing:
        stale.add(BAD_ROWS_PATH)
    delete([f"{output}/{path}" for path in sorted(stale)])
    rows = 0
    with contextlib.ExitStack() as opened:
        options: dict[str, Any] = {"temporary_folder": f"{output}/{JOB_FOLDER}", "run_id": run_id}
        for index, path in enumerate(paths):
            if index == 0:
                writer = _open_writer(f"{output}/{BAD_ROWS_PATH}", **options)
                write = opened.enter_context(writer)
            with open_binary(f"{output}/{path}") as handle:
                table = pq.read_table(handle)
            rows += table.num_rows
            write(table)
    return rows


@contextlib.contextmanager
def _open_writer(path: str, **options: Any) -> Iterator[_Write]:
    make_folder(path.rpartition("/")[0])
    with (
        write_whole(path, **options) as handle,
        pq.ParquetWriter(handle, _SCHEMA, compression="zstd") as writer,
    ):
        yield writer.write_table


def _folder_of(file: InputFile, *, plan_digest: str) -> str:
    return f"{_FOLDER}/{file.plan_digest or plan_digest}/{file.relative_path}"
