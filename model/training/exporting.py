"""A run or a model folder to what other programs load; its functions import TensorFlow."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path

from model.errors import UserError, one_of, require_one_of
from model.formats.model_folder import find_model_folder
from model.training.averaging import check_is_run, export_checkpoint
from model.transformer.search_options import Decoding

FORMATS = ("model", "saved-model", "ctranslate2")


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
        if self.search is not None and self.format != "saved-model":
            default = dataclasses.asdict(Decoding())
            asked = [k for k, v in dataclasses.asdict(self.search).items() if v != default[k]]
            raise UserError(
                f"`{asked[0] if asked else 'search'}` belongs to `format=saved-model`: of other "
                "formats, the search is chosen when they translate"
            )

    def check(self) -> None:
        """Checks what can be known before TensorFlow is imported.

        Raises:
          UserError: There is no run or finished model.
        """
        if self.checkpoint is None:
            find_model_folder(Path(self.model))
        else:
            check_is_run(self.model)

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
            export_checkpoint(self.model, folder, name=self.checkpoint)
            self._export(folder)

    def _export(self, source: Path) -> None:
        from model.formats.exports import copy_model, export_ctranslate2, export_saved_model

        output, overwrite = Path(self.output), self.overwrite
        if self.format == "saved-model":
            decoding = self.search or Decoding()
            export_saved_model(source, output, decoding=decoding, overwrite=overwrite)
        elif self.format == "ctranslate2":
            export_ctranslate2(source, output, overwrite=overwrite)
        else:
            copy_model(source, output, overwrite=overwrite)
