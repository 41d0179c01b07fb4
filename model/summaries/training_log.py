"""`train.jsonl` as curves, sample translations, and the commands that trained; no TensorFlow."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from model.errors import UserError
from model.training.reports import read_log_lines

# What is measured, in the order in which it is shown, and its unit.
UNITS = {
    "loss": "nats a target token, smoothed",
    "nll": "nats a target token",
    "perplexity": "",
    "accuracy": "share of target tokens",
    "bleu": "0 to 100",
    "chrf": "0 to 100",
    "learning_rate": "",
    "gradient_norm": "before clipping",
    "source_tokens_per_second": "tokens/s",
    "target_tokens_per_second": "tokens/s",
    "padding": "share of positions",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """What was measured after some updates."""

    kind: str  # "train" or "validation"
    name: str  # one of `UNITS`
    unit: str
    steps: list[int]
    values: list[float]
    # Seconds of training up to each, with validations, but without pauses and what was trained
    # anew after them; None in the log of an older `tt`.
    seconds: list[float | None]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Start:
    """A run of the command that trained or went on."""

    step: int  # updates before it
    time: float  # seconds since 1970
    command: str  # as it was typed; "" where Python trained
    versions: dict[str, str]
    machine: dict[str, Any]  # what it was trained on


@dataclasses.dataclass(frozen=True, kw_only=True)
class SampleTranslation:
    """A validation sentence, and how it was translated after some updates."""

    source: str
    reference: str
    steps: list[int]
    translations: list[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """All that a `train.jsonl` tells."""

    curves: list[Curve]
    best_steps: list[int]  # validations that were better than all before
    starts: list[Start]  # none in the log of an older `tt`
    samples: list[SampleTranslation]  # likewise
    step: int  # the last that is told of
    steps: int  # updates in all, as the last line says; 0 if none does
    seconds: float | None  # of training; None in the log of an older `tt`


def read_log(path: Path) -> TrainingLog:
    """Reads a log; one that is missing is empty, and so is a last line that was cut off.

    Raises:
      UserError: A line is damaged.
    """
    lines = _lines(path)
    seconds = [line.get("seconds") for line in lines]
    series: dict[tuple[str, str], list[tuple[int, float, float | None]]] = {}
    samples: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for line, second in zip(lines, seconds, strict=True):
        kind, step = line["kind"], line["step"]
        for name in UNITS:
            if isinstance(line.get(name), int | float):
                series.setdefault((kind, name), []).append((step, line[name], second))
        for sample in line.get("samples", ()):
            key = sample["source"], sample["reference"]
            samples.setdefault(key, []).append((step, sample["translation"]))
    names = list(UNITS)
    return TrainingLog(
        curves=[
            Curve(
                kind=kind,
                name=name,
                unit=UNITS[name],
                steps=[step for step, _, _ in found],
                values=[value for _, value, _ in found],
                seconds=[second for _, _, second in found],
            )
            for (kind, name), found in sorted(
                series.items(), key=lambda each: (each[0][0], names.index(each[0][1]))
            )
        ],
        best_steps=[line["step"] for line in lines if line.get("is_best")],
        starts=[_start(line) for line in lines if line["kind"] == "start"],
        samples=[
            SampleTranslation(
                source=source,
                reference=reference,
                steps=[step for step, _ in found],
                translations=[text for _, text in found],
            )
            for (source, reference), found in samples.items()
        ],
        step=max((line["step"] for line in lines), default=0),
        steps=next((line["steps"] for line in reversed(lines) if "steps" in line), 0),
        seconds=next((second for second in reversed(seconds) if second is not None), None),
    )


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return [values for _, values in read_log_lines(text, path=path)]


def _start(line: dict[str, Any]) -> Start:
    return Start(
        step=line["step"],
        time=line.get("time", 0.0),
        command=line.get("command", ""),
        versions=dict(line.get("versions", {})),
        machine=dict(line.get("machine", {})),
    )
