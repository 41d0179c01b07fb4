"""Which pairs of a run tell the languages of its corpora: few, however many files there are.

Which ones follows from the names of all sources and the place of a row alone, so that all workers
choose the same, however the rows are cut into units.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pipelines.texts.languages import likely_language

# The first rows of the first files of each corpus are looked at, and every so many of all rows. A
# pair takes 10 to 25 µs: the first rows of a run 0.2 s at most, and the others 0.1 µs for each pair
# that is read.
_FIRST_ROWS = 128  # of a file
_FIRST_FILES = 8  # of a corpus
_FIRST_ROWS_IN_ALL = 8192  # of all files of a run, which share them
_EVERY_ROW = 256


def sample_languages(
    rows: npt.NDArray[np.int64],
    sources: Sequence[str],
    targets: Sequence[str],
    *,
    order: int,
    first_rows: int,
) -> Iterator[tuple[str, str]]:
    """Yields side and language of the texts of a few pairs.

    Args:
      rows: Rows [B] of their source that the pairs stand in.
      sources: Their source texts, B of them.
      targets: Their target texts.
      order: The place of their source among all sources.
      first_rows: How many of its first rows are looked at, of `share_first_rows`.
    """
    for i in np.flatnonzero((rows < first_rows) | ((order + rows) % _EVERY_ROW == 0)).tolist():
        yield "source", likely_language(sources[i])
        yield "target", likely_language(targets[i])


@functools.lru_cache(maxsize=2)
def share_first_rows(names: tuple[str, ...]) -> list[int]:
    """Returns how many first rows of each file are looked at, by the names of their corpora.

    >>> share_first_rows(("a", "b", "b"))
    [128, 128, 128]
    >>> share_first_rows(("a",) * 10)[6:]
    [128, 128, 0, 0]
    """
    seen: collections.Counter[str] = collections.Counter()
    is_first = []
    for name in names:
        seen[name] += 1
        is_first.append(seen[name] <= _FIRST_FILES)
    rows = min(_FIRST_ROWS, _FIRST_ROWS_IN_ALL // max(sum(is_first), 1))
    return [rows if each else 0 for each in is_first]
