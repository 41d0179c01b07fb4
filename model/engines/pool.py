"""One model on several GPUs: each of them translates for one caller at a time."""

from __future__ import annotations

import queue
from collections.abc import Sequence

from model.engines.translator import Translation, Translator, Work
from model.text.unknown import UnknownParts


class TranslatorPool:
    """Translators of one model, each on a device of its own. Threads may share it.

    Two translations at once on one GPU would share its memory and be no faster: whoever comes
    while all are busy waits.

    Args:
      translators: At least one.
    """

    def __init__(self, translators: Sequence[Translator]) -> None:
        self._any = translators[0]
        self._free: queue.SimpleQueue[Translator] = queue.SimpleQueue()
        for translator in translators:
            self._free.put(translator)

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and turns them into ids, BOS and EOS included."""
        return self._any.encode(texts)

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Translates ids on a device that is free; the translations are in their order."""
        translator = self._free.get()
        try:
            return translator.translate_ids(source_ids)
        finally:
            self._free.put(translator)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self._any.count_unknown(text)

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""
        return self._any.is_input_error(error)
