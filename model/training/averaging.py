"""Checkpoints of a run to an exported model: one of them, or the mean of several.

The mean of the last checkpoints of a run translates better than any of them (Vaswani et al. 2017,
section 6.1, average the last 5 to 20). TensorFlow is imported by the functions that need it.
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from model.errors import UserError, one_of, require, require_one_of
from model.folders.atomic import is_free

if TYPE_CHECKING:
    from model.training.checkpoints import Checkpoints

KEPT = ("last", "best")  # checkpoints


@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageRequest:
    """Checkpoints of a run to average into a model folder.

    Attributes:
      run: Run folder, from `tt train`.
      output: Model folder to write.
      of: Checkpoints to average: "last" or "best".
      count: Number of checkpoints, the newest or the best. By default all that are kept.
    """

    run: str
    output: str
    of: str = one_of(KEPT, default="last")
    count: int | None = None

    def __post_init__(self) -> None:
        require_one_of("`of`", self.of, KEPT)
        require(self.count is None or self.count >= 1, "`count` must be at least 1", self.count)

    def check(self) -> None:
        """Checks what can be known before TensorFlow is imported.

        Raises:
          UserError: There is no run on this machine, or the output is there.
        """
        check_is_run(self.run)
        _check_is_free(Path(self.output))

    def write(self) -> list[str]:
        """Writes the model folder, and returns the names of the checkpoints.

        Raises:
          UserError: A checkpoint is missing or cannot be read, or the output cannot be written.
        """
        self.check()
        return export_average(self.run, Path(self.output), which=self.of, count=self.count)


def check_is_run(path: str) -> None:
    """Checks that a folder is a run, if it lies on this machine.

    Raises:
      UserError: It is none.
    """
    if "://" not in path and not Path(path, "config.json").exists():
        raise UserError(
            f"no run at {path} (it has no config.json): name the run folder of a `tt train`"
        )


def export_average(
    run: str, output: Path, *, which: str = "last", count: int | None = None
) -> list[str]:
    """Writes the mean of `count` (None: all) "last" or "best" checkpoints; returns their names.

    Raises:
      UserError: A checkpoint or the run is missing or cannot be read, or the output exists.
    """
    checkpoints = _checkpoints(run)
    names = checkpoints.names(which, count)
    _export(checkpoints, names, output)
    return names


def export_checkpoint(run: str, output: Path, *, name: str) -> str:
    """Writes one checkpoint of a run as a model folder: the "last", the "best", or that of a step.

    Raises:
      UserError: There is no such run or checkpoint, it cannot be read, or the output exists.
    """
    checkpoints = _checkpoints(run)
    if name in ("last", "best"):
        [found] = checkpoints.names(name, 1)
    else:
        kept = [*checkpoints.kept.last, *checkpoints.kept.best]
        named = [each for each in kept if name in (each, each.partition("-")[2])]
        if not named:
            raise UserError(f"{run} has no checkpoint {name!r}: there are {', '.join(kept)}")
        found = named[0]
    _export(checkpoints, [found], output)
    return found


def _checkpoints(run: str) -> Checkpoints:
    from model.training.checkpoints import Checkpoints
    from model.training.run_folder import RunFolder

    folder = RunFolder(run)
    folder.model_config()  # before anything else: the folder may be no run
    return Checkpoints(folder)


def _export(checkpoints: Checkpoints, names: list[str], output: Path) -> None:
    from model.folders.remote import storage_errors
    from model.formats.weights import save_model
    from model.training.reporter import RunLog
    from model.training.run_folder import LOG_FILE
    from model.transformer.transformer import Transformer

    _check_is_free(output)
    run = checkpoints.run
    model = Transformer(run.model_config())
    checkpoints.load_average(model, names)
    steps = max(int(name.partition("-")[2]) for name in names)
    about = dataclasses.replace(
        run.about(),
        steps=steps,
        checkpoints=names,
        token_scores=RunLog(run.inside(LOG_FILE)).token_scores(step=steps),
    )
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        vocabularies = run.vocabularies(folder)
        with storage_errors(str(output)):
            save_model(
                model,
                output,
                vocabulary_folder=folder,
                vocabularies=vocabularies,
                about=about,
                overwrite=False,
            )


def _check_is_free(output: Path) -> None:
    if not is_free(output):
        raise UserError(f"{output} is there already: name another folder with `output`")
