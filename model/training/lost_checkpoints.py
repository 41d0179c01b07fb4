"""A run whose checkpoints are gone: how that is noticed, and what it can go on from."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import tensorflow as tf

from model.dataset.windows import Position
from model.errors import UserError
from model.formats.model_folder import load_about
from model.formats.weights import load_model
from model.runs.checkpoints import INDEX_FILE
from model.runs.reporter import RunLog
from model.runs.run_folder import (
    BEST_MODEL_FOLDER,
    CHECKPOINT_FOLDER,
    CONFIG_FILE,
    LOG_FILE,
    MODEL_FOLDER,
    RunFolder,
)
from model.training.options import TrainingConfig
from model.training.state import TrainingState
from model.transformer.config import TransformerConfig
from model.transformer.transformer import Transformer


@dataclasses.dataclass(frozen=True)
class Remains:
    """What is left of a run that has no checkpoint to go on from."""

    path: str  # of the run folder
    step: int  # the last that its log tells of; 0 where that tells of none
    models: list[str]  # see `find_models`
    is_lost: bool  # whether there must have been a checkpoint; else it was killed before the first

    def refusal(self) -> UserError:
        """Returns the error where the run would begin again and replace all of that."""
        found = [f"{LOG_FILE} up to step {self.step:,}"] if self.step else []
        found += [f"{name}/" for name in self.models]
        return UserError(
            f"a run goes on from its checkpoints, and those of {self.path} are gone (left are "
            f"{', '.join([CONFIG_FILE, *found])}): put {CHECKPOINT_FOLDER}/ back"
            f"{how_to_go_on(self.models)}"
        )

    def notes(self) -> list[str]:
        """Returns a line where the log tells of steps of which nothing was saved."""
        if not self.step:
            return []
        return [
            f"{self.path} has no checkpoint, though it came to step {self.step:,} (it was stopped "
            "before its first one, or they were deleted): it begins again at step 0"
        ]


def how_to_go_on(models: list[str]) -> str:
    """Returns what to do without checkpoints where these models are: the end of a sentence."""
    anew = ", or train in another folder with `run`"
    if not models:
        return anew
    return f", go on from the weights of {models[0]}/ with `restart_from_model`{anew}"


def find_models(run: RunFolder) -> list[str]:
    """Returns those of `model/` and `best_model/` that are there, in this order."""
    names = (MODEL_FOLDER, BEST_MODEL_FOLDER)
    return [name for name in names if tf.io.gfile.exists(run.inside(name, CONFIG_FILE))]


def find_remains(run: RunFolder) -> Remains | None:
    """Looks for a run that has no checkpoint to go on from; None where there is none, or no run.

    Raises:
      UserError: The folder holds something else, or its log is damaged.
    """
    if not tf.io.gfile.exists(run.inside(CONFIG_FILE)):
        return None
    kinds = ("ckpt", "stop")
    if any(tf.io.gfile.glob(run.inside(CHECKPOINT_FOLDER, f"{kind}-*.index")) for kind in kinds):
        return None
    config = run.load_config()
    step = _last_step(RunLog(run.inside(LOG_FILE)).read())
    models = find_models(run)
    # The weights of a best validation are written before their model, and both before a checkpoint.
    is_before_first = models in ([], [BEST_MODEL_FOLDER]) and (
        not models or bool(tf.io.gfile.glob(run.inside(CHECKPOINT_FOLDER, "best-*")))
    )
    try:
        first_save = config["training"]["save_every"]
    except (KeyError, TypeError) as error:
        raise UserError(f"{run.inside(CONFIG_FILE)} cannot be read: {error!r}") from error
    has_index = tf.io.gfile.exists(run.inside(CHECKPOINT_FOLDER, INDEX_FILE))
    # What is due at a step is reported before it is saved.
    return Remains(
        path=run.path,
        step=step,
        models=models,
        is_lost=has_index or step > first_save or not is_before_first,
    )


def check_remains(run: RunFolder, *, restart_from_model: bool) -> tuple[bool, list[str]]:
    """Returns whether there is a run whose checkpoints are gone, and lines that a user should know.

    Raises:
      UserError: There is one, and it is not to go on from its model.
    """
    remains = find_remains(run)
    if remains is None:
        return False, []
    if remains.is_lost and not restart_from_model:
        raise remains.refusal()
    return remains.is_lost, [] if restart_from_model else remains.notes()


@dataclasses.dataclass(frozen=True)
class Restart:
    """What a run goes on from without checkpoints."""

    weights: Transformer  # of its last model
    state: TrainingState  # where it stood, as far as that is known
    best: Transformer | None  # of its best validation, where that is there; its step: in the state
    note: str  # for the user


def restart_from_model(
    run: RunFolder, *, config: TransformerConfig, training: TrainingConfig, replicas: int
) -> Restart:
    """Takes the weights of the model that a run has exported, and its place from the log.

    The step is the model's own, if known, or that of the log's last end; the next epoch begins.

    Raises:
      UserError: There is no model, or it is another than the run's.
    """
    models = find_models(run)
    if not models:
        raise UserError(
            "`restart_from_model` goes on from the model of a run whose checkpoints are gone, and "
            f"{run.path} has none: leave it out"
        )
    loaded, steps = _load(run, models[0])
    if loaded.config != config:
        raise UserError(
            f"{run.inside(models[0])} is another model than {CONFIG_FILE} in {run.path} describes: "
            "put the run's own model back, or train in another folder with `run`"
        )
    lines = RunLog(run.inside(LOG_FILE)).read()
    validations = [line for line in lines if line["kind"] == "validation"]
    bests = [line for line in validations if line.get("is_best")]
    step, source = steps, ""
    if not step and models[0] == BEST_MODEL_FOLDER:
        step, source = _last_step(bests), f", the last that {LOG_FILE} tells of"
    elif not step:
        step, source = _last_end(lines)
    if not step:
        raise UserError(
            f"neither {run.inside(models[0])} nor {LOG_FILE} says after how many steps the model "
            "was exported: train in another folder with `run`"
        )
    validations = [line for line in validations if line["step"] <= step]
    metric = training.best_metric
    bests = [line for line in bests if line["step"] <= step and metric in line]
    epochs = [line["epoch"] for line in lines if "epoch" in line and line["step"] <= step]
    position = Position(epoch=max(epochs, default=-1) + 1)
    state = TrainingState(
        step=step,
        batches=step * training.batches_an_update(replicas),
        position=position,
        update_start=position,
        replicas=replicas,
        validated=_last_step(validations),
    )
    best = None
    if BEST_MODEL_FOLDER in models and bests:
        best, _ = _load(run, BEST_MODEL_FOLDER)
        state.best = [(bests[-1][metric], bests[-1]["step"])]
        state.since_best = sum(line["step"] > bests[-1]["step"] for line in validations)
    return Restart(
        weights=loaded,
        state=state,
        best=best,
        note=f"the checkpoints of {run.path} are gone: it goes on from the weights of {models[0]}/ "
        f"at step {step:,}{source}, with an optimizer that begins anew",
    )


def _last_step(lines: list[dict[str, Any]]) -> int:  # 0 of no line
    return max((line["step"] for line in lines), default=0)


def _last_end(lines: list[dict[str, Any]]) -> tuple[int, str]:
    """Returns where a log tells of the last end of a training, else its last step, and how sure.

    At the end, and only there, a report has no seconds left and `model/` is exported. Where the run
    was extended later, or has stopped early, the model can be of another step.
    """
    last = _last_step(lines)
    end = _last_step([line for line in lines if line.get("seconds_left") == 0])
    if end and end == last:
        return end, f", where {LOG_FILE} tells of the end of the training"
    guess = ", which is a guess (the model does not say its own, and "
    if end:
        return end, f"{guess}{LOG_FILE} goes on from the end of a training there to step {last:,})"
    return last, f"{guess}{LOG_FILE} ends there without the end of a training)"


def _load(run: RunFolder, name: str) -> tuple[Transformer, int]:
    """Returns a model of the run, and after how many steps it was exported; 0 is not known."""
    with run.scratch() as scratch:
        for file in tf.io.gfile.listdir(run.inside(name)):
            tf.io.gfile.copy(run.inside(name, file), f"{scratch}/{file}")
        model = load_model(Path(scratch)).model  # which says what is wrong with its files
        return model, load_about(Path(scratch)).steps
