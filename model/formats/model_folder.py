"""The files of a model folder, their digests, and the model card.

The folder's `config.json` contains the architecture, the digests of all other files and the model
card (`tt.model.formats.model_card`). In an export, `config.json` belongs to the other program, so
`about.json` contains the digests and the model card. Parameters of type `str | Path` accept a model
folder, a run folder with a `model/`, an export for CTranslate2, or a foreign model
(`tt.model.formats.foreign`). This module does not import TensorFlow.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tt.model.errors import UserError
from tt.model.folders import is_free
from tt.model.formats.foreign import (
    ABOUT_FILE,
    CTRANSLATE2_FILE,
    is_foreign,
    open_foreign,
    token_files,
    weights_folder,
)
from tt.model.formats.model_card import About
from tt.model.json_files import parse_fields, parse_json, read_json
from tt.model.long_work import long_work
from tt.model.storage.files import read_bytes
from tt.model.text.vocabulary import INCOMPLETE, load_vocabularies
from tt.model.transformer.config import TransformerConfig

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
_MODEL_FILES = (WEIGHTS_FILE, "saved_model.pb", CTRANSLATE2_FILE)
_ABOUT, _DIGESTS = "about", "digests"
_CHUNK_BYTES = 8 << 20


def find_model_folder(folder: str | Path) -> Path:
    """Return the model folder: a folder itself, or the `model/` in a run folder.

    Raises:
      UserError: Neither the folder nor its `model/` contains an exported model.
    """
    given = Path(folder)
    for candidate in (given, given / "model"):
        if (candidate / CONFIG_FILE).is_file() and (candidate / WEIGHTS_FILE).is_file():
            return candidate
    if not given.exists():
        raise UserError(
            f"no model folder at {folder}. Check `model`, or train a model with `tt train`"
        )
    if is_ctranslate2(given):
        raise UserError(
            f"{folder} is a CTranslate2 model, which can only translate. Set "
            "`engine=ctranslate2`, or choose the model folder that it was exported from"
        )
    raise UserError(
        f"{folder} contains no exported model: {CONFIG_FILE} and {WEIGHTS_FILE} are missing there "
        "and in its model/. Choose the run folder of a finished `tt train`, or its best_model/ "
        "during training. For models of other programs, see `tt import --help`"
    )


def check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    """Check that an export or import may be written to a folder.

    Args:
      output: The folder to write.
      model: The model to export or import.
      overwrite: Whether an earlier export or import may be replaced.

    Raises:
      UserError: The folder contains something else, the model itself, or an earlier export or
        import that may not be replaced.
    """
    if is_free(output):
        return
    output = output.resolve()
    if not any((output / name).is_file() for name in _MODEL_FILES):
        raise UserError(
            f"{output} exists and is not an exported or imported model. Choose another folder"
        )
    if output in (model.resolve(), *model.resolve().parents):
        raise UserError(f"{output} contains the model itself. Choose another folder")
    if not overwrite:
        raise UserError(f"{output} already exists. Choose another folder, or set `overwrite`")


def is_ctranslate2(folder: str | Path) -> bool:
    """Return whether a folder contains a CTranslate2 model, exported by `tt` or foreign."""
    return weights_folder(folder) is not None


def model_files(folder: Path) -> list[str]:
    """Return the names of the files on which the translations of a model or an export depend.

    Raises:
      UserError: The vocabularies cannot be read.
    """
    weights = [WEIGHTS_FILE]
    if is_foreign(folder):
        return open_foreign(folder).files
    if is_ctranslate2(folder):
        about = [ABOUT_FILE] if (folder / ABOUT_FILE).is_file() else []
        weights = [CTRANSLATE2_FILE, *token_files(folder), *about]
    return [CONFIG_FILE, *weights, *load_vocabularies(folder).files]


def model_fingerprint(folder: str | Path) -> str:
    """Return a digest of everything on which the translations of a model depend.

    The digest does not include the model card, so a copy with another model card has the same
    fingerprint. The function also compares each file with its digest.

    Raises:
      UserError: A file has changed since the model was written.
    """
    path = _find(folder)
    fingerprint = hashlib.blake2b(digest_size=16)
    _read_files(path, fingerprint)
    if is_foreign(path):
        fingerprint.update(_as_json(dataclasses.asdict(open_foreign(path).tokenization)))
    return fingerprint.hexdigest()


def check_files(folder: Path) -> None:
    """Compare the files of a model or an export with their digests, if it has digests.

    Raises:
      UserError: A file has changed.
    """
    if _read_digests(folder):
        _read_files(folder, None)


def _read_files(folder: Path, fingerprint: Any) -> None:
    """Compare each file with its digest, and update a hash with the content of all files.

    Raises:
      UserError: A file has changed.
    """
    names, identity_file = model_files(folder), _identity_file(folder)
    expected = _read_digests(folder)
    files = [folder / name for name in names if name != identity_file]
    total = sum(file.stat().st_size for file in files if file.is_file())
    with long_work("verifying the model's checksums", total=total) as work:
        for name in names:
            if name == identity_file:
                if fingerprint and name == CONFIG_FILE:
                    fingerprint.update(_as_json(_fields_of_architecture(_read_identity(folder))))
                continue
            own = hashlib.blake2b(digest_size=16)
            for chunk in _chunks(folder / name):
                own.update(chunk)
                if fingerprint:
                    fingerprint.update(chunk)
                work.add(len(chunk))
            if expected and expected.get(name) != own.hexdigest():
                raise UserError(
                    f"{folder / name} is damaged or belongs to another model: it has changed since "
                    f"{identity_file} was written. Copy the complete folder again from its source"
                )


def load_about(folder: str | Path) -> About:
    """Return the model card of a model.

    Raises:
      UserError: The model card cannot be read.
    """
    path = _find(folder)
    if is_foreign(path) and not (path / ABOUT_FILE).is_file():
        return About(data=open_foreign(path).data)
    file = path / _identity_file(path)
    has_identity = file.name == CONFIG_FILE or file.is_file()  # older exports lack the file
    return read_about(str(file)) if has_identity else About()


def read_about(path: str) -> About:
    """Return the model card in the file `config.json` or `about.json`, on any storage.

    Raises:
      UserError: The model card cannot be read.
    """
    try:
        return parse_fields(About, parse_json(read_bytes(path), dict).get(_ABOUT, {}))
    except (ValueError, TypeError) as error:
        raise _unreadable(path, error) from error


def load_config(folder: Path) -> TransformerConfig:
    """Return the architecture of the model in a model folder.

    Raises:
      UserError: The configuration cannot be read.
    """
    values = _fields_of_architecture(_read_identity(folder))
    try:
        return parse_fields(TransformerConfig, values, has_others=False)
    except TypeError as error:
        raise _unreadable(folder / CONFIG_FILE, error) from error


def write_config(folder: Path, config: TransformerConfig, about: About) -> None:
    """Write the configuration of a model folder, with the model card and digests of all files."""
    names = sorted(path.name for path in folder.iterdir() if path.name != CONFIG_FILE)
    values = {**config.to_json(), **_identity(folder, names, about)}
    (folder / CONFIG_FILE).write_bytes(_as_json(values))


def write_about(folder: Path, about: About, *, within: str = "") -> None:
    """Write the `about.json` of an export: the model card, and the digests of all files.

    Args:
      folder: The folder of the export.
      about: The model card.
      within: Subfolder for `about.json`. File names in it are relative to `folder`.
    """
    found = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in found)
    (folder / within / ABOUT_FILE).write_bytes(_as_json(_identity(folder, names, about)))


def digest_path(path: Path) -> str:
    """Return the digest of a file, as `tt.model.dataset.manifest.digest_file` computes it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except FileNotFoundError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}). {INCOMPLETE}") from error


def _find(folder: str | Path) -> Path:
    return Path(folder) if is_ctranslate2(folder) else find_model_folder(folder)


def _identity_file(folder: Path) -> str:
    """Return the name of the file that contains the digests of the other files."""
    return ABOUT_FILE if is_ctranslate2(folder) else CONFIG_FILE


def _identity(folder: Path, names: list[str], about: About) -> dict[str, Any]:
    digests = {name: digest_path(folder / name) for name in names}
    return {_ABOUT: dataclasses.asdict(about), _DIGESTS: digests}


def _read_identity(folder: Path) -> dict[str, Any]:
    path = folder / _identity_file(folder)
    if path.name == ABOUT_FILE and not path.is_file():
        return {}  # older versions did not write the file
    try:
        return read_json(path, dict)
    except ValueError as error:
        raise _unreadable(path, error) from error


def _fields_of_architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (_ABOUT, _DIGESTS)}


def _read_digests(folder: Path) -> Mapping[str, str]:
    digests = _read_identity(folder).get(_DIGESTS, {})
    if not isinstance(digests, dict):
        raise _unreadable(folder / _identity_file(folder), TypeError(_DIGESTS))
    return digests


def _unreadable(path: str | Path, error: Exception) -> UserError:
    return UserError(f"{path} is not the configuration of a model ({error}). {INCOMPLETE}")


def _as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
