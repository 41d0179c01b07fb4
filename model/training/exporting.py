"""Export a run: one checkpoint, the mean of several, or a model for other programs.

The mean of the last checkpoints of a run translates better than any of them (Vaswani et al. 2017,
section 6.1, average the last 5 to 20). The functions here import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tt.model.errors import UserError, one_of, require, require_one_of
from tt.model.folders import is_free
from tt.model.formats.model_folder import find_model_folder
from tt.model.transformer.search_options import Decoding

if TYPE_CHECKING:
    from tt.model.training.checkpoints import Checkpoints

KEPT = ("last", "best")  # checkpoints
FORMATS = ("model", "saved-model", "ctranslate2")


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
        _check_is_run(self.run)
        _check_is_free(Path(self.output))

    def write(self) -> list[str]:
        """Writes the model folder, and returns the names of the checkpoints.

        Raises:
          UserError: A checkpoint is missing or cannot be read, or the output cannot be written.
        """
        self.check()
        return export_checkpoints(
            self.run, Path(self.output), find=lambda kept: kept.names(self.of, self.count)
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A trained model to write to a folder for other programs.

    >>> ExportRequest(model="run", output="exported").write()  # doctest: +SKIP

    Attributes:
      model: Run folder, or an exported model folder.
      output: Folder to write.
      format: "model" (what tt itself loads), "saved-model" (TensorFlow, search included) or
        "ctranslate2".
      checkpoint: Checkpoint of a run folder: "last", "best", or the step of one that is kept. By
        default the run's exported model.
      overwrite: Replace an earlier export.
      search: Search of a saved-model. By default that of `tt translate`.
    """

    model: str
    output: str
    format: str = one_of(FORMATS, default="model")
    checkpoint: str | None = None
    overwrite: bool = False
    search: Decoding | None = None

    def __post_init__(self) -> None:
        require_one_of("`format`", self.format, FORMATS)
        require(
            self.search is None or self.format == "saved-model",
            "options of the search need `format=saved-model`, because all other formats search "
            "when they translate",
            self.format,
        )

    def check(self) -> None:
        """Checks what can be known before TensorFlow is imported.

        Raises:
          UserError: There is no run or finished model.
        """
        if self.checkpoint is None:
            find_model_folder(Path(self.model))
        else:
            _check_is_run(self.model)

    def write(self) -> None:
        """Writes the folder.

        Raises:
          UserError: The model or checkpoint is missing or damaged, or the output cannot be written.
        """
        self.check()
        if self.checkpoint is None:
            self._export(Path(self.model))
            return
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch) / "model"
            export_checkpoints(self.model, folder, find=lambda kept: [kept.find(self.checkpoint)])
            self._export(folder)

    def _export(self, source: Path) -> None:
        from tt.model.formats.exports import copy_model, export_ctranslate2, export_saved_model

        output, overwrite = Path(self.output), self.overwrite
        if self.format == "saved-model":
            decoding = self.search or Decoding()
            export_saved_model(source, output, decoding=decoding, overwrite=overwrite)
        elif self.format == "ctranslate2":
            export_ctranslate2(source, output, overwrite=overwrite)
        else:
            copy_model(source, output, overwrite=overwrite)


def export_checkpoints(
    run: str, output: Path, *, find: Callable[[Checkpoints], list[str]]
) -> list[str]:
    """Write the mean of some checkpoints of a run as a model folder; return their names.

    `find` returns their names.

    Raises:
      UserError: A checkpoint or the run is missing or cannot be read, or the output exists.
    """
    from tt.model.formats.weights import save_model
    from tt.model.remote_files import storage_errors
    from tt.model.training.checkpoints import Checkpoints
    from tt.model.training.reports import RunLog
    from tt.model.training.run_folder import LOG_FILE, RunFolder
    from tt.model.transformer.transformer import Transformer

    folder = RunFolder(run)
    model = Transformer(folder.model_config())
    checkpoints = Checkpoints(folder)
    names = find(checkpoints)
    _check_is_free(output)
    checkpoints.load_average(model, names)
    steps = max(int(name.partition("-")[2]) for name in names)
    about = dataclasses.replace(
        folder.about(),
        steps=steps,
        checkpoints=names,
        token_scores=RunLog(folder.inside(LOG_FILE)).token_scores(step=steps),
    )
    with tempfile.TemporaryDirectory() as scratch, storage_errors(str(output)):
        save_model(
            model,
            output,
            vocabulary_folder=Path(scratch),
            vocabularies=folder.vocabularies(Path(scratch)),
            about=about,
            overwrite=False,
        )
    return names


def _check_is_run(path: str) -> None:
    if "://" not in path and not Path(path, "config.json").exists():
        raise UserError(
            f"no run at {path} (it has no config.json): name the run folder of a `tt train`"
        )


def _check_is_free(output: Path) -> None:
    if not is_free(output):
        raise UserError(f"{output} exists already: name another folder with `output`")
