"""The files of a watched folder."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
from pathlib import Path

from model.errors import UserError, require
from pipelines.storage.listing import find_listed, is_folder, list_with_links
from pipelines.storage.paths import is_local, normalize_path
from pipelines.tables.finding import is_left_out, table_suffix

_GLOB = re.compile(r"[*?[]")


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchedFile:
    """A version of a file."""

    path: str  # absolute, or with its scheme
    name: str  # below the folder, or below the fixed part of the glob, with "/"
    size: int  # bytes
    changed: float  # when, in seconds since 1970

    @property
    def digest(self) -> str:
        """Tells this version of this file from all others."""
        return hashlib.sha256(f"{self.name}\0{self.size}\0{self.changed}".encode()).hexdigest()[:32]


class Inbox:
    """A folder, or a glob, whose files are looked at again and again.

    A file counts as whole when it is at a look as it was at the look before.

    Args:
      pattern: What the user gave: of a folder all tables at any depth, of a glob what it matches.
      output: The folder of translations: what lies in it is not taken, also where a link leads to
        it.

    Raises:
      UserError: It is neither a glob nor a folder.
    """

    def __init__(self, pattern: str, *, output: str = "") -> None:
        self._path = normalize_path(pattern)
        self._output = real_path(normalize_path(output)) if output else ""
        self._is_glob = _GLOB.search(self._path) is not None
        if not self._is_glob and is_local(self._path) and not Path(self._path).exists():
            raise UserError(
                f"there is no folder {pattern} to watch: make it first, or name messages as "
                "kafka:// or pubsub://"
            )
        require(
            self._is_glob or is_folder(self._path),
            "`input` must be a folder to watch, a glob of files, or an address as kafka:// or "
            "pubsub://",
            pattern,
        )
        self._before: dict[str, WatchedFile] = {}

    @property
    def base(self) -> str:
        """The folder below which all files are, with a slash at its end."""
        if self._is_glob:
            return _GLOB.split(self._path, maxsplit=1)[0].rpartition("/")[0] + "/"
        return self._path.rstrip("/") + "/"

    def look(self) -> tuple[list[WatchedFile], int]:
        """Returns the whole files, the oldest first, and how many files there are.

        Raises:
          UserError: The file system does not answer.
        """
        listed = (
            find_listed(self._path)
            if self._is_glob
            else list_with_links(self._path, leaves_out=is_left_out)
        )
        now = {
            file.path: WatchedFile(
                path=file.path,
                name=file.path.removeprefix(self.base),
                size=file.size,
                changed=file.changed,
            )
            for file in listed
            if self._is_glob or table_suffix(file.path)
        }
        if self._output:
            folders = {path: real_path(path) for path in {each.rpartition("/")[0] for each in now}}
            now = {
                path: file
                for path, file in now.items()
                if not _lies_in(folders[path.rpartition("/")[0]], self._output)
            }
        whole = [file for path, file in now.items() if self._before.get(path) == file]
        self._before = now
        return sorted(whole, key=lambda file: (file.changed, file.path)), len(now)


def real_path(path: str) -> str:
    """Returns where a local path leads; any other as it is."""
    return os.path.realpath(path) if is_local(path) else path.rstrip("/")


def _lies_in(path: str, folder: str) -> bool:
    return (path + "/").startswith(folder.rstrip("/") + "/")


def check_apart(inbox: Inbox, output: str) -> None:
    """Checks that what is written is not read again.

    Raises:
      UserError: The output lies where files are looked for, or around it.
    """
    there = normalize_path(output)
    base = inbox.base
    if _lies_in(there.rstrip("/"), base) or _lies_in(real_path(there), real_path(base)):
        raise UserError(
            f"`output` lies below {inbox.base}, which is watched: what is written would be "
            f"translated again. Choose another folder. Received: {output}"
        )
    if _lies_in(base, there) or _lies_in(real_path(base), real_path(there)):
        raise UserError(
            f"`output` holds {inbox.base}, which is watched: translations of its files would stand "
            f"among them. Choose another folder. Received: {output}"
        )
