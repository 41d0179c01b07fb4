"""The interface of a translation memory, and the translations that a memory can store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple, Protocol, runtime_checkable

from tt.model.engines.translator import Languages, Translation


@runtime_checkable
class Memory(Protocol):
    """A store of earlier translations for one model with fixed options.

    In both methods, `languages` are the codes of the source and the target language that the row or
    the options ask for; "" means the model's own language.
    """

    def find_translations(
        self, texts: Collection[str], *, languages: Languages
    ) -> Mapping[str, Translation]:
        """Return the model's earlier translations of those texts that the memory contains.

        Args:
          texts: Texts for the model, with placeholders for protected spans.
          languages: Codes of the languages.
        """

    def find_corrections(self, texts: Iterable[str], *, languages: Languages) -> Mapping[str, str]:
        """Return the human translations of those texts that the memory contains."""


class Learned(NamedTuple):
    """A new translation of the model, which a memory can store.

    Attributes:
      text: The text for the model, with placeholders for protected spans.
      languages: The codes of the languages; see `Memory`.
      translation: The hypotheses of the model.
      flags: The flags of the best hypothesis; empty if no hypothesis keeps all spans.
    """

    text: str
    languages: Languages
    translation: Translation
    flags: tuple[str, ...]
