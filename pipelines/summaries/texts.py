"""Texts and their translations: statuses, flags, lengths, scores, outliers."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Mapping

import pyarrow as pa

from model.summaries.histograms import Histogram
from pipelines.tables.text_columns import read_text_column
from pipelines.texts.columns import ERROR, ROW_FLAGS, SCORE, STATUS, TRANSLATION
from pipelines.texts.translating import OK

_LENGTH_EDGES = [1, *(round(4 * 2 ** (octave / 2)) for octave in range(23))]  # characters
_RATIO_EDGES = [2 ** (eighth / 4 - 4) for eighth in range(33)]  # 1/16 to 16
_SCORE_EDGES = [step / 20 - 2 for step in range(41)]  # -2 to 0
_LEAST_CHARACTERS = 10  # of a text whose ratio of lengths tells anything


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextExample:
    """A text with its translation."""

    file: str  # output file, relative to the folder
    row: int  # in that file, from 0
    text: str | None  # None where it is null or not UTF-8
    translation: str | None
    status: str
    flags: list[str]
    score: float | None  # log-probability
    error: str | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ColumnSummary:
    """The texts of a column. What the job counted are rows, all else are texts looked at."""

    name: str
    rows_by_status: dict[str, int]  # of the whole job
    rows_by_flag: dict[str, int]
    texts: int  # that were looked at
    source_lengths: Histogram  # characters
    target_lengths: Histogram
    length_ratios: Histogram  # characters of the translation for one of the text
    scores: Histogram  # log-probability for a character of the translation
    examples_by_status: dict[str, list[TextExample]]  # of all statuses but ok
    examples_by_flag: dict[str, list[TextExample]]
    samples: list[TextExample]  # the first texts
    least_probable: list[TextExample]  # for a character
    relatively_longest: list[TextExample]
    relatively_shortest: list[TextExample]


class ColumnLook:
    """What a look at the rows of a column finds; `examples` are kept of each kind."""

    def __init__(self, name: str, *, prefix: str, examples: int) -> None:
        self._name, self._prefix, self._most = name, prefix, examples
        self._lengths: list[tuple[int, int]] = []
        self._scores: list[float] = []
        self._by_status: dict[str, list[TextExample]] = collections.defaultdict(list)
        self._by_flag: dict[str, list[TextExample]] = collections.defaultdict(list)
        self._samples: list[TextExample] = []
        self._by_score: list[tuple[float, TextExample]] = []
        self._by_ratio: list[tuple[float, TextExample]] = []
        self._texts = 0

    def add(self, table: pa.Table, *, file: str, first_row: int) -> None:
        """Takes rows of an output file."""
        for example in self._examples(table, file=file, first_row=first_row):
            self._texts += 1
            self._keep(self._samples, example)
            if example.status != OK:
                self._keep(self._by_status[example.status], example)
            for flag in example.flags:
                self._keep(self._by_flag[flag], example)
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
        self._by_score = _distinct(sorted(self._by_score, key=_first))[: self._most]
        by_ratio = _distinct(sorted(self._by_ratio, key=_first))
        if len(by_ratio) > 2 * self._most:
            by_ratio = by_ratio[: self._most] + by_ratio[len(by_ratio) - self._most :]
        self._by_ratio = by_ratio

    def _keep(self, examples: list[TextExample], example: TextExample) -> None:
        if len(examples) < self._most:
            examples.append(example)

    def _examples(self, table: pa.Table, *, file: str, first_row: int) -> Iterator[TextExample]:
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
        """Returns what was found, beside what the job counted."""
        by_ratio = [example for _, example in self._by_ratio]
        half = len(by_ratio) // 2
        ratios = [target / source for source, target in self._lengths]

        def lengths(side: int) -> Histogram:
            values = [pair[side] for pair in self._lengths]
            return Histogram.of(values, edges=_LENGTH_EDGES, unit="characters").trimmed()

        return ColumnSummary(
            name=self._name,
            rows_by_status={name: n for name, n in rows_by_status.items() if n},
            rows_by_flag={name: n for name, n in rows_by_flag.items() if n},
            texts=self._texts,
            source_lengths=lengths(0),
            target_lengths=lengths(1),
            length_ratios=Histogram.of(
                ratios, edges=_RATIO_EDGES, unit="characters of the translation a character"
            ).trimmed(),
            scores=Histogram.of(
                self._scores, edges=_SCORE_EDGES, unit="log-probability a character"
            ).trimmed(),
            examples_by_status=dict(self._by_status),
            examples_by_flag=dict(self._by_flag),
            samples=self._samples,
            least_probable=[example for _, example in self._by_score],
            relatively_longest=by_ratio[max(half, len(by_ratio) - self._most) :][::-1],
            relatively_shortest=by_ratio[: min(half, self._most)],
        )


def _first(pair: tuple[float, TextExample]) -> float:
    return pair[0]


def _distinct(ranked: list[tuple[float, TextExample]]) -> list[tuple[float, TextExample]]:
    """Returns each text with its translation once, where it comes first."""
    found: dict[tuple[str | None, str | None], tuple[float, TextExample]] = {}
    for value, example in ranked:
        found.setdefault((example.text, example.translation), (value, example))
    return list(found.values())


def _decode(cell: bytes | None) -> str | None:
    try:
        return None if cell is None else cell.decode()
    except UnicodeDecodeError:
        return None
