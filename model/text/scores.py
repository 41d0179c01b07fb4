"""BLEU and chrF by sacreBLEU, with the signatures that say how they were computed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from model.folders.long_work import Work, long_work
from model.text.languages import find_language, suggestion

# Scripts that are written without spaces: the tokenizer that sacreBLEU has for them, or
# characters. (Korean has spaces, but its words end in what other languages have words for.)
_TOKENIZERS = {"Han": "zh", "Japanese": "char", "Korean": "char", "Thai": "char", "Lao": "char",
               "Khmer": "char", "Myanmar": "char"}  # fmt: skip

# The tokenizers of sacreBLEU that need neither another package nor a download.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")


class Score(NamedTuple):
    """A corpus score, 0 to 100, and sacreBLEU's signature."""

    value: float
    signature: str


def bleu(hypotheses: list[str], references: list[str], *, language: str = "") -> Score:
    """Returns corpus BLEU; the language's code chooses the tokenizer, 13a for most."""
    from sacrebleu.metrics.bleu import BLEU

    return _score(BLEU(tokenize=bleu_tokenizer(language)), hypotheses, references)


def bleu_tokenizer(language: str) -> str | None:
    """Returns the name of BLEU's tokenizer for a language code, or None for sacreBLEU's default.

    >>> bleu_tokenizer("zh_TW"), bleu_tokenizer("jpn"), bleu_tokenizer("zh-Latn")
    ('zh', 'char', None)
    """
    known = find_language(language)
    return _TOKENIZERS.get(known.script) if known else None


def tokenizer_notes(language: str) -> list[str]:
    """Returns a note where a dataset's target language is given, but is no language code."""
    if not language or find_language(language):
        return []
    return [
        f"the dataset's target language {language} is no language code{suggestion(language)}: BLEU "
        "is tokenised by 13a, sacreBLEU's default"
    ]


def chrf(hypotheses: list[str], references: list[str]) -> Score:
    """Returns corpus chrF2."""
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
    """Returns a line for BLEU and one for chrF2, each with its signature.

    `references` are one or more lists of as many detokenised texts as `hypotheses`. `tokenize` is
    one of `TOKENIZERS`, for BLEU; None is sacreBLEU's default. `lowercase` ignores case in both.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    lines = []
    metrics = (BLEU(tokenize=tokenize, lowercase=lowercase), CHRF(lowercase=lowercase))
    texts = len(metrics) * (1 + len(references)) * len(hypotheses)
    with long_work("scoring by BLEU and chrF", total=texts, unit="texts") as work:
        for metric in metrics:
            # sacreBLEU goes through the hypotheses once to check them.
            score = metric.corpus_score(
                _Counted(hypotheses, work, unseen=1), [_Counted(each, work) for each in references]
            )
            lines.append(str(score.format(signature=str(metric.get_signature()))))
    return lines


class _Counted(list[str]):
    """Texts that count as done when sacreBLEU takes them, but for the first `unseen` times."""

    def __init__(self, texts: list[str], work: Work, *, unseen: int = 0) -> None:
        super().__init__(texts)
        self._work, self._unseen = work, unseen

    def __iter__(self) -> Iterator[str]:
        self._unseen -= 1
        counts = self._unseen < 0
        for text in super().__iter__():
            if counts:
                self._work.add(1)
            yield text
