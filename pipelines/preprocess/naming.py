"""The names of corpora, as a user writes them."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Sequence
from typing import Literal

from tt.model.errors import UserError
from tt.pipelines.tables.finding import COMPRESSED, UTF8

Kind = Literal["text", "tsv", "jsonl", "table", "parquet", "tfds"]

CORPUS_KINDS = (
    "*.tsv, *.csv, *.jsonl (or these with .gz, .bz2, .zst), *.parquet, *.arrow, "
    "tfds:NAME[/CONFIG], "
    "SOURCE+TARGET (two line-aligned text files); a file of another name that is tab-separated is "
    "told by the numbers of its columns, as in fra.txt:0:1"
)

_COMPRESSION = "|".join(map(re.escape, COMPRESSED))

_FILE = re.compile(
    rf"(?P<path>.*\.(?:(?P<kind>tsv|csv|jsonl)(?:{_COMPRESSION})?|(?P<whole>parquet|arrow|feather|ipc)"
    r"))(?::(?P<columns>.*))?"
)
_KINDS: dict[str, Kind] = {"tsv": "tsv", "jsonl": "jsonl", "parquet": "parquet"}

_NUMBERED = re.compile(r"(?P<path>[^:].*):(?P<columns>[0-9]+:[0-9]+)")
_FOLDER = re.compile(r"(?P<path>[^:].*/):(?P<columns>[^/]+)")
_GIVEN_NAME = re.compile(r"(?P<name>[^=/:+*?\[]+)=(?P<rest>.+)")

_TFDS = re.compile(
    r"tfds:(?P<dataset>[^:]+(?::(?:\d+|\*)(?:\.(?:\d+|\*)){2})?)(?::(?P<columns>.*))?"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions:
    """How corpora are read.

    Attributes:
      source_column: Column of the source in corpora whose names do not say it: a number from 0 in
        TSV, a key in JSONL, a name in other tables.

        By default 0, or the source language, or "source".
      target_column: Column of the target in corpora whose names do not say it: a number from 0 in
        TSV, a key in JSONL, a name in other tables.

        By default 1, or the target language, or "target".
      encoding: Encoding of all files of text, TSV and JSONL too: latin-1, cp1252, gb18030, utf-16,
        ...
      source_language: Code of the source language, such as en, pt-BR or zh-Hant. It tells the
        script, and the direction of a TFDS corpus.
      target_language: Code of the target language, such as en, pt-BR or zh-Hant.
      split: Split of TFDS corpora in TFDS's own syntax, such as 'train[:70%]'.
      data_dir: Folder in which TFDS corpora are prepared. By default, TFDS's own.
      download: Download and prepare TFDS corpora that are missing.
      language_pair: Languages of wmt_translate: SOURCE-TARGET, such as de-en.
      subsets: Subset of wmt_translate to build: SPLIT=NAME, such as train=newscommentary_v14;
        repeatable.
    """

    source_column: str | None = None
    target_column: str | None = None
    encoding: str = UTF8
    source_language: str = ""
    target_language: str = ""
    split: str = "train"
    data_dir: str | None = None
    download: bool = False
    language_pair: str | None = None
    subsets: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusSpec:
    """What a corpus string says."""

    kind: Kind
    # The file, or the two files of text; each may be a glob. Of TFDS, NAME[/CONFIG].
    paths: tuple[str, ...]
    name: str = ""  # the name that it gives the corpus, or ""
    source_column: str | None = None  # the column that it names, or None
    target_column: str | None = None  # likewise


def parse_corpus(text: str, *, exists: Callable[[str], bool] = lambda path: False) -> CorpusSpec:
    """Takes a corpus string apart: [NAME=]PATH[:SOURCE_COLUMN:TARGET_COLUMN], or [NAME=]A+B.

    A file of no known ending is TSV where its columns are numbers; a folder, with a / at its end
    and columns, is one of Parquet, as `tt translate-batch` writes it. What `exists` tells to name a
    file as it is written, path or glob, is a path, whatever signs are in it.

    Raises:
      UserError: It names no corpus.

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
    file = _FILE.fullmatch(path)
    if file and file["columns"] is not None and exists(path):
        file = None  # all of it is a name, and of an ending that is not known
    if file and ("+" not in path or exists(file["path"])):
        return spec(
            _KINDS.get(file["kind"] or file["whole"], "table"), file["path"], file["columns"]
        )
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
            f". If {path} is one of two line-aligned texts, name both, as in {path}+OTHER or under "
            "`source` and `target`"
        )
    raise UserError(f"corpus {text!r} is none of {CORPUS_KINDS}{two}")


def parse_weights(texts: Sequence[str]) -> dict[str, float]:
    """Takes weights of corpora apart, NAME=WEIGHT each.

    Raises:
      UserError: One is no share of a corpus, or of one that has another.

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
                "`weights` must be NAME=WEIGHT, the share of a corpus that is kept, above 0 and at "
                f"most 1: instead of a greater one, lower those of the others. Received: {text!r}"
            )
        if name in weights:
            raise UserError(f"`weights` name {name} twice: give it one")
        weights[name] = weight
    return weights


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
    """Splits two paths at the + between them; the paths may have a + themselves."""
    splits = [(path[: m.start()], path[m.end() :]) for m in re.finditer(r"\+", path)]
    splits = [(source, target) for source, target in splits if source and target]
    if len(splits) > 1:
        splits = [
            (source, target) for source, target in splits if exists(source) and exists(target)
        ]
    if len(splits) != 1:
        raise UserError(
            f"corpus {text!r} must be two paths with a + between them, of files that exist. Paths "
            "with a + in them can go under `source` and `target`"
        )
    return splits[0]
