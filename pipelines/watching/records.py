"""What became of each file, written down in the output folder: a restart does nothing twice."""

from __future__ import annotations

import dataclasses
import json

from model.errors import UnfinishedError
from pipelines.storage.files import make_folder, write_text
from pipelines.storage.listing import list_folder
from pipelines.watching.inbox import WatchedFile

FOLDER = "_tt"
_FILES = f"{FOLDER}/files"
DONE, FAILED = "done", "failed"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Records:
    """The records of an output folder, one for each version of a file."""

    output: str  # absolute, or with its scheme
    run: str  # tells the temporary files of this run from others

    def read(self) -> set[str]:
        """Returns the digests of the files that are done or have failed."""
        names = (path.rpartition("/")[2] for path in list_folder(f"{self.output}/{_FILES}"))
        return {name.removesuffix(".json") for name in names if name.endswith(".json")}

    def write(self, file: WatchedFile, *, reason: str = "", rows: int = 0) -> None:
        """Writes down what became of a file.

        Args:
          file: The file.
          reason: Why it could not be translated; "" if it is.
          rows: Rows of its translation.

        Raises:
          UnfinishedError: They cannot be written now.
        """
        content = {
            "path": file.path,
            "bytes": file.size,
            "changed": file.changed,
            "status": FAILED if reason else DONE,
            "rows": rows,
            "reason": reason or None,
        }
        path = f"{self.output}/{_FILES}/{file.digest}.json"
        try:
            make_folder(f"{self.output}/{_FILES}")
            write_text(
                path,
                json.dumps(content, ensure_ascii=False) + "\n",
                temporary_folder=f"{self.output}/{FOLDER}",
                run_id=self.run,
            )
        except OSError as error:
            raise UnfinishedError(
                f"the record {path} cannot be written: {error.strerror or error}. It is tried "
                "again; what is translated stays"
            ) from error
