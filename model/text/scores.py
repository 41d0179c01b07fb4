"""Compute BLEU, chrF and paired tests with sacreBLEU, and return its signatures."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from tt.model.errors import UserError, counted
from tt.model.long_work import long_work
from tt.model.text.languages import find_language

# sacreBLEU's tokenizers for scripts without spaces; "char" scores characters. Korean has spaces,
# but its words contain suffixes that are separate words in other languages.
_TOKENIZERS = {"Han": "zh", "Japanese": "char", "Korean": "char", "Thai": "char", "Lao": "char",
               "Khmer": "char", "Myanmar": "char"}  # fmt: skip

# sacreBLEU's tokenizers that need neither another package nor a download.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")

PAIRED_TESTS = ("bootstrap", "randomization")
SEED = 12345  # sacreBLEU's default
_SEED_VARIABLE = "SACREBLEU_SEED"  # sacreBLEU takes the seed only from the environment


class Score(NamedTuple):
    """A corpus score from 0 to 100 with sacreBLEU's description of it."""

    metric: str  # "BLEU" or "chrF2"
    value: float
    signature: str
    line: str  # as sacreBLEU prints the score, with the signature


def bleu(hypotheses: list[str], references: list[str], *, language: str = "") -> Score:
    """Return corpus BLEU with the tokenizer for a language code, which is usually 13a."""
    from sacrebleu.metrics.bleu import BLEU

    return _score(BLEU(tokenize=bleu_tokenizer(language)), hypotheses, [references])


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

    return _score(CHRF(), hypotheses, [references])


def _score(metric: Any, hypotheses: list[str], references: list[list[str]]) -> Score:
    score, signature = metric.corpus_score(hypotheses, references), str(metric.get_signature())
    line = str(score.format(signature=signature))
    return Score(str(score.name), float(score.score), signature, line)


def score_corpus(
    hypotheses: list[str],
    references: list[list[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[Score]:
    """Return BLEU and chrF2.

    Args:
      hypotheses: The detokenized translations.
      references: One or more lists of detokenized references, each as long as `hypotheses`.
      tokenize: BLEU's tokenizer, one of `TOKENIZERS`; None for sacreBLEU's default.
      lowercase: Whether both scores ignore case.
    """
    metrics = _metrics(tokenize=tokenize, lowercase=lowercase)
    scores = []
    with long_work("scoring by BLEU and chrF", total=len(metrics), unit="metrics") as work:
        for metric in metrics.values():
            scores.append(_score(metric, hypotheses, references))
            work.add(1)
    return scores


def _metrics(*, tokenize: str | None, lowercase: bool) -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    return {
        "BLEU": BLEU(tokenize=tokenize, lowercase=lowercase),
        "chrF": CHRF(lowercase=lowercase),
    }


class Estimate(NamedTuple):
    """The score of a system in a paired test."""

    score: float
    mean: float | None  # over the bootstrap samples; None for approximate randomization
    interval: float | None  # half of the width of the 95 % confidence interval


class Comparison(NamedTuple):
    """A paired test of two systems by one metric."""

    metric: str  # "BLEU" or "chrF2"
    signature: str  # with the test, the number of samples and the seed
    system: Estimate
    baseline: Estimate
    p_value: float


def compare_systems(
    system: list[str],
    baseline: list[str],
    references: list[list[str]],
    *,
    test: str = PAIRED_TESTS[0],
    samples: int | None = None,
    seed: int = SEED,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[Comparison]:
    """Compare two systems by BLEU and chrF2 with a paired test of sacreBLEU.

    The p-value estimates how often chance alone would cause such a difference of scores. It is
    the same as in the output of `sacrebleu --paired-bs` or `--paired-ar` for the same seed.

    Args:
      system: The detokenized translations of a system.
      baseline: The detokenized translations of another system.
      references: One or more lists of detokenized references, each as long as `system`.
      test: One of `PAIRED_TESTS`: "bootstrap" (Koehn 2004) or "randomization" (Riezler and
        Maxwell 2005).
      samples: The number of samples; None for sacreBLEU's default, which is 1,000 for "bootstrap"
        and 10,000 for "randomization".
      seed: The seed of the random numbers, at least 1, because sacreBLEU ignores the seed 0.
      tokenize: BLEU's tokenizer, one of `TOKENIZERS`; None for sacreBLEU's default.
      lowercase: Whether both scores ignore case.

    Raises:
      UserError: The samples do not fit into memory.
    """
    from sacrebleu.significance import PairedTest

    metrics = _metrics(tokenize=tokenize, lowercase=lowercase)
    with _seed_in_environment(seed):
        try:
            signatures, results = PairedTest(
                [("baseline", baseline), ("system", system)],
                metrics,
                references,
                test_type={"bootstrap": "bs", "randomization": "ar"}[test],
                n_samples=samples or 0,
            )()
        except MemoryError as error:
            given = "no `samples`" if samples is None else f"`samples={samples}`"
            raise UserError(
                f"the samples of {counted(len(system), 'translation')} do not fit into memory. "
                f"Received: {given}. Choose fewer `samples`"
            ) from error
    return [
        Comparison(
            metric=name,
            signature=str(signature),
            system=_estimate(results[name][1]),
            baseline=_estimate(results[name][0]),
            p_value=float(results[name][1].p_value),
        )
        for name, signature in signatures.items()
    ]


@contextlib.contextmanager
def _seed_in_environment(seed: int) -> Iterator[None]:
    before = os.environ.get(_SEED_VARIABLE)
    os.environ[_SEED_VARIABLE] = str(seed)
    try:
        yield
    finally:
        if before is None:
            del os.environ[_SEED_VARIABLE]
        else:
            os.environ[_SEED_VARIABLE] = before


def _estimate(result: Any) -> Estimate:
    mean, interval = result.mean, result.ci
    return Estimate(
        float(result.score),
        None if mean is None else float(mean),
        None if interval is None else float(interval),
    )
