"""The result of an evaluation, as blocks for a terminal and as JSON values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

from tt.model.errors import counted
from tt.model.inspection.blocks import Folded, Lines, Table
from tt.model.text.scores import Comparison, Score

SCORER = "scorer"  # the name of the mean of a scorer's scores


class ScorerMeans(NamedTuple):
    """The means of a scorer's scores."""

    command: str
    rows: int  # number of rows; each row has a score per system
    restarts: int
    translations: float
    against: float | None  # None without a second system


class LengthScores(NamedTuple):
    """The scores of the rows whose sources have a similar length."""

    least: int  # length of the shortest sources that belong to the group
    most: int | None  # length of the longest sources; None for the last group
    rows: int
    translations: dict[str, float]  # by metric: "BLEU", "chrF2" and "scorer"
    against: dict[str, float] | None  # None without a second system


@dataclasses.dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The result of an evaluation.

    Attributes:
      translations: The name of the translations.
      against: The name of the second system, or None.
      rows: The number of rows.
      scores: BLEU and chrF2, with sacreBLEU's signatures; empty without references.
      comparison: BLEU and chrF2 of both systems; empty without a second system or references.
      scorer: The means of the scorer's scores, or None.
      length_unit: The unit of the sources' lengths, "words" or "characters".
      lengths: The scores by length of the source; empty without sources.
      notices: Sentences about the input, such as the number of null translations.
    """

    translations: str
    against: str | None
    rows: int
    scores: list[Score]
    comparison: list[Comparison]
    scorer: ScorerMeans | None
    length_unit: str
    lengths: list[LengthScores]
    notices: list[str]

    def blocks(self) -> list[Any]:
        """Return tables of everything except `scores` and `notices`."""
        blocks: list[Any] = []
        if self.comparison:
            header = ["metric", "system", "score", "mean", "95 % interval", "p-value"]
            rows = [
                [each.metric, name, *_shown(estimate), p_value]
                for each in self.comparison
                for name, estimate, p_value in (
                    (self.against, each.baseline, None),
                    (self.translations, each.system, f"{each.p_value:.4f}"),
                )
            ]
            signatures = Lines([f"{each.metric}|{each.signature}" for each in self.comparison])
            blocks.append(Folded("Paired test", [Table(header, rows), signatures]))
        if self.scorer is not None:
            means = [[self.translations, f"{self.scorer.translations:.4f}"]]
            if self.scorer.against is not None:
                means.append([str(self.against), f"{self.scorer.against:.4f}"])
            title = f"Mean score of {counted(self.scorer.rows, 'row')} by {self.scorer.command}"
            blocks.append(Folded(title, [Table(["system", "mean"], means)]))
        if self.lengths:
            header = [f"{self.length_unit} in the source", "rows", *self.lengths[0].translations]
            header += [f"{metric} of {self.against}" for metric in self.lengths[0].against or {}]
            table = [
                [_span(each), each.rows, *_cells(each.translations), *_cells(each.against or {})]
                for each in self.lengths
            ]
            blocks.append(Folded("Scores by length", [Table(header, table)]))
        return blocks

    def as_json(self) -> dict[str, Any]:
        """Return all results except `notices` as JSON values."""
        return {
            "translations": self.translations,
            "against": self.against,
            "rows": self.rows,
            "scores": {
                each.metric: {"score": each.value, "signature": each.signature}
                for each in self.scores
            },
            "paired_test": {
                each.metric: {
                    "p_value": each.p_value,
                    "translations": each.system._asdict(),
                    "against": each.baseline._asdict(),
                    "signature": each.signature,
                }
                for each in self.comparison
            },
            "scorer": None if self.scorer is None else self.scorer._asdict(),
            "length_unit": self.length_unit if self.lengths else None,
            "lengths": [each._asdict() for each in self.lengths],
        }


def _shown(estimate: Any) -> list[str | None]:
    mean, half = estimate.mean, estimate.interval
    if mean is None or half is None:
        return [f"{estimate.score:.2f}", None, None]
    return [f"{estimate.score:.2f}", f"{mean:.2f}", f"{mean - half:.2f} to {mean + half:.2f}"]


def _span(group: LengthScores) -> str:
    if group.most is None:
        return f"{group.least} or more"
    return f"{group.least} to {group.most}"


def _cells(scores: Mapping[str, float]) -> list[str]:
    return [f"{score:.{4 if name == SCORER else 2}f}" for name, score in scores.items()]
