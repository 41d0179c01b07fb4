"""The embedded corpus as a source."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from typing import Any, ClassVar

import pyarrow as pa

from model.errors import UserError
from pipelines.corpora.rows import SLICE_PAIRS, row_table
from pipelines.corpora.source import Source, describe_source, even_sizes
from pipelines.runners.formatting import megabytes


@dataclasses.dataclass(frozen=True)
class EmbeddedCorpus(Source):
    """A split of the corpus that comes with `tt`: "train" or "held_out"."""

    kind: ClassVar[str] = "embedded"

    split: str = "train"

    def __post_init__(self) -> None:
        if self.split not in ("train", "held_out"):
            raise UserError(
                f"the embedded corpus has the splits train and held_out. Received: {self.split!r}"
            )

    @property
    def name(self) -> str:
        """Its name in the manifest."""
        return f"embedded:{self.split}"

    def _pairs(self) -> list[tuple[str, str]]:
        from pipelines.english_spanish import corpus

        pairs = corpus.train_pairs() if self.split == "train" else corpus.held_out_pairs()
        return [(pair.source, pair.target) for pair in pairs]

    def identity(self) -> dict[str, Any]:
        """Returns what tells one state of the corpus from another."""
        text = "\n".join(f"{source}\t{target}" for source, target in self._pairs())
        return {
            "kind": self.kind,
            "name": self.name,
            "files": [],
            "columns": [],
            "text": hashlib.sha256(text.encode()).hexdigest(),
        }

    def text_bytes(self) -> int:
        """Returns about how many bytes of text there are."""
        return sum(len(source) + len(target) for source, target in self._pairs())

    def describe(self) -> str:
        """Returns a line on what would be read."""
        size = megabytes(self.text_bytes())
        return describe_source(self, where=self.name, size=size, pairs=len(self._pairs()))

    def sizes(self, *, max_pairs: int, max_bytes: int) -> list[int]:
        """Returns the numbers of rows to read at a time; all texts are short."""
        return even_sizes(total=len(self._pairs()), most=max_pairs)

    def read_rows(self, *, first_row: int, rows: int) -> Iterator[pa.Table]:
        """Reads a run of rows."""
        pairs = self._pairs()[first_row : first_row + rows]
        for i in range(0, len(pairs), SLICE_PAIRS):
            sources, targets = zip(*pairs[i : i + SLICE_PAIRS], strict=True)
            yield row_table(
                pa.array(sources, pa.large_string()), pa.array(targets, pa.large_string())
            )
