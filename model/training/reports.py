"""The reports of a training: progress and validations, and the lines of train.jsonl."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from model.errors import UserError


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The updates since the last report, by their real tokens."""

    step: int  # updates done
    steps: int  # updates in all
    epoch: int  # passes over the data done
    loss: float  # what is minimised: mean cross-entropy of a target token, smoothed, in nats
    nll: float  # mean negative log-likelihood of a target token in nats, without smoothing
    perplexity: float  # exp of `nll`
    accuracy: float  # share of target tokens whose logit is the greatest
    learning_rate: float  # of the last update
    gradient_norm: float  # mean global norm of the updates' gradients, before clipping
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float  # share of the positions of both sides
    seconds_left: float  # to the last update, at the speed since the last report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """The validation split under the weights of a step, with loss to accuracy as in `Progress`."""

    step: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    bleu: float | None = None  # of greedy translations, 0 to 100; None where nothing is translated
    chrf: float | None = None  # the same
    bleu_signature: str = ""  # sacreBLEU's
    chrf_signature: str = ""
    # Quantiles of the log-probability of a token in those translations, by their names.
    token_scores: dict[str, float] | None = None
    # The first sentences: "source", "reference" and the "translation" under these weights.
    samples: list[dict[str, str]] | None = None
    is_best: bool = False  # better than every one before, by the run's metric
    # Seconds that it took; the log, which has the time, leaves it out.
    took: float | None = dataclasses.field(default=None, compare=False)


Report = Callable[[Progress | Validation], None]


def read_log_lines(text: str, *, path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the whole lines of a log, each with what it says.

    Args:
      text: The log's content; a last line without its end is being written, and left out.
      path: What messages call the log.

    Raises:
      UserError: A line is damaged.
    """
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            continue
        try:
            values = json.loads(line)
            if not isinstance(values["kind"], str) or not isinstance(values["step"], int):
                raise ValueError(values)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"line {number} of {path} is damaged ({error!r}): delete that line, or the file"
            ) from error
        yield line, values
