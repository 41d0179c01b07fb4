"""Several runs side by side: what differs, and their curves over each other."""

from __future__ import annotations

from collections.abc import Sequence

from model.summaries.run import RunSummary
from pipelines.report.charts import Line, charts, line_chart
from pipelines.report.page import Section, element, join, table
from pipelines.report.run_part import CHARTS, named_curves


def runs_sections(runs: Sequence[RunSummary]) -> list[Section]:
    """Returns what a report says of two or more runs."""
    names = [run.folder for run in runs]
    different = table(["option", *names], differences(runs))
    body = different if differences(runs) else element("p", "Their options are the same.")
    results = [[name, *(_last(run, name) for run in runs)] for name in ("nll", "bleu", "chrf")]
    sizes = ["parameters", *(run.parameters for run in runs)]
    steps = ["steps", *(run.log.step for run in runs)]
    return [
        Section("results", "Results", table(["last validation", *names], [*results, sizes, steps])),
        Section("differences", "What differs", body),
        *_curves(runs),
    ]


def differences(runs: Sequence[RunSummary]) -> list[list[object]]:
    """Returns the options that are not the same in all runs, each with its values."""
    told = [
        {
            **{f"model.{name}": value for name, value in run.model.items()},
            **{f"training.{name}": value for name, value in run.training.items()},
            "data.fingerprint": run.data.fingerprint[:16],
            "data.pairs": run.data.pairs,
            "replicas": run.replicas,
        }
        for run in runs
    ]
    names = dict.fromkeys(name for each in told for name in each)
    rows = [[name, *(each.get(name) for each in told)] for name in names]
    return [row for row in rows if any(value != row[1] for value in row[2:])]


def _last(run: RunSummary, name: str) -> float | None:
    found = [each for each in named_curves(run, name) if each.kind == "validation"]
    return found[0].values[-1] if found else None


def _curves(runs: Sequence[RunSummary]) -> list[Section]:
    sections = []
    for kind, title in (("train", "Curves in training"), ("validation", "Curves of validations")):
        drawn = []
        for name, (heading, is_log) in CHARTS.items():
            lines = [
                Line(run.folder, each.steps, each.values)
                for run in runs
                for each in named_curves(run, name)
                if each.kind == kind
            ]
            if lines:
                drawn.append(line_chart(heading, lines, x_label="steps", is_log=is_log))
        body = charts(*drawn) if drawn else element("p", "Nothing was logged.")
        sections.append(Section(f"curves-{kind}", title, join([body])))
    return sections
