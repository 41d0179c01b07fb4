"""Every kind of corpus, opened by the string that names it.

What can be cut into units where it lies (Parquet, TFDS, lists) is; what must be read from its
start is read once and written as chunk files that the units name.
"""

from __future__ import annotations

import dataclasses
import functools
import glob
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

from model.errors import UserError
from pipelines.corpora.encodings import UTF8, find_encoding
from pipelines.corpora.parquet_columns import ParquetColumns, check_columns, has_columns
from pipelines.corpora.text import COMPRESSIONS, Jsonl, TextPair, Tsv, find_keys, first_lines
from pipelines.corpora.tfds import TfdsPairs, open_tfds
from pipelines.pairs.units import (
    MAX_UNIT_PAIRS,
    SLICE_PAIRS,
    Source,
    Unit,
    cut_in_place,
    describe_source,
    even_sizes,
    megabytes,
    row_table,
)
from pipelines.storage import files, parquet

__all__ = [
    "CORPUS_KINDS",
    "MAX_UNIT_PAIRS",
    "CorpusSpec",
    "EmbeddedCorpus",
    "Jsonl",
    "ParquetColumns",
    "Source",
    "TextPair",
    "TfdsPairs",
    "Tsv",
    "Unit",
    "parse_corpus",
    "sources_from_options",
]

Kind = Literal["text", "tsv", "jsonl", "parquet", "tfds"]

CORPUS_KINDS = (
    "*.tsv, *.jsonl (or these with .gz, .bz2, .zst), *.parquet, tfds:NAME[/CONFIG], "
    "SOURCE+TARGET (two line-aligned text files); a file of another name that is tab-separated is "
    "told by the numbers of its columns, as in fra.txt:0:1"
)
_COMPRESSION = "|".join(map(re.escape, COMPRESSIONS))
_FILE = re.compile(
    rf"(?P<path>.*\.(?:(?P<kind>tsv|jsonl)(?:{_COMPRESSION})?|parquet))(?::(?P<columns>.*))?"
)
_NUMBERED = re.compile(r"(?P<path>[^:].*):(?P<columns>[0-9]+:[0-9]+)")
_GIVEN_NAME = re.compile(r"(?P<name>[^=/:+*?\[]+)=(?P<rest>.+)")
_TFDS = re.compile(
    r"tfds:(?P<dataset>[^:]+(?::(?:\d+|\*)(?:\.(?:\d+|\*)){2})?)(?::(?P<columns>.*))?"
)


@dataclasses.dataclass(frozen=True)
class EmbeddedCorpus(Source):
    """A split of the corpus that comes with `tt`: "train" or "held_out"."""

    kind: ClassVar[str] = "embedded"

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
        from pipelines.english_spanish import choices as demo_corpus

        pairs = demo_corpus.train_pairs() if self.split == "train" else demo_corpus.held_out_pairs()
        return [(pair.source, pair.target) for pair in pairs]

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the corpus from another."""
        text = "\n".join(f"{source}\t{target}" for source, target in self._pairs())
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [],
            "columns": [],
            "text": hashlib.sha256(text.encode()).hexdigest(),
        }

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        return sum(len(source) + len(target) for source, target in self._pairs())

    def describe(self) -> str:
        """Returns a line on what would be read."""
        size = megabytes(self.text_bytes())
        return describe_source(self, where=self.name, size=size, pairs=len(self._pairs()))

    def cut(
        self, *, order: int, is_held_out: bool, max_pairs: int, work_folder: str
    ) -> Iterator[Unit]:
        """Yields the units, in order."""
        return cut_in_place(
            self,
            even_sizes(total=len(self._pairs()), most=max_pairs),
            order=order,
            is_held_out=is_held_out,
            work_folder=work_folder,
        )

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows."""
        pairs = self._pairs()[first_row : first_row + rows]
        for i in range(0, len(pairs), SLICE_PAIRS):
            sources, targets = zip(*pairs[i : i + SLICE_PAIRS], strict=True)
            yield row_table(
                pa.array(sources, pa.large_string()), pa.array(targets, pa.large_string())
            )


# Corpus strings.


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSpec:
    """What a corpus string says.

    Attributes:
      kind: What the corpus is.
      paths: The file, or the two files of text; each may be a glob. Of TFDS, NAME[/CONFIG].
      name: The name that it gives the corpus, or "".
      source_column: The column that it names, or None.
      target_column: Likewise.
    """

    kind: Kind
    paths: tuple[str, ...]
    name: str = ""
    source_column: str | None = None
    target_column: str | None = None


def parse_corpus(text: str, *, exists: Callable[[str], bool] = lambda path: False) -> CorpusSpec:
    """Takes a corpus string apart: [NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN], or [NAME=]A+B.

    A file of no known ending is TSV where its columns are numbers.

    Args:
      text: The string.
      exists: Tells whether a path, or a glob, names a file as it is written: then it is a path,
        whatever signs are in it.

    Raises:
      UserError: It is nothing of the kind.

    >>> parse_corpus("train.en.gz+train.de.gz").paths
    ('train.en.gz', 'train.de.gz')
    >>> parse_corpus("web=crawl-*.tsv.zst:0:2")
    CorpusSpec(kind='tsv', paths=('crawl-*.tsv.zst',), name='web', source_column='0', \
target_column='2')
    """
    name, path = "", text
    given = _GIVEN_NAME.fullmatch(text)
    if given and not exists(text):
        name, path = given["name"], given["rest"]
    tfds = _TFDS.fullmatch(path)
    if tfds:
        source_column, target_column = _parse_columns(tfds["columns"], text=text)
        return CorpusSpec(
            kind="tfds",
            paths=(tfds["dataset"],),
            name=name,
            source_column=source_column,
            target_column=target_column,
        )
    file = _FILE.fullmatch(path)
    if file and file["columns"] is not None and exists(path):
        file = None  # all of it is a name, and of an ending that is not known
    if file and ("+" not in path or exists(file["path"])):
        source_column, target_column = _parse_columns(file["columns"], text=text)
        return CorpusSpec(
            kind=_kind(file),
            paths=(file["path"],),
            name=name,
            source_column=source_column,
            target_column=target_column,
        )
    numbered = None if exists(path) else _NUMBERED.fullmatch(path)
    if numbered and not file and ("+" not in path or exists(numbered["path"])):
        source_column, target_column = _parse_columns(numbered["columns"], text=text)
        return CorpusSpec(
            kind="tsv",
            paths=(numbered["path"],),
            name=name,
            source_column=source_column,
            target_column=target_column,
        )
    if "+" in path:
        return CorpusSpec(kind="text", paths=_parse_pair(path, text=text, exists=exists), name=name)
    raise UserError(f"corpus {text!r} is none of {CORPUS_KINDS}")


def _kind(file: re.Match[str]) -> Kind:
    if file["kind"] is None:
        return "parquet"
    return "tsv" if file["kind"] == "tsv" else "jsonl"


def _parse_columns(columns: str | None, *, text: str) -> tuple[str | None, str | None]:
    if columns is None:
        return None, None
    parts = columns.split(":")
    if len(parts) != 2 or not all(parts):
        raise UserError(
            f"corpus {text!r} must end in both its columns, as in a.tsv:0:1 or a.parquet:en:de, or "
            f"in none. Received: {':' + columns!r}"
        )
    return parts[0], parts[1]


def _parse_pair(path: str, *, text: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Finds the + between two paths, which may have one themselves."""
    splits = [(path[: m.start()], path[m.end() :]) for m in re.finditer(r"\+", path)]
    splits = [(source, target) for source, target in splits if source and target]
    if len(splits) > 1:
        splits = [
            (source, target) for source, target in splits if exists(source) and exists(target)
        ]
    if len(splits) != 1:
        raise UserError(
            f"corpus {text!r} must be two paths with a + between them, of files that exist. Paths "
            "with a + in them can go under --source and --target"
        )
    return splits[0]


# Corpora from the command line's options.


def sources_from_options(
    *,
    corpora: Sequence[str] = (),
    source_texts: Sequence[str] = (),
    target_texts: Sequence[str] = (),
    source_column: str | None = None,
    target_column: str | None = None,
    source_language: str | None = None,
    target_language: str | None = None,
    language_pair: str | None = None,
    subsets: Sequence[str] = (),
    data_dir: str | None = None,
    download: bool = False,
    split: str = "train",
    encoding: str = UTF8,
    text_options: tuple[str, str] = ("--source", "--target"),
) -> list[Source]:
    """Opens corpora by the strings that name them, and checks them at once.

    Args:
      corpora: As `parse_corpus` takes them; each path may be a glob.
      source_texts: Text files, a source sentence a line; globs too.
      target_texts: Their translations, in the same order.
      source_column: Of the corpora that name no column themselves: a number from 0 in TSV
        (default 0), a name in Parquet, a key in JSONL (default: the source language, or "source").
      target_column: The same of the target; in TSV the default is 1.
      source_language: Chooses the feature of a TFDS dataset.
      target_language: The same of the target.
      language_pair: For wmt_translate: SOURCE-TARGET, such as "de-en".
      subsets: For wmt_translate: SPLIT=NAME, such as "train=newscommentary_v14".
      data_dir: Where TFDS datasets are prepared; None is TFDS's own default.
      download: Let TFDS download and prepare what is missing.
      split: Of TFDS datasets, in TFDS's syntax.
      encoding: Of text, TSV and JSONL: one that Python knows.
      text_options: The options by which source and target texts were given, for messages.

    Returns:
      The sources: those of the texts first, then those of each corpus, by file.

    Raises:
      UserError: Something named does not exist, or does not fit.
    """
    encoding = find_encoding(encoding)
    look_up = functools.cache(_look_up)  # a look-up may ask a far file system
    pair_texts = functools.partial(_pair_texts, look_up=look_up, encoding=encoding)
    sources: list[Source] = pair_texts(source_texts, target_texts, options=text_options)
    for text in corpora:
        _check_is_no_folder(text)
        spec = parse_corpus(text, exists=lambda path: _is_path(path) and bool(look_up(path)))
        if spec.kind == "tfds":
            dataset = open_tfds(
                spec.paths[0],
                split=split,
                data_dir=data_dir,
                source_language=spec.source_column or source_language,
                target_language=spec.target_column or target_language,
                language_pair=language_pair,
                subsets=subsets,
                download=download,
                given_name=spec.name,
            )
            sources.append(dataset)
        elif spec.kind == "text":
            [source, target] = spec.paths
            sources += pair_texts([source], [target], given_name=spec.name)
        else:
            columns = (spec.source_column or source_column, spec.target_column or target_column)
            languages = (source_language, target_language)
            paths = _find(spec.paths[0], look_up=look_up)
            if spec.kind == "tsv":
                _check_text(paths[0], encoding=encoding)
            sources += [
                _open_file(spec, path, columns=columns, languages=languages, encoding=encoding)
                for path in paths
            ]
    return sources


def _open_file(
    spec: CorpusSpec,
    path: str,
    *,
    columns: tuple[str | None, str | None],
    languages: tuple[str | None, str | None],
    encoding: str,
) -> Source:
    """Opens a file with columns of its own."""
    if spec.kind == "tsv":
        numbers = _column_number(columns[0], 0), _column_number(columns[1], 1)
        return Tsv(path, *numbers, given_name=spec.name, encoding=encoding)
    names = (columns[0] or languages[0] or "source", columns[1] or languages[1] or "target")
    plain = ("source", "target")
    if spec.kind == "jsonl":
        if _can_be_read_twice(path):
            choices = [names] if any(columns) or names == plain else [names, plain]
            names = find_keys(path, choices, are_named=any(columns), encoding=encoding)
        return Jsonl(path, *names, given_name=spec.name, encoding=encoding)
    if not any(columns) and not has_columns(path, names) and has_columns(path, plain):
        names = plain  # languages are given for other reasons, too
    check_columns(path, names)
    return ParquetColumns(path, *names, given_name=spec.name)


def _pair_texts(
    source_patterns: Sequence[str],
    target_patterns: Sequence[str],
    *,
    look_up: Callable[[str], list[str]],
    encoding: str,
    options: tuple[str, str] = ("source", "target"),
    given_name: str = "",
) -> list[Source]:
    source_paths = [path for pattern in source_patterns for path in _find(pattern, look_up=look_up)]
    target_paths = [path for pattern in target_patterns for path in _find(pattern, look_up=look_up)]
    if len(source_paths) != len(target_paths):
        raise UserError(
            f"there must be as many {options[1]} texts as {options[0]} texts. Received: "
            f"{len(source_paths)} {options[0]} ({', '.join(source_paths) or 'none'}) and "
            f"{len(target_paths)} {options[1]} ({', '.join(target_paths) or 'none'})"
        )
    for path in (*source_paths[:1], *target_paths[:1]):
        _check_text(path, encoding=encoding)
    return [
        TextPair(source_path, target_path, given_name=given_name, encoding=encoding)
        for source_path, target_path in zip(source_paths, target_paths, strict=True)
    ]


def _check_text(path: str, *, encoding: str) -> None:
    """Looks into a file: whether it can be read and is of that encoding is told at once."""
    if _can_be_read_twice(path):
        first_lines(path, encoding=encoding)


def _can_be_read_twice(path: str) -> bool:
    """Tells files from pipes."""
    return not files.is_local(path) or os.path.isfile(path)  # noqa: PTH113


def _column_number(column: str | None, default: int) -> int:
    if column is None:
        return default
    if not re.fullmatch(r"[0-9]{1,6}", column):
        raise UserError(f"a column of TSV is a number from 0. Received: {column!r}")
    return int(column)


# Files by their names.


def _find(pattern: str, *, look_up: Callable[[str], list[str]]) -> list[str]:
    _check_is_no_folder(pattern)
    found = look_up(pattern)
    if not found:
        if not files.is_local(pattern) and parquet.is_folder(pattern):
            raise UserError(_folder_message(pattern))
        files.check_is_open(pattern)
        raise UserError(f"no file at {pattern}: check the path")
    return found


def _check_is_no_folder(path: str) -> None:
    if files.is_local(path) and os.path.isdir(path):  # noqa: PTH112 (it may be a glob, or a URL)
        raise UserError(_folder_message(path))


def _folder_message(path: str) -> str:
    return f"{path} is a folder: name the files in it, as in '{path.rstrip('/')}/*.tsv'"


def _is_path(text: str) -> bool:
    """Tells whether the text can be a path of a file system that Beam knows here."""
    try:
        FileSystems.get_filesystem(text)
    except ValueError:
        return False
    return True


def _look_up(pattern: str) -> list[str]:
    """Returns the files that a path or a glob names, sorted; a name with a * in it is a name."""
    if not files.is_local(pattern):
        if re.search(r"[*?[]", pattern) and FileSystems.exists(pattern):
            return [pattern]
        return files.find_files(pattern)
    if os.path.exists(pattern):  # noqa: PTH110
        return [pattern]
    # Not Beam's own globs: from a relative one it finds nothing, and it walks the whole tree.
    found = glob.glob(pattern, recursive=True)  # noqa: PTH207
    return sorted(path for path in found if not os.path.isdir(path))  # noqa: PTH112
