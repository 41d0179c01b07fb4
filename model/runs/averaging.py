"""Checkpoints of a run to an exported model: one of them, or the mean of several.

The mean of the last checkpoints of a run translates better than any of them (Vaswani et al. 2017,
section 6.1, average the last 5 to 20).
"""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from model.errors import UserError
from model.folders.remote import storage_errors
from model.folders.whole import is_free
from model.formats.weights import save_model
from model.runs.checkpoints import Checkpoints
from model.runs.run_folder import RunFolder
from model.transformer.transformer import Transformer


def export_average(
    run: str, output: Path, *, which: str = "last", count: int | None = None
) -> list[str]:
    """Writes the mean of a run's checkpoints as a model folder.

    Args:
      run: The run folder.
      output: The model folder.
      which: "last" or "best".
      count: How many, the newest or the best; None takes all that are kept.

    Returns:
      The names of the checkpoints.

    Raises:
      UserError: There is no such run, it has not so many checkpoints, one cannot be read, or the
        output exists.
    """
    folder = RunFolder(run)
    config = folder.model_config()
    checkpoints = Checkpoints(folder)
    names = checkpoints.names(which, count)
    _export(folder, checkpoints, names, output, model=Transformer(config))
    return names


def export_checkpoint(run: str, output: Path, *, name: str) -> str:
    """Writes one checkpoint of a run as a model folder.

    Args:
      run: The run folder.
      output: The model folder.
      name: "last", "best", or the step of a checkpoint that is kept.

    Returns:
      The name of the checkpoint.

    Raises:
      UserError: There is no such run or checkpoint, it cannot be read, or the output exists.
    """
    folder = RunFolder(run)
    config = folder.model_config()
    checkpoints = Checkpoints(folder)
    if name in ("last", "best"):
        [found] = checkpoints.names(name, 1)
    else:
        kept = [*checkpoints.kept.last, *checkpoints.kept.best]
        named = [each for each in kept if each.partition("-")[2] == name]
        if not named:
            raise UserError(f"{run} has no checkpoint {name!r}: there are {', '.join(kept)}")
        found = named[0]
    _export(folder, checkpoints, [found], output, model=Transformer(config))
    return found


def _export(
    run: RunFolder, checkpoints: Checkpoints, names: list[str], output: Path, *, model: Transformer
) -> None:
    if not is_free(output):
        raise UserError(f"{output} is there already: name another folder with `output`")
    checkpoints.load_average(model, names)
    steps = max(int(name.partition("-")[2]) for name in names)
    about = dataclasses.replace(run.about(), steps=steps, checkpoints=names)
    with tempfile.TemporaryDirectory() as scratch:
        vocabularies = run.vocabularies(Path(scratch))
        with storage_errors(str(output)):
            save_model(
                model,
                output,
                vocabulary_folder=Path(scratch),
                vocabularies=vocabularies,
                about=about,
            )
