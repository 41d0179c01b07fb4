"""Size limits for zip archives, and packages of Argos Translate."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path, PurePosixPath

from tt.model.errors import UserError, first_line
from tt.model.folders import OTHER_CACHE, atomic_folder, default_cache
from tt.model.formats.foreign import ARGOS_MODEL, METADATA_FILE
from tt.model.formats.model_folder import digest_path

PACKAGE = ".argosmodel"  # a zip archive of one folder
# An archive may unpack to the larger of these limits. Compression hardly shrinks weights.
_ALWAYS_ALLOWED = 1 << 30
_MOST_TIMES_LARGER = 20


def check_unpacked_size(archive: zipfile.ZipFile, path: Path) -> None:
    """Check that an archive unpacks to a plausible number of bytes.

    `zipfile` unpacks no more bytes of a member than its header declares.

    Raises:
      ValueError: The archive unpacks to too many bytes.
    """
    size = sum(member.file_size for member in archive.infolist())
    most = max(_ALWAYS_ALLOWED, _MOST_TIMES_LARGER * path.stat().st_size)
    if size > most:
        raise ValueError(f"it would unpack to {size:,} bytes, more than {most:,}")


def open_package(path: Path) -> Path:
    """Unpack an Argos package into the cache, and return its folder; return other paths unchanged.

    Only the files next to `metadata.json` and the files in `model/` are unpacked, because
    translation needs no others.

    Raises:
      UserError: The package is missing, damaged or too large, or the cache cannot be written.
    """
    if path.suffix != PACKAGE or path.is_dir():
        return path
    if not path.is_file():
        raise UserError(f"no model at {path}. Check the path")
    folder = default_cache() / f"{digest_path(path)}-argos"
    if folder.is_dir():
        return folder
    try:
        with zipfile.ZipFile(path) as package, atomic_folder(folder, is_shared=True) as made:
            check_unpacked_size(package, path)
            files = {PurePosixPath(m.filename): m for m in package.infolist() if not m.is_dir()}
            found = [name.parent for name in files if name.name == METADATA_FILE]
            root = min(found, key=lambda each: len(each.parts))
            for name, member in files.items():
                if name.parent in (root, root / ARGOS_MODEL):
                    target = made / name.relative_to(root)
                    target.parent.mkdir(exist_ok=True)
                    with package.open(member) as source, target.open("wb") as output:
                        shutil.copyfileobj(source, output)
    except Exception as error:  # `zipfile` raises errors of many types for damage
        raise UserError(
            f"{path} cannot be unpacked to {folder} ({first_line(error)}). Download the package "
            f"again, free some space{OTHER_CACHE}"
        ) from error
    return folder
