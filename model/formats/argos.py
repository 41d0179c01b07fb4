"""Packages of Argos Translate: a `.argosmodel` is a zip of one folder, unpacked once."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
from pathlib import Path, PurePosixPath

from model.errors import UserError
from model.folders.atomic import atomic_folder
from model.folders.cache import OTHER_CACHE, default_cache
from model.formats.archives import DAMAGED, check_members
from model.formats.foreign import ARGOS_MODEL, METADATA_FILE

SUFFIX = ".argosmodel"
_CHUNK_BYTES = 8 << 20


def open_package(path: Path) -> Path:
    """Return the folder of a package, unpacked in the cache; if it is no package, return the path.

    Only the files next to `metadata.json` and those of `model/` are unpacked: they translate.

    Raises:
      UserError: The package is missing, damaged or too large, or the cache cannot be written.
    """
    if path.suffix != SUFFIX or path.is_dir():
        return path
    folder = default_cache() / f"{_digest(path)}-argos"
    if folder.is_dir():
        return folder
    try:
        with zipfile.ZipFile(path) as package, atomic_folder(folder, is_shared=True) as made:
            members = _members(package, path=path)
            check_members(list(members.values()), archive_bytes=path.stat().st_size)
            for target, member in members.items():
                (made / target).parent.mkdir(exist_ok=True)
                with package.open(member) as source, (made / target).open("wb") as file:
                    shutil.copyfileobj(source, file)
    except DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"{path} is no whole package of Argos Translate ({reason}): copy it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be unpacked to {folder}: {error.strerror or error}. Make room there"
            f"{OTHER_CACHE}"
        ) from error
    return folder


def _members(package: zipfile.ZipFile, *, path: Path) -> dict[str, zipfile.ZipInfo]:
    """Return the members to unpack by their paths in the folder, "x" or "model/x".

    Raises:
      ValueError: Two members have one path, or one is a file where another one needs a folder.
    """
    members = [(PurePosixPath(each.filename), each) for each in package.infolist()]
    files = [(name, each) for name, each in members if not each.is_dir()]
    roots = [name.parent for name, _ in files if name.name == METADATA_FILE]
    if not roots:
        raise UserError(
            f"{path} is no package of Argos Translate: it has no {METADATA_FILE}. Name another file"
        )
    root = min(roots, key=lambda each: len(each.parts))
    wanted: dict[str, zipfile.ZipInfo] = {}
    for name, member in files:
        if name.parent not in (root, root / ARGOS_MODEL):
            continue
        target = str(name.relative_to(root))
        if name.name == ".." or target in (ARGOS_MODEL, *wanted):
            raise ValueError(f"{member.filename!r} in it is no file of a package")
        wanted[target] = member
    return wanted


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"no model at {path} ({error.strerror}): name another") from error
    return digest.hexdigest()
