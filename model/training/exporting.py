"""Export a checkpoint, the mean of several checkpoints, or a model for other programs.

The mean of the last checkpoints usually translates better than the last one: section 6.1 of the
paper averages the last 5 to 20. The functions import TensorFlow only when they need it.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from tt.model.errors import UserError, checked, one_of, require, require_one_of
from tt.model.folders import storage_errors
from tt.model.formats.model_folder import check_output, find_model_folder
from tt.model.storage import listing
from tt.model.storage.stores import check_buckets
from tt.model.transformer.search_options import Decoding

if TYPE_CHECKING:
    from tt.model.training.checkpoints import Checkpoints

KEPT = ("last", "best")  # kinds of checkpoints
FORMATS = ("model", "saved-model", "ctranslate2", "huggingface")


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class AverageRequest:
    """A request to average checkpoints of a run into a model folder.

    Attributes:
      run: Average checkpoints of this run folder, from `tt train`.
      output: Write the model to this folder.
      of: Average checkpoints of this kind.
      count: Average only the N newest or N best checkpoints. By default, all of this kind.
      overwrite: Replace an earlier model in the output folder.
    """

    run: str
    output: str
    of: str = one_of(KEPT, default="last")
    count: int | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        require_one_of("`of`", self.of, KEPT)
        require(self.count is None or self.count >= 1, "`count` must be at least 1", self.count)

    def check(self) -> None:
        """Check the run and the output without importing TensorFlow.

        Raises:
          UserError: The run folder is not a run, or the output exists.
        """
        _check_is_run(self.run)
        check_output(Path(self.output), model=Path(self.run), overwrite=self.overwrite)

    def write(self) -> list[str]:
        """Write the model folder, and return the names of the averaged checkpoints.

        Raises:
          UserError: A checkpoint is missing or cannot be read, or the output cannot be written.
        """
        self.check()
        return export_checkpoints(
            self.run,
            Path(self.output),
            find=lambda kept: kept.names(self.of, self.count),
            overwrite=self.overwrite,
        )


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ExportRequest:
    """A request to write a trained model to a folder for other programs.

    >>> ExportRequest(model="run", output="exported").write()  # doctest: +SKIP

    Attributes:
      model: Export this run folder or model folder.
      output: Write the exported model to this folder.
      format: Export the model in this format.

        "model" is the format that `tt` loads. "saved-model" is TensorFlow's format and contains the
        search. "ctranslate2" is the format of CTranslate2. "huggingface" is the layout of
        MarianMTModel in Transformers.
      checkpoint: Export this checkpoint of the run: "last", "best" or a step. By default, the
        finished model.
      overwrite: Replace an earlier export in the output folder.
      search: Search options of a saved-model. By default, the same as in `tt translate`.
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
            "search options need `format=saved-model`, because no other format contains a search",
            self.format,
        )

    def check(self) -> None:
        """Check the model or run without importing TensorFlow.

        Raises:
          UserError: The folder contains no run or no finished model.
        """
        if self.checkpoint is None:
            find_model_folder(Path(self.model))
        else:
            _check_is_run(self.model)

    def write(self) -> None:
        """Write the folder.

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
        from tt.model.formats.huggingface_export import export_huggingface

        output, overwrite = Path(self.output), self.overwrite
        if self.format == "saved-model":
            decoding = self.search or Decoding()
            export_saved_model(source, output, decoding=decoding, overwrite=overwrite)
        elif self.format == "ctranslate2":
            export_ctranslate2(source, output, overwrite=overwrite)
        elif self.format == "huggingface":
            export_huggingface(source, output, overwrite=overwrite)
        else:
            copy_model(source, output, overwrite=overwrite)


def export_checkpoints(
    run: str,
    output: Path,
    *,
    find: Callable[[Checkpoints], list[str]],
    overwrite: bool = False,
) -> list[str]:
    """Write the mean of some checkpoints as a model folder.

    Args:
      run: Run folder.
      output: Model folder to write.
      find: Returns the names of the checkpoints to average.
      overwrite: Whether an earlier model may be replaced.

    Returns:
      The names of the checkpoints.

    Raises:
      UserError: The run or a checkpoint is missing or cannot be read, or the output exists.
    """
    from tt.model.formats.weights import save_model
    from tt.model.training.checkpoints import Checkpoints
    from tt.model.training.reports import RunLog
    from tt.model.training.run_folder import RunFolder
    from tt.model.transformer.transformer import Transformer

    folder = RunFolder(run)
    model = Transformer(folder.model_config())
    checkpoints = Checkpoints(folder)
    names = find(checkpoints)
    check_output(output, model=Path(run), overwrite=overwrite)
    checkpoints.load_average(model, names)
    steps = max(int(name.partition("-")[2]) for name in names)
    about = dataclasses.replace(
        folder.about(),
        steps=steps,
        checkpoints=names,
        token_scores=RunLog(folder).token_scores(step=steps),
    )
    with tempfile.TemporaryDirectory() as scratch, storage_errors(str(output)):
        save_model(
            model,
            output,
            vocabulary_folder=Path(scratch),
            vocabularies=folder.vocabularies(Path(scratch)),
            about=about,
            overwrite=overwrite,
        )
    return names


def _check_is_run(path: str) -> None:
    check_buckets([path])
    if not listing.exists(f"{path.rstrip('/')}/config.json"):
        raise UserError(
            f"{path} is not a run folder, because it has no config.json. Choose a run folder that "
            "`tt train` wrote"
        )
