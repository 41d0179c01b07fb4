"""Score translations against references, from text files, stdin and Parquet columns."""

from __future__ import annotations

import dataclasses
import gzip
import itertools
import sys
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import regex

from tt.model.errors import UserError, check_readable, counted, require
from tt.model.text.languages import find_language
from tt.model.text.scores import bleu_tokenizer, describe_scores
from tt.pipelines.reports.requests import STDIN, EvaluateRequest
from tt.pipelines.storage.listing import list_with_links
from tt.pipelines.tables.columns import cell_bytes, is_text
from tt.pipelines.tables.finding import is_skipped_name
from tt.pipelines.translate.job_folder import MANIFEST_PATH, PLAN_PATH, read_json
from tt.pipelines.translate.plan import planned_outputs, planned_suffix

_SAMPLE = 1000  # references that are checked for spaces if the language is unknown
_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]"  # scripts without word spaces
_GZIP = b"\x1f\x8b"  # first bytes of gzip; no UTF-8 text begins with them


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    scores: list[str]  # one line for BLEU and one for chrF, with sacreBLEU's signatures
    notices: list[str]


def evaluate(request: EvaluateRequest) -> Evaluation:
    """Read translations and references, and score them with BLEU and chrF.

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
    notices = []
    folder = Path(request.translations)
    skipped_units = _read_job_file(folder, MANIFEST_PATH).get("skipped_units", ())
    if skipped := sum(unit["rows"] for unit in skipped_units):
        rows = counted(skipped, "row")
        notices.append(f"{folder} has no translations of {rows}, which its job skipped")
    if nulls := translations.count(None):
        verb = "is null and counts" if nulls == 1 else "are null and count"
        notices.append(f"{nulls:,} of {counted(len(translations), 'translation')} {verb} as empty")
    planned = _read_job_file(folder, PLAN_PATH).get("languages", {}).get("target", "")
    code = planned if request.language is None else request.language
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
            f"{tables[0]} is Parquet. Choose the column of its references with `reference_columns`"
        )
    found = [(path, read_lines(path)) for path in request.references if path not in tables]
    for path, column in itertools.product(tables or [translations], columns):
        cells = read_translations(path, column=column, field="reference_columns")
        if None in cells:
            raise UserError(
                f"each row needs a reference, but column {column!r} of {path} is null in row "
                f"{cells.index(None) + 1:,}. Remove such rows, or choose another column"
            )
        found.append((path, [cell or "" for cell in cells]))
    for path, texts in found:
        if len(texts) != count:
            raise UserError(
                "translations and references must have the same number of sentences. Received: "
                f"{counted(count, 'translation')} in {translations} and "
                f"{counted(len(texts), 'reference')} in {path}. Choose files that belong together"
            )
    if count == 0:
        raise UserError(f"{translations} is empty. Choose a file with translations")
    return [texts for _, texts in found]


def read_translations(
    path: str, *, column: str | None = None, field: str = "column"
) -> list[str | None]:
    """Read translations from a text file or a Parquet column, which is "translation" by default.

    Args:
      path: A file, a folder, or "-".
      column: The Parquet column.
      field: The option that chooses the column, for error messages.

    Raises:
      UserError: There is no such file or column.
    """
    files = find_parquet(path)
    if files:
        return _read_column(files, column or "translation", field=field)
    require(
        column is None,
        f"`{field}` is only for Parquet, but {path} is a text file. Remove the option",
    )
    return [*read_lines(path)]


def _read_column(files: Sequence[Path], column: str, *, field: str) -> list[str | None]:
    """Return the texts of a column; `field` is the option that chooses the column."""
    texts: list[str | None] = []
    for file in files:
        try:
            check_readable(file)
            schema = pq.read_schema(file)
            index = schema.get_field_index(column)  # -1 if there is not exactly one
            if index < 0 or not is_text(schema.field(index).type):
                raise UserError(
                    f"{file} must have exactly one column {column!r} of strings. Choose one of "
                    f"{', '.join(schema.names)} with `{field}`"
                )
            cells = cell_bytes(pq.ParquetFile(file).read(columns=[column])[column])
            texts += [None if cell is None else cell.decode() for cell in cells]
        except (OSError, ValueError) as error:  # including Arrow's errors and UnicodeDecodeError
            raise UserError(
                f"{file} cannot be read as Parquet with texts in {column!r}: {error}. Choose "
                "another file"
            ) from error
    return texts


def read_lines(path: str) -> list[str]:
    r"""Read the lines of a UTF-8 text, plain or gzip, from a file or a pipe; only \n ends a line.

    Raises:
      UserError: The text cannot be read, or is not UTF-8.
    """
    if path == STDIN and sys.stdin is None:
        raise UserError("stdin is closed. Redirect stdin, or choose a file")
    try:
        data = sys.stdin.buffer.read() if path == STDIN else Path(path).read_bytes()
        if path.endswith(".gz") or data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}. Choose a text file") from error
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"{path} is not UTF-8 in line {line:,}. Convert the file first, for example with "
            "iconv -f latin-1 -t utf-8"
        ) from error
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def describe_unspaced(texts: Sequence[str]) -> list[str]:
    """Return a warning if texts in an unknown language have no spaces between words."""
    sample = "".join(texts[:_SAMPLE])
    letters = len(regex.findall(r"\p{L}", sample))
    if not letters or 2 * len(regex.findall(_UNSPACED, sample)) <= letters:
        return []
    return [
        "warning: the references are in a script without spaces between words, and BLEU's "
        "tokenizer 13a treats the text between two spaces as one word. Set `language` or "
        "`tokenize`"
    ]


def find_parquet(path: str) -> list[Path]:
    """Return the Parquet files at a path, or an empty list for a text file.

    The files of `tt translate-batch` are in the order of its plan, without skipped units. In any
    other folder, files are sorted by name. Hidden files and folders do not count.

    Raises:
      UserError: A folder contains no Parquet, or a file of its plan is missing.
    """
    folder = Path(path)
    if not folder.is_dir():
        return [folder] if folder.suffix == ".parquet" else []
    plan = _read_job_file(folder, PLAN_PATH)
    if plan:
        return _planned_files(folder, plan)
    found = [file.path for file in list_with_links(path, is_skipped=is_skipped_name)]
    files = [Path(name) for name in found if name.endswith(".parquet")]
    if not files:
        raise UserError(
            f"{path} contains no *.parquet files. Choose the output folder of `tt translate-batch`"
        )
    return files


def _planned_files(folder: Path, plan: Mapping[str, Any]) -> list[Path]:
    if (suffix := planned_suffix(plan)) != ".parquet":
        raise UserError(
            f"{folder} contains {suffix} files, but the translations of a folder must be Parquet. "
            "Translate with `tt translate-batch --format parquet`, or choose text files"
        )
    written = _read_job_file(folder, MANIFEST_PATH).get("output_bytes")
    existing = [path.relative_to(folder).as_posix() for path in folder.rglob("*")]
    files = [
        folder / name
        for name in planned_outputs(plan, existing)
        if written is None or name in written
    ]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"{folder} is not finished: {file} is missing. Run its `tt translate-batch` "
                "command again to finish it"
            )
    return files


def _read_job_file(folder: Path, name: str) -> Mapping[str, Any]:
    path = folder / name
    return read_json(str(path)) if path.is_file() else {}
