"""Several runs side by side: what differs, and their curves over each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from model.summaries.run import RunSummary
from model.summaries.training_log import Curve
from pipelines.report.charts import Line, charts, line_chart
from pipelines.report.page import Html, Section, element, join, table
from pipelines.report.run_part import CHARTS, last_value, named_curves, over_minutes

_OTHER_DATA = (
    "These runs have different datasets, and so other validation texts: their losses and scores "
    "tell nothing of which one is better. Translate one test set with each, and score it with "
    "tt evaluate."
)


def runs_sections(runs: Sequence[RunSummary]) -> list[Section]:
    """Returns what a report says of two or more runs."""
    names = [run.folder for run in runs]
    different = table(["option", *names], differences(runs))
    body = different if differences(runs) else element("p", "Their options are the same.")
    results = [[name, *(last_value(run, name) for run in runs)] for name in ("nll", "bleu", "chrf")]
    sizes = ["parameters", *(run.parameters for run in runs)]
    steps = ["steps", *(f"{run.log.step:,} of {run.steps:,}" for run in runs)]
    shown = [table(["last of a validation", *names], [*results, sizes, steps])]
    if len({run.data.fingerprint for run in runs}) > 1:
        shown.append(element("p", _OTHER_DATA, class_="note"))
    return [
        Section("results", "Results", join(shown)),
        Section("differences", "What differs", body),
        *_curves(runs),
    ]


def differences(runs: Sequence[RunSummary]) -> list[list[object]]:
    """Returns the options that are not the same in all runs, each with its values."""
    told = [
        {
            **{f"model.{name}": value for name, value in run.model.items()},
            **{f"training.{name}": value for name, value in run.training.items()},
            "began with": run.began_with or None,
            "data.fingerprint": run.data.fingerprint[:16],
            "data.pairs": run.data.pairs,
            "replicas": run.replicas,
        }
        for run in runs
    ]
    names = dict.fromkeys(name for each in told for name in each)
    rows = [[name, *(each.get(name) for each in told)] for name in names]
    return [row for row in rows if any(value != row[1] for value in row[2:])]


def _curves(runs: Sequence[RunSummary]) -> list[Section]:
    """Returns the curves over steps, and over time those of the runs whose logs have times."""
    sections = []
    for kind, title in (("train", "Curves in training"), ("validation", "Curves of validations")):
        drawn = _charts(runs, kind, x_label="steps", points=lambda each: (each.steps, each.values))
        body = charts(*drawn) if drawn else element("p", "Nothing was logged.")
        sections.append(Section(f"curves-{kind}", title, join([body])))
    for kind, title in (
        ("train", "In training, over time"),
        ("validation", "Validations, over time"),
    ):
        if drawn := _charts(runs, kind, x_label="minutes", points=over_minutes):
            sections.append(Section(f"time-{kind}", title, charts(*drawn)))
    return sections


def _charts(
    runs: Sequence[RunSummary],
    kind: str,
    *,
    x_label: str,
    points: Callable[[Curve], tuple[Sequence[float], Sequence[float]]],
) -> list[Html]:
    """Returns a chart for each figure, with the curves of one kind that have points."""
    drawn = []
    for name, (heading, scale) in CHARTS.items():
        lines = [
            Line(run.folder, *points(each), number)
            for number, run in enumerate(runs)
            for each in named_curves(run, name)
            if each.kind == kind
        ]
        if lines := [line for line in lines if line.x]:
            drawn.append(line_chart(heading, lines, x_label=x_label, scale=scale))
    return drawn
