"""The pairs that a dataset left out, by reason, with examples."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from model.errors import UserError

_PATTERN = "rejected-*.parquet"
_BATCH_ROWS = 8192


@dataclasses.dataclass(frozen=True, kw_only=True)
class RejectedPair:
    """A pair that was left out, with its texts as they were read."""

    corpus: str
    file: str
    line: int  # from 1
    source: str | None  # None of duplicates, whose texts are those of the pair that stayed
    target: str | None
    kept_instead: str  # place of the pair that stayed, or ""


@dataclasses.dataclass(frozen=True, kw_only=True)
class RejectedPairs:
    """The pairs that were left out for a reason."""

    reason: str  # its code
    count: int
    examples: list[RejectedPair]  # the first ones


def summarize_rejected(
    folder: Path, counts: Mapping[str, int], *, examples: int
) -> list[RejectedPairs]:
    """Returns the pairs that a dataset left out, most of one reason first.

    Args:
      folder: The dataset folder.
      counts: Pairs by reason, as in its manifest.
      examples: Pairs of a reason that are shown, at the most.

    Raises:
      UserError: A `rejected-*.parquet` cannot be read.
    """
    found: dict[str, list[RejectedPair]] = {reason: [] for reason in counts}

    def is_missing(reason: str) -> bool:
        return len(found[reason]) < min(examples, counts[reason])

    for row in _rows(folder):
        reason = row.pop("reason")
        if reason in found and is_missing(reason):
            found[reason].append(_pair(row))
            if not any(map(is_missing, found)):
                break
    return [
        RejectedPairs(reason=reason, count=count, examples=found[reason])
        for reason, count in sorted(counts.items(), key=lambda each: (-each[1], each[0]))
    ]


def _rows(folder: Path) -> Iterator[dict[str, Any]]:
    for path in sorted(folder.glob(_PATTERN)):
        try:
            with pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_BATCH_ROWS):
                    yield from batch.to_pylist()
        except (pa.ArrowException, OSError) as error:
            reason = " ".join(str(error).split())
            raise UserError(
                f"{path} cannot be read: {reason}. Copy the folder again from where it came, or "
                "make the dataset again with `tt preprocess`"
            ) from error


def _pair(row: Mapping[str, Any]) -> RejectedPair:
    kept = ""
    if row.get("survivor_line") is not None:
        kept = f"{row['survivor_file'] or row['survivor_corpus']}:{row['survivor_line']}"
    return RejectedPair(
        corpus=row["corpus"] or "",
        file=row["file"] or "",
        line=row["line"],
        source=row["source"],
        target=row["target"],
        kept_instead=kept,
    )
