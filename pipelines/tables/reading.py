"""Inspect and open table files of any format.

The ending of the file name determines the format. The footer of a Parquet file allows random access
to its rows. Files of the other formats are read from their start, or by the ranges that counting
the lines of an uncompressed text file has found.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import io
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError, UserError
from tt.model.storage.files import open_binary, open_for_parts, open_input, read_range
from tt.model.storage.listing import file_identity
from tt.model.storage.paths import is_local
from tt.pipelines.tables.arrow import ArrowRows
from tt.pipelines.tables.damage import (
    FormatError,
    explain_damage,
    explain_each,
    is_damage,
)
from tt.pipelines.tables.delimited import MOST_HEAD_BYTES, DelimitedRows
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.formats import (
    ARROW,
    CSV,
    DEFAULTS,
    ENDINGS,
    JSON,
    JSONL,
    PARQUET,
    TEXT,
    TSV,
    UTF8,
    ReadOptions,
)
from tt.pipelines.tables.interface import ReadRequest, Rows
from tt.pipelines.tables.json_arrays import open_json
from tt.pipelines.tables.json_texts import JsonTexts
from tt.pipelines.tables.jsonl import JsonlRows
from tt.pipelines.tables.lines import AlignedRows, CellRows, TextRows
from tt.pipelines.tables.parquet import (
    Contents,
    ForwardReader,
    NotParquetError,
    ParquetRows,
    RowCursor,
    read_footer,
)
from tt.pipelines.tables.ranges import LINES, LineRange, can_be_cut, find_ranges
from tt.pipelines.tables.text_files import (
    MAX_LINE_BYTES,
    TextFile,
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
    if file_format.name == ARROW:
        return _inspect_arrow(path, options=options, identity=identity, content=content)
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


def _inspect_arrow(
    path: str, *, options: ReadOptions, identity: Mapping[str, Any], content: bytes
) -> Contents:
    """Return the schema and the first rows of an Arrow file, given its beginning.

    If the beginning does not contain the schema, which Polars writes only into the footer, the
    function reads the footer and the first batch.
    """
    starts: list[dict[str, Any]] = [{"content": content, "is_head": True}, {}]
    for head in starts:
        with (
            contextlib.suppress(BadFileError) if head else contextlib.nullcontext(),
            OpenTable(path, options=options, **head) as table,
        ):
            rows = [batch.slice(0, _FIRST_ROWS) for batch in itertools.islice(table.batches(), 1)]
            break
    return Contents(
        size=int(identity["bytes"]),
        changed=identity["changed"],
        schema=table.schema,
        head=pa.Table.from_batches(rows, schema=table.schema),
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
    with OpenTable(path, options=options, content=content, has_checksum=True) as table:
        rows = content_bytes = 0
        head: pa.Table | None = None
        good = _GoodRows(table)
        for batch in good:
            if head is None:
                head = pa.Table.from_batches([batch.slice(0, _FIRST_ROWS)])
            rows += batch.num_rows
            content_bytes += batch.nbytes
        size, checksum = table.finish()
        if file_format.name == TEXT and not rows:
            raise BadFileError(f"{path} is empty, so it has no texts")
        return Contents(
            size=size,
            rows=rows,
            checksum=checksum,
            schema=table.schema,
            content_bytes=content_bytes,
            head=head,
            problem=good.problem,
        )


def find_row_ranges(
    path: str, *, options: ReadOptions, columns: Sequence[str | int] = (), **limits: Any
) -> list[LineRange]:
    """Return ranges of a file that can be opened separately; [] if it must be read from its start.

    Args:
      path: The path of the file.
      options: How to read the file.
      columns: See `ReadRequest`.
      limits: The other arguments of `find_ranges`.
    """
    file_format, encoding = options.format_of(path), options.encoding
    has_lines = file_format is not None and file_format.name in (CSV, TSV, JSONL, TEXT)
    if not has_lines or not can_be_cut(path, encoding=encoding):
        return []
    nothing = LineRange(rows=0, begin=0, end=0)
    with OpenTable(path, options=options, columns=columns, part=nothing, is_head=True) as table:
        rules = table.rules or LINES
    return find_ranges(path, rules=rules, encoding=encoding, **limits)


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


def _read_tsv(stream: Any, request: ReadRequest) -> Rows:
    if request.columns:
        return CellRows(stream, request)
    return DelimitedRows(stream, request, has_quotes=False)


def _read_jsonl(stream: Any, request: ReadRequest) -> Rows:
    return JsonTexts(stream, request) if request.columns else JsonlRows(stream, request)


def _read_json(stream: Any, request: ReadRequest) -> Rows:
    return _read_jsonl(open_json(stream, path=request.path), request)


# The reader of each format. Readers of text receive the decompressed content as UTF-8, the reader
# of Arrow receives the open file, and the reader of Parquet receives a `ForwardReader`.
READERS: dict[str, Callable[[Any, ReadRequest], Rows]] = {
    CSV: functools.partial(DelimitedRows, has_quotes=True),
    TSV: _read_tsv,
    JSONL: _read_jsonl,
    JSON: _read_json,
    TEXT: TextRows,
    ARROW: ArrowRows,
    PARQUET: ParquetRows,
}


class OpenTable:
    """An open file of any format, which is read from its start, or a part of it.

    Args:
      path: The path of the file.
      options: How to read the file.
      schema: See `ReadRequest`.
      has_lines: See `ReadRequest`.
      columns: See `ReadRequest`.
      content: The bytes of the file, if they have already been read.
      is_head: Whether `content` is only the beginning of the file.
      part: Read only this range, which `find_row_ranges` has found.
      has_checksum: Whether to compute the checksum of the file for `finish`.

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
        columns: Sequence[str | int] = (),
        content: bytes | None = None,
        is_head: bool = False,
        part: LineRange | None = None,
        has_checksum: bool = False,
    ) -> None:
        self._problem = f"{path} is cut off or damaged"
        file_format = options.format_of(path)
        name = file_format.name if file_format else PARQUET
        is_text = file_format is not None and file_format.is_text
        encoding = options.encoding if is_text else UTF8
        head: bytes | None = None
        stream: Any = None
        with contextlib.ExitStack() as stack, explain_damage(self._problem):
            if part is not None and name in (CSV, TSV):
                with (
                    open_for_parts(path) as file,
                    TextFile(
                        path, content=file.read(MOST_HEAD_BYTES), encoding=encoding
                    ) as beginning,
                ):
                    head = beginning.stream.read()
            if is_text and content is not None and is_head:
                stream = io.BytesIO(_head_lines(content, path=path, encoding=encoding))
            elif is_text or has_checksum:
                self._file = stack.enter_context(
                    TextFile(
                        path,
                        content=content,
                        encoding=encoding,
                        part=part,
                        has_checksum=has_checksum,
                    )
                )
                stream = self._file.stream
            if name == ARROW:
                handle = open_binary(path) if content is None else io.BytesIO(content)
                stream = stack.enter_context(handle)
            elif name == PARQUET:
                whole = ForwardReader(path=path, end=sys.maxsize, is_bulk=True)
                stream = stack.enter_context(whole)
            request = ReadRequest(
                path=path,
                options=options,
                schema=schema,
                has_lines=has_lines,
                columns=columns,
                is_head=is_head,
                head=head,
                line=part.first_line if part else 1,
            )
            self._rows = READERS[name](stream, request)
            self.rules = self._rows.rules
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


@contextlib.contextmanager
def open_aligned(
    paths: Sequence[str], *, encoding: str, parts: Sequence[LineRange] = ()
) -> Iterator[Iterator[pa.RecordBatch]]:
    """Yield the rows of text files whose lines belong together; see `AlignedRows`.

    Args:
      paths: The paths of the files.
      encoding: The encoding of the files.
      parts: The lines to read in each file; by default, all lines.

    Raises:
      BadFileError: A file is bad.
      UserError: A file cannot be opened, or the files have different numbers of lines.
    """
    with contextlib.ExitStack() as stack:
        sides = []
        for path, part in itertools.zip_longest(paths, parts):
            problem = f"{path} is cut off or damaged"
            with explain_damage(problem):
                file = stack.enter_context(TextFile(path, encoding=encoding, part=part))
            request = ReadRequest(path=path, line=part.first_line if part else 1)
            sides.append(explain_each(TextRows(file.stream, request), problem))
        yield iter(AlignedRows(sides, paths=paths))


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
