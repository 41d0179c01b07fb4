"""BLEU and chrF by sacreBLEU, with the signatures that say how they were computed."""

from __future__ import annotations

from typing import NamedTuple

# Languages that are written without spaces: the tokenizer that sacreBLEU has for them, or
# characters.
_TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char", "th": "char", "lo": "char", "km": "char",
               "my": "char"}  # fmt: skip


class Score(NamedTuple):
    """A corpus score, 0 to 100, and sacreBLEU's signature."""

    value: float
    signature: str


def bleu(hypotheses: list[str], references: list[str], *, language: str = "") -> Score:
    """Returns corpus BLEU.

    Args:
      hypotheses: Translations.
      references: A text for each.
      language: Of the texts; it chooses the tokenizer, 13a for most.
    """
    from sacrebleu.metrics.bleu import BLEU

    code = language.replace("_", "-").split("-")[0].lower()
    metric = BLEU(tokenize=_TOKENIZERS.get(code))
    score = metric.corpus_score(hypotheses, [references])
    return Score(float(score.score), str(metric.get_signature()))


def chrf(hypotheses: list[str], references: list[str]) -> Score:
    """Returns corpus chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    score = metric.corpus_score(hypotheses, [references])
    return Score(float(score.score), str(metric.get_signature()))
