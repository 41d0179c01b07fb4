"""Translations scored against references: from texts, pipes, and columns of Parquet."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import regex

from model.errors import UserError, counted
from model.folders.access import check_readable
from model.text.languages import find_language
from model.text.scores import bleu_tokenizer, describe_scores
from pipelines.reports.lines import read_lines
from pipelines.reports.outputs import describe_skipped, find_parquet, planned_language
from pipelines.reports.requests import EvaluateRequest
from pipelines.tables.columns import cell_bytes, is_text

_SAMPLE = 1000  # references that decide the script if the language is unknown
_UNSPACED = {  # scripts without spaces between words, as `regex` names their letters
    "Han characters or kana": r"[\p{Hiragana}\p{Katakana}\p{Han}]",
    "Hangul": r"\p{Hangul}",
    "Thai": r"\p{Thai}",
}


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    scores: list[str]  # a line for BLEU and one for chrF, each with sacreBLEU's signature
    notices: list[str]


def evaluate(request: EvaluateRequest) -> Evaluation:
    """Read translations and references, and score them by BLEU and chrF.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = path.write_text("A cat sat on the mat.")
    >>> request = EvaluateRequest(translations=str(path), references=(str(path),))
    >>> evaluate(request).scores[0][:50]
    'BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|'

    Raises:
      UserError: A file cannot be read, or the files have different numbers of sentences.
    """
    translations = read_translations(request.translations, column=request.column)
    references = _read_references(request, count=len(translations))
    notices = describe_skipped(request.translations)
    if nulls := translations.count(None):
        verb = "is null and counts" if nulls == 1 else "are null and count"
        notices.append(f"{nulls:,} of {counted(len(translations), 'translation')} {verb} as empty")
    code = request.language
    if code is None:
        code = planned_language(request.translations)
    tokenize = request.tokenize
    if tokenize is None and find_language(code):
        tokenize = bleu_tokenizer(code)
    elif tokenize is None:
        notices += describe_unspaced([text for texts in references for text in texts])
    scores = describe_scores(
        [text or "" for text in translations],
        references,
        tokenize=tokenize,
        lowercase=request.lowercase,
    )
    return Evaluation(scores, notices)


def _read_references(request: EvaluateRequest, *, count: int) -> list[list[str]]:
    columns, translations = request.reference_columns, request.translations
    tables = [
        path
        for path in request.references
        if path.endswith(".parquet") or (columns and Path(path).is_dir())
    ]
    if tables and not columns:
        raise UserError(
            f"{tables[0]} is Parquet: name the column of its references with `reference_columns`"
        )
    found = [(path, read_lines(path), "line") for path in request.references if path not in tables]
    found += [
        (path, read_references(path, column), "row")
        for path in tables or [translations]
        for column in columns
    ]
    for path, texts, unit in found:
        if len(texts) != count:
            raise UserError(
                "translations and references must be of the same sentences. Received: "
                f"{counted(count, 'translation')} in {translations} and "
                f"{counted(len(texts), unit)} in {path}. Name the right files"
            )
    if count == 0:
        raise UserError(f"{translations} is empty. Name a file with translations")
    return [texts for _, texts, _ in found]


def read_translations(path: str, *, column: str | None = None) -> list[str | None]:
    """Read translations from a text, or from a column of Parquet, by default "translation".

    The path is a file, a folder, or "-".

    Raises:
      UserError: There is no such file or column.
    """
    files = find_parquet(path)
    if not files:
        if column is not None:
            raise UserError(f"`column` belongs to Parquet, and {path} is a text: leave it out")
        return [*read_lines(path)]
    tables = _read_column(files, column or "translation", field="column")
    return [text for _, texts in tables for text in texts]


def read_references(path: str, column: str) -> list[str]:
    """Read a column of Parquet in which every row has a text.

    Raises:
      UserError: The path is a text, there is no such column, or a row is null.
    """
    files = find_parquet(path)
    if not files:
        raise UserError(
            f"`reference_columns` belongs to Parquet, and {path} is a text: name Parquet with "
            "`references`, or leave it out"
        )
    references: list[str] = []
    for file, texts in _read_column(files, column, field="reference_columns"):
        if None in texts:
            raise UserError(
                f"each row needs a reference, and column {column!r} of {file} is null in row "
                f"{texts.index(None) + 1:,}: leave such rows out of the table, or choose another "
                "column"
            )
        references += [text for text in texts if text is not None]
    return references


def _read_column(
    files: Sequence[Path], column: str, *, field: str
) -> Iterator[tuple[Path, list[str | None]]]:
    """Yield the texts of a column of each file; `field` is the option that chooses the column."""
    for file in files:
        try:
            check_readable(file)
            schema = pq.read_schema(file)
            if column not in schema.names:
                raise UserError(
                    f"{file} has no column {column!r}: choose one of {', '.join(schema.names)} "
                    f"with `{field}`"
                )
            if schema.names.count(column) > 1:
                raise UserError(f"{file} has several columns {column!r}: rename all but one")
            kind = schema.field(column).type
            if not is_text(kind):
                raise UserError(
                    f"a column must hold strings. Received: {kind} in {column!r} of {file}. Choose "
                    f"another with `{field}`"
                )
            cells = cell_bytes(pq.ParquetFile(file).read(columns=[column])[column])
            yield file, [None if cell is None else cell.decode() for cell in cells]
        except UnicodeDecodeError as error:
            raise UserError(
                f"column {column!r} of {file} has texts that are not UTF-8: choose another with "
                f"`{field}`"
            ) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{file} cannot be read as Parquet: {error}. Name another file"
            ) from error


def describe_unspaced(texts: Sequence[str]) -> list[str]:
    """Warn of texts in an unknown language whose script has no spaces between words."""
    sample = "".join(texts[:_SAMPLE])
    letters = len(regex.findall(r"\p{L}", sample))
    return [
        f"warning: the references are written in {name}, and BLEU's tokenizer 13a treats the text "
        "between two spaces as a word: give their `language`, or `tokenize`"
        for name, pattern in _UNSPACED.items()
        if 2 * len(regex.findall(pattern, sample)) > letters
    ]
