"""The summary of a folder of any kind, and its sections."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from model.inspection.blocks import Section
from model.inspection.dataset import dataset_sections, summarize_dataset
from model.inspection.model import model_sections, summarize_model
from model.inspection.run import run_sections, summarize_run
from pipelines.reports.folders import DATASET, MODEL, RUN
from pipelines.reports.translated import summarize_translated, translated_sections


class FolderSummary(NamedTuple):
    """A summary as a dataclass, and as sections."""

    found: Any
    sections: list[Section]


def summarize_folder(kind: str, folder: str | Path, *, examples: int = 3) -> FolderSummary:
    """Summarize a folder on this machine.

    Args:
      kind: The kind of the folder, see `pipelines.reports.folders.kind_of_folder`.
      folder: The folder.
      examples: Examples of each kind: of pairs, reasons, flags, outliers.

    Raises:
      UserError: A part of the folder is damaged.
    """
    found: Any
    sections: Callable[[Any], list[Section]]
    if kind == RUN:
        found, sections = summarize_run(folder), run_sections
    elif kind == MODEL:
        found, sections = summarize_model(folder), model_sections
    elif kind == DATASET:
        found, sections = summarize_dataset(folder, examples=examples), dataset_sections
    else:
        found, sections = summarize_translated(folder, examples=examples), translated_sections
    return FolderSummary(found, sections(found))
