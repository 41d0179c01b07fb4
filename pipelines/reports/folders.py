"""Recognize the kind of a folder, check requests without TensorFlow, and write files."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from tt.model.dataset.manifest import MANIFEST_FILE
from tt.model.errors import UserError, require
from tt.model.folders import publish
from tt.model.formats.model_folder import (
    WEIGHTS_FILE,
    find_model_folder,
    is_ctranslate2,
    load_config,
)
from tt.pipelines.reports.requests import AttentionRequest, ReportRequest
from tt.pipelines.translate.job_folder import PLAN_PATH

DATASET, RUN, MODEL, TRANSLATED = "dataset", "run", "model", "translated"


def kind_of_folder(path: str | Path) -> str:
    """Return "dataset", "run", "model" or "translated", depending on a local folder's content.

    Raises:
      UserError: There is no such folder, or it is of another kind.
    """
    folder = Path(path)
    if not folder.is_dir():
        problem = "is a file" if folder.exists() else "does not exist"
        raise UserError(
            f"{path} {problem}. Choose the folder of a dataset, run, model or translation"
        )
    if (folder / PLAN_PATH).is_file():
        return TRANSLATED
    if (folder / MANIFEST_FILE).is_file():
        return DATASET
    if (folder / WEIGHTS_FILE).is_file() or is_ctranslate2(folder):
        return MODEL
    if (folder / "config.json").is_file() and (folder / "vocabulary").is_dir():
        return RUN
    raise UserError(
        f"{path} contains no finished dataset, run, model or translation. Choose a folder that "
        "`tt preprocess`, `tt train` or `tt translate-batch` wrote"
    )


def check_report(request: ReportRequest) -> str:
    """Check a request as far as possible without TensorFlow; return the kind of its folders.

    Raises:
      UserError: A folder is missing or of the wrong kind, or the output cannot be written.
    """
    kinds = list(map(kind_of_folder, request.folders))
    if len(kinds) > 1 and set(kinds) != {RUN}:
        raise UserError(
            f"a report covers one folder, or several runs. Received: {', '.join(kinds)}. Write a "
            "separate report for each folder"
        )
    kind = kinds[0]
    if request.sentences and (kind != RUN or len(request.folders) > 1):
        raise UserError("`sentences` needs the report of a single run. Remove the option")
    check_output(request.output, overwrite=request.overwrite)
    return kind


def check_attention(request: AttentionRequest) -> None:
    """Check a request as far as possible without TensorFlow.

    Raises:
      UserError: There is no TensorFlow model, the model has no such layer or head, or the output
        cannot be written.
    """
    if is_ctranslate2(request.model):
        raise UserError(
            f"{request.model} is a CTranslate2 model, which does not expose attention. Choose a "
            "run folder, or a model folder of `tt train`"
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


def check_output(path: str, *, overwrite: bool) -> None:
    """Check that a file can be written, in a folder that exists.

    Raises:
      UserError: The file exists or is a folder, or its folder does not exist or is not writable.
    """
    if "://" in path:
        raise UserError(f"`output` must be a file on this machine. Received: {path}")
    output = Path(path)
    if output.is_dir():
        raise UserError(f"{output} is a folder. Choose a file as `output`")
    if output.exists() and not overwrite:
        raise UserError(f"{output} already exists. Choose another `output`, or set `overwrite`")
    if not (output.parent.is_dir() and os.access(output.parent, os.W_OK)):
        raise UserError(f"there is no writable folder {output.parent}. Choose another `output`")


def write_whole_file(output: Path, content: bytes) -> None:
    """Write a file under a temporary name, then rename it.

    Raises:
      UserError: The file cannot be written.
    """
    temporary = output.with_name(f".tt.{uuid.uuid4().hex}.tmp")
    try:
        temporary.write_bytes(content)
        publish(temporary, output)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror or error
        raise UserError(
            f"{output} cannot be written ({reason}). Free some space, or check your permissions "
            "for its folder"
        ) from error
