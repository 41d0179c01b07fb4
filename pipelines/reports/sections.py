"""Describe a folder of any kind."""

from __future__ import annotations

from pathlib import Path

from tt.model.formats.foreign import CTRANSLATE2_FILE, is_foreign
from tt.model.formats.model_folder import WEIGHTS_FILE
from tt.model.inspection.blocks import Section
from tt.model.inspection.dataset import dataset_sections
from tt.model.inspection.model import model_sections
from tt.model.storage.files import local_copy
from tt.model.storage.paths import is_local
from tt.pipelines.reports.folders import DATASET, MODEL, RUN
from tt.pipelines.reports.translated import translated_sections


def folder_sections(kind: str, folder: str | Path, *, examples: int = 3) -> list[Section]:
    """Describe a folder.

    Args:
      kind: The kind of the folder; see `tt.pipelines.reports.folders.kind_of_folder`.
      folder: The folder, on any storage.
      examples: Number of examples of each kind, such as pairs, reasons and flags.

    Raises:
      UserError: A part of the folder is damaged.
    """
    folder = str(folder).rstrip("/") or "/"
    if kind == RUN:
        from tt.model.inspection.run import RunSummary, run_sections  # imports TensorFlow

        return run_sections(RunSummary(folder))
    if kind == MODEL:
        return _model_sections(folder)
    if kind == DATASET:
        return dataset_sections(folder, examples=examples)
    return translated_sections(folder, examples=examples)


def _model_sections(folder: str) -> list[Section]:
    name = "" if is_local(folder) else folder
    with local_copy(folder, without=(WEIGHTS_FILE, CTRANSLATE2_FILE)) as copied:
        if not (name and is_foreign(copied)):
            return model_sections(copied, name=name)
    with local_copy(folder) as copied:
        return model_sections(copied, name=name)
