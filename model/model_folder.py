"""What lies in a folder that holds a model; nothing here needs TensorFlow."""

from __future__ import annotations

import hashlib
from pathlib import Path

from model.errors import UserError
from model.vocabulary import load_vocabularies

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
CTRANSLATE2_FILE = "model.bin"  # of CTranslate2: its weights, beside its own config.json

_CHUNK_BYTES = 8 << 20


def find_model_folder(folder: str | Path) -> Path:
    """Returns the exported model folder that a model folder or a run folder names.

    Raises:
      UserError: Neither the folder nor its `model/` holds an exported model.
    """
    given = Path(folder)
    for candidate in (given, given / "model"):
        if (candidate / CONFIG_FILE).is_file() and (candidate / WEIGHTS_FILE).is_file():
            return candidate
    if given.is_file():
        raise UserError(
            f"the model must be a folder; {folder} is a file: name the run folder of a `tt train`, "
            "or the model/ in it"
        )
    if not given.is_dir():
        raise UserError(f"no model folder at {folder}: train one with `tt train`")
    if is_ctranslate2(given):
        raise UserError(
            f"{folder} was exported for CTranslate2: translate with --engine ctranslate2, or name "
            "the folder that it was exported from"
        )
    raise UserError(
        f"{folder} holds no exported model ({CONFIG_FILE} and {WEIGHTS_FILE}, there or in "
        "model/): let its `tt train` finish, or name another folder"
    )


def is_ctranslate2(folder: str | Path) -> bool:
    """Says whether a folder was written by `tt export --format ctranslate2`."""
    return (Path(folder) / CTRANSLATE2_FILE).is_file()


def model_files(folder: Path) -> list[str]:
    """Returns the names of all files that the translations of a model folder depend on.

    Args:
      folder: What `find_model_folder` returned, or an export for CTranslate2.

    Raises:
      UserError: The vocabularies cannot be read.
    """
    if is_ctranslate2(folder):
        tokens = sorted(path.name for path in folder.glob("*_vocabulary.json"))
        weights = [CTRANSLATE2_FILE, *tokens]
    else:
        weights = [WEIGHTS_FILE]
    return [CONFIG_FILE, *weights, *load_vocabularies(folder).files]


def model_fingerprint(folder: str | Path) -> str:
    """Returns a digest of all files that the translations of a model depend on.

    Args:
      folder: A model folder, the run folder that it lies in, or an export for CTranslate2.
    """
    path = Path(folder) if is_ctranslate2(folder) else find_model_folder(folder)
    digest = hashlib.blake2b(digest_size=16)
    for name in model_files(path):
        with (path / name).open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    return digest.hexdigest()
