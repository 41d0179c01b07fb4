"""What lies in a folder that `tt` could work on, and what it seems to be for."""

from __future__ import annotations

import collections
import dataclasses
import glob
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from model.errors import UserError
from model.formats.argos import SUFFIX as PACKAGE
from model.text.languages import find_language, is_one_language
from pipelines.flags.languages import main_language
from pipelines.pairs.work_folder import WORK_FOLDER
from pipelines.storage.paths import JOB_FOLDER
from pipelines.storage.text_files import compression_ending
from pipelines.summaries import folders

TRAIN, VALIDATION, TEST = "train", "validation", "test"
_WORDS = {  # in the name of a file, what it is for
    **dict.fromkeys(("val", "valid", "validation", "dev", "devel"), VALIDATION),
    **dict.fromkeys(("test", "newstest", "eval"), TEST),
}
_PLAIN_NAMES = (("source", "target"), ("src", "tgt"), ("src", "trg"))
_HEADINGS = {  # of columns, which no sentence is
    "abstract", "article", "author", "body", "category", "comment", "content", "date",
    "description", "id", "label", "lang", "language", "message", "name", "review", "sentence",
    "source", "src", "summary", "target", "text", "tgt", "title", "trg", "url",
}  # fmt: skip
_SIDES = {side for pair in _PLAIN_NAMES for side in pair}
_ENGLISH_WORDS = {  # which are codes of languages, too
    "am", "an", "as", "be", "fin", "he", "her", "hi", "ho", "ice", "id", "is", "it", "kin", "lit",
    "lo", "mac", "may", "mi", "my", "no", "or", "os", "pan", "per", "run", "sin", "so", "to", "ton",
}  # fmt: skip
_LEAST_LETTERS = 0.2  # of a column of texts, as a share of those of the column with the most
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
    """A file with columns of texts, or a folder or glob of such files."""

    path: str
    rows: int | None  # None where all of it would have to be read
    text_columns: tuple[str, ...]  # those of the longest texts first
    # The columns of source and target, names or numbers from 0; None where it is no corpus.
    pair: tuple[str, str] | None
    headings: tuple[str, ...] = ()  # the first line of TSV with a pair, if that names columns
    use: str = TRAIN  # TRAIN, VALIDATION or TEST, of a corpus
    # What languages the texts seem to be in, by column; "" where that is not told.
    seem_to_be_in: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def languages(self) -> tuple[str, str]:
        """The languages of source and target, where names of columns or file tell them; else ""."""
        if self.pair is None:
            return "", ""
        names = self.pair
        if self.headings:
            names = self.headings[int(names[0])], self.headings[int(names[1])]
        source, target = map(_language_in, names)
        if source and target:
            return source, target
        return _languages_of(self.path)

    @property
    def corpus(self) -> str:
        """What `tt preprocess` calls it."""
        return ":".join((self.path, *(self.pair or ())))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Project:
    """What lies in a folder; paths start from there."""

    texts: list[TextFiles]
    tables: list[Table]
    unreadable: list[str]  # tables that are damaged
    undecided: list[str]  # files with tabs, of which it cannot be told what they hold
    datasets: list[str]
    models: list[str]  # runs, model folders and packages of Argos Translate
    translated: list[str]  # folders of `tt translate-batch`
    source_languages: dict[str, str]  # of datasets and models; "" where they tell none


def look_around(folder: Path = Path()) -> Project:
    """Looks at the files and folders that lie in a folder, by their names and first rows."""
    names = sorted(each.name for each in folder.iterdir() if not each.name.startswith((".", "_")))
    files = [name for name in names if (folder / name).is_file()]
    kinds = {name: _kind(folder / name) for name in names if (folder / name).is_dir()}
    texts = list(pair_texts(files))
    paired = {name for each in texts for name in (each.source, each.target, *each.others)}
    tables: list[Table] = []
    unreadable, undecided = [], []
    for name in files:
        if name in paired:
            continue
        try:
            if (table := read_table(folder / name)) is not None:
                tables.append(table)
        except NotToldError:
            undecided.append(name)
        except (OSError, ValueError, UserError):
            unreadable.append(name)
    tables += [found for name, kind in kinds.items() if not kind for found in _parts(folder, name)]
    packages = [name for name in files if name.endswith(PACKAGE)]
    return Project(
        texts=texts,
        tables=[table for table in tables if table.text_columns],
        unreadable=unreadable,
        undecided=undecided,
        datasets=_usual_first(kinds, "dataset", (folders.DATASET,)),
        models=[*_usual_first(kinds, "run", (folders.RUN, folders.MODEL)), *packages],
        translated=_usual_first(kinds, "translated", (folders.TRANSLATED,)),
        source_languages={
            name: folders.source_language(folder / name, kind=kind) for name, kind in kinds.items()
        },
    )


def _parts(folder: Path, name: str) -> Iterator[Table]:
    """Yields the tables whose parts lie in a folder.

    Each ending is a table, and each use of a corpus, by the names of its parts and of the folder.
    Columns are those of its first part.
    """
    from pipelines.tables.reading import table_suffix

    by_suffix: dict[str, list[str]] = collections.defaultdict(list)
    try:
        names = sorted(each.name for each in (folder / name).iterdir())
        if WORK_FOLDER in names or JOB_FOLDER in names:  # what preprocess or translate-batch began
            return
        for part in names:
            # Globs leave out what begins with a dot.
            if table_suffix(part) and (folder / name / part).is_file() and part[0] != ".":
                by_suffix[table_suffix(part)].append(part)
    except OSError:  # nobody but its owner may look into it, as into lost+found of a disk
        return
    for suffix, parts in by_suffix.items():
        by_use: dict[str, list[str]] = {use: [] for use in (TRAIN, VALIDATION, TEST)}
        for part in parts:
            by_use[_use_of(f"{part}/{name}")].append(part)
        found = {use: _read_part(folder / name / some[0]) for use, some in by_use.items() if some}
        tables = {use: table for use, table in found.items() if table is not None}
        if not any(table.pair for table in tables.values()):  # all of it is to be translated
            by_use = dict.fromkeys(tables, parts)
            tables = dict(list(tables.items())[:1])
        for use, table in tables.items():
            for path in _globs(by_use[use], suffix=suffix, among=parts):
                yield dataclasses.replace(table, path=f"{name}/{path}", rows=None, use=use)


def _read_part(path: Path) -> Table | None:
    try:
        return read_table(path)
    except (OSError, ValueError, UserError, NotToldError):
        return None


def _globs(names: list[str], *, suffix: str, among: list[str]) -> list[str]:
    """Returns globs, or names, of some of the files that a folder has with an ending.

    >>> _globs(["train-0.tsv", "train-1.tsv"], suffix=".tsv", among=["dev.tsv", "train-0.tsv",
    ...     "train-1.tsv"])
    ['train-*.tsv']
    """
    by_stem: dict[str, list[str]] = collections.defaultdict(list)
    for name in names:
        stem = "" if names == among else re.split(r"\d", name)[0]  # train-00000-of-00002.parquet
        by_stem[stem].append(name)
    found = []
    for stem, alike in by_stem.items():
        matched = [name for name in among if name.startswith(stem) and name.endswith(suffix)]
        is_glob = matched == alike and (names == among or len(alike) > 1)
        found += [f"{glob.escape(stem)}*{suffix}"] if is_glob else alike
    return found


def _kind(folder: Path) -> str:
    try:
        return folders.kind_of_folder(folder)
    except (UserError, OSError):
        return ""


def _usual_first(kinds: dict[str, str], usual: str, wanted: tuple[str, ...]) -> list[str]:
    return sorted(
        (name for name, kind in kinds.items() if kind in wanted), key=lambda name: name != usual
    )


def pair_texts(names: list[str]) -> Iterator[TextFiles]:
    """Yields pairs of text files whose names differ in the language or side that they end in.

    Names such as train.de-en.de tell the direction; else English is the source, or else the first.

    >>> [pair] = pair_texts(["dev.fr.gz", "dev.de", "notes.txt"])
    >>> pair.source, pair.target, pair.use
    ('dev.de', 'dev.fr.gz', 'validation')
    >>> [pair] = pair_texts(["train_de.txt", "train_en.txt"])
    >>> pair.source, pair.target
    ('train_en.txt', 'train_de.txt')
    """
    found: dict[str, dict[str, str]] = collections.defaultdict(dict)
    for name in names:
        stem, code = _stem_and_code(name)
        if code:
            found[stem].setdefault(code, name)
    for stem, by_code in found.items():
        sides = next((pair for pair in _PLAIN_NAMES if set(pair) <= by_code.keys()), None)
        languages = [code for code in by_code if code not in _SIDES]
        codes = sorted(languages, key=lambda code: (code != "en", code))
        told = _languages_of(stem)
        if any(told):
            codes.sort(key=lambda code: told.index(code) if code in told else 2)
        if sides is not None:
            codes = [*sides, *codes]
        if len(codes) < 2:
            continue
        if sides is None and stem.endswith("txt") and all(map(_may_be_a_word, codes)):
            continue  # id.txt, no.txt
        source, target, *others = codes
        yield TextFiles(
            source=by_code[source],
            target=by_code[target],
            source_language=told[0] if sides else source,
            target_language=told[1] if sides else target,
            use=_use_of(stem),
            others=tuple(by_code[code] for code in others),
        )


def _stem_and_code(name: str) -> tuple[str, str]:
    """Returns what a file's name begins with, and the language or side that it ends in, or ""."""
    plain = name.removesuffix(compression_ending(name))
    stem, dot, code = plain.rpartition(".")
    if code == "txt":  # train_en.txt, en.txt
        parted = re.fullmatch(r"(|.*[._-])([A-Za-z]+(?:-[A-Z][A-Za-z]+)?)", stem)
        stem, code = parted.groups() if parted else ("", "")
        stem = f"{stem}txt"
    elif not dot or not stem:
        return "", ""
    if code in _SIDES:
        return stem, code
    is_code = re.fullmatch("[a-z]{2,3}([-_][A-Za-z]{2,4})?", code) and code not in _ENDINGS
    return (stem, code) if is_code and is_one_language(code) else ("", "")


def _may_be_a_word(code: str) -> bool:
    """Says whether a code is rather a word: an English one, or of a language with no short code.

    >>> _may_be_a_word("no"), _may_be_a_word("all"), _may_be_a_word("eng")
    (True, True, False)
    """
    language = find_language(code)
    return code in _ENGLISH_WORDS or language is None or len(language.primary) > 2


def _use_of(name: str) -> str:
    """Returns what the name of a file says it is for."""
    words = re.findall("[a-z]+", name.lower())
    return next((_WORDS[word] for word in words if word in _WORDS), TRAIN)


def _languages_of(name: str) -> tuple[str, str]:
    """Returns the two languages in a file's name, as in crawl.de-en.tsv.gz; else "".

    >>> _languages_of("crawl.de-en.tsv.gz"), _languages_of("web-crawl.tsv")
    (('de', 'en'), ('', ''))
    """
    found = re.findall(r"(?:^|[\W_])(?=([a-z]{2,3})[-_]([a-z]{2,3})(?:$|[\W_]))", name)
    pairs = [pair for pair in found if all(map(is_one_language, pair)) and pair[0] != pair[1]]
    return pairs[0] if len(pairs) == 1 and not _ENDINGS & set(pairs[0]) else ("", "")


class NotToldError(Exception):
    """A file has tabs, and neither columns with names nor two columns of texts."""


def read_table(path: Path) -> Table | None:
    """Reads the first rows of a table or of a corpus in one file; None of any other file.

    Raises:
      OSError, UserError: It cannot be read.
      ValueError: It is not what its name says.
      NotToldError: It cannot be told what it holds.
    """
    import pyarrow as pa

    from pipelines.storage import parquet
    from pipelines.tables.reading import table_suffix

    plain = path.name.lower().removesuffix(compression_ending(path.name))
    if plain.endswith((".tsv", ".txt")):
        return _read_tabs(path, is_table=plain.endswith(".tsv"))
    suffix = table_suffix(path.name)
    if not suffix:
        return None
    try:
        rows, columns = _read_parquet(path) if suffix == parquet.SUFFIX else _read_rows(path)
    except pa.ArrowException as error:  # not all of these are a ValueError
        raise ValueError(f"{path} is not what its name says: {error}") from error
    lengths = {name: sum(map(len, filter(None, texts))) for name, texts in columns.items()}
    is_corpus = suffix == parquet.SUFFIX or suffix.startswith(".jsonl")
    return Table(
        path=path.name,
        rows=rows,
        text_columns=tuple(sorted(columns, key=lambda name: -lengths[name])),
        pair=pair_columns(list(columns)) if is_corpus else None,
        use=_use_of(path.name),
        seem_to_be_in={name: main_language(filter(None, texts)) for name, texts in columns.items()},
    )


_Columns = dict[str, list[str | None]]


def _read_parquet(path: Path) -> tuple[int, _Columns]:
    import pyarrow.parquet as pq

    from pipelines.storage.parquet import is_text

    with pq.ParquetFile(path) as file:
        names = [field.name for field in file.schema_arrow if is_text(field.type)]
        batch = next(file.iter_batches(_LOOKED_AT, columns=names), None) if names else None
        cells = [column.to_pylist() for column in batch.columns] if batch else [[]] * len(names)
        return int(file.metadata.num_rows), dict(zip(names, cells, strict=True))


def _read_rows(path: Path) -> tuple[None, _Columns]:
    """Reads the columns of texts of CSV, JSONL or Arrow; those in objects have dotted names."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from pipelines.storage.parquet import is_text
    from pipelines.tables.reading import OpenTable

    with OpenTable(str(path)) as table:
        batch = next(table.batches(), None)
    columns: _Columns = {}
    if batch is not None:
        few = batch.slice(0, _LOOKED_AT)
        # Texts alone: Arrow has times that Python has not.
        for field, column in zip(few.schema, few.columns, strict=True):
            if is_text(field.type):
                columns[field.name] = column.to_pylist()
            elif pa.types.is_struct(field.type):
                for index, inner in enumerate(field.type):
                    if is_text(inner.type):
                        cells = pc.struct_field(column, index)
                        columns[f"{field.name}.{inner.name}"] = cells.to_pylist()
    return None, columns


def _read_tabs(path: Path, *, is_table: bool) -> Table | None:
    """Reads TSV, with names in its first line or without; None without tabs or texts."""
    from pipelines.corpora.lines import first_lines

    lines = [line.decode(errors="replace") for line in first_lines(str(path))[:_LOOKED_AT]]
    rows = [line.rstrip("\r").split("\t") for line in lines]
    width = min(map(len, rows), default=0)
    if width < 2 and (not is_table or not rows):
        return None
    letters = [sum(sum(map(str.isalpha, row[i])) for row in rows) for i in range(width)]
    headings = rows[0]
    pair = pair_columns(headings, most=width)
    if pair is None and is_table and {each.lower() for each in headings} & _HEADINGS:
        order = sorted(range(width), key=lambda i: -letters[i])
        columns = tuple(headings[i] for i in order if letters[i])
        languages = {headings[i]: main_language(row[i] for row in rows) for i in order}
        return Table(
            path=path.name, rows=None, text_columns=columns, pair=None, seem_to_be_in=languages
        )
    if pair is not None:
        sides = (headings.index(pair[0]), headings.index(pair[1]))
    else:
        if width < 2:
            raise NotToldError
        texts = [i for i in range(width) if _are_texts([row[i] for row in rows])]
        if not texts:  # a table of numbers
            return None
        first, second = sorted(sorted(range(width), key=lambda i: -letters[i])[:2])
        is_short = min(letters[first], letters[second]) < _LEAST_LETTERS * max(letters)
        if is_short or not {first, second} <= set(texts):
            raise NotToldError
        sides, headings = (first, second), []
    numbers = (str(sides[0]), str(sides[1]))
    return Table(
        path=path.name, rows=None, text_columns=numbers, pair=numbers, headings=tuple(headings),
        use=_use_of(path.name),
    )  # fmt: skip


def _are_texts(cells: list[str]) -> bool:
    """Says whether most cells have more letters than digits.

    >>> _are_texts(["loss", "2.5e-05", "nan"]), _are_texts(["loss", "2.5e-05", "1"])
    (True, False)
    """
    texts = [each for each in cells if sum(map(str.isalpha, each)) > sum(map(str.isdigit, each))]
    return 2 * len(texts) > len(cells)


def pair_columns(names: list[str], *, most: int = 2) -> tuple[str, str] | None:
    """Returns the columns of source and target, if their names say that they are such.

    Of more languages than `most`, none are.

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
    groups = [columns for columns in by_stem.values() if 2 <= len(columns) <= most]
    if len(groups) != 1:
        return None
    source, target, *_ = sorted(groups[0], key=lambda name: (_language_in(name) != "en", name))
    return source, target


def _language_in(name: str) -> str:
    """Returns the language that the name of a column is or ends in; else ""."""
    code = re.split(r"[_.]", name)[-1]
    return code if re.fullmatch("[a-z]{2,3}", code) and is_one_language(code) else ""
