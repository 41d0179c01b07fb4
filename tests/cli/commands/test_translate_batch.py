"""`tt translate-batch`: chosen rows and columns, tables of Delta Lake and Iceberg, and mistakes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run
from deltalake import DeltaTable, write_deltalake


@pytest.fixture
def folder(tmp_path, trained_toy, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained_toy.run)
    table = pa.table({"id": [1, 2], "lang": ["en", "xx"], "text": ["one two", "three"]})
    (tmp_path / "in/year=2024").mkdir(parents=True)
    pq.write_table(table, tmp_path / "in/year=2024/a.parquet")
    return tmp_path


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--where", "id >"], "--where must be a condition in DuckDB's SQL, but DuckDB cannot"),
        (["--where", "ids = 1"], "--where uses the column 'ids', but "),
        (["--where", "CAST(text AS INT) > 1"], "--where fails at a row: Could not convert string"),
        (["--output-column", ""], "--output-column must be the name of a column"),
        (["--output-column", "id"], "Choose another name with --output-column"),
        (["--keep-columns", "id", "--drop-columns", "lang"], "--keep-columns and --drop-columns "
         "contradict each other. Remove either option"),
        (["--keep-columns", "id,,lang"], "--keep-columns must be a list of column names. "),
        (["--keep-columns", "ids"], "--keep-columns names the column 'ids', but "),
        (["--drop-columns", "ids"], "Correct --keep-columns or --drop-columns"),
        (["--target-language-column", "year"], "--target-language-column must be a column of "),
    ],
)  # fmt: skip
def test_wrong_choices_are_refused_on_one_line(folder, capsys, flags, message):
    assert run("translate-batch", "in", "--text-column", "text", *flags) == 2
    assert message in last_error(capsys)
    assert not (folder / "translated").exists()


def test_rows_and_columns_are_chosen(folder, capsys):
    flags = ("--text-column", "text", "--beam-size", "1", "--output-column", "xx")
    where = ("--where", "lang = 'en' AND year = 2024", "--keep-columns", "id,text")
    assert run("translate-batch", "in", *flags, *where, "--dry-run") == 0
    assert "lang = 'en' AND year = 2024" in capsys.readouterr().out
    assert run("translate-batch", "in", *flags, *where) == 0
    shown = capsys.readouterr().err
    found = pq.read_table(
        folder / "translated/year=2024/a-00000-of-00001.parquet", partitioning=None
    )
    assert found.column_names == [
        "id", "text", "xx", "xx_score", "xx_status", "xx_error", "xx_flags",
    ]  # fmt: skip
    assert found["xx_status"].to_pylist() == ["ok", "skipped"]
    assert [cell is None for cell in found["xx"].to_pylist()] == [False, True]
    assert "skipped" in shown
    assert run("show", "translated") == 0
    assert "skipped" in capsys.readouterr().out


ROWS = pa.table({"id": [1, 2], "text": ["two one", "three"]})


@pytest.fixture
def lake(tmp_path, monkeypatch, trained_toy):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").symlink_to(trained_toy.run)
    write_deltalake("in", ROWS)
    return tmp_path


def test_a_delta_table(lake, capsys):
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
def test_mistakes_with_tables(lake, capsys, arguments, problem):
    before = sorted(path for path in lake.rglob("*") if path.is_file())
    assert run("translate-batch", *arguments) == 2
    assert problem in last_error(capsys)
    assert sorted(path for path in lake.rglob("*") if path.is_file()) == before
