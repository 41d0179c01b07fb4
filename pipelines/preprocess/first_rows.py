"""Check the first rows of corpora before a run, for mistakes that would make the run useless."""

from __future__ import annotations

import collections
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from tt.model.errors import UserError, counted
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.ready_made import TfdsPairs
from tt.pipelines.preprocess.shifts import describe_offset, find_shift
from tt.pipelines.preprocess.sources import MALFORMED, FileSource, Source, Tsv
from tt.pipelines.texts.languages import are_swapped, describe_sides, likely_language

_MOST_CORPORA = 50  # number of corpora to check
_DETECTED_ROWS = 128  # rows whose languages are detected
_SIDES = ("source", "target")


def first_of_each_name(sources: Sequence[Source], *, most: int) -> Iterator[Source]:
    """Yield the first source of the first few corpora, without remote files and pipes."""
    by_name: dict[str, Source] = {}
    for source in sources:
        by_name.setdefault(source.name, source)
    for source in itertools.islice(by_name.values(), most):
        if isinstance(source, FileSource):
            is_here = all(Path(path).is_file() for path in source.paths())
        else:
            is_here = isinstance(source, TfdsPairs) and Path(source.directory).is_dir()
        if is_here:
            yield source


def check_first_rows(sources: Sequence[Source], options: PreprocessOptions) -> None:
    """Check that the first rows of each corpus are neither swapped nor shifted.

    Raises:
      UserError: The texts of each side are clearly in the language of the other side, or the sides
        are clearly shifted against each other. The message contains the fix.
    """
    codes = {side: getattr(options, f"{side}_language") for side in _SIDES}
    for source in first_of_each_name(sources, most=_MOST_CORPORA):
        if not isinstance(source, FileSource) or (rows := source.first_rows()) is None:
            continue
        if isinstance(source, Tsv):
            _check_columns(source, rows)
        _check_languages(source, rows, codes=codes)
        if shift := find_shift(rows):
            line = shift.first_row + 1
            raise UserError(
                f"the sides of {source.name} are shifted against each other: from about line "
                f"{line:,} on, {describe_offset(shift.offset)}, as their lengths show. In the "
                f"{shift.rows} lines before or after it, find the line that only one side has, and "
                "remove it"
            )


def _check_columns(source: Tsv, rows: pa.Table) -> None:
    """Check that some of the first lines have both columns."""
    if not rows.num_rows or {*rows["fault"].to_pylist()} != {MALFORMED}:
        return
    found = max(line.count("\t") for line in rows["source"].to_pylist()) + 1
    numbers = " and ".join(map(str, source.columns()))
    raise UserError(
        f"{source.path} must have the columns {numbers}, counted from 0, but its first "
        f"{counted(rows.num_rows, 'line')} have at most {counted(found, 'column')}. "
        + (f"Write {source.path}:0:1" if found > 1 else "Choose a file with tabs")
    )


def _check_languages(source: FileSource, rows: pa.Table, *, codes: Mapping[str, str]) -> None:
    if not any(codes.values()):
        return
    texts = {side: collections.Counter[str]() for side in _SIDES}
    some = rows.slice(0, _DETECTED_ROWS)
    for side in _SIDES:
        for text, fault in zip(some[side].to_pylist(), some["fault"].to_pylist(), strict=True):
            if text and not fault:
                texts[side][likely_language(text)] += 1
    if not are_swapped(texts, codes=codes):
        return
    found = describe_sides(texts)
    columns = source.columns()
    fix = f"Write :{columns[1]}:{columns[0]} after its path" if columns else "Swap its two files"
    given = " and ".join(f"`{side}_language` is {codes[side]}" for side in _SIDES if codes[side])
    raise UserError(
        f"{source.name} has source and target swapped: {found.texts['source']} and "
        f"{found.texts['target']}, but {given}. {fix}, or set "
        f"`source_language={codes['target'] or found.languages['source']}` and "
        f"`target_language={codes['source'] or found.languages['target']}`"
    )
