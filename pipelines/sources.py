"""Every kind of corpus: text pairs, TSV, Parquet, TFDS and the embedded one, cut into units.

What can be cut where it lies (Parquet, TFDS, lists) is; text, which must be read from its start,
is read once and written as chunk files that the units name.
"""

from __future__ import annotations

import abc
import dataclasses
import gzip
import hashlib
import itertools
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from typing import IO, Any

import pyarrow as pa
import pyarrow.parquet as pq
from apache_beam.io.filesystems import FileSystems

from model.errors import UserError
from pipelines import files, parquet
from pipelines.tfds_source import TfdsPairs, open_tfds
from pipelines.units import (
    MALFORMED,
    MAX_UNIT_PAIRS,
    ROW_SCHEMA,
    SLICE_PAIRS,
    Source,
    Unit,
    decode_lines,
    row_table,
)

__all__ = [
    "MAX_UNIT_PAIRS",
    "EmbeddedCorpus",
    "ParquetColumns",
    "Source",
    "TextPair",
    "TfdsPairs",
    "Tsv",
    "Unit",
    "sources_from_options",
]

_GZIP_EXPANSION = 3  # text; only the number of buckets and default shards rests on it
_BOM = b"\xef\xbb\xbf"


# Text: line-aligned pairs of files, and TSV.


class _TextSource(Source):
    """What text pairs and TSV have in common: they are cut by reading them once."""

    @abc.abstractmethod
    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the whole corpus in tables of `SLICE_PAIRS` rows; the last may be shorter."""

    @abc.abstractmethod
    def paths(self) -> list[str]:
        """Returns the files that the corpus is read from."""

    def identity(self) -> dict[str, Any]:
        """Returns what the fingerprint rests on."""
        described: dict[str, Any] = dataclasses.asdict(self)  # type: ignore[call-overload]
        return {
            "kind": type(self).__name__,
            **described,
            "files": [files.file_identity(path) for path in self.paths()],
        }

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        return sum(
            files.file_identity(path)["bytes"] * (_GZIP_EXPANSION if path.endswith(".gz") else 1)
            for path in self.paths()
        )

    def cut(
        self, *, order: int, is_held_out: bool, max_pairs: int, work_folder: str
    ) -> Iterator[Unit]:
        """Yields the units, in order."""
        # The index is written when all chunks are: with it a rerun need not read the text again.
        index_path = FileSystems.join(work_folder, f"chunks-{order:03d}.json")

        def unit(index: int, rows: int) -> Unit:
            return Unit(
                source=self,
                order=order,
                index=index,
                first_row=index * max_pairs,
                rows=rows,
                is_held_out=is_held_out,
                chunk=FileSystems.join(work_folder, f"chunk-{order:03d}-{index:05d}.arrow"),
            )

        if FileSystems.exists(index_path):
            with files.open_binary(index_path) as file:
                yield from (unit(index, rows) for index, rows in enumerate(json.load(file)))
            return
        sizes = []
        for index, tables in enumerate(_in_runs(self.read_tables(), max_pairs)):
            sizes.append(sum(table.num_rows for table in tables))
            new = unit(index, sizes[-1])
            if not FileSystems.exists(new.chunk):
                _write_chunk(new.chunk, tables, temporary_folder=work_folder)
            yield new
        files.write_text(index_path, json.dumps(sizes), temporary_folder=work_folder)


@dataclasses.dataclass(frozen=True)
class TextPair(_TextSource):
    """Two files of which each line of one translates the same line of the other (.gz too)."""

    source_path: str
    target_path: str

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return f"{self.source_path} + {self.target_path}"

    def paths(self) -> list[str]:
        """Returns the files."""
        return [self.source_path, self.target_path]

    def file_of(self, row: int) -> str:
        """Returns the file that a row stands in."""
        return self.source_path

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads both files in step.

        Raises:
          UserError: One file has more lines than the other, or cannot be read.
        """
        sources, targets = _LineReader(self.source_path), _LineReader(self.target_path)
        while True:
            source_lines, target_lines = sources.take(SLICE_PAIRS), targets.take(SLICE_PAIRS)
            if len(source_lines) != len(target_lines):
                raise UserError(
                    f"{self.source_path} has {sources.count_to_end()} lines and "
                    f"{self.target_path} has {targets.count_to_end()}: line-aligned files must "
                    "have equally many, so check that both are whole and belong together"
                )
            if not source_lines:
                return
            yield decode_lines(source_lines, target_lines)


@dataclasses.dataclass(frozen=True)
class Tsv(_TextSource):
    """A file with a pair a line, its columns between tabs and counted from 0 (.gz too)."""

    path: str
    source_column: int = 0
    target_column: int = 1

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return self.path

    def paths(self) -> list[str]:
        """Returns the files."""
        return [self.path]

    def read_tables(self) -> Iterator[pa.Table]:
        """Reads the file; a line with too few columns becomes a fault."""
        reader = _LineReader(self.path)
        needed = max(self.source_column, self.target_column) + 1
        while lines := reader.take(SLICE_PAIRS):
            sources, targets, faults = [], [], {}
            for row, line in enumerate(lines):
                columns = line.split(b"\t")
                if len(columns) < needed:
                    faults[row] = MALFORMED
                    sources.append(line)
                    targets.append(b"")
                else:
                    sources.append(columns[self.source_column])
                    targets.append(columns[self.target_column])
            yield decode_lines(sources, targets, faults=faults)


class _LineReader:
    r"""Reads a text file by lines that end at \n, and at nothing else; keeps count."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._count = 0
        file = files.open_binary(path)
        self._file: IO[bytes] = (
            gzip.GzipFile(fileobj=file) if path.endswith(".gz") else file  # type: ignore[assignment]
        )

    def take(self, number: int) -> list[bytes]:
        r"""Returns the next lines, without \n or \r\n: fewer than `number` only at the end."""
        try:
            lines = list(itertools.islice(self._file, number))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UserError(
                f"{self._path} is cut off or damaged after line {self._count}: {error}. "
                "Fetch it again"
            ) from error
        if self._count == 0 and lines:
            lines[0] = lines[0].removeprefix(_BOM)
        self._count += len(lines)
        return [line.removesuffix(b"\n").removesuffix(b"\r") for line in lines]

    def count_to_end(self) -> int:
        """Reads on to the end and returns the number of lines of the file."""
        while self.take(SLICE_PAIRS):
            pass
        return self._count


def _in_runs(tables: Iterator[pa.Table], max_pairs: int) -> Iterator[list[pa.Table]]:
    """Groups tables into runs of exactly `max_pairs` rows; the last may be shorter."""
    run: list[pa.Table] = []
    room = max_pairs
    for table in tables:
        while table.num_rows >= room:
            yield [*run, table.slice(0, room)]
            table, run, room = table.slice(room), [], max_pairs
        if table.num_rows:
            run.append(table)
            room -= table.num_rows
    if run:
        yield run


def _write_chunk(path: str, tables: list[pa.Table], *, temporary_folder: str) -> None:
    options = pa.ipc.IpcWriteOptions(compression="lz4", unify_dictionaries=True)
    with (
        files.write_whole(path, temporary_folder=temporary_folder) as file,
        pa.ipc.new_file(file, ROW_SCHEMA, options=options) as writer,
    ):
        for table in pa.concat_tables(tables).unify_dictionaries().to_batches():
            writer.write_batch(table)


# What can be read in place.


@dataclasses.dataclass(frozen=True)
class ParquetColumns(Source):
    """Two string columns of a Parquet file; a null counts as empty."""

    path: str
    source_column: str
    target_column: str

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return self.path

    def identity(self) -> dict[str, Any]:
        """Returns what the fingerprint rests on."""
        return {
            "kind": type(self).__name__,
            **dataclasses.asdict(self),
            "files": [files.file_identity(self.path)],
        }

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        wanted = (self.source_column, self.target_column)
        with files.open_binary(self.path) as file:
            metadata = pq.ParquetFile(file).metadata
            groups = [metadata.row_group(i) for i in range(metadata.num_row_groups)]
            columns = [group.column(i) for group in groups for i in range(group.num_columns)]
            return sum(
                column.total_uncompressed_size
                for column in columns
                if column.path_in_schema in wanted
            )

    def cut(
        self,
        *,
        order: int,
        is_held_out: bool,
        max_pairs: int,
        work_folder: str,
    ) -> Iterator[Unit]:
        """Yields the units, in order."""
        with files.open_binary(self.path) as file:
            total = pq.ParquetFile(file).metadata.num_rows
        return self._cut_in_place(
            total=total, order=order, is_held_out=is_held_out, max_pairs=max_pairs
        )

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows."""
        with files.open_binary(self.path) as file:
            for batch in parquet.iter_rows(
                pq.ParquetFile(file),
                path=self.path,
                first_row=first_row,
                rows=rows,
                batch_rows=SLICE_PAIRS,
                columns=[self.source_column, self.target_column],
            ):
                yield decode_lines(
                    parquet.cell_bytes(batch.column(self.source_column)),
                    parquet.cell_bytes(batch.column(self.target_column)),
                )


@dataclasses.dataclass(frozen=True)
class EmbeddedCorpus(Source):
    """A split of the corpus that comes with `tt`: "train" or "held_out"."""

    split: str = "train"

    def __post_init__(self) -> None:
        if self.split not in ("train", "held_out"):
            raise UserError(
                f"the embedded corpus has the splits train and held_out. Received: {self.split!r}"
            )

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return f"embedded:{self.split}"

    def _pairs(self) -> list[tuple[str, str]]:
        from pipelines import demo_corpus

        pairs = demo_corpus.train_pairs() if self.split == "train" else demo_corpus.held_out_pairs()
        return [(pair.source, pair.target) for pair in pairs]

    def identity(self) -> dict[str, Any]:
        """Returns what the fingerprint rests on."""
        text = "\n".join(f"{source}\t{target}" for source, target in self._pairs())
        return {"kind": type(self).__name__, "text": hashlib.sha256(text.encode()).hexdigest()}

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        return sum(len(source) + len(target) for source, target in self._pairs())

    def cut(
        self,
        *,
        order: int,
        is_held_out: bool,
        max_pairs: int,
        work_folder: str,
    ) -> Iterator[Unit]:
        """Yields the units, in order."""
        return self._cut_in_place(
            total=len(self._pairs()), order=order, is_held_out=is_held_out, max_pairs=max_pairs
        )

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows."""
        pairs = self._pairs()[first_row : first_row + rows]
        for i in range(0, len(pairs), SLICE_PAIRS):
            sources, targets = zip(*pairs[i : i + SLICE_PAIRS], strict=True)
            yield row_table(pa.array(sources, pa.string()), pa.array(targets, pa.string()))


# From the command line's options.


def sources_from_options(
    *,
    source_texts: Sequence[str] = (),
    target_texts: Sequence[str] = (),
    tsv: Sequence[str] = (),
    parquet: Sequence[str] = (),
    tfds: Sequence[str] = (),
    source_column: str | int | None = None,
    target_column: str | int | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    language_pair: str | None = None,
    subsets: Sequence[str] = (),
    data_dir: str | None = None,
    download: bool = False,
    split: str = "train",
) -> list[Source]:
    """Opens corpora by their names, each of which may be a glob, and checks them at once.

    Args:
      source_texts: Text files, a source sentence a line.
      target_texts: Their translations, in the same order.
      tsv: TSV files.
      parquet: Parquet files.
      tfds: TFDS datasets, as [tfds:]NAME[/CONFIG].
      source_column: A number from 0 in TSV (default 0), a name in Parquet (default: the source
        language, or "source").
      target_column: The same of the target; in TSV the default is 1.
      source_language: Chooses the feature of a TFDS dataset.
      target_language: The same of the target.
      language_pair: For wmt_translate: SOURCE-TARGET, such as "de-en".
      subsets: For wmt_translate: SPLIT=NAME, such as "train=newscommentary_v14".
      data_dir: Where TFDS datasets are prepared; None is TFDS's own default.
      download: Let TFDS download and prepare what is missing.
      split: Of TFDS datasets, in TFDS's syntax.

    Raises:
      UserError: Something named does not exist, or does not fit.
    """
    sources: list[Source] = []
    source_paths = [path for pattern in source_texts for path in _find(pattern)]
    target_paths = [path for pattern in target_texts for path in _find(pattern)]
    if len(source_paths) != len(target_paths):
        raise UserError(
            "there must be as many target texts as source texts. Received: "
            f"{len(source_paths)} source ({', '.join(source_paths) or 'none'}) and "
            f"{len(target_paths)} target ({', '.join(target_paths) or 'none'})"
        )
    sources += [TextPair(s, t) for s, t in zip(source_paths, target_paths, strict=True)]
    for path in [path for pattern in tsv for path in _find(pattern)]:
        sources.append(
            Tsv(path, _column_number(source_column, 0), _column_number(target_column, 1))
        )
    for path in [path for pattern in parquet for path in _find(pattern)]:
        columns = (
            str(source_column) if source_column is not None else source_language or "source",
            str(target_column) if target_column is not None else target_language or "target",
        )
        _check_parquet(path, columns)
        sources.append(ParquetColumns(path, *columns))
    for name in tfds:
        sources.append(
            open_tfds(
                name.removeprefix("tfds:"),
                split=split,
                data_dir=data_dir,
                source_language=source_language,
                target_language=target_language,
                language_pair=language_pair,
                subsets=subsets,
                download=download,
            )
        )
    return sources


def _find(pattern: str) -> list[str]:
    if os.path.isdir(pattern):  # noqa: PTH112 (the path may be of any file system)
        raise UserError(f"{pattern} is a folder: name the files in it, as in '{pattern}/*'")
    found = files.find_files(pattern)
    if not found:
        raise UserError(f"no file at {pattern}: check the path")
    return found


def _column_number(column: str | int | None, default: int) -> int:
    if column is None:
        return default
    try:
        number = int(column)
    except ValueError:
        number = -1
    if number < 0:
        raise UserError(f"a column of TSV is a number from 0. Received: {column!r}")
    return number


def _check_parquet(path: str, columns: tuple[str, str]) -> None:
    with files.open_binary(path) as file:
        try:
            schema = pq.read_schema(file)
        except pa.ArrowInvalid as error:
            raise UserError(f"{path} is not a Parquet file: {error}") from error
    for option, column in zip(("--source-column", "--target-column"), columns, strict=True):
        if column not in schema.names:
            raise UserError(
                f"{path} has no column {column!r}: give {option} one of {', '.join(schema.names)}"
            )
        kind = schema.field(column).type
        if not parquet.is_text(kind):
            raise UserError(
                f"column {column!r} of {path} must hold strings. Received: {kind} "
                f"({option} chooses another)"
            )
