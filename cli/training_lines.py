"""The lines that `tt train` prints for its reports."""

from __future__ import annotations

import math

from cli.errors import say
from model.errors import counted
from model.training.options import TrainingConfig
from model.training.reports import Progress, Validation

_MUCH = 0.25  # of the time that is left for validations: from there on, it is said how to save it


class Teller:
    """Prints reports, and after the first of a kind how long the rest will take here.

    From the first validation on, the time that is left has that of the validations in it.
    """

    def __init__(self, step: int, training: TrainingConfig) -> None:
        self._step: int | None = step
        self._training = training
        self._took: dict[bool, float] = {}  # by a validation, by whether it translated
        self._seconds_left = math.inf  # of updates, until the first report tells

    def __call__(self, report: Progress | Validation) -> None:
        """Prints a report."""
        if isinstance(report, Validation):
            say(describe_report(report))
            is_first = not self._took
            if report.took is not None:
                self._took[report.bleu is not None] = report.took
            if is_first:
                self._say_validations(report)
            return
        self._seconds_left = report.seconds_left
        say(describe_report(report, validating=self._validating(report.step)))
        if self._step is not None:
            if report.step < report.steps:
                say(
                    f"About {_roughly(report.seconds_left)} for the {report.steps - report.step:,} "
                    f"steps that are left, as fast as the first {report.step - self._step:,}; "
                    "validations come on top"
                )
            self._step = None

    def _say_validations(self, report: Validation) -> None:
        left, seconds = validations_left(report.step, self._training), self._validating(report.step)
        if not left or not seconds:
            return
        line = f"About {_roughly(seconds)} for the {counted(len(left), 'validation')} to come"
        if report.bleu is not None and seconds > _MUCH * (seconds + self._seconds_left):
            line += "; a larger `score_every` has fewer of them translate, and 0 none"
        say(line)

    def _validating(self, step: int) -> float:
        """Returns the seconds that the validations after a step will take; 0 before the first."""
        most = max(self._took.values(), default=0.0)
        left = validations_left(step, self._training)
        return sum(self._took.get(self._training.scores_at(each), most) for each in left)


def validations_left(step: int, training: TrainingConfig) -> list[int]:
    """Returns the steps after `step` after which there is a validation.

    >>> validations_left(50, TrainingConfig(steps=120, validate_every=50))
    [100, 120]
    """
    if step >= training.steps:
        return []
    every = training.validate_every
    return [*range((step // every + 1) * every, training.steps, every), training.steps]


def _roughly(seconds: float) -> str:
    """Returns a time as one would say it.

    >>> _roughly(41.2), _roughly(3580), _roughly(9725)
    ('41 s', '1 h 00 min', '2 h 42 min')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if hours else f"{minutes} min"


def _hours(seconds: float) -> str:
    """Returns a time as hours, minutes and seconds.

    >>> _hours(3725.2)
    '1:02:05'
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"


def describe_report(report: Progress | Validation, *, validating: float = 0.0) -> str:
    """Returns the line that is printed for a report; `validating` adds seconds to what is left."""
    if isinstance(report, Validation):
        scores = ""
        if report.bleu is not None:
            scores = f"  BLEU {report.bleu:.2f}  chrF {report.chrf:.2f}"
        return (
            f"step {report.step:>6,}  validation: loss {report.loss:.3f}  nll {report.nll:.3f}  "
            f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}{scores}"
            f"{'  (best)' if report.is_best else ''}"
        )
    left = _hours(report.seconds_left + validating)
    return (
        f"step {report.step:>6,}/{report.steps:,}  loss {report.loss:.3f}  nll {report.nll:.3f}  "
        f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}  rate "
        f"{report.learning_rate:.2e}  gradient norm {report.gradient_norm:.2f}  "
        f"{report.source_tokens_per_second:,.0f} + {report.target_tokens_per_second:,.0f} source + "
        f"target tokens/s  padding {report.padding:.0%}  left {left}"
    )
