"""A run folder: options, curves, learning rate, sample translations, checkpoints, models."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tt.model.errors import UserError
from tt.model.folders import is_locked
from tt.model.formats.model_card import TrainingData, describe_origin, origin_of_run
from tt.model.formats.model_folder import load_about
from tt.model.inspection.blocks import (
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
from tt.model.inspection.model import parameters_of, parameters_section, vocabulary_section
from tt.model.json_files import parse_fields, read_json
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.checkpoints import find_checkpoints, read_step
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import read_log_lines
from tt.model.training.run_folder import (
    BEST_MODEL_FOLDER,
    LOCK_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    VOCABULARY_FOLDER,
    RunFolder,
)
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.layers import sinusoidal_positions

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


class RunSummary:
    """The content of a run folder on this machine, even while it is being trained.

    Raises:
      UserError: There is no run, or a part of it is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        path, run = Path(folder), RunFolder(folder)
        config, index = _read(path / "config.json"), path / "checkpoints/checkpoints.json"
        kept = _read(index) if index.is_file() else {}
        stop = [kept["stop"]] if kept.get("stop") else []
        self.folder = str(folder)
        with run.config_errors():
            self.architecture = TransformerConfig(**config["model"])
            self.training: dict[str, Any] = config["training"]
            self.data = parse_fields(TrainingData, config["data"])
            self.replicas = int(config["replicas"])
            # As from `describe_origin`; "" for random weights.
            self.began_with = describe_origin(origin_of_run(config))
        self.dataset_folder = (config.get("dataset_source") or {}).get("folder")
        self.log = read_log(path / LOG_FILE)
        self.is_under_training = is_locked(
            path, name=LOCK_FILE
        )  # now, by a process of this machine
        self.saved_step = _saved_step(run, kept)  # the same command resumes after it
        self.checkpoints = [*kept.get("last", ()), *stop, *kept.get("best", ())]
        models = (path / name for name in (MODEL_FOLDER, BEST_MODEL_FOLDER))
        found = [folder for folder in models if (folder / "config.json").is_file()]
        self.models = list(map(_summarize_model, found))  # the exported models

    @property
    def is_finished(self) -> bool:
        """Whether the model at the end is exported."""
        return any(model["name"] == MODEL_FOLDER for model in self.models)

    @property
    def step(self) -> int:
        """The last update in the log."""
        return max((line["step"] for line in self.log), default=0)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The lines of the commands that trained."""
        return [line for line in self.log if line["kind"] == "start"]

    def points(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return the lines of one of `KINDS` that have the value of one of `CHARTS`."""
        return [line for line in self.log if line["kind"] == kind and line.get(name) is not None]

    def samples(self) -> dict[tuple[str, str], dict[int, str]]:
        """Return the translations of validation sentences by step, by source and reference."""
        found: dict[tuple[str, str], dict[int, str]] = {}
        for line in self.log:
            for each in line.get("samples") or ():
                key = each["source"], each["reference"]
                found.setdefault(key, {})[line["step"]] = each["translation"]
        return found


def _read(path: Path) -> dict[str, Any]:
    """Read JSON of a folder whose name may not be Unicode, which TensorFlow cannot open."""
    try:
        return read_json(path, dict)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path} cannot be read ({reason}): name the run folder of a `tt train`"
        ) from error


def _summarize_model(folder: Path) -> dict[str, Any]:
    about = load_about(folder)
    return {
        "name": folder.name,
        "steps": about.steps,
        "checkpoints": about.checkpoints,
        "bytes": sum(file.stat().st_size for file in folder.iterdir()),
    }


def _saved_step(run: RunFolder, kept: dict[str, Any]) -> int:
    """Return the updates of the newest checkpoint that can be read, or 0."""
    stop = kept.get("stop")
    if stop and (step := read_step(run.inside("checkpoints", stop))) is not None:
        return step
    there = set(find_checkpoints(run, "ckpt"))
    saved = there & {*kept["last"]} if kept.get("last") else there  # as resuming does
    return max((int(name.removeprefix("ckpt-")) for name in saved), default=0)


def read_log(path: Path) -> list[dict[str, Any]]:
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
    return [values for _, values in read_log_lines(text, path=path)]


def schedule_section(training: TrainingConfig, *, width: int) -> Section:
    """Return the learning rate of the first, the last and the peak update, and of some others.

    Args:
      training: Options of the training.
      width: Width of the model.
    """
    every = {round(1 + (training.steps - 1) * i / (_POINTS - 1)) for i in range(_POINTS)}
    steps = sorted({1, training.steps, min(training.warmup_steps, training.steps), *every})
    rates = [training.rate(step, width=width) for step in steps]
    line = Line("Learning rate", "planned", steps, rates)
    return Section("schedule", "Learning rate", [Curves("steps", [line])])


def run_sections(found: RunSummary) -> list[Section]:
    """Return the sections of one run."""
    with RunFolder(found.folder).config_errors():
        training = parse_fields(TrainingConfig, found.training)
    overview = [
        Facts(_facts(found)),
        table(found.models, "name steps bytes checkpoints"),
        options("Architecture", dataclasses.asdict(found.architecture)),
        options("Training", found.training),
    ]
    origin = [block for start in found.starts[-_STARTS:] for block in _start(start)]
    return [
        Section("overview", "Overview", overview),
        *curve_sections([found], over="steps"),
        Section("translations", "Sample translations", _samples(found)),
        schedule_section(training, width=found.architecture.d_model),
        parameters_section(found.architecture),
        vocabulary_section(load_vocabularies(Path(found.folder, VOCABULARY_FOLDER))),
        Section("origin", "Commands, versions and hardware", origin),
    ]


def _facts(found: RunSummary) -> list[tuple[str, object]]:
    data = found.data
    if found.is_finished:
        state = "finished"
    elif found.is_under_training:
        state = "being trained now"
    else:
        state = f"stopped: the same command resumes after update {found.saved_step:,}"
    seconds = found.log[-1]["seconds"] if found.log else None
    return [
        ("run", found.folder),
        ("state", state),
        ("updates", f"{max(found.step, found.saved_step):,} of {found.training['steps']:,}"),
        ("time", str(datetime.timedelta(seconds=round(seconds))) if seconds else None),
        ("languages", languages_of(data)),
        ("dataset", found.dataset_folder),
        ("corpora", ", ".join(data.corpora)),
        ("pairs", data.pairs),
        ("replicas", found.replicas),
        ("began with", found.began_with),
        ("last nll of a validation", last_value(found, "nll")),
        ("last BLEU of a validation", last_value(found, "bleu")),
        ("checkpoints", ", ".join(found.checkpoints)),
    ]


def last_value(found: RunSummary, name: str) -> str:
    """Return the value of the last validation that measured it, and its step."""
    points = found.points("validation", name)
    return f"{points[-1][name]:,.4g} at step {points[-1]['step']:,}" if points else ""


def curve_sections(runs: Sequence[RunSummary], *, over: str) -> list[Section]:
    """Return a section with the curves of runs over "steps" or "minutes".

    A single run has its training and its validations in the same charts. Several runs have a chart
    for each of the two.
    """
    lines = []
    for (name, (title, scale)), kind in itertools.product(CHARTS.items(), KINDS):
        for number, run in enumerate(runs):
            if points := run.points(kind, name):
                x = [each["step"] if over == "steps" else each["seconds"] / 60 for each in points]
                labels = title, kind, KINDS.index(kind)
                if len(runs) > 1:
                    labels = f"{title}, {kind}", run.folder, number
                lines.append(
                    Line(*labels[:2], x, [each[name] for each in points], labels[2], scale)
                )
    resumed: list[int] = []
    if len(runs) == 1 and over == "steps":
        resumed = sorted({start["step"] for start in runs[0].starts} - {0})
    blocks: list[Any] = [Curves(over, lines, resumed) if lines else Note("Nothing was logged.")]
    if resumed:
        steps = ", ".join(f"{step:,}" for step in resumed)
        blocks.append(Note(f"Dotted: the command resumed after a stop, at step {steps}."))
    return [Section(f"curves-{over}", f"Curves over {over}", blocks)]


def _samples(found: RunSummary) -> list[Any]:
    blocks = []
    for (source, reference), translations in found.samples().items():
        texts = [("source", source), ("reference", reference)]
        blocks.append(Table(["step", "text"], [*texts, *translations.items()]))
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
            found.architecture.d_model,
            found.architecture.position_base,
            scale=found.architecture.position_scale,
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
        ["parameters", *(sum(parameters_of(run.architecture).values()) for run in runs)],
        ["steps", *(f"{run.step:,} of {run.training['steps']:,}" for run in runs)],
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
            **{f"model.{name}": value for name, value in vars(run.architecture).items()},
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
