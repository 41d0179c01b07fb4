"""Copy remote datasets and models to a local cache, because TensorFlow reads local files.

The folder of a dataset has its fingerprint as its name. The folder of a model has a digest of the
paths, sizes and times of its files. Several processes may stage the same dataset or model at the
same time: a file gets its name when it is complete, and the manifest of a dataset is copied last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tt.model.dataset.manifest import MANIFEST_FILE, TRAIN, VALIDATION, DatasetManifest
from tt.model.errors import DiskFullError, UserError
from tt.model.folders import delete_stale
from tt.model.formats.archives import PACKAGE, open_package
from tt.model.formats.foreign import CTRANSLATE2_FILE, METADATA_FILE, has_languages
from tt.model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    is_ctranslate2,
)
from tt.model.imports.fetching import fetch_model, is_huggingface
from tt.model.long_work import Work, long_work
from tt.model.storage import files, listing
from tt.model.storage import paths as storage_paths
from tt.model.storage.stores import check_buckets
from tt.model.text.vocabulary import VOCABULARY_FILE, load_vocabularies
from tt.pipelines.runners.formatting import megabytes

_CHUNK_BYTES = 8 << 20  # shards may have many GB
_LOOKUPS = 16  # concurrent requests for the identities of files
_PLAIN_NAME = re.compile(r"\w[\w.-]*")
_MODEL_SUFFIXES = (".spm", ".model", ".json", "_vocabulary.txt")


def stage_dataset(dataset: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Return the local folder of a finished dataset; a remote dataset is copied to the cache.

    Only files that are missing from the cache are copied. Therefore an interrupted copy resumes,
    and files that were deleted from the cache are restored.

    Args:
      dataset: The folder of the dataset.
      cache: The folder of the cache.
      report: Prints a line if there are files to copy.

    Raises:
      UserError: The dataset is unfinished or cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room. Complete files stay in the cache.
    """
    if storage_paths.is_local(dataset):
        return Path(dataset)
    check_buckets([dataset])
    dataset = dataset.rstrip("/")  # on object stores, a//b and a/b differ
    manifest = DatasetManifest.load(dataset, read=files.read_bytes)
    shards = [name for split in (TRAIN, VALIDATION) for name in manifest.splits[split].shards]
    for name in [manifest.fingerprint, *shards]:
        if not _PLAIN_NAME.fullmatch(name):  # Other names could point outside the folder.
            raise UserError(
                f"{dataset}/{MANIFEST_FILE} must name files inside its folder. Received: {name!r}. "
                "Create the dataset again with `tt preprocess`"
            )
    names = [*load_vocabularies(dataset, read=_read).files, *shards, MANIFEST_FILE]
    found = _identities(dataset, names)
    folder = cache / manifest.fingerprint
    _copy_missing(dataset, folder, found, last=MANIFEST_FILE, report=report)
    return folder


def stage_model(model: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Return the local folder of a model; a remote model is copied to the cache.

    The model may be a model folder, a run folder, a CTranslate2 model, an Argos Translate package,
    or a model of Hugging Face, which is converted for CTranslate2. The check whether the copy
    exists downloads nothing.

    Args:
      model: The path of the model.
      cache: The folder of the cache.
      report: Prints a line if there are files to copy.

    Raises:
      UserError: There is no finished model, it cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room.
    """
    if is_huggingface(model):
        return fetch_model(model, report=report)
    if storage_paths.is_local(model):
        folder = open_package(Path(model))
        return folder if is_ctranslate2(folder) else find_model_folder(folder)
    model = model.rstrip("/")
    if model.endswith(PACKAGE):
        remote, _, package = model.rpartition("/")
        names = [package]
    else:
        remote, names = _find_remote_model(model)
    found = _identities(remote, names)
    digest = hashlib.blake2b(json.dumps(found).encode(), digest_size=16).hexdigest()
    name = remote.rpartition("/")[2]
    # Only the name contains the languages, so the folder in the cache keeps it.
    names_languages = _PLAIN_NAME.fullmatch(name) and has_languages(name)
    folder = cache / (f"{digest}-{name}" if names_languages else digest)
    is_new = _copy_missing(remote, folder, found, report=report)
    if is_new and _identities(remote, names) != found:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"{remote} was changed while it was copied. Run the same command again")
    return open_package(folder / names[0]) if model.endswith(PACKAGE) else folder


def _find_remote_model(model: str) -> tuple[str, list[str]]:
    """Return the folder of a model and the names of its files."""
    for folder in (model, f"{model}/model"):
        present = {path.removeprefix(f"{folder}/") for path in listing.list_folder(folder)}
        weights = present & {WEIGHTS_FILE, CTRANSLATE2_FILE}
        names = {name for name in present if "/" not in name and name.endswith(_MODEL_SUFFIXES)}
        if METADATA_FILE in present and f"model/{CTRANSLATE2_FILE}" in present:  # Argos Translate
            return folder, sorted(names | {n for n in present if n.startswith("model/")})
        is_ours = WEIGHTS_FILE in weights or VOCABULARY_FILE in present
        if weights and (not is_ours or {CONFIG_FILE, VOCABULARY_FILE} <= present):
            return folder, sorted(names | weights)
    raise UserError(
        f"{model} contains no exported model ({CONFIG_FILE}, {WEIGHTS_FILE} and {VOCABULARY_FILE}, "
        "in the folder or in model/). Let `tt train` finish, or choose another folder"
    )


def _copy_missing(
    remote: str,
    folder: Path,
    identities: Mapping[str, dict[str, Any]],
    *,
    last: str | None = None,
    report: Callable[[str], object],
) -> bool:
    """Copy the files that the local folder lacks; return whether it lacked any."""
    delete_stale(folder, "*.tmp")
    sizes = {name: int(identity["bytes"]) for name, identity in identities.items()}
    missing = [name for name, size in sizes.items() if not _is_whole(folder / name, size)]
    total = sum(sizes[name] for name in missing)
    if missing:
        counts = f"{len(missing)} of {len(sizes)} files, {megabytes(total)}"
        report(f"Staging {remote} ({counts}) to {folder}")
    # Processes that start together share the work, because they copy the files in random orders. A
    # separate generator leaves the caller's random numbers unchanged.
    random.Random().shuffle(missing)
    with long_work("copying", total=total) as work:
        for name in sorted(missing, key=lambda name: name == last):
            if _is_whole(folder / name, sizes[name]):  # another process has copied it
                work.add(sizes[name])
            else:
                _copy(f"{remote}/{name}", folder / name, size=sizes[name], work=work)
    return bool(missing)


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False  # If the file cannot be written either, the copy reports the reason.


def _copy(source: str, target: Path, *, size: int, work: Work) -> None:
    try:
        with files.write_whole(str(target), temporary_folder=str(target.parent)) as file:
            copied = 0
            for chunk in _chunks(source):
                file.write(chunk)
                copied += len(chunk)
                work.add(len(chunk))
            if copied != size:
                raise UserError(
                    f"{source} should have {size:,} bytes. Received: {copied:,}, because the file "
                    "was changed or the connection broke. Run the same command again"
                )
    except DiskFullError as error:
        raise DiskFullError(f"{error}, or choose another cache folder (XDG_CACHE_HOME)") from error
    except OSError as error:  # from the cache; errors of the source are already UserErrors
        raise UserError(
            f"{target} cannot be written: {error.strerror or error}. Choose another cache folder "
            "(XDG_CACHE_HOME)"
        ) from error


@contextlib.contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror or error}. Check that the folder is complete "
            "and that you have permission to read it"
        ) from error


def _chunks(path: str) -> Iterator[bytes]:
    with _remote_errors(path), files.open_binary(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _read(path: str) -> bytes:
    with _remote_errors(path):
        return files.read_bytes(path)


def _identities(folder: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return the identity of this version of each file; see `listing.file_identity`."""

    def identity(name: str) -> dict[str, Any]:
        with _remote_errors(f"{folder}/{name}"):
            return listing.file_identity(f"{folder}/{name}")

    with ThreadPoolExecutor(_LOOKUPS) as pool:
        return dict(zip(names, pool.map(identity, names), strict=True))
