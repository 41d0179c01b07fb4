"""Score translations against references, from text files, stdin and Parquet columns."""

from __future__ import annotations

import gzip
import itertools
import statistics
import sys
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from tt.model.errors import UserError, checked, counted, require
from tt.model.storage.files import open_for_parts, read_bytes
from tt.model.storage.listing import exists, is_folder, list_folder, list_with_links
from tt.model.storage.stores import check_buckets
from tt.model.text.languages import find_language
from tt.model.text.scores import (
    PAIRED_TESTS,
    SEED,
    bleu_tokenizer,
    compare_systems,
    score_corpus,
)
from tt.pipelines.reports.evaluation import SCORER, Evaluation, LengthScores, ScorerMeans
from tt.pipelines.reports.lengths import LengthGroup, group_by_length, mostly
from tt.pipelines.reports.requests import STDIN, EvaluateRequest
from tt.pipelines.reports.scorer import ScorerRow, score_rows
from tt.pipelines.tables.columns import cell_bytes, is_text
from tt.pipelines.tables.finding import is_skipped_name
from tt.pipelines.translate.job_folder import MANIFEST_PATH, PLAN_PATH, read_json
from tt.pipelines.translate.plan import planned_outputs, planned_suffix

_UNSPACED = r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Hangul}\p{Thai}]"  # scripts without word spaces
_GZIP = b"\x1f\x8b"  # first bytes of gzip; no UTF-8 text begins with them


class _System(NamedTuple):
    name: str
    texts: list[str]  # "" for a null translation


@checked
def evaluate(request: EvaluateRequest) -> Evaluation:
    """Read translations and references, and score them with BLEU and chrF.

    If the request has a second system, a scorer or sources, the evaluation also contains a paired
    test, the scorer's mean score, or the scores by length of the source.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.txt")
    >>> _ = path.write_text("A cat sat on the mat.")
    >>> request = EvaluateRequest(translations=str(path), references=(str(path),))
    >>> score = evaluate(request).scores[0]
    >>> score.line[:50], round(score.value)
    ('BLEU|nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|', 100)

    Raises:
      UserError: A file cannot be read, the files have different numbers of sentences, or the
        scorer fails.
    """
    notices: list[str] = []
    inputs = (request.translations, request.against, request.source, *request.references)
    check_buckets(path for path in inputs if path)
    systems = _read_systems(request, notices)
    count = len(systems[0].texts)
    references = _read_references(request, count=count)
    sources = _read_sources(request, count=count)
    planned = _read_job_file(request.translations, PLAN_PATH).get("languages", {})
    code = planned.get("target", "") if request.language is None else request.language
    tokenize = request.tokenize
    if tokenize is None and find_language(code):
        tokenize = bleu_tokenizer(code)
    elif tokenize is None:
        notices += describe_unspaced([text for texts in references for text in texts])
    how: dict[str, Any] = {"tokenize": tokenize, "lowercase": request.lowercase}
    scores = score_corpus(systems[0].texts, references, **how) if references else []
    comparison = []
    if references and len(systems) > 1:
        comparison = compare_systems(
            systems[0].texts,
            systems[1].texts,
            references,
            test=request.paired_test or PAIRED_TESTS[0],
            samples=request.samples,
            seed=SEED if request.seed is None else request.seed,
            **how,
        )
        if systems[0].texts == systems[1].texts:
            notices.append("warning: the two systems are equal, so the p-values mean nothing")
    scorer = None
    row_scores: list[list[float]] = []
    if request.scorer is not None:
        row_scores, restarts = _score_rows(request.scorer, systems, sources, references)
        mean, *other = map(statistics.fmean, row_scores)
        scorer = ScorerMeans(request.scorer, count, restarts, mean, other[0] if other else None)
        if restarts:
            notices.append(f"the scorer crashed, and was restarted {counted(restarts, 'time')}")
    unit, groups = group_by_length(sources)
    return Evaluation(
        translations=systems[0].name,
        against=systems[1].name if len(systems) > 1 else None,
        rows=count,
        scores=scores,
        comparison=comparison,
        scorer=scorer,
        length_unit=unit,
        lengths=[_score_group(group, systems, references, row_scores, how=how) for group in groups],
        notices=notices,
    )


def _score_group(
    group: LengthGroup,
    systems: Sequence[_System],
    references: Sequence[Sequence[str]],
    row_scores: Sequence[Sequence[float]],
    *,
    how: Mapping[str, Any],
) -> LengthScores:
    by_system: list[dict[str, float]] = [{} for _ in systems]
    for scores, system in zip(by_system, systems, strict=True):
        if references:
            texts = [system.texts[row] for row in group.rows]
            own_references = [[column[row] for row in group.rows] for column in references]
            found = score_corpus(texts, own_references, **how)
            scores |= {score.metric: score.value for score in found}
    # Without a scorer, `row_scores` is empty.
    for scores, values in zip(by_system, row_scores, strict=False):
        scores[SCORER] = statistics.fmean(values[row] for row in group.rows)
    against = by_system[1] if len(by_system) > 1 else None
    return LengthScores(group.least, group.most, len(group.rows), by_system[0], against)


def _read_systems(request: EvaluateRequest, notices: list[str]) -> list[_System]:
    """Return one or two systems, and add notices about missing translations."""
    given = [(request.translations, request.column, "column")]
    if request.against is not None or request.against_column is not None:
        path = request.translations if request.against is None else request.against
        column = request.against_column
        if column is None and find_parquet(path):
            column = request.column
        given.append((path, column, "against_column"))
    systems = []
    for path, column, field in given:
        found = read_translations(path, column=column, field=field)
        is_column = len(given) > 1 and request.against in (None, request.translations)
        name = column or "translation" if is_column else path
        skipped_units = _read_job_file(path, MANIFEST_PATH).get("skipped_units", ())
        if skipped := sum(unit["rows"] for unit in skipped_units):
            rows = counted(skipped, "row")
            notices.append(f"{path} has no translations of {rows}, which its job skipped")
        if nulls := found.count(None):
            verb = "is null and counts" if nulls == 1 else "are null and count"
            all_rows = counted(len(found), "translation")
            where = f" in {name}" if len(given) > 1 else ""
            notices.append(f"{nulls:,} of {all_rows}{where} {verb} as empty")
        systems.append(_System(name, [text or "" for text in found]))
    count = len(systems[0].texts)
    if count == 0:
        raise UserError(f"{request.translations} is empty. Choose a file with translations")
    for (path, _, _), system in zip(given[1:], systems[1:], strict=True):
        _check_count(system.texts, "translation", path=path, request=request, count=count)
    return systems


def _score_rows(
    command: str,
    systems: Sequence[_System],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
) -> tuple[list[list[float]], int]:
    """Return the scores of each system by a scorer, which starts once for all systems."""
    rows = []
    for system in systems:
        for row, text in enumerate(system.texts):
            texts = {"translation": text}
            if sources:
                texts["source"] = sources[row]
            if references:
                texts["reference"] = references[0][row]
            rows.append(ScorerRow(f"row {row + 1:,} of {system.name}", texts))
    scores, restarts = score_rows(command, rows)
    count = len(systems[0].texts)
    return [scores[first : first + count] for first in range(0, len(scores), count)], restarts


def _read_references(request: EvaluateRequest, *, count: int) -> list[list[str]]:
    columns, translations = request.reference_columns, request.translations
    tables = [
        path
        for path in request.references
        if path.endswith(".parquet") or (columns and is_folder(path))
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
        _check_count(texts, "reference", path=path, request=request, count=count)
    return [texts for _, texts in found]


def _read_sources(request: EvaluateRequest, *, count: int) -> list[str]:
    """Return the sources, or an empty list if the request has none."""
    column = request.source_column
    path = request.source or (request.translations if column else None)
    if path is None:
        return []
    if column is None:
        require(
            not path.endswith(".parquet"),
            f"{path} is Parquet. Choose the column of its sources with `source_column`",
        )
        texts = read_lines(path)
    else:
        cells = read_translations(path, column=column, field="source_column")
        texts = [cell or "" for cell in cells]
    _check_count(texts, "source", path=path, request=request, count=count)
    return texts


def _check_count(
    texts: Sequence[str], noun: str, *, path: str, request: EvaluateRequest, count: int
) -> None:
    if len(texts) != count:
        raise UserError(
            "translations, references and sources must have the same number of sentences. "
            f"Received: {counted(count, 'translation')} in {request.translations} and "
            f"{counted(len(texts), noun)} in {path}. Choose files that belong together"
        )


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


def _read_column(files: Sequence[str], column: str, *, field: str) -> list[str | None]:
    """Return the texts of a column; `field` is the option that chooses the column."""
    texts: list[str | None] = []
    for file in files:
        try:
            with open_for_parts(file) as opened, pq.ParquetFile(opened) as table:
                schema = table.schema_arrow
                index = schema.get_field_index(column)  # -1 if there is not exactly one
                if index < 0 or not is_text(schema.field(index).type):
                    raise UserError(
                        f"{file} must have exactly one column {column!r} of strings. Choose one of "
                        f"{', '.join(schema.names)} with `{field}`"
                    )
                cells = cell_bytes(table.read(columns=[column])[column])
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
        data = sys.stdin.buffer.read() if path == STDIN else read_bytes(path)
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
    if not mostly(_UNSPACED, texts):
        return []
    return [
        "warning: the references are in a script without spaces between words, and BLEU's "
        "tokenizer 13a treats the text between two spaces as one word. Set `language` or "
        "`tokenize`"
    ]


def find_parquet(path: str) -> list[str]:
    """Return the Parquet files at a path, or an empty list for a text file.

    The files of `tt translate-batch` are in the order of its plan, without skipped units. In any
    other folder, files are sorted by name. Hidden files and folders do not count.

    Raises:
      UserError: A folder contains no Parquet, or a file of its plan is missing.
    """
    if not is_folder(path):
        return [path] if path.endswith(".parquet") else []
    plan = _read_job_file(path, PLAN_PATH)
    if plan:
        return _planned_files(path.rstrip("/"), plan)
    found = [file.path for file in list_with_links(path, is_skipped=is_skipped_name)]
    files = [name for name in found if name.endswith(".parquet")]
    if not files:
        raise UserError(
            f"{path} contains no *.parquet files. Choose the output folder of `tt translate-batch`"
        )
    return files


def _planned_files(folder: str, plan: Mapping[str, Any]) -> list[str]:
    if (suffix := planned_suffix(plan)) != ".parquet":
        raise UserError(
            f"{folder} contains {suffix} files, but the translations of a folder must be Parquet. "
            "Translate with `tt translate-batch --format parquet`, or choose text files"
        )
    written = _read_job_file(folder, MANIFEST_PATH).get("output_bytes")
    existing = {path.removeprefix(f"{folder}/") for path in list_folder(folder)}
    names = [name for name in planned_outputs(plan, existing) if written is None or name in written]
    files = [f"{folder}/{name}" for name in names]
    for file, name in zip(files, names, strict=True):
        if name not in existing:
            raise UserError(
                f"{folder} is not finished: {file} is missing. Run its `tt translate-batch` "
                "command again to finish it"
            )
    return files


def _read_job_file(folder: str, name: str) -> Mapping[str, Any]:
    path = f"{folder.rstrip('/')}/{name}"
    return read_json(path) if exists(path) else {}
