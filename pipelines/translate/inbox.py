"""Find the complete files in a watched folder, and record the finished files."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re

from tt.model.errors import UserError, require
from tt.pipelines.storage.files import make_folder, write_text
from tt.pipelines.storage.listing import (
    ListedFile,
    find_listed,
    is_folder,
    list_folder,
    list_with_links,
)
from tt.pipelines.storage.paths import JOB_FOLDER, contains, normalize_path, real_path
from tt.pipelines.tables.finding import is_skipped_name, table_suffix

_GLOB = re.compile(r"[*?[]")
_RECORDS = f"{JOB_FOLDER}/files"


@dataclasses.dataclass(frozen=True, kw_only=True)
class WatchedFile(ListedFile):
    """A version of a file in a watched folder.

    Attributes:
      name: The path relative to the folder, or to the fixed part of the glob.
    """

    name: str

    @property
    def digest(self) -> str:
        """A digest that identifies this version of the file."""
        return hashlib.sha256(f"{self.name}\0{self.size}\0{self.changed}".encode()).hexdigest()[:32]


class Inbox:
    """A watched folder or glob, whose files are listed repeatedly.

    A file is complete if it has not changed since the previous listing.

    Args:
      pattern: A folder, for all table files in it at any depth; or a glob, for all matching files.
      output: The output folder. Its files are ignored, even if a link in the watched folder points
        to them.

    Raises:
      UserError: The pattern is neither a glob nor a folder, or the watched folder and the output
        folder contain each other.
    """

    def __init__(self, pattern: str, *, output: str) -> None:
        self._path = normalize_path(pattern)
        self._is_glob = _GLOB.search(self._path) is not None
        require(
            self._is_glob or is_folder(self._path),
            "`input` must be an existing folder to watch, a glob, or an address such as kafka:// "
            "or pubsub://",
            pattern,
        )
        fixed = _GLOB.split(self._path, maxsplit=1)[0].rpartition("/")[0]
        self.base = f"{fixed if self._is_glob else self._path.rstrip('/')}/"  # contains all files
        self._output = real_path(normalize_path(output))
        if contains(real_path(self.base), self._output) or contains(self._output, self.base):
            raise UserError(
                f"`output` and the watched folder {self.base} must not contain each other, or "
                f"translations would be translated again. Received: {output}"
            )
        self._before: dict[str, WatchedFile] = {}

    def find_complete(self) -> list[WatchedFile]:
        """List the files; return the complete ones, oldest first.

        Raises:
          UserError: The file system does not answer.
        """
        if self._is_glob:
            listed = find_listed(self._path)
        else:
            found = list_with_links(self._path, is_skipped=is_skipped_name)
            listed = [file for file in found if table_suffix(file.path)]
        now = {
            file.path: WatchedFile(**vars(file), name=file.path.removeprefix(self.base))
            for file in listed
            if not contains(self._output, file.path)
        }
        complete = [file for path, file in now.items() if self._before.get(path) == file]
        self._before = now
        return sorted(complete, key=lambda file: (file.changed, file.path))


def read_records(output: str) -> set[str]:
    """Return the digests of the files that have a record in an output folder."""
    names = (path.rpartition("/")[2] for path in list_folder(f"{output}/{_RECORDS}"))
    return {name.removesuffix(".json") for name in names if name.endswith(".json")}


def write_record(output: str, file: WatchedFile, *, reason: str = "", rows: int = 0) -> None:
    """Record that a file is finished, so that a restart does not translate it again.

    Args:
      output: The output folder.
      file: The finished file.
      reason: The reason why the file cannot be translated; "" if it has been translated.
      rows: The number of translated rows.
    """
    content = {
        "path": file.path,
        "bytes": file.size,
        "changed": file.changed,
        "status": "failed" if reason else "done",
        "rows": rows,
        "reason": reason or None,
    }
    make_folder(f"{output}/{_RECORDS}")
    write_text(
        f"{output}/{_RECORDS}/{file.digest}.json",
        json.dumps(content, ensure_ascii=False) + "\n",
        temporary_folder=f"{output}/{JOB_FOLDER}",
    )
