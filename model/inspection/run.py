"""Summaries of run folders: options, curves, learning rate, sample translations, models."""

from __future__ import annotations

import dataclasses
import datetime
import itertools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt.model.errors import UserError
from tt.model.folders import is_locked
from tt.model.formats.model_card import describe_origin, describe_run, origin_of_run
from tt.model.formats.model_folder import read_about
from tt.model.inspection.blocks import (
    LINEAR,
    LOGARITHMIC,
    PERCENT,
    SCORE,
    Curves,
    Facts,
    Line,
    Lines,
    Note,
    Section,
    Table,
    languages_of,
    options,
    table,
)
from tt.model.inspection.model import parameters_section, vocabulary_section
from tt.model.json_files import parse_fields, parse_json
from tt.model.storage.files import read_bytes, read_text
from tt.model.storage.listing import exists, list_files
from tt.model.storage.paths import is_local
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.checkpoint_files import read_step
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import read_log_lines
from tt.model.training.run_folder import (
    BEST_MODEL_FOLDER,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    INDEX_FILE,
    LOCK_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    VOCABULARY_FOLDER,
    Kept,
    RunFolder,
    check_config,
    parse_index,
)
from tt.model.training.schedule import learning_rate
from tt.model.transformer.config import TransformerConfig, parameters_by_part

# Title and scale of each chart of a log, by the name of its value, in display order.
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
KINDS = ("train", "validation")  # kinds of curves, in the order of their colors
_POINTS = 200  # points of the schedule's curve
_STARTS = 5  # number of commands to show, the last commands of a run
_OTHER_DATA = (
    "These runs have different datasets and therefore different validation texts, so you cannot "
    "compare their losses and scores. Translate the same test set with each model, and score the "
    "translations with tt evaluate."
)


class RunSummary:
    """The content of a run folder on any storage, also during training.

    Raises:
      UserError: The folder is not a run folder, or a part of it is damaged.
    """

    def __init__(self, folder: str | Path) -> None:
        run = RunFolder(folder)
        path, index = run.inside(CONFIG_FILE), run.inside(CHECKPOINT_FOLDER, INDEX_FILE)
        config = _read(path)
        check_config(config, path=path)
        kept = Kept(last=[], best=[], stop=None)
        if exists(index):
            kept = parse_index(json.dumps(_read(index)), path=index)
        self.folder = str(folder)
        self.vocabularies = load_vocabularies(run.inside(VOCABULARY_FOLDER), read=read_bytes)
        self.architecture = TransformerConfig(**config["model"])
        self.training = dataclasses.asdict(parse_fields(TrainingConfig, config["training"]))
        self.data = describe_run(config).data
        self.replicas = int(config["replicas"])
        # Description of the initial model; "" for random weights.
        self.began_with = describe_origin(origin_of_run(config))
        self.dataset_folder = (config.get("dataset_source") or {}).get("folder")
        self.log = read_log(run.inside(LOG_FILE))
        # Whether a process on this machine is training the run now.
        self.is_under_training = is_local(run.path) and is_locked(run.path, name=LOCK_FILE)
        saved = kept.to_resume_from() or run.find_checkpoints("ckpt")
        steps = [read_step(run.inside(CHECKPOINT_FOLDER, name)) or 0 for name in saved]
        self.saved_step = max(steps, default=0)  # The same command resumes after this step.
        self.checkpoints = [*kept.to_resume_from()[::-1], *kept.best]
        self.models = [  # the exported models
            {
                **vars(read_about(run.inside(name, CONFIG_FILE))),
                "name": name,
                "bytes": sum(file.size for file in list_files(run.inside(name))),
            }
            for name in (MODEL_FOLDER, BEST_MODEL_FOLDER)
            if exists(run.inside(name, CONFIG_FILE))
        ]

    @property
    def is_finished(self) -> bool:
        """Whether the final model is exported."""
        return any(model["name"] == MODEL_FOLDER for model in self.models)

    @property
    def step(self) -> int:
        """The last update in the log."""
        return max((line["step"] for line in self.log), default=0)

    @property
    def starts(self) -> list[dict[str, Any]]:
        """The log lines at which commands started or resumed training."""
        return [line for line in self.log if line["kind"] == "start"]

    def points(self, kind: str, name: str) -> list[dict[str, Any]]:
        """Return the log lines of a kind in `KINDS` that contain a value in `CHARTS`."""
        return [line for line in self.log if line["kind"] == kind and line.get(name) is not None]

    def samples(self) -> dict[tuple[str, str], dict[int, str]]:
        """Return translations of validation sentences: by (source, reference), then by step."""
        found: dict[tuple[str, str], dict[int, str]] = {}
        for line in self.log:
            for each in line.get("samples") or ():
                key = each["source"], each["reference"]
                found.setdefault(key, {})[line["step"]] = each["translation"]
        return found


def _read(path: str) -> dict[str, Any]:
    try:
        return parse_json(read_bytes(path), dict)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(
            f"{path} cannot be read ({reason}). Choose a run folder that `tt train` wrote"
        ) from error


def read_log(path: str | Path) -> list[dict[str, Any]]:
    """Return the lines of a log; a missing log is empty, and a truncated last line is ignored.

    Raises:
      UserError: The log cannot be read, or a line is damaged.
    """
    try:
        text = read_text(str(path)) if exists(str(path)) else ""
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}. Restore the file from a copy") from error
    return [values for _, values in read_log_lines(text, path=path)]


def schedule_section(training: TrainingConfig, *, width: int) -> Section:
    """Return a section with the curve of the learning rate, including its first, last and peak.

    Args:
      training: Options of the training.
      width: Width of the model.
    """
    every = {round(1 + (training.steps - 1) * i / (_POINTS - 1)) for i in range(_POINTS)}
    steps = sorted({1, training.steps, min(training.warmup_steps, training.steps), *every})
    rates = [learning_rate(step, training, width=width) for step in steps]
    line = Line("Learning rate", "planned", steps, rates)
    return Section("schedule", "Learning rate", [Curves("steps", [line])])


def run_sections(found: RunSummary) -> list[Section]:
    """Return the summary of one run."""
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
        vocabulary_section(found.vocabularies),
        Section("origin", "Commands, versions and hardware", origin),
    ]


def _facts(found: RunSummary) -> list[tuple[str, object]]:
    data = found.data
    if found.is_finished:
        state = "finished"
    elif found.is_under_training:
        state = "being trained now"
    else:  # without a lock, nobody knows whether a run on an object store is being trained
        state = "stopped" if is_local(found.folder) else "not finished"
        state += f": the same command resumes after update {found.saved_step:,}"
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
    """Return the last validation's value of a metric with its step, or ""."""
    points = found.points("validation", name)
    return f"{points[-1][name]:,.4g} at step {points[-1]['step']:,}" if points else ""


def curve_sections(runs: Sequence[RunSummary], *, over: str) -> list[Section]:
    """Return a section with the curves of runs.

    The charts of a single run show both training and validation. Several runs have separate charts
    for training and validation.

    Args:
      runs: The runs.
      over: The quantity on the x axis, "steps" or "minutes".
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
    return blocks or [Note("No validation has translated a sentence yet.")]


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


def runs_sections(runs: Sequence[RunSummary]) -> list[Section]:
    """Return the comparison of two or more runs."""
    names = [run.folder for run in runs]
    results: list[list[object]] = [
        [f"last {name} of a validation", *(last_value(run, name) for run in runs)]
        for name in ("nll", "bleu", "chrf")
    ]
    results += [
        ["parameters", *(sum(parameters_by_part(run.architecture).values()) for run in runs)],
        ["steps", *(f"{run.step:,} of {run.training['steps']:,}" for run in runs)],
    ]
    blocks: list[Any] = [Table(["result", *names], results)]
    if len({run.data.fingerprint for run in runs}) > 1:
        blocks.append(Note(_OTHER_DATA))
    different = Table(["option", *names], _differences(runs))
    same = Note("The runs have the same options.")
    return [
        Section("results", "Results", blocks),
        Section("differences", "Differences", [different if different.rows else same]),
        *curve_sections(runs, over="steps"),
        *curve_sections(runs, over="minutes"),
    ]


def _differences(runs: Sequence[RunSummary]) -> list[list[object]]:
    """Return the options that differ between runs, with their values."""
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
