"""Copy datasets and models of other file systems to a local cache: TensorFlow reads local files.

A dataset's folder is named by its fingerprint, and a model's folder by the paths, sizes and times
of its files. Any number of processes may stage the same one at the same time: a file gets its name
when it is complete, and the manifest of a dataset is copied last.
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

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.errors import DiskFullError, UserError
from tt.model.folders import delete_stale
from tt.model.formats.archives import PACKAGE, open_package
from tt.model.formats.foreign import CTRANSLATE2_FILE, METADATA_FILE, tells_languages
from tt.model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    is_ctranslate2,
)
from tt.model.long_work import Work, long_work
from tt.model.text.vocabulary import VOCABULARY_FILE, load_vocabularies
from tt.pipelines.runners.formatting import megabytes
from tt.pipelines.storage import files, listing
from tt.pipelines.storage import paths as storage_paths
from tt.pipelines.storage.object_stores import look_first

_CHUNK_BYTES = 8 << 20  # shards may be of many GB
_LOOKUPS = 16  # at once: each waits for the answer of a server
_PLAIN_NAME = re.compile(r"\w[\w.-]*")
_MODEL_SUFFIXES = (".spm", ".model", ".json", "_vocabulary.txt")


def stage_dataset(dataset: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Return the local folder of a finished dataset, copied to the cache unless it is local.

    Only files that the cache lacks are copied: an interrupted staging resumes, and files that were
    deleted from the cache come back. `report` takes a line if there is anything to copy. Some file
    systems (s3, hdfs) need `beam_options.set_file_system_options` before.

    Raises:
      UserError: The dataset is unfinished or cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room; complete files stay.
    """
    if storage_paths.is_local(dataset):
        return Path(dataset)
    look_first([dataset])
    dataset = dataset.rstrip("/")  # on object stores a//b is not a/b
    manifest = DatasetManifest.load(dataset, read=_read_manifest)
    shards = [name for split in manifest.splits.values() for name in split.shards]
    for name in [manifest.fingerprint, *shards]:
        if not _PLAIN_NAME.fullmatch(name):  # another name could lead out of the folder
            raise UserError(
                f"{dataset}/{MANIFEST_FILE} must name files inside its folder. Received: {name!r} "
                "(make the dataset again with `tt preprocess`)"
            )
    names = [*load_vocabularies(dataset, read=_read).files, *shards, MANIFEST_FILE]
    found = _identities(dataset, names)
    folder = cache / manifest.fingerprint
    _copy_missing(dataset, folder, sizes=_sizes(found), last=MANIFEST_FILE, report=report)
    return folder


def stage_model(model: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Return the local folder of a model, copied to the cache unless it is there or local.

    The model may be a model folder, a run folder, a model for CTranslate2 or a package of Argos
    Translate. Nothing is downloaded to find out whether the copy exists. `report` takes a line if
    there is anything to copy.

    Raises:
      UserError: There is no finished model, it cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room.
    """
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
    is_told = _PLAIN_NAME.fullmatch(name) and tells_languages(name)  # only by the folder's name
    folder = cache / (f"{digest}-{name}" if is_told else digest)
    is_new = _copy_missing(remote, folder, sizes=_sizes(found), report=report)
    if is_new and _identities(remote, names) != found:
        shutil.rmtree(folder, ignore_errors=True)
        raise UserError(f"{remote} was changed while it was copied: run the same command again")
    return open_package(folder / names[0]) if model.endswith(PACKAGE) else folder


def _find_remote_model(model: str) -> tuple[str, list[str]]:
    """Return the folder of a model and the names of its files."""
    for folder in (model, f"{model}/model"):
        with _remote_errors(folder):
            present = {path.removeprefix(f"{folder}/") for path in listing.list_folder(folder)}
        weights = present & {WEIGHTS_FILE, CTRANSLATE2_FILE}
        names = {name for name in present if "/" not in name and name.endswith(_MODEL_SUFFIXES)}
        if METADATA_FILE in present and f"model/{CTRANSLATE2_FILE}" in present:  # Argos Translate
            return folder, sorted(names | {n for n in present if n.startswith("model/")})
        is_ours = WEIGHTS_FILE in weights or VOCABULARY_FILE in present
        if weights and (not is_ours or {CONFIG_FILE, VOCABULARY_FILE} <= present):
            return folder, sorted(names | weights)
    raise UserError(
        f"{model} holds no exported model ({CONFIG_FILE}, {WEIGHTS_FILE} and {VOCABULARY_FILE}, "
        "there or in model/): let its `tt train` finish, or name another folder"
    )


def _copy_missing(
    remote: str,
    folder: Path,
    *,
    sizes: Mapping[str, int],
    last: str | None = None,
    report: Callable[[str], object],
) -> bool:
    """Copy the files of a remote folder that a local folder lacks; return whether it lacks any."""
    delete_stale(folder, "*.tmp")
    missing = [name for name, size in sizes.items() if not _is_whole(folder / name, size)]
    total = sum(sizes[name] for name in missing)
    if missing:
        counts = f"{len(missing)} of {len(sizes)} files, {megabytes(total)}"
        report(f"Staging {remote} ({counts}) to {folder}")
    # Processes that begin together share the files between them by a random order. The generator
    # is our own, so that the caller's random numbers stay as they were.
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
        return False  # if it cannot be written either, copying says why


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
                    f"{source} should have {size:,} bytes. Received: {copied:,} (it was changed "
                    "or the connection broke: run the same command again)"
                )
    except DiskFullError as error:
        raise DiskFullError(f"{error}, or choose another cache folder (XDG_CACHE_HOME)") from error
    except OSError as error:  # of the cache: those of the source are a `UserError` by now
        raise UserError(
            f"{target} cannot be written: {error.strerror or error}. Choose another cache folder "
            "(XDG_CACHE_HOME)"
        ) from error


@contextlib.contextmanager
def _remote_errors(path: str) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client library of each file system has its own
        reason = " ".join(str(error).split()) or repr(error)
        raise UserError(
            f"{path} cannot be read: {reason}. See that the folder is complete and that you may "
            "read it"
        ) from error


def _chunks(path: str) -> Iterator[bytes]:
    with _remote_errors(path), files.open_binary(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _read(path: str) -> bytes:
    return b"".join(_chunks(path))


def _read_manifest(path: str) -> bytes:
    # Few file systems raise FileNotFoundError, by which an unfinished dataset is known.
    with _remote_errors(path):
        found = listing.exists(path)
    if not found:
        raise FileNotFoundError(path)
    return _read(path)


def _identities(folder: str, names: list[str]) -> dict[str, dict[str, Any]]:
    """Return what distinguishes this version of each file; see `listing.file_identity`."""

    def identity(name: str) -> dict[str, Any]:
        with _remote_errors(f"{folder}/{name}"):
            return listing.file_identity(f"{folder}/{name}")

    with ThreadPoolExecutor(_LOOKUPS) as pool:
        return dict(zip(names, pool.map(identity, names), strict=True))


def _sizes(identities: Mapping[str, dict[str, Any]]) -> dict[str, int]:
    return {name: int(identity["bytes"]) for name, identity in identities.items()}
