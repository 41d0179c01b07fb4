"""Reports on folders on object stores equal reports on local folders."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import foreign_models
import obstore
import pyarrow as pa
import pytest
from command_line import last_error, run
from memory_store import MemoryStore
from translation_jobs import translate, write

ROOT = Path(__file__).parents[3]


def store(folder, name):
    """Copy a folder to a store in memory, and return its path there."""
    remote = f"mem://bucket/{name}"
    for path in folder.rglob("*"):
        if path.is_file():
            MemoryStore.put(f"{remote}/{path.relative_to(folder).as_posix()}", path.read_bytes())
    return remote


@pytest.fixture(autouse=True)
def _empty_store():
    MemoryStore.clear()


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    write(folder / "in.parquet", {"text": pa.array(["one two", None, "three"])})
    for name in ("parquet", "jsonl"):
        translate(folder / "in.parquet", folder / name, text_columns=("text",), format=name)
    return folder


@pytest.fixture(scope="module")
def folders(dataset, trained_toy, translated, tmp_path_factory):
    """Return a folder of each kind, by name."""
    foreign = tmp_path_factory.mktemp("foreign")
    foreign_models.argos(foreign)
    return {
        "dataset": dataset, "run": trained_toy.run, "model": trained_toy.run / "model",
        "parquet": translated / "parquet", "jsonl": translated / "jsonl", "foreign": foreign,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["dataset", "run", "model", "parquet", "jsonl", "foreign"])
def test_folder_is_shown_like_a_local_one(name, folders, capsys):
    shown = []
    for path in (str(folders[name]), store(folders[name], name), f"mem://bucket/{name}/"):
        assert run("show", path, "--json") == 0
        shown.append(capsys.readouterr().out.replace(path.rstrip("/"), "FOLDER"))
    assert "FOLDER" in shown[0]
    assert shown[1] == shown[0]
    assert shown[2] == shown[0]


def test_weights_of_a_model_are_not_read(folders, monkeypatch):
    remote, read = store(folders["model"], "model"), set()

    def record(function):
        def call(store, path, **options):
            read.add(path)
            return function(store, path, **options)

        return call

    for name in ("get", "get_range"):
        monkeypatch.setattr(obstore, name, record(getattr(obstore, name)))
    assert run("show", remote) == 0
    assert "model/config.json" in read
    assert "model/model.weights.h5" not in read


SHOW = """
import sys
sys.modules["tensorflow"] = sys.modules["keras"] = None  # importing it is an error
from pathlib import Path
from memory_store import MemoryStore
from tt.cli.main import main
for number, folder in enumerate(map(Path, sys.argv[1:])):
    for path in filter(Path.is_file, folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        MemoryStore.put(f"mem://bucket/{number}/{name}", path.read_bytes())
    for shown in (str(folder), f"mem://bucket/{number}"):
        try:
            main(["show", shown])
        except SystemExit as stopped:
            assert not stopped.code, shown
"""


def test_datasets_models_and_translations_are_shown_without_tensorflow(folders):
    paths = [folders[name] for name in ("dataset", "model", "foreign", "parquet")]
    found = subprocess.run(
        [sys.executable, "-c", SHOW, *map(str, paths)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "tests/support")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    for number in range(len(paths)):
        assert f"mem://bucket/{number}" in found.stdout


@pytest.mark.parametrize("name", ["dataset", "run", "model", "parquet"])
def test_report_on_a_store_equals_a_local_one(name, folders, tmp_path):
    pages = []
    for number, path in enumerate((str(folders[name]), store(folders[name], folders[name].name))):
        page = tmp_path / f"{number}.html"
        assert run("report", path, "--output", page) == 0
        text = page.read_text().replace(path, "FOLDER")
        pages.append(re.sub(r"\b[a-z][0-9a-f]{10}\b", "ID", text))  # Matplotlib's random names
    assert pages[0] == pages[1]


def test_other_commands_read_models_on_stores(folders, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remote = store(folders["run"], "run")
    assert run("attention", "one two", "--model", remote, "--output", tmp_path / "a.html") == 0
    assert (tmp_path / "a.html").is_file()
    assert run("export", remote, "--output", tmp_path / "copy") == 0
    weights = "model.weights.h5"
    expected = (folders["model"] / weights).read_bytes()
    assert (tmp_path / "copy" / weights).read_bytes() == expected
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"one two\n")))
    capsys.readouterr()
    assert run("translate", "--model", remote) == 0
    assert capsys.readouterr().out == "two one\n"
    store(folders["foreign"], "foreign")
    arguments = ("import", "ctranslate2", "mem://bucket/foreign", "--output", tmp_path / "imported")
    assert run(*arguments) == 0
    assert (tmp_path / "imported/model.bin").is_file()
    capsys.readouterr()
    MemoryStore.delete("mem://bucket/foreign/sentencepiece.model")
    assert run(*arguments, "--overwrite") == 2
    assert "mem://bucket/foreign" in last_error(capsys)


def test_evaluation_reads_stores(folders, translated, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("eins zwei\n\ndrei\n")
    MemoryStore.put("mem://bucket/lines.txt", b"eins zwei\n\ndrei\n")
    write(translated / "references.parquet", {"reference": ["eins zwei", "", "drei"]})
    content = (translated / "references.parquet").read_bytes()
    MemoryStore.put("mem://bucket/references.parquet", content)
    local, remote = folders["parquet"], store(folders["parquet"], "parquet")
    table = ("--reference-column", "reference")
    printed = []
    for folder, texts, references in (
        (local, tmp_path / "lines.txt", translated / "references.parquet"),
        (remote, "mem://bucket/lines.txt", "mem://bucket/references.parquet"),
    ):
        assert run("evaluate", folder, "--reference", texts, "--json") == 0
        assert run("evaluate", texts, "--reference", references, *table, "--json") == 0
        found = capsys.readouterr().out.replace(str(folder), "A").replace(str(texts), "B")
        printed.append(found)
    assert printed[0] == printed[1]
    assert '"rows": 3' in printed[0]
