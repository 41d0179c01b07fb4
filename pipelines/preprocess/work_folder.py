"""The work folder of a run, and the names of its files, which exist until the run finishes."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq

from tt.model.storage import files, listing, paths

WORK_FOLDER = "_work"  # name of the folder in the dataset folder
RUN_FILE = "run.json"
# The paths of a run's files, relative to the dataset folder. The user may have other files there.
OWN_FILES = re.compile(
    rf"{WORK_FOLDER}/(?:lock|job\.json|unfinished\.[^/]+|[0-9a-f]{{16}}-\d+/(?:run\.json|"
    r"sources\.jsonl|(?:units|chunk|spill|judged|shard|digest|unfinished)[-.][^/]+))"
)


@dataclasses.dataclass(frozen=True)
class WorkFolder:
    """The work folder of a run on any file system: `_work/FINGERPRINT-VERSION` in the dataset.

    The run writes files under temporary names in this folder. It moves each complete file to its
    final path, which is in this folder or in the dataset folder.
    """

    path: str

    @property
    def run_file(self) -> str:
        """The file with the fingerprint and the options of the run that claims the dataset."""
        return self._join(RUN_FILE)

    @property
    def sources(self) -> str:
        """The file that lists the sources; see `SourceList`."""
        return self._join("sources.jsonl")

    def index(self, order: int) -> str:
        """Return the path of the JSON list with the row counts of a group's units.

        The name of a group is the position of its first source.
        """
        return self._join(f"units-{order:03d}.json")

    def chunk(self, order: int, index: int) -> str:
        """Return the path of the chunk file of a unit whose sources are not read directly."""
        return self._join(f"chunk-{order:03d}-{index:05d}.arrow")

    def spill(self, label: str) -> str:
        """Return the path of the spill of a unit. An existing spill marks the unit as finished."""
        return self._join(f"spill-{label}")

    def judgments(self, label: str) -> str:
        """Return the path of the judgments of a unit's pairs; see `UnitJudgments`."""
        return self._join(f"judged-{label}.npz")

    def shard_statistics(self, split: str, shard: int) -> str:
        """Return the path of a shard's statistics. An existing file marks the shard as finished."""
        return self._join(f"shard-{split}-{shard:05d}.json")

    def digest(self, vocabulary: str) -> str:
        """Return the path of a vocabulary's digest, which is written after the vocabulary."""
        return self._join(f"digest-{vocabulary}")

    def list_finished(self) -> Mapping[str, list[str]]:
        """Return the paths of the finished files by kind: units, chunk, judged, spill, shard."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for name in listing.list_names(self.path):
            if not name.endswith(".tmp"):
                found[name.partition("-")[0]].append(self._join(name))
        return found

    def write_whole(self, path: str) -> AbstractContextManager[IO[bytes]]:
        """Open a file for writing, which gets its name only when it is complete."""
        return files.write_whole(path, temporary_folder=self.path)

    def write_text(self, path: str, text: str) -> None:
        """Write a UTF-8 text file, which gets its name only when it is complete."""
        files.write_text(path, text, temporary_folder=self.path)

    @contextlib.contextmanager
    def open_parquet_writer(self, path: str, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
        """Open a Parquet file for writing, which gets its name only when it is complete."""
        with (
            self.write_whole(path) as file,
            pq.ParquetWriter(file, schema, compression="zstd") as writer,
        ):
            yield writer

    def _join(self, name: str) -> str:
        return paths.join(self.path, name)


def ends_with(path: str, mark: bytes) -> bool:
    """Return whether a file exists and ends with a mark, which truncated files lack."""
    size = listing.find_size(path) or 0
    return size >= len(mark) and files.read_range(path, size - len(mark), size) == mark
