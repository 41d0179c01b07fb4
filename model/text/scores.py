"""BLEU and chrF by sacreBLEU, with the signatures that describe how they were computed."""

from __future__ import annotations

from typing import Any, NamedTuple

from tt.model.long_work import long_work
from tt.model.text.languages import find_language

# sacreBLEU's tokenizers for scripts without spaces; "char" scores characters. Korean has spaces,
# but its words contain suffixes that are separate words in other languages.
_TOKENIZERS = {"Han": "zh", "Japanese": "char", "Korean": "char", "Thai": "char", "Lao": "char",
               "Khmer": "char", "Myanmar": "char"}  # fmt: skip

# sacreBLEU's tokenizers that need neither another package nor a download.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")


class Score(NamedTuple):
    """A corpus score from 0 to 100 with sacreBLEU's signature."""

    value: float
    signature: str


def bleu(hypotheses: list[str], references: list[str], *, language: str = "") -> Score:
    """Return corpus BLEU with the tokenizer for a language code, which is usually 13a."""
    from sacrebleu.metrics.bleu import BLEU

    return _score(BLEU(tokenize=bleu_tokenizer(language)), hypotheses, references)


def bleu_tokenizer(language: str) -> str | None:
    """Return the name of BLEU's tokenizer for a language code, or None for sacreBLEU's default.

    >>> bleu_tokenizer("zh_TW"), bleu_tokenizer("jpn"), bleu_tokenizer("zh-Latn")
    ('zh', 'char', None)
    """
    known = find_language(language)
    return _TOKENIZERS.get(known.script) if known else None


def chrf(hypotheses: list[str], references: list[str]) -> Score:
    """Return corpus chrF2."""
    from sacrebleu.metrics.chrf import CHRF

    return _score(CHRF(), hypotheses, references)


def _score(metric: Any, hypotheses: list[str], references: list[str]) -> Score:
    score = metric.corpus_score(hypotheses, [references])
    return Score(float(score.score), str(metric.get_signature()))


def describe_scores(
    hypotheses: list[str],
    references: list[list[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[str]:
    """Return a line for BLEU and a line for chrF2, each with its signature.

    Args:
      hypotheses: The detokenized translations.
      references: One or more lists of detokenized references, each as long as `hypotheses`.
      tokenize: BLEU's tokenizer, one of `TOKENIZERS`; None for sacreBLEU's default.
      lowercase: Whether both scores ignore case.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    metrics = (BLEU(tokenize=tokenize, lowercase=lowercase), CHRF(lowercase=lowercase))
    lines = []
    with long_work("scoring by BLEU and chrF", total=len(metrics), unit="metrics") as work:
        for metric in metrics:
            score = metric.corpus_score(hypotheses, references)
            lines.append(str(score.format(signature=str(metric.get_signature()))))
            work.add(1)
    return lines
