"""Check the first rows of corpora before a run, for mistakes that would make the run useless."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from tt.model.errors import UserError, counted
from tt.pipelines.preprocess.languages import are_swapped, describe_sides
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.ready_made import TfdsPairs
from tt.pipelines.preprocess.shifts import describe_offset, find_shift
from tt.pipelines.preprocess.sources import MALFORMED, FileSource, Source, Tsv
from tt.pipelines.texts.languages import OTHER, compare_language, likely_language

_MOST_CORPORA = 50  # number of corpora to check
_DETECTED_ROWS = 128  # rows whose languages are detected
_LEAST_PAIRS = 20  # pairs that suffice to judge the languages of a corpus
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
    """Check the columns, the languages and the alignment of the first rows of each corpus.

    Raises:
      UserError: A column does not exist, the texts of each side are clearly in the language of the
        other side, the language filter would reject most pairs, or the sides are clearly shifted
        against each other. The message contains the fix.
    """
    for source in first_of_each_name(sources, most=_MOST_CORPORA):
        if not isinstance(source, FileSource) or (rows := source.first_rows()) is None:
            continue
        if isinstance(source, Tsv):
            _check_columns(source, rows)
        _check_languages(source, rows, options=options)
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


def _sample_pairs(rows: pa.Table) -> list[tuple[str, str]]:
    """Return some pairs from the first rows, without copies, which say nothing about languages."""
    columns = (rows[name].to_pylist() for name in (*_SIDES, "fault"))
    pairs = [
        (source, target)
        for source, target, fault in zip(*columns, strict=True)
        if source and target and not fault and source.strip() != target.strip()
    ]
    return pairs[:: max(1, len(pairs) // _DETECTED_ROWS)][:_DETECTED_ROWS]


def _check_languages(source: FileSource, rows: pa.Table, *, options: PreprocessOptions) -> None:
    codes = {side: getattr(options, f"{side}_language") for side in _SIDES}
    if not any(codes.values()) or not (pairs := _sample_pairs(rows)):
        return
    sides = dict(zip(_SIDES, zip(*pairs, strict=True), strict=True))
    texts = {side: Counter(map(likely_language, sides[side])) for side in _SIDES}
    if are_swapped(texts, codes=codes):
        raise _swapped_error(source, texts, codes=codes)
    if not options.checks_languages or len(pairs) < _LEAST_PAIRS:
        return
    wrong = {
        side: [compare_language(text, code=codes[side]) == OTHER for text in sides[side]]
        for side in _SIDES
    }
    rejected = sum(map(any, zip(*wrong.values(), strict=True)))
    if 2 * rejected <= len(pairs):
        return
    side = max(_SIDES, key=lambda side: sum(wrong[side]))
    found = next(code for code, _ in texts[side].most_common() if code)
    raise UserError(
        f"{source.name} seems to be in another language: the language filter would reject "
        f"{rejected:,} of {len(pairs):,} pairs of a sample, because most {side} texts are in "
        f"{found}, but `{side}_language` is {codes[side]}. Set `{side}_language={found}`, choose "
        "another corpus, or set `language_filter=False`"
    )


def _swapped_error(
    source: FileSource, texts: Mapping[str, Counter[str]], *, codes: Mapping[str, str]
) -> UserError:
    found = describe_sides(texts)
    columns = source.columns()
    fix = f"Write :{columns[1]}:{columns[0]} after its path" if columns else "Swap its two files"
    given = " and ".join(f"`{side}_language` is {codes[side]}" for side in _SIDES if codes[side])
    return UserError(
        f"{source.name} has source and target swapped: {found.texts['source']} and "
        f"{found.texts['target']}, but {given}. {fix}, or set "
        f"`source_language={codes['target'] or found.languages['source']}` and "
        f"`target_language={codes['source'] or found.languages['target']}`"
    )
