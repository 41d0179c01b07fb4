"""Choose the human translations that a memory does not contain yet.

DuckDB keeps the translations, and writes large intermediate results to a temporary folder.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from tt.pipelines.memory.entries import KNOWN_COLUMNS, corrections_table, read_human

_MEMORY = "512MB"
_AT_ONCE = 16_384
_PAIR = ("place", "key", "source", "target")


class NewCorrections:
    """The human translations of a request.

    Args:
      folder: An empty temporary folder.
      source_language: The code of the source language.
      target_language: The code of the target language.
      created: The time of the request.
    """

    def __init__(
        self,
        folder: Path,
        *,
        source_language: str,
        target_language: str,
        created: datetime.datetime,
    ) -> None:
        self._database = duckdb.connect(
            str(folder / "pairs.duckdb"), config={"memory_limit": _MEMORY, "threads": 1}
        )
        self._database.execute(
            "CREATE TABLE pairs (place BIGINT, key BLOB, source VARCHAR, target VARCHAR)"
        )
        self._names = {"source_language": source_language, "target_language": target_language}
        self._created = created
        self._pending: list[tuple[str, str]] = []
        self._places = 0

    def keep(self, source: str, target: str) -> None:
        """Add a translation."""
        self._pending.append((source, target))
        if len(self._pending) == _AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        batch = corrections_table(self._pending, created=self._created, **self._names)
        places = range(self._places, self._places + batch.num_rows)
        batch = batch.append_column("place", pa.array(places, pa.int64()))
        self._database.register("batch", batch)
        self._database.execute(f"INSERT INTO pairs SELECT {', '.join(_PAIR)} FROM batch")
        self._places += batch.num_rows
        self._pending = []

    def compare(self, memory: str) -> int:
        """Find the translations that a memory lacks, and return the number of conflicts.

        If a text has several translations, the last one counts. The others are conflicts, except
        repetitions.

        Args:
          memory: The folder of the memory.
        """
        self._flush()
        reader = pa.RecordBatchReader.from_batches(KNOWN_COLUMNS, read_human(memory))
        self._database.register("human", reader)
        self._database.execute(
            "CREATE TABLE known AS SELECT key, arg_max(target, created) AS target "
            "FROM human SEMI JOIN pairs USING (key) GROUP BY key"
        )
        self._database.execute(
            "CREATE TABLE last AS SELECT max(place) AS place, count(DISTINCT target) - 1 AS others "
            "FROM pairs GROUP BY key"
        )
        [(conflicts,)] = self._database.sql("SELECT sum(others) FROM last").fetchall()
        return int(conflicts or 0)

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the entries to add, sorted by key, after `compare`."""
        reader = self._database.sql(
            "SELECT source, pairs.target FROM pairs JOIN last USING (place) "
            "LEFT JOIN known USING (key) WHERE known.target IS DISTINCT FROM pairs.target "
            "ORDER BY key"
        ).to_arrow_reader(_AT_ONCE)
        for batch in reader:
            columns = (batch[name].to_pylist() for name in ("source", "target"))
            pairs = zip(*columns, strict=True)
            table = corrections_table(pairs, created=self._created, **self._names)
            yield from table.to_batches()
