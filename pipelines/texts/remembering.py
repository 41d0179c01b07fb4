"""The interface of a translation memory, and the translations that a memory can store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from tt.model.engines.translator import Translation

Source = tuple[int, ...]  # ids; texts that are equal after normalization are the same source


@runtime_checkable
class Memory(Protocol):
    """A store of earlier translations for one model with fixed options.

    In both methods, `target_language` is the code of the target language that the row or the
    options ask for; "" means the model's own target language.
    """

    def find_translations(
        self, sources: Collection[Source], *, target_language: str
    ) -> Mapping[Source, Translation]:
        """Return the model's earlier translations of those sources that the memory contains."""

    def find_corrections(self, texts: Iterable[str], *, target_language: str) -> Mapping[str, str]:
        """Return the human translations of those texts that the memory contains."""


class Learned(NamedTuple):
    """A new translation of the model, which a memory can store.

    Attributes:
      source: The ids of the source.
      text: The text for the model, with placeholders for protected spans.
      target_language: The code of the target language; see `Memory`.
      translation: The hypotheses of the model.
      flags: The flags of the best hypothesis; empty if no hypothesis keeps all spans.
    """

    source: Source
    text: str
    target_language: str
    translation: Translation
    flags: tuple[str, ...]
