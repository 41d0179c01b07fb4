"""All of a run folder: options, curves, schedule, sample translations, checkpoints, models."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from model.errors import UserError
from model.folders.lock import check_lock
from model.formats.model_card import TrainingData, describe_origin, origin_of_run
from model.formats.model_folder import load_about
from model.summaries.models import PartSize, parameters_of
from model.summaries.training_log import TrainingLog, read_log
from model.summaries.vocabularies import VocabularySummary, summarize_vocabularies
from model.text.vocabulary import load_vocabularies
from model.training.options import TrainingConfig
from model.transformer.config import TransformerConfig

_POINTS = 200  # of the schedule's curve


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportedModel:
    """A model in a run folder."""

    name: str  # of its folder
    steps: int  # updates of its weights; 0 if unknown
    checkpoints: list[str]  # those that it is the mean of
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class RatePoint:
    """The learning rate of an update."""

    step: int
    rate: float


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunSummary:
    """What lies in a run folder."""

    folder: str
    model: dict[str, Any]  # of `TransformerConfig`
    training: dict[str, Any]  # of `TrainingConfig`
    data: TrainingData
    dataset_source: dict[str, Any]  # the dataset's folder, pairs and corpora, if known
    replicas: int
    began_with: str  # as `describe_origin` says it; "" if it began with no model
    parts: list[PartSize]
    parameters: int
    vocabularies: list[VocabularySummary]
    schedule: list[RatePoint]  # of all steps
    log: TrainingLog
    is_under_training: bool  # now, by a process of this machine
    saved_step: int  # updates that the same command goes on from
    last_checkpoints: list[str]
    best_checkpoints: list[str]
    models: list[ExportedModel]

    @property
    def steps(self) -> int:
        """Updates in all."""
        return int(self.training.get("steps", self.log.steps))

    @property
    def is_finished(self) -> bool:
        """Whether the model at the end is exported."""
        return any(model.name == "model" for model in self.models)


def is_run(folder: str | Path) -> bool:
    """Tells whether a local folder is a run."""
    try:
        values = json.loads((Path(folder) / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "training" in values


def summarize_run(folder: str | Path) -> RunSummary:
    """Returns what lies in a run folder on this machine, be it under training. Needs TensorFlow.

    Raises:
      UserError: There is no run, or something of it is damaged.
    """
    path = Path(folder)
    config = _read(path / "config.json")
    if "training" not in config:
        raise UserError(f"{folder} is no run: name the run folder of a `tt train`")
    try:
        architecture = TransformerConfig(**config["model"])
        training = config["training"]
        data = TrainingData.from_json(config.get("data") or {"fingerprint": config["dataset"]})
        replicas = int(config.get("replicas", 1))
        began_with = describe_origin(origin_of_run(config))
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{path}/config.json cannot be read: {error!r}") from error
    index = path / "checkpoints/checkpoints.json"
    kept = _read(index) if index.is_file() else {}
    stop = kept.get("stop")
    parts = parameters_of(architecture)
    return RunSummary(
        folder=str(folder),
        model=dataclasses.asdict(architecture),
        training=training,
        data=data,
        dataset_source=dict(config.get("dataset_source") or {}),
        replicas=replicas,
        began_with=began_with,
        parts=parts,
        parameters=sum(part.parameters for part in parts),
        vocabularies=summarize_vocabularies(load_vocabularies(path / "vocabulary")),
        schedule=rate_points(known_training(training), width=architecture.d_model),
        log=read_log(path / "train.jsonl"),
        is_under_training=_is_locked(path),
        saved_step=_saved_step(path, kept),
        last_checkpoints=[*kept.get("last", ()), *([stop] if stop else [])],
        best_checkpoints=list(kept.get("best", ())),
        models=_find_models(path),
    )


def _is_locked(run: Path) -> bool:
    from model.training.run_folder import LOCK_FILE

    try:
        check_lock(run, name=LOCK_FILE, remedy="")
    except UserError:
        return True
    return False


def _saved_step(run: Path, kept: dict[str, Any]) -> int:
    """Returns the updates of the newest checkpoint that is there, 0 if none is."""
    from model.training.checkpoints import find_checkpoints, read_step
    from model.training.run_folder import RunFolder

    folder = run / "checkpoints"
    if (stop := kept.get("stop")) and (step := read_step(folder / stop)) is not None:
        return step
    there = set(find_checkpoints(RunFolder(run), "ckpt"))
    saved = there & {*kept["last"]} if kept.get("last") else there  # as resuming takes them
    return max((int(name.removeprefix("ckpt-")) for name in saved), default=0)


def known_training(values: dict[str, Any]) -> TrainingConfig:
    """Returns the options of a run; those that this `tt` does not know are left out."""
    names = {field.name for field in dataclasses.fields(TrainingConfig)}
    return TrainingConfig(**{name: value for name, value in values.items() if name in names})


def rate_points(training: TrainingConfig, *, width: int, points: int = _POINTS) -> list[RatePoint]:
    """Returns the learning rate of some updates from the first to the last, its peak among them.

    Args:
      training: Options of the training.
      width: Width of the model.
      points: How many updates, about.
    """
    from model.training.optimizer import Schedule

    schedule = Schedule(training.peak_rate(width), training.warmup_steps, training.schedule)
    every = {round(1 + (training.steps - 1) * i / max(points - 1, 1)) for i in range(points)}
    steps = sorted({1, training.steps, min(training.warmup_steps, training.steps), *every})
    return [RatePoint(step=step, rate=schedule.rate(step)) for step in steps]


def _find_models(run: Path) -> list[ExportedModel]:
    found = []
    for name in ("model", "best_model"):
        folder = run / name
        if (folder / "config.json").is_file():
            about = load_about(folder)
            found.append(
                ExportedModel(
                    name=name,
                    steps=about.steps,
                    checkpoints=about.checkpoints,
                    bytes=sum(file.stat().st_size for file in folder.iterdir()),
                )
            )
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text("utf-8"))
        if not isinstance(values, dict):
            raise ValueError("it is no object")
    except FileNotFoundError:
        raise UserError(
            f"no run at {path.parent} (it has no {path.name}): name the run folder of a `tt train`"
        ) from None
    except (OSError, ValueError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    return values
