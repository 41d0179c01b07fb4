"""The work folder of a run: the names of all that it keeps until the dataset is finished."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tt.pipelines.storage import files, listing, paths

WORK_FOLDER = "_work"  # in the dataset folder
RUN_FILE = "run.json"


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """The work folder of a run, on any file system: `_work/FINGERPRINT` in the dataset folder.

    Files are written here under a temporary name and moved to their place, here or in the
    dataset folder, once they are whole.
    """

    path: str

    @property
    def run_file(self) -> str:
        """The file that says which run has claimed the dataset folder."""
        return self._join(RUN_FILE)

    @property
    def sources(self) -> str:
        """The file that lists the sources; see `SourceList`."""
        return self._join("sources.jsonl")

    def index(self, order: int) -> str:
        """Returns the path of the JSON list of the row counts of the units of a group of sources.

        Groups are named by the order of their first source.
        """
        return self._join(f"units-{order:03d}.json")

    def chunk(self, order: int, index: int) -> str:
        """Returns the path of the rows of a unit that is not read in place."""
        return self._join(f"chunk-{order:03d}-{index:05d}.arrow")

    def spill(self, label: str) -> str:
        """Returns the path of the records of a unit: it says that the unit is finished."""
        return self._join(f"spill-{label}")

    def shard_statistics(self, split: str, shard: int) -> str:
        """Returns the path of the statistics of a shard: it says that the shard is finished."""
        return self._join(f"shard-{split}-{shard:05d}.json")

    def digest(self, vocabulary: str) -> str:
        """Return the path of the digest of a vocabulary, which is written after the vocabulary."""
        return self._join(f"digest-{vocabulary}")

    def list_finished(self) -> Mapping[str, list[str]]:
        """Lists the paths of finished files by kind: units, chunk, spill or shard."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in listing.list_names(self.path):
            if not name.endswith(".tmp"):
                found[name.partition("-")[0]].append(self._join(name))
        return found

    def write_whole(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Opens a file for writing, whole or not at all."""
        return files.write_whole(path, temporary_folder=self.path)

    def write_text(self, path: str, text: str) -> None:
        """Writes a UTF-8 text file, whole or not at all."""
        files.write_text(path, text, temporary_folder=self.path)

    def open_parquet_writer(
        self, path: str, schema: pa.Schema
    ) -> AbstractContextManager[pq.ParquetWriter]:
        """Opens a Parquet file for writing, whole or not at all."""
        return files.open_parquet_writer(path, schema, temporary_folder=self.path)

    def _join(self, name: str) -> str:
        return paths.join(self.path, name)


def find_size(path: str) -> int | None:
    """Return the size of a file in bytes; None if there is no file."""
    return int(listing.file_identity(path)["bytes"]) if files.is_there(path) else None


def ends_with(path: str, mark: bytes) -> bool:
    """Return whether a file exists and ends with a mark, which a truncated file does not."""
    size = find_size(path) or 0
    return size >= len(mark) and files.read_range(path, size - len(mark), size) == mark
