"""What lies in a folder that holds a model, and how it is known that it is all the model's.

Its `config.json` has the digests of all other files and the model card (`model.formats.model_card`)
beside the architecture; in exports, whose `config.json` is that of other programs, `about.json` has
them. What takes `str | Path` takes a model folder, the run folder that it lies in, an export for
CTranslate2, or a foreign model (`model.formats.foreign`). Nothing here needs TensorFlow.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from model.dataset.manifest import MANIFEST_FILE
from model.errors import UserError
from model.folders.access import no_access
from model.folders.json_files import check_fields, read_json
from model.folders.long_work import Work, long_work
from model.formats.ctranslate2_files import CTRANSLATE2_FILE, token_files
from model.formats.foreign import describe_other_tool, is_foreign, open_foreign, weights_folder
from model.formats.model_card import About
from model.text.spans import describe_bad_pattern
from model.text.vocabulary import INCOMPLETE, VOCABULARY_FILE, VocabularyPair, load_vocabularies
from model.transformer.config import TransformerConfig

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.weights.h5"
ABOUT_FILE = "about.json"
SAVED_MODEL_FILE = "saved_model.pb"
_ABOUT, _DIGESTS = "about", "digests"
_CHUNK_BYTES = 8 << 20


def find_model_folder(folder: str | Path) -> Path:
    """Returns the model folder that a model folder or a run folder names.

    Raises:
      UserError: Neither the folder nor its `model/` holds an exported model.
    """
    given = Path(folder)
    for candidate in (given, given / "model"):
        if (candidate / CONFIG_FILE).is_file() and (candidate / WEIGHTS_FILE).is_file():
            return candidate
    if said := describe_other_tool(given):
        raise UserError(said)
    if given.is_file():
        raise UserError(
            f"the model must be a folder; {folder} is a file: name the run folder of a `tt train`, "
            "or the model/ in it"
        )
    if not given.is_dir():
        raise UserError(f"no model folder at {folder}: train one with `tt train`")
    if is_foreign(given):
        raise UserError(
            f"{folder} is a model for CTranslate2, of another program: it translates with "
            "`engine=ctranslate2`, and cannot be trained, exported or drawn. What it translates "
            "can train a model (docs/train.md#distillation), and a Marian .npz that it was made "
            "from can be imported (`tt import marian`)"
        )
    if is_ctranslate2(given):
        raise UserError(
            f"{folder} was exported for CTranslate2: translate with `engine=ctranslate2`, or name "
            "the folder that it was exported from"
        )
    if said := describe_saved_model(given):
        raise UserError(said)
    raise UserError(
        f"{folder} holds no exported model ({CONFIG_FILE} and {WEIGHTS_FILE}, there or in "
        f"model/): {_remedy(given)}"
    )


def _remedy(folder: Path) -> str:
    """Says what to do where a folder holds no exported model."""
    best = folder / "best_model"  # of a run that is under way
    if (folder / MANIFEST_FILE).is_file():
        return "it is a dataset; name the run folder of a `tt train`"
    if (best / WEIGHTS_FILE).is_file():
        return f"let its `tt train` finish, or name {best}, its best one so far"
    return "let its `tt train` finish, or name another folder"


def describe_saved_model(folder: Path) -> str | None:
    """Says of a folder with an export for TensorFlow that it is one; of any other, nothing."""
    if not (folder / SAVED_MODEL_FILE).is_file():
        return None
    return (
        f"{folder} is a SavedModel, an export for TensorFlow's own programs, which tt does not "
        "load: name the run, or the model folder, that it was exported from"
    )


def is_ctranslate2(folder: str | Path) -> bool:
    """Says whether a folder holds a model for CTranslate2: an export of ours, or a foreign one."""
    return weights_folder(folder) is not None


def model_files(folder: Path) -> list[str]:
    """Returns the names of all files that the translations of a model (or an export) depend on.

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
    """Returns a digest of all that the translations of a model depend on.

    Of its configuration that is the architecture: a copy that says more of what the model is
    translates the same. As it reads the files, it compares their own digests, too.

    Raises:
      UserError: A file is not the one that the model was written with.
    """
    path = _find(folder)
    expected = _read_digests(path)
    digest = hashlib.blake2b(digest_size=16)
    names = model_files(path)
    with _digesting(path, names) as work:
        for name in names:
            if name == _identity_file(path):
                digest.update(_architecture(path))
                continue
            own = hashlib.blake2b(digest_size=16)
            for chunk in _chunks(path / name):
                digest.update(chunk)
                if expected:
                    own.update(chunk)
                work.add(len(chunk))
            _compare(path, name, own.hexdigest(), expected)
    if is_foreign(path):
        digest.update(_as_json(dataclasses.asdict(open_foreign(path).tokenization)))
    return digest.hexdigest()


def identity_digest(folder: Path) -> str:
    """Returns a digest of the file that says what a model is, most of which has no fingerprint."""
    path = folder / _identity_file(folder)
    return digest_path(path) if path.is_file() else ""


def check_files(folder: Path) -> None:
    """Checks that the files of a model (or an export) are those that it was written with, if known.

    Raises:
      UserError: One is not.
    """
    if expected := _read_digests(folder):
        names = [name for name in model_files(folder) if name != _identity_file(folder)]
        with _digesting(folder, names) as work:
            for name in names:
                _compare(folder, name, digest_path(folder / name, work=work), expected)


@contextlib.contextmanager
def checked_meanwhile(folder: Path) -> Iterator[None]:
    """Does what `check_files` does while the model is loaded, which takes longer.

    Raises:
      UserError: A file is not the model's, whatever else was raised.
    """
    with ThreadPoolExecutor(1, thread_name_prefix="digests") as pool:
        checked = pool.submit(check_files, folder)
        try:
            yield
        finally:
            checked.result()


def describe_missing_digests(folder: str | Path, *, name: str) -> list[str]:
    """Returns a line on a model, by the user's name for it, without digests; else none."""
    path = _find(folder)
    if _read_digests(path) or is_foreign(path):
        return []
    remedy = "`tt export` writes a copy that has them"
    if is_ctranslate2(path):
        remedy = "export it again from the model folder that it was made of"
    return [
        f"{name} was written before models had digests of their files, so that a file that was "
        f"damaged or exchanged since goes unnoticed: {remedy}"
    ]


def load_about(folder: str | Path) -> About:
    """Return the model card of a model; that of a model of an old tt is empty.

    Raises:
      UserError: It cannot be read, or it has a pattern that cannot be used.
    """
    path = _find(folder)
    if is_foreign(path) and not (path / ABOUT_FILE).is_file():
        return About(data=open_foreign(path).data)
    file = path / _identity_file(path)
    try:
        about = About.from_json(_read_identity(path).get(_ABOUT, {}))
    except TypeError as error:
        raise _unreadable(file, error) from error
    for pattern in about.data.protect_regex:
        if problem := describe_bad_pattern(pattern):
            raise UserError(
                f"the model of {file} protects {pattern!r}, which {problem}: remove this pattern "
                "from `protect_regex` in that file, or use another model"
            )
    return about


def load_config(folder: Path) -> TransformerConfig:
    """Returns the architecture of the model in a model folder.

    Raises:
      UserError: It cannot be read.
    """
    values = _fields_of_architecture(_read_identity(folder))
    try:
        check_fields(TransformerConfig, values)
        return TransformerConfig(**values)
    except TypeError as error:
        raise _unreadable(folder / CONFIG_FILE, error) from error


def write_config(folder: Path, config: TransformerConfig, about: About) -> None:
    """Writes the configuration of a model folder, with the digests of the files that lie there."""
    names = sorted(path.name for path in folder.iterdir() if path.name != CONFIG_FILE)
    values = {**config.to_json(), **_identity(folder, names, about)}
    (folder / CONFIG_FILE).write_bytes(_as_json(values))


def write_about(folder: Path, about: About, *, within: str = "") -> None:
    """Writes what an export for another program is, and the digests of all of its files.

    The file lies in the folder `within` the export; names in it are relative to the export.
    """
    found = (path for path in folder.rglob("*") if path.is_file())
    names = sorted(path.relative_to(folder).as_posix() for path in found)
    (folder / within / ABOUT_FILE).write_bytes(_as_json(_identity(folder, names, about)))


def check_vocabulary_sizes(
    folder: Path, vocabularies: VocabularyPair, *, sizes: tuple[int, int]
) -> None:
    """Raises a UserError if the vocabularies have not the model's sizes: it may have no digests."""
    sides = (vocabularies.source, vocabularies.target)
    names = (vocabularies.files[1], vocabularies.files[-1])
    for name, vocabulary, size in zip(names, sides, sizes, strict=True):
        if vocabulary.size != size:
            raise UserError(
                f"{folder / name} is not the one that this model was trained with: it has "
                f"{vocabulary.size} tokens, the model {size}. Put that one back, or copy the "
                "folder again from where it came"
            )


def digest_path(path: Path, *, work: Work | None = None) -> str:
    """Returns the digest of a file, as `model.dataset.manifest.digest_file` does of its content.

    What is read counts as `work` in bytes.
    """
    digest = hashlib.blake2b(digest_size=16)
    for chunk in _chunks(path):
        digest.update(chunk)
        if work:
            work.add(len(chunk))
    return digest.hexdigest()


def _digesting(folder: Path, names: Iterable[str]) -> contextlib.AbstractContextManager[Work]:
    files = [folder / name for name in names]
    total = sum(file.stat().st_size for file in files if file.is_file())
    return long_work("checking the model's digests", total=total)


def _chunks(path: Path) -> Iterator[bytes]:
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk
    except PermissionError as error:
        raise no_access(path, reason=error.strerror or str(error)) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. See why, or {INCOMPLETE}"
        ) from error


def _find(folder: str | Path) -> Path:
    return Path(folder) if is_ctranslate2(folder) else find_model_folder(folder)


def _identity_file(folder: Path) -> str:
    """Names the file that holds the digests of the others."""
    return ABOUT_FILE if is_ctranslate2(folder) else CONFIG_FILE


def _identity(folder: Path, names: list[str], about: About) -> dict[str, Any]:
    with _digesting(folder, names) as work:
        digests = {name: digest_path(folder / name, work=work) for name in names}
    return {_ABOUT: dataclasses.asdict(about), _DIGESTS: digests}


def _read_identity(folder: Path) -> dict[str, Any]:
    path = folder / _identity_file(folder)
    if path.name == ABOUT_FILE and not path.is_file():
        return {}  # written before there was one
    try:
        return read_json(path, dict)
    except ValueError as error:
        raise _unreadable(path, error) from error


def _architecture(folder: Path) -> bytes:
    """Returns what of the identity file has a fingerprint, exactly as it was written at first."""
    if is_ctranslate2(folder):
        return b""
    values = _read_identity(folder)
    if not values.keys() & {_ABOUT, _DIGESTS}:
        return b"".join(_chunks(folder / CONFIG_FILE))
    return _as_json(_fields_of_architecture(values))


def _fields_of_architecture(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in (_ABOUT, _DIGESTS)}


def _read_digests(folder: Path) -> Mapping[str, str]:
    digests = _read_identity(folder).get(_DIGESTS, {})
    if not isinstance(digests, dict):
        raise _unreadable(folder / _identity_file(folder), TypeError(_DIGESTS))
    return digests


def _compare(folder: Path, name: str, found: str, expected: Mapping[str, str]) -> None:
    identity_file = _identity_file(folder)
    if not expected or name == identity_file or expected.get(name) == found:
        return
    wrong = "is damaged or another model's"
    if name == VOCABULARY_FILE or name.endswith(".spm"):
        wrong = "is not the one that this model was trained with"
    raise UserError(
        f"{folder / name} {wrong} (it has changed since {identity_file} was written): put that one "
        "back, or copy the whole folder again from where it came"
    )


def _unreadable(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} cannot be read as a model's ({error}): {INCOMPLETE}")


def _as_json(values: Mapping[str, Any]) -> bytes:
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()
