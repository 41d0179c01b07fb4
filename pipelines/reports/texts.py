"""Texts and their translations: statuses, flags, lengths, scores, outliers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from model.inspection.blocks import Bars, Histograms, Note, Texts
from model.inspection.histograms import Histogram
from pipelines.tables.columns import read_text_column
from pipelines.texts.translating import ERROR, OK, ROW_FLAGS, SCORE, STATUS, TRANSLATION

_LENGTH_EDGES = [1, *(round(4 * 2 ** (octave / 2)) for octave in range(23))]  # characters
_RATIO_EDGES = [2 ** (eighth / 4 - 4) for eighth in range(33)]  # 1/16 to 16
_SCORE_EDGES = [step / 20 - 2 for step in range(41)]  # -2 to 0
_LEAST_CHARACTERS = 10  # of a text whose ratio of lengths is meaningful


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text with its translation."""

    file: str  # output file, relative to the folder
    row: int  # in that file, from 0
    text: str | None  # None if it is null or not UTF-8
    translation: str | None
    status: str
    flags: list[str]
    score: float | None  # log-probability
    error: str | None


_Ranked = list[tuple[float, TextExample]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """The texts of a column. The job counted rows; everything else is about texts looked at."""

    name: str
    rows_by_status: dict[str, int]  # of the whole job
    rows_by_flag: dict[str, int]
    texts: int  # that were looked at
    source_lengths: Histogram  # characters
    target_lengths: Histogram
    length_ratios: Histogram  # characters of the translation per character of the text
    scores: Histogram  # log-probability per character of the translation
    # By the reason to show them: "status copied", "flag repeated", "sample" (the first texts), or a
    # kind of outlier.
    examples: dict[str, list[TextExample]]


class ColumnLook:
    """Collects facts from the rows of a column, with at most `examples` of each kind."""

    def __init__(self, name: str, *, prefix: str, examples: int) -> None:
        self._name, self._prefix, self._most = name, prefix, examples
        self._lengths: list[tuple[int, int]] = []
        self._scores: list[float] = []
        self._examples: dict[str, list[TextExample]] = collections.defaultdict(list)
        self._by_score: _Ranked = []
        self._by_ratio: _Ranked = []
        self._texts = 0

    def add(self, table: pa.Table, *, file: str, first_row: int) -> None:
        """Take rows of an output file."""
        for example in self._read(table, file=file, first_row=first_row):
            self._texts += 1
            reasons = ["sample", *(f"flag {flag}" for flag in example.flags)]
            if example.status != OK:
                reasons.append(f"status {example.status}")
            for reason in reasons:
                if len(self._examples[reason]) < self._most:
                    self._examples[reason].append(example)
            if not (example.text and example.translation):
                continue
            lengths = len(example.text), len(example.translation)
            self._lengths.append(lengths)
            if lengths[0] >= _LEAST_CHARACTERS:
                self._by_ratio.append((lengths[1] / lengths[0], example))
            if example.score is not None:
                score = example.score / lengths[1]
                self._scores.append(score)
                self._by_score.append((score, example))
        self._by_score = _distinct(self._by_score)[: self._most]
        by_ratio = _distinct(self._by_ratio)
        middle = slice(self._most, max(self._most, len(by_ratio) - self._most))
        del by_ratio[middle]
        self._by_ratio = by_ratio

    def _read(self, table: pa.Table, *, file: str, first_row: int) -> Iterator[TextExample]:
        texts = read_text_column(table, self._name)
        rows = [
            row
            for row, length in enumerate(texts.lengths or [1] * table.num_rows)
            for _ in range(length or 0)
        ]
        columns = {
            added: (
                texts.flatten(table[f"{self._prefix}{added}"])
                if f"{self._prefix}{added}" in table.schema.names
                else [None] * len(texts.cells)
            )
            for added in (TRANSLATION, STATUS, SCORE, ERROR, ROW_FLAGS)
        }
        for row, cell, translation, status, score, error, flags in zip(
            rows, texts.cells, *columns.values(), strict=True
        ):
            yield TextExample(
                file=file,
                row=first_row + row,
                text=_decode(cell),
                translation=translation,
                status=status or "",
                flags=list(flags or ()),
                score=score,
                error=error,
            )

    def summarize(
        self, *, rows_by_status: Mapping[str, int], rows_by_flag: Mapping[str, int]
    ) -> ColumnSummary:
        """Return the findings, together with the counts of the job."""
        by_ratio = [example for _, example in self._by_ratio]
        half = len(by_ratio) // 2
        ratios = [target / source for source, target in self._lengths]

        def histogram(values: list[Any], edges: list[Any], unit: str) -> Histogram:
            return Histogram.of(values, edges=edges, unit=unit).trimmed()

        return ColumnSummary(
            name=self._name,
            rows_by_status={name: n for name, n in rows_by_status.items() if n},
            rows_by_flag={name: n for name, n in rows_by_flag.items() if n},
            texts=self._texts,
            source_lengths=histogram([s for s, _ in self._lengths], _LENGTH_EDGES, "characters"),
            target_lengths=histogram([t for _, t in self._lengths], _LENGTH_EDGES, "characters"),
            length_ratios=histogram(ratios, _RATIO_EDGES, "characters per character of the text"),
            scores=histogram(self._scores, _SCORE_EDGES, "log-probability per character"),
            examples={
                **{name: found for name, found in self._examples.items() if name != "sample"},
                "least probable per character": [example for _, example in self._by_score],
                "longest for its text": by_ratio[max(half, len(by_ratio) - self._most) :][::-1],
                "shortest for its text": by_ratio[: min(half, self._most)],
                "sample": self._examples["sample"],
            },
        )


def _distinct(examples: _Ranked) -> _Ranked:
    """Return examples by their value, and each text with its translation only once."""
    found: dict[tuple[str | None, str | None], tuple[float, TextExample]] = {}
    for value, example in sorted(examples, key=lambda each: each[0]):
        found.setdefault((example.text, example.translation), (value, example))
    return list(found.values())


def _decode(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None


def column_blocks(column: ColumnSummary) -> list[Any]:
    """Return the blocks of a column. Each example occurs once, with all reasons to show it."""
    bars = [
        Bars(title, list(counts.items()), "rows")
        for title, counts in (
            ("Rows by status", column.rows_by_status),
            ("Rows by flag", column.rows_by_flag),
        )
        if counts
    ]
    lengths = [("text", column.source_lengths), ("translation", column.target_lengths)]
    histograms = [
        Histograms("Lengths", lengths, is_log=True),
        Histograms("Ratio of lengths", [("ratio", column.length_ratios)], is_log=True),
        Histograms("Scores", [("score", column.scores)]),
    ]
    return [*bars, *histograms, _examples(column)]


def _examples(column: ColumnSummary) -> Texts | Note:
    reasons: dict[tuple[str | None, str | None], list[str]] = collections.defaultdict(list)
    examples: dict[tuple[str | None, str | None], TextExample] = {}
    for reason, group in column.examples.items():
        for each in group:
            key = each.text, each.translation
            if reason not in reasons[key]:
                reasons[key].append(reason)
            examples.setdefault(key, each)
    rows = [
        [", ".join(reasons[key]), e.text, e.translation, e.score, e.file, e.row, e.error]
        for key, e in examples.items()
    ]
    header = ["shown as", "text", "translation", "score", "file", "row", "error"]
    return Texts(header, rows) if rows else Note("There are no examples.")
