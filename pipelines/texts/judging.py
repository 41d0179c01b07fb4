"""What is suspicious about a translation: pure functions of a sentence and its translation.

A flag means that a reader should look; a translation with one may be right. All thresholds stand
in `Thresholds`, and what a model's training pairs say of it in `Limits`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from model.engines.translator import Hypothesis
from pipelines.texts.copies import is_copy
from pipelines.texts.ends import has_lost_end
from pipelines.texts.limits import (
    COPY,
    FLAGS,
    INCOMPLETE,
    LONG,
    LOW_SCORE,
    NUMBER,
    REPEATS,
    SHORT,
    THRESHOLDS,
    WRONG_SCRIPT,
    Limits,
)
from pipelines.texts.loops import has_loop
from pipelines.texts.signs import has_lost_figure, has_other_script


@dataclasses.dataclass(frozen=True, kw_only=True)
class Judge:
    """Finds the flags that count."""

    limits: Limits = dataclasses.field(default_factory=Limits)
    flags: tuple[str, ...] = FLAGS  # those that count, in the order of `FLAGS`

    def __call__(self, source: str, best: Hypothesis, *, source_tokens: int) -> tuple[str, ...]:
        """Returns the flags of a sentence's translation that count.

        Args:
          source: The sentence.
          best: Its translation, whose tokens have EOS.
          source_tokens: Tokens of the sentence, BOS and EOS apart.
        """
        found = flag_sentence(
            source,
            best.text,
            limits=self.limits,
            source_tokens=source_tokens,
            target_tokens=best.tokens - 1,
            score=best.score,
        )
        if not best.is_complete:
            found = (*found, INCOMPLETE)
        return self.counting(found) if found else found

    def counting(self, found: Collection[str]) -> tuple[str, ...]:
        """Returns those of the flags that count, each once, in the order of `FLAGS`."""
        return tuple(flag for flag in self.flags if flag in found)


def flag_sentence(
    source: str,
    translation: str,
    *,
    limits: Limits,
    source_tokens: int = 0,
    target_tokens: int = 0,
    score: float = 0.0,
) -> tuple[str, ...]:
    """Returns the flags of a sentence's translation that can be told from the two.

    Args:
      source: The sentence.
      translation: What the model made of it.
      limits: What is usual for the model.
      source_tokens: Tokens of the sentence, BOS and EOS apart; 0 where they are not known.
      target_tokens: Tokens of the translation, likewise.
      score: Log-probability of the translation, EOS included.

    >>> flag_sentence("Come home.", "Komm nach nach nach nach Hause.", limits=Limits())
    ('repeats',)
    >>> flag_sentence("It costs 250 euros.", "It costs 250 euros.", limits=Limits())
    ('copy',)
    """
    found = []
    if has_loop(translation, source=source):
        found.append(REPEATS)
    if is_copy(translation, source=source):
        found.append(COPY)
    if (
        min(source_tokens, target_tokens) > 0
        and limits.usual
        and limits.shortest
        and limits.longest
    ):
        ratio = target_tokens / source_tokens
        is_far = abs(target_tokens - limits.usual * source_tokens) >= THRESHOLDS.length_slack
        if (ratio < limits.shortest and is_far) or (
            ratio < limits.without_end * limits.usual and has_lost_end(translation, source=source)
        ):
            found.append(SHORT)
        if ratio > limits.longest and is_far:
            found.append(LONG)
    if limits.target_script and has_other_script(
        translation, source=source, script=limits.target_script
    ):
        found.append(WRONG_SCRIPT)
    if has_lost_figure(translation, source=source):
        found.append(NUMBER)
    least = limits.least_score
    if least is not None and target_tokens > 0 and score / (target_tokens + 1) < least:
        found.append(LOW_SCORE)
    return tuple(found)
