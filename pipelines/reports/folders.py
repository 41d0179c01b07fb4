"""The kind of a folder, and checks of requests that need no TensorFlow."""

from __future__ import annotations

from pathlib import Path

from model.dataset.manifest import MANIFEST_FILE
from model.errors import UserError, require
from model.folders.json_files import read_json
from model.formats.model_folder import (
    WEIGHTS_FILE,
    find_model_folder,
    is_ctranslate2,
    load_config,
)
from pipelines.reports.output import check_output
from pipelines.reports.requests import AttentionRequest, ReportRequest
from pipelines.translate.job_folder import PLAN_PATH

DATASET, RUN, MODEL, TRANSLATED = "dataset", "run", "model", "translated"


def kind_of_folder(path: str | Path) -> str:
    """Return "dataset", "run", "model" or "translated", by the content of a local folder.

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
            f"{path} is an unfinished dataset: run its `tt preprocess` again, which resumes it"
        )
    raise UserError(
        f"{path} holds no dataset, run, model or translation: name a folder that "
        "`tt preprocess`, `tt train` or `tt translate-batch` wrote"
    )


def _is_run(folder: Path) -> bool:
    try:
        return "training" in read_json(folder / "config.json", dict)
    except (OSError, ValueError):
        return False


def check_report(request: ReportRequest) -> str:
    """Check everything that is known before TensorFlow is imported; return the folders' kind.

    Raises:
      UserError: A folder is missing or of another kind, or the output cannot be written.
    """
    kinds = {folder: kind_of_folder(folder) for folder in request.folders}
    if len(set(kinds.values())) > 1:
        each = ", ".join(f"{folder} is a {kind} folder" for folder, kind in kinds.items())
        raise UserError(f"a report is on folders of one kind: {each}. Make one for each")
    kind = kinds[request.folders[0]]
    if len(request.folders) > 1 and kind != RUN:
        raise UserError(
            f"a report compares only runs. Received: {len(request.folders)} {kind} folders. Make a "
            "report for each"
        )
    if request.sentences and (kind != RUN or len(request.folders) > 1):
        raise UserError("`sentences` are for the report of one run: leave them out")
    check_output(request.output, overwrite=request.overwrite)
    return kind


def check_attention(request: AttentionRequest) -> None:
    """Check everything that is known before TensorFlow is imported.

    Raises:
      UserError: There is no model for TensorFlow, it has no such layer or head, or the output
        cannot be written.
    """
    if is_ctranslate2(request.model):
        raise UserError(
            f"{request.model} is a model for CTranslate2, which does not expose attention: name a "
            "run, or a model folder of `tt train`"
        )
    config = load_config(find_model_folder(request.model))
    encoder, decoder = config.depths
    layers = encoder if request.kind == "encoder" else decoder
    for name, value, count in (
        ("layer", request.layer, layers),
        ("head", request.head, config.heads),
    ):
        require(
            value is None or 0 <= value < count,
            f"`{name}` must be 0 to {count - 1} for the {request.kind} attention of "
            f"{request.model}",
            value,
        )
    check_output(request.output, overwrite=request.overwrite)
