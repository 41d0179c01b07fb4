"""Parse the corpus strings and weights that a user gives."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Literal

from tt.model.errors import UserError, checked
from tt.pipelines.tables.formats import (
    DEFAULTS,
    INPUT_FORMATS,
    JSONL,
    PARQUET,
    TEXT,
    TSV,
    ReadOptions,
    endings_of,
)

Kind = Literal["text", "tsv", "jsonl", "table", "parquet", "tfds"]

CORPUS_KINDS = (
    "*.tsv, *.csv, *.jsonl, *.json (also with .gz, .bz2 or .zst), *.parquet, *.arrow, FOLDER/ (its "
    "Parquet files), tfds:NAME[/CONFIG] or SOURCE+TARGET (two line-aligned text files), or add the "
    "column numbers of a tab-separated file, as in fra.txt:0:1, or set `input_format`"
)

_KINDS: dict[str, Kind] = {TSV: "tsv", JSONL: "jsonl", PARQUET: "parquet"}  # all others: "table"
_FILE = re.compile(
    rf"(?P<path>.*(?:{'|'.join(map(re.escape, endings_of(INPUT_FORMATS, without=TEXT)))}))"
    r"(?::(?P<columns>.*))?",
    re.IGNORECASE,
)
_OTHER_FILE = re.compile(r"(?P<path>.+?)(?::(?P<columns>[^:/]+:[^:/]+))?")  # with `input_format`
_NUMBERED = re.compile(r"(?P<path>[^:].*):(?P<columns>[0-9]+:[0-9]+)")
_FOLDER = re.compile(r"(?P<path>[^:].*/)(?::(?P<columns>[^/]+))?")
_GIVEN_NAME = re.compile(r"(?P<name>[^=/:+*?\[]+)=(?P<rest>.+)")

_TFDS = re.compile(
    r"tfds:(?P<dataset>[^:]+(?::(?:\d+|\*)(?:\.(?:\d+|\*)){2})?)(?::(?P<columns>.*))?"
)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(ReadOptions):
    """Options for reading corpora.

    Attributes:
      source_column: Read sources from this column: a number from 0 in TSV, else a key or name.

        JSONL has keys, and other tables have names. Columns in a corpus string take precedence.
        By default 0, or the source language, or "source".
      target_column: Read targets from this column: a number from 0 in TSV, else a key or name.

        By default 1, or the target language, or "target".
      source_language: Set the source language, such as en, pt-BR or zh-Hant.

        The languages determine the scripts that filters expect, and the direction of TFDS corpora.
      target_language: Set the target language, such as en, pt-BR or zh-Hant.
      split: Read this split of TFDS corpora, such as 'train[:70%]'.
      data_dir: Look for prepared TFDS corpora in this folder. By default, TFDS's own folder.
      download: Download and prepare missing TFDS corpora.
      language_pair: Read these languages of wmt_translate, such as de-en.
      subsets: Build this subset of wmt_translate, such as train=newscommentary_v14; repeatable.
    """

    source_column: str | None = None
    target_column: str | None = None
    source_language: str = ""
    target_language: str = ""
    split: str = "train"
    data_dir: str | None = None
    download: bool = False
    language_pair: str | None = None
    subsets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSpec:
    """The parsed parts of a corpus string."""

    kind: Kind
    # The file, or the two text files, each of which may be a glob. For TFDS, NAME[/CONFIG].
    paths: tuple[str, ...]
    name: str = ""  # the name that the string gives the corpus, or ""
    source_column: str | None = None  # the source column that the string names, or None
    target_column: str | None = None  # the target column that the string names, or None


def parse_corpus(
    text: str,
    *,
    exists: Callable[[str], bool] = lambda path: False,
    options: ReadOptions = DEFAULTS,
) -> CorpusSpec:
    """Parse a corpus string: [NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN] or [NAME=]SOURCE+TARGET.

    A file with an unknown ending is TSV if its columns are numbers. A folder of Parquet files, as
    `tt translate-batch` and `tt back-translate` write it, has a / at its end. A string that names
    an existing file is a path, even if it contains `=`, `:` or `+`.

    Args:
      text: The corpus string.
      exists: Returns whether a path or glob matches an existing file.
      options: How to read the files.

    Raises:
      UserError: The string does not name a corpus.

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

    def spec(kind: Kind, path: str, columns: str | None) -> CorpusSpec:
        source_column, target_column = _parse_columns(columns, text=text)
        return CorpusSpec(
            kind=kind,
            paths=(path,),
            name=name,
            source_column=source_column,
            target_column=target_column,
        )

    if tfds := _TFDS.fullmatch(path):
        return spec("tfds", tfds["dataset"], tfds["columns"])
    has_format = options.input_format not in (None, TEXT)
    file = (_OTHER_FILE if has_format and not path.endswith("/") else _FILE).fullmatch(path)
    if file and file["columns"] is not None and exists(path):
        file = None  # The whole string, including the colons, is an existing path.
    if file and ("+" not in path or exists(file["path"])):
        found = options.format_of(file["path"])
        kind = _KINDS.get(found.name if found else "", "table")
        return spec(kind, file["path"], file["columns"])
    if folder := _FOLDER.fullmatch(path):
        return spec("parquet", folder["path"], folder["columns"])
    numbered = None if exists(path) else _NUMBERED.fullmatch(path)
    if numbered and not file and ("+" not in path or exists(numbered["path"])):
        return spec("tsv", numbered["path"], numbered["columns"])
    if "+" in path:
        return CorpusSpec(kind="text", paths=_parse_pair(path, text=text, exists=exists), name=name)
    two = ""
    if path and exists(path):
        two = (
            f". If {path} belongs to a pair of line-aligned texts, choose both with {path}+OTHER, "
            "or with `source` and `target`"
        )
    raise UserError(f"corpus {text!r} has an unknown format. Choose {CORPUS_KINDS}{two}")


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """Parse the weights of corpora, each written as NAME=SHARE.

    Raises:
      UserError: A weight is not above 0 and at most 1, or a corpus has two weights.

    >>> parse_weights(["web=0.1"])
    {'web': 0.1}
    """
    weights: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            weight = float(number)
        except ValueError:
            weight = 0.0
        if not name or not 0 < weight <= 1:
            raise UserError(
                "`weights` must be NAME=SHARE with a SHARE above 0 and at most 1. "
                f"Received: {text!r}. To favor a corpus, lower the weights of the others"
            )
        if name in weights:
            raise UserError(f"`weights` has {name} twice. Set one weight per corpus")
        weights[name] = weight
    return weights


def _parse_columns(columns: str | None, *, text: str) -> tuple[str | None, str | None]:
    if columns is None:
        return None, None
    parts = columns.split(":")
    if len(parts) != 2 or not all(parts):
        raise UserError(
            f"corpus {text!r} must end in no columns or in two columns, as in a.tsv:0:1 or "
            f"a.parquet:en:de. Received: {':' + columns!r}"
        )
    return parts[0], parts[1]


def _parse_pair(path: str, *, text: str, exists: Callable[[str], bool]) -> tuple[str, str]:
    """Split two paths at the + between them; the paths themselves may contain a +."""
    splits = [(path[: m.start()], path[m.end() :]) for m in re.finditer(r"\+", path)]
    splits = [(source, target) for source, target in splits if source and target]
    if len(splits) > 1:
        splits = [
            (source, target) for source, target in splits if exists(source) and exists(target)
        ]
    if len(splits) != 1:
        raise UserError(
            f"corpus {text!r} must be the paths of two existing files with a + between them. For "
            "paths that contain a +, set `source` and `target`"
        )
    return splits[0]
