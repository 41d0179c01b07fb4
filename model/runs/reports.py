"""The reports of a training: progress and validations."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The updates since the last report.

    Attributes:
      step: Updates done.
      steps: Updates in all.
      epoch: Passes over the data done.
      loss: What is minimised: mean cross-entropy of a target token with label smoothing, in nats.
      nll: Mean negative log-likelihood of a target token in nats, without smoothing.
      perplexity: exp of `nll`.
      accuracy: Share of target tokens whose logit is the greatest.
      learning_rate: Of the last update.
      gradient_norm: Mean global norm of the updates' gradients, before clipping.
      source_tokens_per_second: Real source tokens.
      target_tokens_per_second: Real target tokens.
      padding: Share of the positions of both sides that are padding.
      seconds_left: Until the last update, at the speed since the last report.
      skipped_updates: That were left out, as float16 could not hold their gradients; None where
        none was.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    learning_rate: float
    gradient_norm: float
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float
    seconds_left: float
    skipped_updates: int | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """The validation split under the weights of a step.

    Attributes:
      step: Updates done.
      loss: As in `Progress`.
      nll: As in `Progress`.
      perplexity: As in `Progress`.
      accuracy: As in `Progress`.
      bleu: Of greedy translations, 0 to 100; None where nothing was translated.
      chrf: The same.
      bleu_signature: sacreBLEU's, or "".
      chrf_signature: The same.
      is_best: Whether it is better than every one before, by the run's metric.
    """

    step: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    bleu_signature: str = ""
    chrf_signature: str = ""
    is_best: bool = False


Report = Callable[[Progress | Validation], None]
