"""Random histories of a table, with killed jobs: the output has each row of the table once.

`TT_LAKE_HISTORIES=50` tries more histories than `make test` has time for.
"""

from __future__ import annotations

import os
import random
import signal

import pyarrow as pa
import pytest
from commands import Child
from fakes import reverse
from lake_jobs import translate_with_options
from lake_tables import LAKE, iceberg_catalog
from translation_jobs import outputs, read, translate

HISTORIES = int(os.environ.get("TT_LAKE_HISTORIES", "2"))
OPTIONS = {"unit_rows": 3, "text_columns": ("text",)}
KILLS = (
    ("os:replace", 30),
    ("tt.pipelines.tables.lakehouse:publish", 1),
    ("tt.pipelines.translate.last_step:write_json", 1),  # between the commit and the manifest
)


class History:
    """A table that changes, and its translation."""

    def __init__(self, lake, chooser, *, output, folder, is_partitioned):
        self.lake, self.chooser, self.output, self.folder = lake, chooser, output, folder
        self.partition_by = "day" if is_partitioned else None
        self.count = self.columns = 0
        self.append()

    def rows(self, numbers):
        words = [f"row {n} {self.chooser.randrange(100)}" for n in numbers]
        days = [f"d{n % 3}" for n in numbers]
        types = pa.schema([("id", pa.int64()), ("text", pa.string()), ("day", pa.string())])
        return pa.table({"id": numbers, "text": words, "day": days}, types)

    def some(self):
        return self.chooser.randrange(self.count)

    def append(self):
        numbers = list(range(self.count, self.count + self.chooser.randint(1, 9)))
        self.count = numbers[-1] + 1
        self.lake.append("in", self.rows(numbers), partition_by=self.partition_by)

    def update(self):
        self.lake.update("in", self.some(), f"new {self.chooser.randrange(100)}")

    def merge(self):
        if self.columns == 0:  # the rows have no other columns
            numbers = [self.some(), self.count, self.count + 1]
            self.count += 2
            self.lake.merge("in", self.rows(numbers))

    def delete(self):
        self.lake.delete("in", f"id >= {self.some()} and id < {self.some()}")

    def delete_all(self):
        self.lake.delete("in")

    def optimize(self):
        self.lake.rewrite("in")

    def gain(self):
        """Add a column to the table, and to the output if that is a table."""
        self.columns += 1
        self.lake.add_column("in", f"column_{self.columns}", pa.float64())
        if self.folder is None and self.lake.exists("out"):
            self.lake.add_column("out", f"column_{self.columns}", pa.float64())

    def kill(self):
        """Run the job, and kill it at a random moment."""
        where, most = self.chooser.choice(KILLS)
        environment = {name: os.environ[name] for name in os.environ if "ICEBERG" in name}
        child = Child(
            translate_with_options,
            (self.lake.address("in"), str(self.output), OPTIONS),
            hook={"where": where, "call": self.chooser.randint(1, most), "signals": ["SIGKILL"]},
            environment=environment,
        )
        ended = child.wait()
        assert ended.code in (0, -signal.SIGKILL), ended.lines

    def check(self):
        """Run the job, and compare its output with the table."""
        translate(self.lake.address("in"), self.output, **OPTIONS)
        expected = self.lake.read("in").sort_by("id").to_pylist()
        if self.folder is None:
            found = self.lake.read("out").to_pylist()
        else:
            tables = [read(self.folder / name) for name in outputs(self.folder)]
            found = [row for table in tables for row in table.to_pylist()]
        found.sort(key=lambda row: row["id"])
        assert [{name: row.get(name) for name in expected[0]} for row in found] == expected
        assert [row["translation"] for row in found] == [reverse(row["text"]) for row in expected]
        summary = translate(self.lake.address("in"), self.output, **OPTIONS)
        assert summary.already_finished
        assert summary.rows == len(expected)


@pytest.mark.filterwarnings("ignore:Delete operation did not match any records")
@pytest.mark.parametrize("seed", range(HISTORIES))
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_random_histories_of_a_table(kind, seed, tmp_path, monkeypatch):
    lake = LAKE[kind](tmp_path / "lake", iceberg_catalog(tmp_path / "lake", monkeypatch))
    folder = tmp_path / "out" if seed % 3 == 1 else None
    history = History(
        lake,
        random.Random(seed),
        output=folder or lake.address("out"),
        folder=folder,
        is_partitioned=seed % 2 == (kind == "delta"),
    )
    steps = [history.append, history.update, history.merge, history.delete, history.optimize]
    for _ in range(5):
        for _ in range(history.chooser.randint(1, 2)):
            history.chooser.choice([*steps, history.gain, history.delete_all])()
        if history.chooser.random() < 0.6:
            history.kill()
            history.chooser.choice([*steps, history.check])()
        history.check()
