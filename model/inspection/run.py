"""A run folder: options, curves, learning rate, sample translations, checkpoints, models."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from model.errors import UserError
from model.folders.json_files import read_json
from model.folders.lock import check_lock
from model.formats.model_card import TrainingData, describe_origin, origin_of_run
from model.formats.model_folder import load_about
from model.inspection.blocks import (
    LINEAR,
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Curves,
    Facts,
    HeatMap,
    Line,
    Lines,
    Note,
    Section,
    Table,
    languages_of,
    options,
    table,
)
from model.inspection.model import parts_of, parts_section
from model.inspection.vocabularies import (
    VocabularySummary,
    summarize_vocabularies,
    vocabulary_sections,
)
from model.text.vocabulary import load_vocabularies
from model.training.checkpoints import find_checkpoints, read_step
from model.training.options import TrainingConfig
from model.training.reports import read_log_lines
from model.training.run_folder import LOCK_FILE, RunFolder
from model.transformer.config import TransformerConfig
from model.transformer.layers import sinusoidal_positions

# The charts of a log, by the names of their values, in the order in which they are shown.
CHARTS = {
    "loss": ("Loss", LINEAR),
    "nll": ("NLL", LINEAR),
    "perplexity": ("Perplexity", LOGARITHMIC),
    "accuracy": ("Accuracy", PERCENT),
    "bleu": ("BLEU", SCORE),
    "chrf": ("chrF", SCORE),
    "learning_rate": ("Learning rate", LINEAR),
    "gradient_norm": ("Gradient norm", LINEAR),
    "target_tokens_per_second": ("Target tokens/s", LINEAR),
    "padding": ("Padding", PERCENT),
}
KINDS = ("train", "validation")  # of curves, in the order of their colors
_POINTS = 200  # of the schedule's curve
_POSITIONS = 128
_STARTS = 5  # the last ones are shown
_OTHER_DATA = (
    "These runs have different datasets, and therefore different validation texts: their losses "
    "and scores do not tell which one is better. Translate one test set with each, and score the "
    "translations with tt evaluate."
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Curve:
    """A value of the log after some updates."""

    kind: str  # one of `KINDS`
    name: str  # one of `CHARTS`
    steps: list[int]
    values: list[float]
    seconds: list[float]  # of training up to each, without pauses and repeated updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingLog:
    """The content of a `train.jsonl`."""

    curves: list[Curve]
    starts: list[dict[str, Any]]  # the lines of the commands that trained
    # Validation sentences, each with its reference and its translations by step.
    samples: list[dict[str, Any]]
    step: int  # the last one in the log
    seconds: float | None  # of training


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSummary:
    """The content of a run folder."""

    folder: str
    model: dict[str, Any]  # of `TransformerConfig`
    training: dict[str, Any]  # of `TrainingConfig`
    data: TrainingData
    dataset_source: dict[str, Any]  # the dataset's folder, pairs and corpora, if known
    replicas: int
    began_with: str  # as from `describe_origin`; "" for random weights
    parts: dict[str, int]  # trained parameters of each part
    parameters: int
    vocabularies: list[VocabularySummary]
    schedule: dict[int, float]  # learning rate by update
    log: TrainingLog
    is_under_training: bool  # now, by a process of this machine
    saved_step: int  # updates that the same command resumes after
    last_checkpoints: list[str]
    best_checkpoints: list[str]
    models: list[dict[str, Any]]  # the exported models, by the names of their folders

    @property
    def is_finished(self) -> bool:
        """Whether the model at the end is exported."""
        return any(model["name"] == "model" for model in self.models)


def summarize_run(folder: str | Path) -> RunSummary:
    """Summarize a run folder on this machine, even while it is being trained.

    Raises:
      UserError: There is no run, or a part of it is damaged.
    """
    path = Path(folder)
    run = RunFolder(folder)
    config, index = _read(path / "config.json"), path / "checkpoints/checkpoints.json"
    kept = _read(index) if index.is_file() else {}
    with run.config_errors():
        architecture, training = TransformerConfig(**config["model"]), config["training"]
        data = TrainingData.from_json(config["data"])
        replicas = int(config["replicas"])
        began_with = describe_origin(origin_of_run(config))
        known = {field.name for field in dataclasses.fields(TrainingConfig)}
        options = TrainingConfig(**{k: v for k, v in training.items() if k in known})
    parts = parts_of(architecture)
    stop = [kept["stop"]] if kept.get("stop") else []
    return RunSummary(
        folder=str(folder),
        model=dataclasses.asdict(architecture),
        training=training,
        data=data,
        dataset_source=dict(config.get("dataset_source") or {}),
        replicas=replicas,
        began_with=began_with,
        parts=parts,
        parameters=sum(parts.values()),
        vocabularies=summarize_vocabularies(load_vocabularies(path / "vocabulary")),
        schedule=rate_points(options, width=architecture.d_model),
        log=read_log(path / "train.jsonl"),
        is_under_training=_is_locked(path),
        saved_step=_saved_step(run, kept),
        last_checkpoints=[*kept.get("last", ()), *stop],
        best_checkpoints=list(kept.get("best", ())),
        models=list(
            map(_summarize_model, filter(_is_model, (path / "model", path / "best_model")))
        ),
    )


def _read(path: Path) -> dict[str, Any]:
    """Read JSON of a folder whose name may not be Unicode, which TensorFlow cannot open."""
    try:
        return read_json(path, dict)
    except FileNotFoundError:
        raise UserError(
            f"no run at {path.parent} (it has no {path.name}): name the run folder of a `tt train`"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error


def _is_model(folder: Path) -> bool:
    return (folder / "config.json").is_file()


def _summarize_model(folder: Path) -> dict[str, Any]:
    about = load_about(folder)
    return {
        "name": folder.name,
        "steps": about.steps,
        "checkpoints": about.checkpoints,
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def _is_locked(run: Path) -> bool:
    try:
        check_lock(run, name=LOCK_FILE, remedy="")
    except UserError:
        return True
    return False


def _saved_step(run: RunFolder, kept: dict[str, Any]) -> int:
    """Return the updates of the newest checkpoint that can be read, or 0."""
    stop = kept.get("stop")
    if stop and (step := read_step(run.inside("checkpoints", stop))) is not None:
        return step
    there = set(find_checkpoints(run, "ckpt"))
    saved = there & {*kept["last"]} if kept.get("last") else there  # as resuming does
    return max((int(name.removeprefix("ckpt-")) for name in saved), default=0)


def read_log(path: Path) -> TrainingLog:
    """Read a log; a missing log is empty, and a truncated last line does not count.

    Raises:
      UserError: A line is damaged.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        text = ""
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    lines = [values for _, values in read_log_lines(text, path=path)]
    curves = []
    for kind in KINDS:
        for name in CHARTS:
            found = [line for line in lines if line["kind"] == kind and line.get(name) is not None]
            if found:
                steps, values, seconds = (
                    [line[each] for line in found] for each in ("step", name, "seconds")
                )
                curves.append(
                    Curve(kind=kind, name=name, steps=steps, values=values, seconds=seconds)
                )
    samples: dict[tuple[str, str], dict[int, str]] = {}
    for line in lines:
        for each in line.get("samples") or ():
            key = each["source"], each["reference"]
            samples.setdefault(key, {})[line["step"]] = each["translation"]
    return TrainingLog(
        curves=curves,
        starts=[line for line in lines if line["kind"] == "start"],
        samples=[
            {"source": source, "reference": reference, "translations": found}
            for (source, reference), found in samples.items()
        ],
        step=max((line["step"] for line in lines), default=0),
        seconds=lines[-1]["seconds"] if lines else None,
    )


def rate_points(training: TrainingConfig, *, width: int, points: int = _POINTS) -> dict[int, float]:
    """Return the learning rate of the first, the last and the peak update, and of some others.

    Args:
      training: Options of the training.
      width: Width of the model.
      points: About how many updates.
    """
    every = {round(1 + (training.steps - 1) * i / max(points - 1, 1)) for i in range(points)}
    steps = sorted({1, training.steps, min(training.warmup_steps, training.steps), *every})
    return {step: training.rate(step, width=width) for step in steps}


def schedule_section(rates: dict[int, float]) -> Section:
    """Return the learning rate of all updates."""
    line = Line("Learning rate", "planned", list(rates), list(rates.values()))
    return Section("schedule", "Learning rate", [Curves("steps", [line])])


def run_sections(found: RunSummary) -> list[Section]:
    """Return the sections of one run."""
    log = found.log
    return [
        Section(
            "overview",
            "Overview",
            [
                Facts(_facts(found)),
                table(found.models, "name steps bytes checkpoints"),
                options("Architecture", found.model),
                options("Training", found.training),
            ],
        ),
        *curve_sections([found], over="steps"),
        Section("translations", "Sample translations", _samples(found)),
        schedule_section(found.schedule),
        parts_section(found.parts),
        *vocabulary_sections(found.vocabularies),
        Section(
            "origin",
            "Commands, versions and hardware",
            [block for start in log.starts[-_STARTS:] for block in _start(start)],
        ),
    ]


def _facts(found: RunSummary) -> list[tuple[str, object]]:
    data, log = found.data, found.log
    if found.is_finished:
        state = "finished"
    elif found.is_under_training:
        state = "being trained now"
    else:
        state = f"stopped: the same command resumes after update {found.saved_step:,}"
    took = str(datetime.timedelta(seconds=round(log.seconds))) if log.seconds else None
    return [
        ("run", found.folder),
        ("state", state),
        ("updates", f"{max(log.step, found.saved_step):,} of {found.training['steps']:,}"),
        ("time", took),
        ("languages", languages_of(data)),
        ("dataset", found.dataset_source.get("folder")),
        ("corpora", ", ".join(data.corpora)),
        ("pairs", data.pairs),
        ("parameters", found.parameters),
        ("replicas", found.replicas),
        ("began with", found.began_with),
        ("last nll of a validation", last_value(found, "nll")),
        ("last BLEU of a validation", last_value(found, "bleu")),
        ("checkpoints", ", ".join([*found.last_checkpoints, *found.best_checkpoints])),
    ]


def last_value(found: RunSummary, name: str) -> str:
    """Return the value of the last validation that measured it, and its step."""
    curves = [c for c in found.log.curves if (c.kind, c.name) == ("validation", name)]
    return f"{curves[0].values[-1]:,.4g} at step {curves[0].steps[-1]:,}" if curves else ""


def curve_sections(runs: Sequence[RunSummary], *, over: str) -> list[Section]:
    """Return a section with the curves of runs over "steps" or "minutes".

    A single run has its training and its validations in the same charts. Several runs have a chart
    for each of the two.
    """
    lines = []
    for (name, (title, scale)), kind in itertools.product(CHARTS.items(), KINDS):
        for number, run in enumerate(runs):
            for curve in run.log.curves:
                if (curve.name, curve.kind) == (name, kind):
                    x = curve.steps if over == "steps" else [s / 60 for s in curve.seconds]
                    labels = title, kind, KINDS.index(kind)
                    if len(runs) > 1:
                        labels = f"{title}, {kind}", run.folder, number
                    lines.append(Line(*labels[:2], x, curve.values, labels[2], scale))
    resumed: list[int] = []
    if len(runs) == 1 and over == "steps":
        resumed = sorted({start["step"] for start in runs[0].log.starts} - {0})
    blocks: list[Any] = [Curves(over, lines, resumed) if lines else Note("Nothing was logged.")]
    if resumed:
        steps = ", ".join(f"{step:,}" for step in resumed)
        blocks.append(Note(f"Dotted: the command resumed after a stop, at step {steps}."))
    return [Section(f"curves-{over}", f"Curves over {over}", blocks)]


def _samples(found: RunSummary) -> list[Any]:
    blocks = []
    for each in found.log.samples:
        texts = [("source", each["source"]), ("reference", each["reference"])]
        blocks.append(Table(["step", "text"], [*texts, *each["translations"].items()]))
    return blocks or [Note("There are none: no validation has translated yet.")]


def _start(line: dict[str, Any]) -> list[Any]:
    day = datetime.datetime.fromtimestamp(line["time"], datetime.UTC)
    about = {**line["machine"], **line["versions"]}
    facts = [
        (k.replace("_", " "), ", ".join(v) if isinstance(v, list) else v) for k, v in about.items()
    ]
    return [
        Note(f"From step {line['step']:,}, {day:%Y-%m-%d %H:%M} UTC"),
        Lines([line.get("command") or "(trained from Python)"]),
        Facts(facts),
    ]


def position_section(found: RunSummary) -> Section:
    """Return the position encodings of a run (section 3.5 of the paper) and how alike they are."""
    encodings = np.asarray(
        sinusoidal_positions(
            _POSITIONS,
            found.model["d_model"],
            found.model["position_base"],
            scale=found.model["position_scale"],
        )
    )
    products = encodings @ encodings.T
    label = "Their dot products, as a share of that with itself"
    return Section(
        "positions",
        "Positions",
        [
            HeatMap("Position encodings", encodings, "width", "position"),
            HeatMap(label, products / products[0, 0], "position", "position"),
        ],
    )


def runs_sections(runs: Sequence[RunSummary]) -> list[Section]:
    """Return the sections that compare two or more runs."""
    names = [run.folder for run in runs]
    results: list[list[object]] = [
        [f"last {name} of a validation", *(last_value(run, name) for run in runs)]
        for name in ("nll", "bleu", "chrf")
    ]
    results += [
        ["parameters", *(run.parameters for run in runs)],
        ["steps", *(f"{run.log.step:,} of {run.training['steps']:,}" for run in runs)],
    ]
    blocks: list[Any] = [Table(["result", *names], results)]
    if len({run.data.fingerprint for run in runs}) > 1:
        blocks.append(Note(_OTHER_DATA))
    different = Table(["option", *names], _differences(runs))
    same = Note("Their options are the same.")
    return [
        Section("results", "Results", blocks),
        Section("differences", "Differences", [different if different.rows else same]),
        *curve_sections(runs, over="steps"),
        *curve_sections(runs, over="minutes"),
    ]


def _differences(runs: Sequence[RunSummary]) -> list[list[object]]:
    """Return the options that are not the same in all runs, with their values."""
    known = [
        {
            **{f"model.{name}": value for name, value in run.model.items()},
            **{f"training.{name}": value for name, value in run.training.items()},
            "began with": run.began_with,
            "data.fingerprint": run.data.fingerprint[:16],
            "data.pairs": run.data.pairs,
            "replicas": run.replicas,
        }
        for run in runs
    ]
    names = dict.fromkeys(name for each in known for name in each)
    rows = [[name, *(each.get(name) for each in known)] for name in names]
    return [row for row in rows if any(value != row[1] for value in row[2:])]
