"""What kind of folder a path names, and its language."""

from __future__ import annotations

import json
from pathlib import Path

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import UserError
from model.formats.model_folder import (
    WEIGHTS_FILE,
    describe_saved_model,
    is_ctranslate2,
    load_about,
)
from pipelines.translate.job_folder import PLAN_PATH

DATASET, RUN, MODEL, TRANSLATED = "dataset", "run", "model", "translated"


def kind_of_folder(path: str | Path) -> str:
    """Returns "dataset", "run", "model" or "translated", by what lies in a local folder.

    Raises:
      UserError: There is no such folder, or it is none of these.
    """
    folder = Path(path)
    if not folder.exists():
        raise UserError(f"there is no folder {path}: check the path")
    if not folder.is_dir():
        raise UserError(
            f"{path} is a file: name the folder of a dataset, run, model or translation"
        )
    if (folder / PLAN_PATH).is_file():
        return TRANSLATED
    if (folder / MANIFEST_FILE).is_file():
        return DATASET
    if (folder / WEIGHTS_FILE).is_file() or is_ctranslate2(folder):
        return MODEL
    if _is_run(folder):
        return RUN
    if (folder / "_work").is_dir():
        raise UserError(
            f"{path} is an unfinished dataset: run its `tt preprocess` again, which goes on from "
            "what is finished"
        )
    if said := describe_saved_model(folder):
        raise UserError(said)
    raise UserError(
        f"{path} holds no dataset, run, model or translation: name a folder that `tt preprocess`, "
        "`tt train` or `tt translate-batch` wrote"
    )


def _is_run(folder: Path) -> bool:
    try:
        values = json.loads((folder / "config.json").read_text("utf-8"))
    except (OSError, ValueError):
        return False
    return isinstance(values, dict) and "training" in values


def source_language(folder: Path, *, kind: str) -> str:
    """Returns the source language of a dataset, a run or a model, or "" if it tells none."""
    try:
        if kind == DATASET:
            return DatasetManifest.load(folder).source_language
        return load_about(folder).data.source_language if kind in (RUN, MODEL) else ""
    except (UserError, OSError):
        return ""
