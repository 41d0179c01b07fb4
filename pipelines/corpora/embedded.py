"""The embedded English-Spanish corpus.

`english_spanish_train.tsv.gz` has 28,800 pairs, the last 4,800 of them with variables, tags, prices
and the like; `english_spanish_held_out.tsv` has 400. A grammar wrote both. The held-out part has
the words of the training part, but none of its (subject, verb, object) triples.
"""

from __future__ import annotations

import dataclasses
import functools
import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from model.errors import UserError
from pipelines.corpora.rows import SLICE_PAIRS, row_table
from pipelines.corpora.source import Source, describe_source, even_sizes
from pipelines.runners.formatting import megabytes

_FOLDER = Path(__file__).parent


class HeldOutPair(NamedTuple):
    """A held-out pair, with the translation of a word-for-word lexicon as a baseline."""

    source: str
    target: str
    word_for_word: str


@functools.cache
def train_pairs() -> tuple[tuple[str, str], ...]:
    """Return the pairs for training."""
    text = gzip.decompress((_FOLDER / "english_spanish_train.tsv.gz").read_bytes()).decode()
    pairs = (line.split("\t") for line in text.splitlines())
    return tuple((source, target) for source, target in pairs)


@functools.cache
def held_out_pairs() -> tuple[HeldOutPair, ...]:
    """Return the held-out pairs."""
    text = (_FOLDER / "english_spanish_held_out.tsv").read_text("utf-8")
    return tuple(HeldOutPair(*line.split("\t")) for line in text.splitlines())


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
        if self.split == "train":
            return list(train_pairs())
        return [(pair.source, pair.target) for pair in held_out_pairs()]

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
