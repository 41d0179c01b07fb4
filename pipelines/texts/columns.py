"""What stands beside a text: names and values of a table's columns, and of a row's fields."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pipelines.texts.translating import TranslatedText

TRANSLATION = "translation"
SCORE = "translation_score"
STATUS = "translation_status"
ERROR = "translation_error"
ROW_FLAGS = "translation_flags"
N_BEST = "translation_n_best"


def _hypotheses(text: TranslatedText) -> list[dict[str, Any]] | None:
    return [{"text": each.text, "score": each.score} for each in text.n_best] or None


VALUES: dict[str, Callable[[TranslatedText], Any]] = {
    TRANSLATION: lambda text: text.translation,
    SCORE: lambda text: text.score,
    STATUS: lambda text: text.status,
    ERROR: lambda text: text.error,
    ROW_FLAGS: lambda text: list(text.flags),
    N_BEST: _hypotheses,
}


def added_names(*, has_n_best: bool) -> list[str]:
    """Returns the names of what is added for a text, in their order.

    Args:
      has_n_best: Whether the n best translations are.
    """
    return [name for name in VALUES if has_n_best or name != N_BEST]
