"""The lines that `tt train` prints for its reports."""

from __future__ import annotations

from cli.errors import say
from model.runs.reports import Progress, Validation


class Teller:
    """Prints reports, and after the first, from `step` on, how long the rest will take here."""

    def __init__(self, step: int) -> None:
        self._step: int | None = step

    def __call__(self, report: Progress | Validation) -> None:
        """Prints a report."""
        say(describe_report(report))
        if isinstance(report, Progress) and self._step is not None:
            if report.step < report.steps:
                say(
                    f"About {_roughly(report.seconds_left)} for the {report.steps - report.step:,} "
                    f"steps that are left, as fast as the first {report.step - self._step:,}; "
                    "validations come on top"
                )
            self._step = None


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


def describe_report(report: Progress | Validation) -> str:
    """Returns the line that is printed for a report."""
    if isinstance(report, Validation):
        scores = ""
        if report.bleu is not None:
            scores = f"  BLEU {report.bleu:.2f}  chrF {report.chrf:.2f}"
        return (
            f"step {report.step:>6,}  validation: loss {report.loss:.3f}  nll {report.nll:.3f}  "
            f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}{scores}"
            f"{'  (best)' if report.is_best else ''}"
        )
    skipped = f"  skipped {report.skipped_updates:,}" if report.skipped_updates else ""
    return (
        f"step {report.step:>6,}/{report.steps:,}  loss {report.loss:.3f}  nll {report.nll:.3f}  "
        f"perplexity {report.perplexity:.2f}  accuracy {report.accuracy:.1%}  rate "
        f"{report.learning_rate:.2e}  gradient norm {report.gradient_norm:.2f}  "
        f"{report.source_tokens_per_second:,.0f} + {report.target_tokens_per_second:,.0f} source + "
        f"target tokens/s  padding {report.padding:.0%}  left {_hours(report.seconds_left)}"
        f"{skipped}"
    )
