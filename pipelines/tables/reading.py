"""Inspect table files of any format, and open files of all formats except Parquet.

The ending of the file name determines the format. The footer of a Parquet file allows random access
to its rows. Files of the other formats can only be read from the start: a job reads them once to
check them and to count their rows, and once more to translate them.
"""

from __future__ import annotations

import collections
import contextlib
import io
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tt.model.errors import UserError
from tt.model.storage.files import open_binary, open_input, read_range
from tt.model.storage.listing import file_identity
from tt.model.storage.paths import is_local
from tt.pipelines.tables.arrow import ArrowRows
from tt.pipelines.tables.damage import (
    FormatError,
    explain_damage,
    explain_each,
    is_damage,
)
from tt.pipelines.tables.delimited import DelimitedRows
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.formats import (
    ARROW,
    CSV,
    DEFAULTS,
    ENDINGS,
    JSON,
    JSONL,
    TEXT,
    UTF8,
    ReadOptions,
)
from tt.pipelines.tables.json_texts import JsonTexts
from tt.pipelines.tables.jsonl import JsonlRows, open_json
from tt.pipelines.tables.parquet import Contents, NotParquetError, RowCursor, read_footer
from tt.pipelines.tables.text_files import (
    MAX_LINE_BYTES,
    CheckedFile,
    TextRows,
    decompress,
    without_bom,
)

HEAD_BYTES = 512 << 10  # the size of the beginning of a file that is read to find its columns
_HEAD_BUFFER_BYTES = 4096
_MOST_HEAD = 8 << 20  # the maximum size of a decompressed head
_FIRST_ROWS = 1024  # the maximum number of rows in the head of a file that is read completely


def inspect_file(
    path: str, *, options: ReadOptions = DEFAULTS, head_bytes: int | None = None
) -> Contents:
    """Read the footer of a Parquet file, or the head of a file of another format.

    A file that is not larger than the head is read completely. If the first line is longer than the
    head, this function reads a longer head.

    Raises:
      BadFileError: The file is bad.
      UserError: The file cannot be opened.
    """
    file_format = options.format_of(path)
    # The end of an array is needed to find the rows.
    if file_format is None or file_format.has_random_access or file_format.name == JSON:
        return scan_file(path, options=options)
    identity, content = _read_head(path, head_bytes or HEAD_BYTES)
    size = int(identity["bytes"])
    if size == len(content):
        return scan_file(path, options=options, content=content)
    with OpenTable(path, options=options, content=content, is_head=True) as table:
        collections.deque(table.batches(), maxlen=0)  # reading the rows infers the schema
    schema = table.schema
    if not schema.names and len(content) <= MAX_LINE_BYTES:
        return inspect_file(path, options=options, head_bytes=4 * len(content))
    with OpenTable(path, options=options, content=content, is_head=True, schema=schema) as table:
        good = _GoodRows(table)
        head = pa.Table.from_batches(good, schema=schema)
    return Contents(
        size=size,
        changed=identity["changed"],
        schema=schema,
        head=head,
        has_all_columns=file_format.name != JSONL,
        problem=good.problem,
    )


def _read_head(path: str, head_bytes: int) -> tuple[dict[str, Any], bytes]:
    """Return the identity of a file and its first bytes; see `file_identity`."""
    if is_local(path):
        with open_input(path) as file:
            return file_identity(path), file.read(head_bytes)
    try:
        identity = file_identity(path)
        return identity, read_range(path, 0, min(int(identity["bytes"]), head_bytes))
    except OSError as error:
        raise UserError(f"{path} cannot be opened: {error}") from error


def scan_file(
    path: str, *, options: ReadOptions = DEFAULTS, content: bytes | None = None
) -> Contents:
    """Read the footer of a Parquet file, or all rows of a file of another format.

    Args:
      path: The path of the file.
      options: How to read the file.
      content: The bytes of the file, if they have already been read.

    Raises:
      BadFileError: The file is bad.
      UserError: The file cannot be opened.
    """
    file_format = options.format_of(path)
    if file_format is None or file_format.has_random_access:
        try:
            return read_footer(path)
        except NotParquetError as error:
            if file_format is not None:
                raise
            raise FormatError(
                f"{path} must have the ending of its format, {ENDINGS}; tt reads files with other "
                "endings as Parquet, and this file is not Parquet"
            ) from error
    with OpenTable(path, options=options, content=content) as table:
        rows = content_bytes = 0
        head: pa.Table | None = None
        good = _GoodRows(table)
        for batch in good:
            if head is None:
                head = pa.Table.from_batches([batch.slice(0, _FIRST_ROWS)])
            rows += batch.num_rows
            content_bytes += batch.nbytes
        size, checksum = table.finish()
        return Contents(
            size=size,
            rows=rows,
            checksum=checksum,
            schema=table.schema,
            content_bytes=content_bytes,
            head=head,
            problem=good.problem,
        )


class _GoodRows:
    """The rows of a table without their faults, with nulls in bad rows.

    Attributes:
      problem: After the last row, the first fault if all rows are bad; otherwise "".
    """

    def __init__(self, table: OpenTable) -> None:
        self._table = table
        self.problem = ""

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        rows = bad = 0
        first = ""
        for batch in self._table.batches():
            kept, faults = split_faults(batch)
            rows, bad = rows + batch.num_rows, bad + len(faults)
            first = first or next(map(str, faults.values()), "")
            yield kept
        self.problem = first if bad == rows else ""


class OpenTable:
    """An open file of any format except Parquet, which is read from its start.

    Args:
      path: The path of the file.
      options: How to read the file.
      schema: The schema that `scan_file` found, or None.
      has_lines: Whether the rows of JSONL have the column of lines; see `JsonlRows`.
      text_keys: The keys of JSONL whose texts to read; empty for all values.
      content: The bytes of the file, if they have already been read.
      is_head: Whether `content` is only the beginning of the file.

    Raises:
      BadFileError: The file is bad.
      UserError: The file cannot be opened.
    """

    def __init__(
        self,
        path: str,
        *,
        options: ReadOptions = DEFAULTS,
        schema: pa.Schema | None = None,
        has_lines: bool = False,
        text_keys: Sequence[str] = (),
        content: bytes | None = None,
        is_head: bool = False,
    ) -> None:
        self._problem = f"{path} is cut off or damaged"
        file_format = options.format_of(path)
        name = file_format.name if file_format else ""
        encoding = options.encoding if file_format and file_format.is_text else UTF8
        with contextlib.ExitStack() as stack, explain_damage(self._problem):
            self._file = stack.enter_context(CheckedFile(path, content=content, encoding=encoding))
            stream: Any = self._file.stream
            self._rows: JsonTexts | JsonlRows | DelimitedRows | TextRows | ArrowRows
            if name == ARROW:  # needs random access, because an Arrow footer is at the end
                handle = open_binary(path) if content is None else io.BytesIO(content)
                self._rows = ArrowRows(stack.enter_context(handle), path=path, is_head=is_head)
            else:
                if content is not None and is_head:
                    head = _head_lines(content, path=path, encoding=encoding)
                    stream = io.BytesIO(head)
                if name in (JSONL, JSON):
                    if name == JSON:
                        stream = open_json(stream, path=path)
                    self._rows = (
                        JsonTexts(stream, path=path, keys=text_keys)
                        if text_keys
                        else JsonlRows(stream, path=path, schema=schema, has_lines=has_lines)
                    )
                elif name == TEXT:
                    self._rows = TextRows(stream, path=path, is_head=is_head)
                else:
                    self._rows = DelimitedRows(
                        stream,
                        path=path,
                        delimiter=options.delimiter,
                        has_quotes=name == CSV,
                        is_head=is_head,
                    )
            self._opened = stack.pop_all()

    def __enter__(self) -> OpenTable:
        return self

    def __exit__(self, *exception: Any) -> None:
        self._opened.close()

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows; an inferred schema is complete only after the last row."""
        return self._rows.schema

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; see `faults.py` for rows that cannot be read.

        Raises:
          BadFileError: The file is bad.
        """
        return explain_each(self._rows, self._problem)

    def batch_runs(self, sizes: Sequence[int]) -> Iterator[Iterator[pa.RecordBatch]]:
        """Yield the rows in runs with the given numbers of rows, or fewer at the end of the file.

        Read each run to its end before you request the next one.

        Raises:
          BadFileError: The file is bad.
        """
        cursor = RowCursor(self.batches())
        for size in sizes:
            yield cursor.take(size)

    def finish(self) -> tuple[int, str]:
        """Read to the end of the file; return its size in bytes, and its blake2b checksum."""
        with explain_damage(self._problem):
            return self._file.finish()


def _head_lines(content: bytes, *, path: str, encoding: str) -> bytes:
    """Return the complete lines in the first bytes of a file, decompressed and as UTF-8.

    Args:
      content: The first bytes of the file.
      path: The path of the file, which determines the compression.
      encoding: The encoding of the file.
    """
    stream = decompress(
        io.BytesIO(content), path=path, encoding=encoding, buffer_bytes=_HEAD_BUFFER_BYTES
    )
    head = bytearray()
    most = max(_MOST_HEAD, len(content))
    try:
        while len(head) < most and (part := stream.read1(_HEAD_BUFFER_BYTES)):
            head += part
    except Exception as error:
        if not is_damage(error):
            raise
    end = max(head.rfind(b"\n"), head.rfind(b"\r")) + 1
    return without_bom(bytes(head[:end]), path=path)
