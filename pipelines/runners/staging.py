"""Datasets and models of other file systems, copied to a local cache: TensorFlow reads local files.

Each has a folder of its own, named by its fingerprint. Any number of processes may stage the same
one at once: a file gets its name only when it is whole. Of a dataset the manifest is copied last;
of a model, what names its folder is written last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import random
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import DiskFullError, UserError
from model.folders.cache import delete_stale
from model.folders.durable import publish
from model.folders.long_work import Work, long_work
from model.formats.archives import PACKAGE, open_package
from model.formats.foreign import ABOUT_FILE, CTRANSLATE2_FILE, METADATA_FILE, tells_languages
from model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    find_model_folder,
    identity_digest,
    is_ctranslate2,
    model_fingerprint,
)
from model.text.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
)
from pipelines.runners.formatting import megabytes
from pipelines.storage import files, listing
from pipelines.storage import paths as storage_paths
from pipelines.storage.object_stores import look_first

_CHUNK_BYTES = 8 << 20  # shards may be of many GB
_LOOKUPS = 16  # at once: each waits for the answer of a server
_PLAIN_NAME = re.compile(r"\w[\w.-]*")


class _Kind(NamedTuple):
    """What is staged, as messages name it, and how its user chooses another cache."""

    name: str
    other_cache: str


_DATASET = _Kind("dataset", "name another `cache` folder")
_MODEL = _Kind("model", "set XDG_CACHE_HOME to another folder")


def stage_dataset(dataset: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Returns the local folder of a finished dataset, copied to the cache unless it is local.

    Only what the cache lacks is copied: a killed staging goes on where it was, and files that
    were deleted from the cache come back. `report` takes a line that says what is copied, if
    anything is. Some file systems (s3, hdfs) want `runner.set_file_system_options` called before.

    Raises:
      UserError: The dataset is unfinished or cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room; what was copied whole stays.
    """
    if storage_paths.is_local(dataset):
        return Path(dataset)
    look_first([dataset])
    dataset = dataset.rstrip("/")  # on object stores a//b is not a/b
    manifest = DatasetManifest.load(dataset, read=_read_manifest)
    shards = [name for split in manifest.splits.values() for name in split.shards]
    _check_names([manifest.fingerprint, *shards], manifest_path=f"{dataset}/{MANIFEST_FILE}")
    names = [*load_vocabularies(dataset, read=_read).files, *shards, MANIFEST_FILE]
    found = _identities([f"{dataset}/{name}" for name in names], kind=_DATASET)
    sizes = {name: int(identity["bytes"]) for name, identity in zip(names, found, strict=True)}
    folder = cache / manifest.fingerprint
    delete_stale(folder, "*.tmp")
    missing = [name for name in names if not _is_whole(folder / name, sizes[name])]
    total = sum(sizes[name] for name in missing)
    if missing:
        size = megabytes(total)
        report(f"Staging {dataset} ({len(missing)} of {len(names)} files, {size}) to {folder}")
    # In any order but for the manifest: processes that begin together share the files between
    # them. The generator is our own, so that the caller's random numbers stay as they were.
    random.Random().shuffle(missing)
    with long_work("copying", total=total) as work:
        for name in sorted(missing, key=lambda name: name == MANIFEST_FILE):
            if _is_whole(folder / name, sizes[name]):  # by now another process may have copied it
                work.add(sizes[name])
            else:
                path = folder / name
                _copy(f"{dataset}/{name}", path, size=sizes[name], kind=_DATASET, work=work)
    return folder


def stage_model(model: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Returns the local folder of a model, copied to the cache unless it is there or local.

    It may be a model folder, the run folder that it lies in, or an export for CTranslate2. The
    copy is known by the paths, sizes and times of change of the model's files: to look whether
    it is there, nothing is downloaded. `report` takes a line that says what is copied, if any is.

    Raises:
      UserError: There is no finished model, it cannot be read, or the cache cannot be written.
      DiskFullError: The cache has no room.
    """
    if storage_paths.is_local(model):
        folder = open_package(Path(model))
        return folder if is_ctranslate2(folder) else find_model_folder(folder)
    if model.endswith(PACKAGE):
        return _stage_package(model, cache=cache, report=report)
    remote, names = _find_remote_model(model.rstrip("/"))
    paths = [f"{remote}/{name}" for name in names]
    found = _identities(paths, kind=_MODEL)
    sizes = {name: int(identity["bytes"]) for name, identity in zip(names, found, strict=True)}
    digest = hashlib.blake2b(json.dumps(found).encode(), digest_size=16).hexdigest()
    pointer = cache / f"{digest}.model"  # holds the folder's name
    staged = _follow(pointer)
    if staged is not None and all(_is_whole(staged / name, sizes[name]) for name in names):
        return staged
    report(f"Staging {remote} ({len(names)} files, {megabytes(sum(sizes.values()))}) to {cache}")
    delete_stale(cache, "model.*.tmp")
    temporary = cache / f"model.{uuid.uuid4().hex}.tmp"
    try:
        with long_work("copying", total=sum(sizes.values())) as work:
            for name, path in zip(names, paths, strict=True):
                _copy(path, temporary / name, size=sizes[name], kind=_MODEL, work=work)
        if _identities(paths, kind=_MODEL) != found:
            raise UserError(f"{remote} was changed while it was copied: run the same command again")
        # What a model is has no fingerprint, but copies of other content must not share a folder.
        parts = [model_fingerprint(temporary), identity_digest(temporary)[:8]]
        name = remote.rpartition("/")[2]
        if _PLAIN_NAME.fullmatch(name) and tells_languages(name):
            parts.append(name)
        staged = cache / "-".join(parts)
        staged.mkdir(exist_ok=True)
        for name in names:  # another process may do the same, with files of equal content
            (staged / name).parent.mkdir(exist_ok=True)
            publish(temporary / name, staged / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    files.write_text(str(pointer), staged.name, temporary_folder=str(cache))
    return staged


def _stage_package(package: str, *, cache: Path, report: Callable[[str], object]) -> Path:
    """Copies a package of Argos Translate to the cache, unless it is there, and unpacks it."""
    found = _identities([package], kind=_MODEL)
    digest = hashlib.blake2b(json.dumps(found).encode(), digest_size=16).hexdigest()
    copy, size = cache / f"{digest}{PACKAGE}", int(found[0]["bytes"])
    if not _is_whole(copy, size):
        report(f"Staging {package} ({megabytes(size)}) to {cache}")
        with long_work("copying", total=size) as work:
            _copy(package, copy, size=size, kind=_MODEL, work=work)
    return open_package(copy)


def _find_foreign_files(folder: str, present: set[str]) -> list[str]:
    """Returns the names of the files of a foreign model; none of what is no foreign model."""
    beside = {n for n in present if n.endswith((".spm", ".model", ".json", "_vocabulary.txt"))}
    if CTRANSLATE2_FILE in present:
        if VOCABULARY_FILE in present:
            return []
        return sorted(beside | {CTRANSLATE2_FILE})
    if METADATA_FILE not in present:
        return []
    with _remote_errors(folder, kind=_MODEL):
        inner = {path.removeprefix(f"{folder}/") for path in listing.list_folder(f"{folder}/model")}
    return sorted(beside | inner) if f"model/{CTRANSLATE2_FILE}" in inner else []


def _find_remote_model(model: str) -> tuple[str, list[str]]:
    for folder in (model, f"{model}/model"):
        with _remote_errors(folder, kind=_MODEL):
            present = {path.removeprefix(f"{folder}/") for path in listing.list_folder(folder)}
        if names := _find_foreign_files(folder, present):
            return folder, names
        weights = present & {WEIGHTS_FILE, CTRANSLATE2_FILE}
        if CONFIG_FILE in present and weights:
            break
    else:
        raise UserError(
            f"{model} holds no exported model ({CONFIG_FILE} and {WEIGHTS_FILE}, there or in "
            "model/): let its `tt train` finish, or name another folder"
        )
    if VOCABULARY_FILE not in present or not present & {SHARED_MODEL, SOURCE_MODEL}:
        raise UserError(
            f"{folder} has no {VOCABULARY_FILE} with *.spm files: copy the whole model folder there"
        )
    wanted = [SHARED_MODEL, SOURCE_MODEL, TARGET_MODEL]
    if CTRANSLATE2_FILE in weights:
        tokens = [f"{side}_vocabulary.json" for side in ("shared", "source", "target")]
        wanted += [ABOUT_FILE, *tokens]
    names = [CONFIG_FILE, *weights, VOCABULARY_FILE, *(name for name in wanted if name in present)]
    return folder, sorted(names)


def _follow(pointer: Path) -> Path | None:
    """Returns the folder that a pointer names, or None where there is no pointer."""
    try:
        return pointer.with_name(pointer.read_text("utf-8"))
    except OSError:
        return None  # if it cannot be written either, staging says why


def _check_names(names: list[str], *, manifest_path: str) -> None:
    """Raises unless all names are of files right inside a folder: others could lead out of it."""
    for name in names:
        if not _PLAIN_NAME.fullmatch(name):
            raise UserError(
                f"{manifest_path} must name files inside its folder. Received: {name!r} "
                "(make the dataset again with `tt preprocess`)"
            )


def _is_whole(path: Path, size: int) -> bool:
    try:
        return path.stat().st_size == size
    except OSError:
        return False  # if it cannot be written either, copying says why


def _copy(source: str, target: Path, *, size: int, kind: _Kind, work: Work) -> None:
    try:
        with files.write_whole(str(target), temporary_folder=str(target.parent)) as file:
            copied = 0
            for chunk in _chunks(source, kind=kind):
                file.write(chunk)
                copied += len(chunk)
                work.add(len(chunk))
            if copied != size:
                raise UserError(
                    f"{source} should have {size:,} bytes. Received: {copied:,} (it was changed "
                    "or the connection broke: run the same command again)"
                )
    except DiskFullError as error:
        raise DiskFullError(f"{error}, or {kind.other_cache}") from error
    except OSError as error:  # of the cache: those of the source are a `UserError` by now
        other_cache = kind.other_cache[0].upper() + kind.other_cache[1:]
        raise UserError(
            f"{target} cannot be written: {error.strerror or error}. {other_cache}"
        ) from error


@contextlib.contextmanager
def _remote_errors(path: str, *, kind: _Kind) -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:  # the client library of each file system has its own
        reason = " ".join(str(error).split()) or repr(error)
        raise UserError(
            f"{path} cannot be read: {reason}. See that the {kind.name} folder is complete and "
            "that you may read it"
        ) from error


def _chunks(path: str, *, kind: _Kind) -> Iterator[bytes]:
    with _remote_errors(path, kind=kind), files.open_binary(path) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _read(path: str) -> bytes:
    return b"".join(_chunks(path, kind=_DATASET))


def _read_manifest(path: str) -> bytes:
    # Few file systems raise FileNotFoundError, by which an unfinished dataset is known.
    with _remote_errors(path, kind=_DATASET):
        found = listing.exists(path)
    if not found:
        raise FileNotFoundError(path)
    return _read(path)


def _identities(paths: list[str], *, kind: _Kind) -> list[dict[str, Any]]:
    """Returns what tells one version of each file from another; see `files.file_identity`."""

    def identity(path: str) -> dict[str, Any]:
        with _remote_errors(path, kind=kind):
            return listing.file_identity(path)

    with ThreadPoolExecutor(_LOOKUPS) as pool:
        return list(pool.map(identity, paths))
