"""`tt translate-batch` with tables of Delta Lake and Iceberg: one line for each mistake."""

from __future__ import annotations

import pyarrow as pa
import pytest
from command_line import last_error, run
from deltalake import DeltaTable, write_deltalake

ROWS = pa.table({"id": [1, 2], "text": ["two one", "three"]})


@pytest.fixture
def folder(tmp_path, monkeypatch, trained_toy):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained_toy.run)
    write_deltalake("in", ROWS)
    return tmp_path


def test_a_delta_table(folder, capsys):
    command = ("translate-batch", "delta:in@0", "--output", "delta:out", "--beam-size", "1")
    assert run(*command) == 0
    assert "Translated: delta:out" in capsys.readouterr().err
    assert DeltaTable("out").version() == 0
    assert run(*command) == 0
    assert "Already finished" in capsys.readouterr().err
    assert DeltaTable("out").version() == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("delta:nowhere",), "nowhere is not a Delta table"),
        (("delta:in@3",), "version 3 of the Delta table in does not exist"),
        (("iceberg:lake.products",), "a table must have the form iceberg:CATALOG"),
        (("iceberg:nowhere.ns.products",), "the Iceberg catalog 'nowhere' cannot be opened"),
        (("delta:in", "--output", "delta:out@1"), "Remove @1 from delta:out@1"),
        (("delta:in", "--output", "delta:in"), "is in the output folder"),
        (("delta:in", "--output", "delta:out", "--format", "csv"), "tables contain Parquet"),
        (("delta:in", "--output", "delta:out", "--overwrite"), "cannot replace files"),
        (("delta:in", "--output", "delta:out", "--retry-failed"), "cannot replace files"),
    ],
)
def test_mistakes(folder, capsys, arguments, problem):
    before = sorted(path for path in folder.rglob("*") if path.is_file())
    assert run("translate-batch", *arguments) == 2
    assert problem in last_error(capsys)
    assert sorted(path for path in folder.rglob("*") if path.is_file()) == before
