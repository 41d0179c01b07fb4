"""Sections on a run folder."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

from model.errors import UserError
from model.summaries.run import RunSummary
from model.summaries.training_log import Curve
from model.views.positions import position_encodings, position_likeness
from pipelines.report.charts import (
    LINEAR,
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Line,
    charts,
    heat_chart,
    line_chart,
)
from pipelines.report.page import Html, Section, details, element, facts, join, show, table

# What is drawn, in this order, with its heading and its scale.
CHARTS = {
    "loss": ("Loss", LINEAR),
    "perplexity": ("Perplexity", LOGARITHMIC),
    "accuracy": ("Accuracy", PERCENT),
    "bleu": ("BLEU", SCORE),
    "chrf": ("chrF", SCORE),
    "learning_rate": ("Learning rate", LINEAR),
    "gradient_norm": ("Gradient norm", LINEAR),
    "target_tokens_per_second": ("Target tokens/s", LINEAR),
}
_KINDS = ("train", "validation")  # of curves, in the order of their colours
_POSITIONS = 128
_STARTS = 5  # that are shown, the last ones


def run_sections(found: RunSummary, *, attention: Sequence[Html]) -> list[Section]:
    """Returns what a report says of one run; `attention` are parts on chosen sentences."""
    has_times = found.log.seconds is not None
    return [
        _overview(found),
        Section("curves", "Curves over steps", _over_steps(found)),
        *([Section("time", "Curves over time", _over_time(found))] if has_times else []),
        Section("translations", "Sample translations", _samples(found)),
        Section("attention", "Attention", _attention(attention)),
        Section("positions", "Positions", _positions(found)),
        Section("schedule", "Schedule", _schedule(found)),
        *(
            [Section("origin", "Command, versions and hardware", _starts(found))]
            if found.log.starts
            else []
        ),
    ]


def _overview(found: RunSummary) -> Section:
    log = found.log
    parts = table(["part", "parameters"], [[each.name, each.parameters] for each in found.parts])
    models = [[each.name, each.steps, each.bytes, each.checkpoints] for each in found.models]
    languages = f"{found.data.source_language} → {found.data.target_language}"
    return Section(
        "overview",
        "Overview",
        join(
            [
                facts(
                    [
                        ("folder", found.folder),
                        ("languages", languages),
                        ("pairs", found.data.pairs),
                        ("parameters", found.parameters),
                        *([("began with", found.began_with)] if found.began_with else []),
                        ("steps", f"{log.step:,} of {found.steps:,}"),
                        ("last nll of a validation", last_value(found, "nll")),
                        ("last BLEU of a validation", last_value(found, "bleu")),
                    ]
                ),
                table(["model", "steps", "bytes", "mean of"], models),
                details("Parameters by part", parts),
                details("Architecture", table(["field", "value"], found.model.items())),
                details("Training", table(["option", "value"], found.training.items())),
            ]
        ),
    )  # fmt: skip


def named_curves(found: RunSummary, name: str) -> list[Curve]:
    """Returns the curves of a figure: in training, and in validations."""
    return [each for each in found.log.curves if each.name == name]


def over_minutes(curve: Curve) -> tuple[list[float], list[float]]:
    """Returns a curve's minutes of training and its values, as far as the log has times."""
    known = [
        (second / 60, value)
        for second, value in zip(curve.seconds, curve.values, strict=True)
        if second is not None
    ]
    return [minute for minute, _ in known], [value for _, value in known]


def last_value(found: RunSummary, name: str) -> str:
    """Returns what the last validation that measured it found, and when: few translate."""
    curves = [each for each in named_curves(found, name) if each.kind == "validation"]
    return f"{show(curves[0].values[-1])} at step {curves[0].steps[-1]:,}" if curves else ""


def _over_steps(found: RunSummary) -> Html:
    drawn = []
    resumed = sorted({each.step for each in found.log.starts} - {0})
    for name, (title, scale) in CHARTS.items():
        lines = [
            Line(each.kind, each.steps, each.values, _KINDS.index(each.kind))
            for each in named_curves(found, name)
        ]
        if lines:
            drawn.append(line_chart(title, lines, x_label="steps", scale=scale, marks=resumed))
    if not drawn:
        return element("p", "Nothing was logged.")
    told = ", ".join(f"{step:,}" for step in resumed)
    said = f"Dotted: where the command went on after a stop, at step {told}."
    return join([charts(*drawn), *([element("p", said, class_="note")] if resumed else [])])


def _over_time(found: RunSummary) -> Html:
    drawn = []
    for name, (title, scale) in CHARTS.items():
        lines = [
            Line(each.kind, *over_minutes(each), _KINDS.index(each.kind))
            for each in named_curves(found, name)
            if any(second is not None for second in each.seconds)
        ]
        if lines:
            drawn.append(line_chart(title, lines, x_label="minutes", scale=scale))
    if drawn:
        return charts(*drawn)
    return element("p", "The log of this run has no times.", class_="note")


def _samples(found: RunSummary) -> Html:
    if not found.log.samples:
        said = "There are none: no validation translated, or an older tt wrote the log."
        return element("p", said, class_="note")
    parts: list[Html] = []
    for each in found.log.samples:
        rows = list(zip(each.steps, each.translations, strict=True))
        parts += [
            element("h3", each.source),
            element("p", "Reference: ", each.reference),
            table(["step", "translation"], rows),
        ]
    return join(parts)


def _attention(parts: Sequence[Html]) -> Html:
    if not parts:
        said = "There is none: the run has no exported model or no sentence to look at yet."
        return element("p", said, class_="note")
    return join(parts)


def _positions(found: RunSummary) -> Html:
    encodings = position_encodings(
        _POSITIONS,
        width=found.model["d_model"],
        base=found.model["position_base"],
        scale=found.model.get("position_scale", "paper"),  # stands there if it is another
    )
    return charts(
        heat_chart("Position encodings", encodings, x_label="width", y_label="position"),
        heat_chart(
            "Their dot products, as a share of that with itself",
            position_likeness(encodings),
            x_label="position",
            y_label="position",
        ),
    )


def _schedule(found: RunSummary) -> Html:
    points = found.schedule
    line = Line("planned", [each.step for each in points], [each.rate for each in points], 0)
    return charts(line_chart("Learning rate of all steps", [line], x_label="steps"))


def _starts(found: RunSummary) -> Html:
    starts = found.log.starts
    if not starts:
        said = "The log of this run does not tell."
        return element("p", said, class_="note")
    parts: list[Html] = []
    for each in starts[-_STARTS:]:
        day = datetime.datetime.fromtimestamp(each.time, datetime.UTC)
        parts += [
            element("h3", f"From step {each.step:,}, {day:%Y-%m-%d %H:%M} UTC"),
            element("pre", each.command or "(trained from Python)"),
            facts([(name.replace("_", " "), _told(value)) for name, value in each.machine.items()]),
            facts(each.versions.items()),
        ]
    return join(parts)


def _told(value: object) -> object:
    return ", ".join(map(str, value)) if isinstance(value, list) else value


def run_attention(folder: str, found: RunSummary, sentences: Sequence[str]) -> list[Html]:
    """Returns parts on the attention of sentences, or of the log's samples where there are none.

    Raises:
      UserError: A sentence is empty or too long.
    """
    chosen = list(sentences) or [each.source for each in found.log.samples[:2]]
    if not chosen or not found.is_finished:
        if sentences:
            raise UserError(
                f"{folder} has no exported model yet, and so no attention: leave `sentences` out, "
                "or let its `tt train` finish"
            )
        return []
    from model.engines.tensorflow_engine import TensorFlowTranslator
    from model.transformer.search_options import Decoding
    from model.views.attention import sentence_attention
    from pipelines.report.attention_part import attention_part

    translator = TensorFlowTranslator.load(Path(folder), decoding=Decoding())
    heads = range(translator.model.config.heads)
    return [
        attention_part(
            sentence_attention(translator, sentence),
            name=f"attention-{number}",
            heads=heads,
        )
        for number, sentence in enumerate(chosen)
    ]
