"""What lies in a folder that `tt` could work on, and what it seems to be for."""

from __future__ import annotations

import collections
import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path

from model.errors import UserError
from model.text.languages import is_one_language
from pipelines.storage.text_files import compression_ending
from pipelines.summaries.folders import DATASET, MODEL, RUN, kind_of_folder

TRAIN, VALIDATION, TEST = "train", "validation", "test"
_WORDS = {  # in the name of a file, what it is for
    **dict.fromkeys(("val", "valid", "validation", "dev", "devel"), VALIDATION),
    **dict.fromkeys(("test", "newstest", "eval"), TEST),
}
_PLAIN_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
_ENDINGS = {  # of files, which are languages of ISO 639-3, too
    "bak", "bin", "bpe", "cfg", "css", "csv", "dat", "doc", "htm", "ids", "idx", "ini", "log", "md",
    "new", "old", "out", "pdf", "pkl", "png", "ps", "py", "rs", "sh", "spm", "sql", "tar", "tmp",
    "tok", "tsv", "txt", "xml", "yml", "zip",
}  # fmt: skip
_LOOKED_AT = 100  # rows of a table, of which the columns of long texts are known


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFiles:
    """Two line-aligned text files."""

    source: str
    target: str
    source_language: str
    target_language: str
    use: str  # TRAIN, VALIDATION or TEST
    others: tuple[str, ...] = ()  # files of the same texts in further languages


@dataclasses.dataclass(frozen=True, kw_only=True)
class Table:
    """A Parquet file with columns of texts."""

    path: str
    rows: int
    text_columns: tuple[str, ...]  # those of the longest texts first
    # The columns of source and target, by their names; None where it is no corpus.
    pair: tuple[str, str] | None

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target, where its columns tell them; else ""."""
        if self.pair is None:
            return "", ""
        source, target = (_language_in(name) for name in self.pair)
        return (source, target) if source and target else ("", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """What lies in a folder; paths start from there."""

    texts: list[TextFiles]
    tables: list[Table]
    unreadable: list[str]  # Parquet files
    datasets: list[str]
    models: list[str]  # runs and model folders


def look_around(folder: Path = Path()) -> Project:
    """Looks at the files and folders that lie in a folder, by their names and schemas."""
    names = sorted(each.name for each in folder.iterdir() if not each.name.startswith("."))
    files = [name for name in names if (folder / name).is_file()]
    kinds = {name: _kind(folder / name) for name in names if (folder / name).is_dir()}
    tables, unreadable = [], []
    for name in files:
        if name.endswith(".parquet"):
            try:
                tables.append(read_table(folder / name))
            except (OSError, ValueError):  # Arrow's errors are such
                unreadable.append(name)
    return Project(
        texts=list(pair_texts(files)),
        tables=[table for table in tables if table.text_columns],
        unreadable=unreadable,
        datasets=_usual_first(kinds, "dataset", (DATASET,)),
        models=_usual_first(kinds, "run", (RUN, MODEL)),
    )


def _kind(folder: Path) -> str:
    try:
        return kind_of_folder(folder)
    except (UserError, OSError):
        return ""


def _usual_first(kinds: dict[str, str], usual: str, wanted: tuple[str, ...]) -> list[str]:
    return sorted(
        (name for name, kind in kinds.items() if kind in wanted), key=lambda name: name != usual
    )


def pair_texts(names: list[str]) -> Iterator[TextFiles]:
    """Yields pairs of text files whose names differ in the language that they end in.

    Names such as train.de-en.de tell the direction; else English is the source, or else the first.

    >>> [pair] = pair_texts(["dev.fr.gz", "dev.de", "notes.txt"])
    >>> pair.source, pair.target, pair.use
    ('dev.de', 'dev.fr.gz', 'validation')
    """
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in names:
        stem, dot, code = name.removesuffix(compression_ending(name)).rpartition(".")
        is_code = re.fullmatch("[a-z]{2,3}([-_][A-Za-z]{2,4})?", code) and code not in _ENDINGS
        if dot and stem and is_code and is_one_language(code):
            found[stem].setdefault(code, name)
    for stem, by_code in found.items():
        if len(by_code) < 2:
            continue
        codes = sorted(by_code, key=lambda code: (code != "en", code))
        if told := re.search(r"(?:^|[\W_])([a-z]{2,3})-([a-z]{2,3})$", stem):
            codes.sort(key=lambda code: told.groups().index(code) if code in told.groups() else 2)
        source, target, *others = codes
        words = re.findall("[a-z]+", stem.lower())
        yield TextFiles(
            source=by_code[source],
            target=by_code[target],
            source_language=source,
            target_language=target,
            use=next((_WORDS[word] for word in words if word in _WORDS), TRAIN),
            others=tuple(by_code[code] for code in others),
        )


def read_table(path: Path) -> Table:
    """Reads the schema and the first rows of a Parquet file.

    Raises:
      OSError: It cannot be read.
      ValueError: It is no Parquet.
    """
    import pyarrow.parquet as pq

    from pipelines.storage.parquet import is_text

    with pq.ParquetFile(path) as file:
        names = [field.name for field in file.schema_arrow if is_text(field.type)]
        batch = next(file.iter_batches(_LOOKED_AT, columns=names), None) if names else None
        rows = int(file.metadata.num_rows)
    lengths = {
        name: sum(len(text) for text in batch.column(name).to_pylist() if text) if batch else 0
        for name in names
    }
    return Table(
        path=path.name,
        rows=rows,
        text_columns=tuple(sorted(names, key=lambda name: -lengths[name])),
        pair=pair_columns(names),
    )


def pair_columns(names: list[str]) -> tuple[str, str] | None:
    """Returns the columns of source and target, if their names say that they are such.

    >>> pair_columns(["id", "text_de", "text_en"]), pair_columns(["title", "body"])
    (('text_en', 'text_de'), None)
    """
    for source, target in _PLAIN_NAMES:
        if source in names and target in names:
            return source, target
    by_stem: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        code = _language_in(name)
        if code and name != "id":  # Indonesian, too
            by_stem[name.removesuffix(code)].append(name)
    pairs = [columns for columns in by_stem.values() if len(columns) == 2]
    if len(pairs) != 1:
        return None
    source, target = sorted(pairs[0], key=lambda name: (_language_in(name) != "en", name))
    return source, target


def _language_in(name: str) -> str:
    """Returns the language that the name of a column is or ends in; else ""."""
    code = re.split(r"[_.]", name)[-1]
    return code if re.fullmatch("[a-z]{2,3}", code) and is_one_language(code) else ""
