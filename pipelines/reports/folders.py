"""Recognize the kind of a folder, check requests without TensorFlow, and write files."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from tt.model.dataset.manifest import MANIFEST_FILE
from tt.model.errors import UserError, require
from tt.model.folders import default_cache, publish
from tt.model.formats.foreign import ARGOS_MODEL, CTRANSLATE2_FILE, METADATA_FILE
from tt.model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    is_ctranslate2,
    load_config,
)
from tt.model.storage.listing import exists, is_folder
from tt.model.storage.paths import is_local
from tt.model.storage.stores import check_buckets
from tt.pipelines.reports.requests import AttentionRequest, ReportRequest
from tt.pipelines.runners.staging import stage_model
from tt.pipelines.translate.job_folder import PLAN_PATH

DATASET, RUN, MODEL, TRANSLATED = "dataset", "run", "model", "translated"


def kind_of_folder(path: str | Path) -> str:
    """Return "dataset", "run", "model" or "translated", depending on a folder's content.

    Raises:
      UserError: There is no such folder, or it is of another kind.
    """
    folder = str(path).rstrip("/") or "/"
    check_buckets([folder])
    if not is_folder(folder):
        problem = "is a file" if exists(folder) else "does not exist"
        raise UserError(
            f"{path} {problem}. Choose the folder of a dataset, run, model or translation"
        )
    if exists(f"{folder}/{PLAN_PATH}"):
        return TRANSLATED
    if exists(f"{folder}/{MANIFEST_FILE}"):
        return DATASET
    argos = (METADATA_FILE, f"{ARGOS_MODEL}/{CTRANSLATE2_FILE}")
    for names in ((WEIGHTS_FILE,), (CTRANSLATE2_FILE,), argos):
        if all(exists(f"{folder}/{name}") for name in names):
            return MODEL
    if exists(f"{folder}/{CONFIG_FILE}") and is_folder(f"{folder}/vocabulary"):
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


def check_attention(request: AttentionRequest) -> Path:
    """Check a request as far as possible without TensorFlow; return the local folder of the model.

    A remote model is copied to the cache.

    Raises:
      UserError: There is no TensorFlow model, the model has no such layer or head, or the output
        cannot be written.
    """
    model = Path(request.model)
    if not is_local(request.model):
        check_buckets([request.model])
        model = stage_model(request.model, cache=default_cache(), report=lambda line: None)
    if is_ctranslate2(model):
        raise UserError(
            f"{request.model} is a CTranslate2 model, which does not expose attention. Choose a "
            "run folder, or a model folder of `tt train`"
        )
    model = find_model_folder(model)
    config = load_config(model)
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
    return model


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
