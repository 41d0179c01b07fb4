"""Packages of Argos Translate: a `.argosmodel` is a zip of one folder, unpacked once."""

from __future__ import annotations

import hashlib
import shutil
import zipfile
import zlib
from pathlib import Path, PurePosixPath

from model.errors import UserError
from model.folders.atomic import atomic_folder
from model.folders.cache import OTHER_CACHE, default_cache

SUFFIX = ".argosmodel"
_CHUNK_BYTES = 8 << 20


def open_package(path: Path) -> Path:
    """Returns the folder of a package, unpacked in the cache; of what is no package, the path.

    What translates is unpacked: the files beside `metadata.json`, and those of `model/`.

    Raises:
      UserError: It is missing or damaged, or the cache cannot be written.
    """
    if path.suffix != SUFFIX or path.is_dir():
        return path
    folder = default_cache() / f"{_digest(path)}-argos"
    if folder.is_dir():
        return folder
    try:
        with zipfile.ZipFile(path) as package, atomic_folder(folder, is_shared=True) as made:
            for name, target in _members(package, path=path).items():
                (made / target).parent.mkdir(exist_ok=True)
                with package.open(name) as source, (made / target).open("wb") as file:
                    shutil.copyfileobj(source, file)
    except (zipfile.BadZipFile, zlib.error, EOFError, KeyError, RuntimeError) as error:
        raise UserError(
            f"{path} is no whole package of Argos Translate ({error}): copy it again"
        ) from error
    except OSError as error:
        raise UserError(
            f"{path} cannot be unpacked to {folder}: {error.strerror or error}. Make room there"
            f"{OTHER_CACHE}"
        ) from error
    return folder


def _members(package: zipfile.ZipFile, *, path: Path) -> dict[str, str]:
    """Returns the members to unpack, and their paths in the folder."""
    names = [PurePosixPath(name) for name in package.namelist() if not name.endswith("/")]
    roots = [name.parent for name in names if name.name == "metadata.json"]
    if not roots:
        raise UserError(
            f"{path} is no package of Argos Translate: it has no metadata.json. Name another file"
        )
    root = min(roots, key=lambda each: len(each.parts))
    wanted = {
        name: name.relative_to(root) for name in names if name.parent in (root, root / "model")
    }
    return {str(name): str(target) for name, target in wanted.items() if ".." not in target.parts}


def _digest(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK_BYTES):
                digest.update(chunk)
    except OSError as error:
        raise UserError(f"no model at {path} ({error.strerror}): name another") from error
    return digest.hexdigest()
