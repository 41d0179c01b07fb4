"""`tt evaluate`: translations and references in files, and their scores by sacreBLEU."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say, say_what_is_awaited
from cli.flags_of_fields import options_of
from pipelines.reports.lines import is_stdin
from pipelines.reports.requests import EvaluateRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(
    EvaluateRequest,
    flags={
        "translations": "TRANSLATIONS",
        "references": "--reference",
        "reference_columns": "--reference-column",
    },
)


@command()
def evaluate_command(request: Annotated[EvaluateRequest, _OPTIONS]) -> None:
    """Score translations against references by BLEU and chrF.

    Both are sacreBLEU's, with their signatures.

    Example: tt evaluate translated.de --reference test.de
    """
    from pipelines.reports.evaluate import evaluate

    if sys.stdin and any(map(is_stdin, (request.translations, *request.references))):
        say_what_is_awaited(sys.stdin)
    with TimeLine("scoring", stream=sys.stderr):
        evaluation = evaluate(request)
    for notice in evaluation.notices:
        say(f"tt: {notice}")
    for line in evaluation.scores:
        typer.echo(line)
