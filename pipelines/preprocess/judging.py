"""Judge whether the sides of a pair are in the right languages and have a similar meaning.

Both judgments take longer than all other filters. Therefore, the first step that cleans a unit
writes them to the work folder, and later steps read them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import zipfile
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from tt.model.storage import files, listing
from tt.pipelines.preprocess.filters import (
    NOT_ALIGNED,
    WRONG_LANGUAGE_SOURCE,
    WRONG_LANGUAGE_TARGET,
)
from tt.pipelines.preprocess.options import AlignmentFilter
from tt.pipelines.preprocess.plan import DatasetPlan
from tt.pipelines.preprocess.units import Unit
from tt.pipelines.texts.languages import MIXED, OTHER, SAME, compare_language
from tt.pipelines.texts.similarity import cosines

_WRONG = (WRONG_LANGUAGE_SOURCE, WRONG_LANGUAGE_TARGET)
_VERDICTS = (SAME, *_WRONG, MIXED)
_BINS = 2000  # bins in the histogram of cosines from -1 to 1
_SHOWN_BINS = 40  # bins in the histogram of `dataset.json`
_UNUSUAL_SHARE = 0.001  # share of the kept pairs below `least_cosine`
_EXAMPLES = 2  # pairs per shown bin
_EXAMPLE_CHARACTERS = 200


@dataclasses.dataclass(frozen=True)
class Judgments:
    """The judgments of B pairs.

    Attributes:
      verdicts: Positions in `_VERDICTS`, of shape [B].
      cosines: Cosines of the embeddings of both sides, of shape [B]; NaN if there is no cosine.
    """

    verdicts: npt.NDArray[np.uint8]
    cosines: npt.NDArray[np.float32]

    @property
    def kept(self) -> npt.NDArray[np.int64]:
        """The positions of the pairs without a side in a wrong language."""
        return np.flatnonzero(
            (self.verdicts == _VERDICTS.index(SAME)) | (self.verdicts == _VERDICTS.index(MIXED))
        )

    @property
    def mixed(self) -> int:
        """The number of pairs with a side that is partly in another language."""
        return int((self.verdicts == _VERDICTS.index(MIXED)).sum())

    def reasons(self, *, threshold: float | None) -> dict[int, str]:
        """Return the reasons to reject pairs, by position.

        Args:
          threshold: The smallest cosine of a pair to keep; None accepts every cosine.
        """
        found = {
            position: _VERDICTS[self.verdicts[position]]
            for position in np.flatnonzero(self.verdicts).tolist()
            if _VERDICTS[self.verdicts[position]] != MIXED
        }
        if threshold is not None:
            for position in np.flatnonzero(self.cosines < threshold).tolist():
                found.setdefault(position, NOT_ALIGNED)
        return found


def judge_languages(
    sources: Sequence[str], targets: Sequence[str], *, plan: DatasetPlan
) -> Judgments:
    """Compare the languages of pairs with the codes in the options, without cosines."""
    codes = plan.options.source_language, plan.options.target_language
    verdicts = np.zeros(len(sources), np.uint8)
    for position, pair in enumerate(zip(sources, targets, strict=True)):
        found = [compare_language(text, code=code) for text, code in zip(pair, codes, strict=True)]
        if OTHER in found:
            verdicts[position] = _VERDICTS.index(_WRONG[found.index(OTHER)])
        elif MIXED in found:
            verdicts[position] = _VERDICTS.index(MIXED)
    return Judgments(verdicts, np.full(len(sources), np.nan, np.float32))


def judge_pairs(sources: Sequence[str], targets: Sequence[str], *, plan: DatasetPlan) -> Judgments:
    """Judge pairs, as the options of a dataset require.

    A pair with a side in a wrong language gets no cosine.
    """
    if plan.options.checks_languages:
        found = judge_languages(sources, targets, plan=plan)
    else:
        found = Judgments(
            np.zeros(len(sources), np.uint8), np.full(len(sources), np.nan, np.float32)
        )
    if plan.options.alignment_filter is not None:
        chosen = found.kept.tolist()
        found.cosines[chosen] = cosines([sources[i] for i in chosen], [targets[i] for i in chosen])
    return found


class UnitJudgments:
    """The judgments of a unit's slices, which are read from the work folder or made.

    Args:
      unit: The unit.
      plan: The plan.
    """

    def __init__(self, unit: Unit, plan: DatasetPlan) -> None:
        self._plan = plan
        self._path = plan.work.judgments(unit.label)
        self._made: list[Judgments] = []
        self._stored: Iterator[Judgments] | None = None
        if listing.exists(self._path):
            # A crash of the machine can truncate the file. Its pairs are then judged again.
            with contextlib.suppress(ValueError, KeyError, EOFError, zipfile.BadZipFile):
                self._stored = self._read()

    def _read(self) -> Iterator[Judgments]:
        with np.load(io.BytesIO(files.read_bytes(self._path))) as stored:
            ends = np.cumsum(stored["counts"])[:-1]
            sides = [np.split(stored[name], ends) for name in ("verdicts", "cosines")]
        return map(Judgments, *sides)

    def next(self, read_texts: Callable[[], tuple[list[str], list[str]]]) -> Judgments:
        """Return the judgments of the next slice of the unit.

        Args:
          read_texts: Returns the sources and the targets, which stored judgments do not need.
        """
        if self._stored is not None:
            return next(self._stored)
        self._made.append(judge_pairs(*read_texts(), plan=self._plan))
        return self._made[-1]

    def store(self) -> None:
        """Write the judgments to the work folder, after the last slice."""
        if self._stored is None and self._made:
            with self._plan.work.write_whole(self._path) as file:
                np.savez(
                    file,
                    counts=[len(each.verdicts) for each in self._made],
                    verdicts=np.concatenate([each.verdicts for each in self._made]),
                    cosines=np.concatenate([each.cosines for each in self._made]),
                )


@dataclasses.dataclass(kw_only=True)
class Alignment:
    """The cosines of pairs, in bins from -1 to 1, with examples.

    Attributes:
      counts: The number of pairs per bin.
      examples: For each shown bin, (hash, cosine, source, target) of the pairs with the smallest
        hashes.
    """

    counts: npt.NDArray[np.int64] = dataclasses.field(
        default_factory=lambda: np.zeros(_BINS, np.int64)
    )
    examples: dict[int, list[tuple[int, float, str, str]]] = dataclasses.field(default_factory=dict)

    def count(
        self,
        similarity: npt.NDArray[np.float32],
        hashes: npt.NDArray[np.uint64],
        sources: Sequence[str],
        targets: Sequence[str],
    ) -> None:
        """Count the cosines of B pairs, all arrays of shape [B]. NaN does not count."""
        places = np.flatnonzero(~np.isnan(similarity))
        self.counts += np.bincount(_bins(similarity[places], _BINS), minlength=_BINS)
        shown = _bins(similarity[places], _SHOWN_BINS)
        for i in np.lexsort((hashes[places], shown)).tolist():
            examples = self.examples.setdefault(int(shown[i]), [])
            place = places[i]
            example = (int(hashes[place]), round(float(similarity[place]), 4))
            if len(examples) < _EXAMPLES or example < examples[-1][:2]:
                texts = sources[place], targets[place]
                cut = [text[:_EXAMPLE_CHARACTERS] for text in texts]
                self.examples[int(shown[i])] = sorted([*examples, (*example, *cut)])[:_EXAMPLES]

    def add(self, other: Alignment) -> None:
        """Add the cosines of other pairs."""
        self.counts = self.counts + other.counts
        for shown, examples in other.examples.items():
            both = sorted([*self.examples.get(shown, []), *examples])
            self.examples[shown] = both[:_EXAMPLES]

    merge = add

    def find_threshold(self, filter_: AlignmentFilter | None) -> float | None:
        """Return the threshold of a filter; None without a filter or without pairs."""
        if filter_ is None or filter_.share is None:
            return filter_.threshold if filter_ else None
        if not self.counts.any():
            return None
        below = np.cumsum(self.counts)
        place = int(np.searchsorted(below, filter_.share * below[-1], side="right"))
        return round(2 * place / _BINS - 1, 4)

    def _least_cosine(self, filter_: AlignmentFilter) -> float | None:
        """Return the cosine that almost all kept pairs reach."""
        kept = self.counts.copy()
        if (threshold := self.find_threshold(filter_)) is not None:
            kept[: round((threshold + 1) / 2 * _BINS)] = 0
        if not kept.any():
            return None
        place = int(np.searchsorted(np.cumsum(kept), _UNUSUAL_SHARE * kept.sum(), side="right"))
        return round(2 * place / _BINS - 1, 4)

    def as_json(self, filter_: AlignmentFilter) -> dict[str, object]:
        """Return the threshold of a filter, and the histogram with examples, for `dataset.json`."""
        by_bin = self.counts.reshape(_SHOWN_BINS, -1).sum(axis=1).tolist()
        return {
            "threshold": self.find_threshold(filter_),
            "least_cosine": self._least_cosine(filter_),
            "counts": by_bin,
            "examples": [
                [each[1:] for each in sorted(self.examples.get(shown, []), key=lambda e: e[1])]
                for shown in range(_SHOWN_BINS)
            ],
        }


def _bins(similarity: npt.NDArray[np.float32], count: int) -> npt.NDArray[np.int64]:
    places = np.floor((similarity.astype(np.float64) + 1) / 2 * count).astype(np.int64)
    return np.clip(places, 0, count - 1)
