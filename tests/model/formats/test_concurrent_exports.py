"""Simultaneous exports and imports into one folder: one of them wins, and files never mix."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event

import pytest
from foreign_models import marian
from models import write_model

from tt.model.errors import UserError
from tt.model.folders import atomic_folder
from tt.model.formats import exports
from tt.model.formats.exports import copy_model, export_ctranslate2, export_saved_model
from tt.model.formats.foreign import ABOUT_FILE
from tt.model.formats.model_folder import CONFIG_FILE, WEIGHTS_FILE, digest_path
from tt.model.imports import importing
from tt.model.imports.importing import ImportRequest
from tt.model.transformer.search_options import Decoding

OPUS = {
    "zero_start": True, "source_bos": False, "projection_bias": True, "output_bias": True,
    "layers": 1,
}  # fmt: skip
EXPORTS = {
    "model": copy_model,
    "saved-model": lambda model, output: export_saved_model(
        model, output, decoding=Decoding(beam_size=1, max_extra_tokens=2)
    ),
    "ctranslate2": export_ctranslate2,
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Two models with the same architecture and different weights."""
    folder = tmp_path_factory.mktemp("models")
    return [write_model(folder / name, end=end, **OPUS) for name, end in (("a", 3.0), ("b", 4.0))]


def check_digests(folder):
    """Check that the files of an export match their digests."""
    [identity] = [
        path
        for path in folder.rglob("*.json")
        if path.name in (ABOUT_FILE, CONFIG_FILE) and "digests" in path.read_text()
    ]
    digests = json.loads(identity.read_text())["digests"]
    assert {name: digest_path(folder / name) for name in digests} == digests


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_simultaneous_exports_do_not_mix_files(models, tmp_path, monkeypatch):
    """Both threads copy their weights before either of them publishes its folder."""
    both_wrote = Barrier(2, timeout=60)

    def write_after_both(*arguments):
        both_wrote.wait()
        write_config(*arguments)

    write_config = exports.write_config
    monkeypatch.setattr(exports, "write_config", write_after_both)
    # Simulate a file system without locks, on which only unique names separate processes.
    monkeypatch.setattr("tt.model.folders.fcntl.flock", raise_no_locks)
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(copy_model, model, tmp_path / "output") for model in models]
        errors = [job.exception() for job in ended]
    [winner] = [model for model, error in zip(models, errors, strict=True) if error is None]
    [error] = [error for error in errors if error is not None]
    assert isinstance(error, UserError)
    assert "output cannot be written: Directory not empty" in str(error)
    check_digests(tmp_path / "output")
    found = digest_path(tmp_path / "output" / WEIGHTS_FILE)
    assert found == digest_path(winner / WEIGHTS_FILE)
    assert names(tmp_path) == ["output"]


def raise_no_locks(*arguments):
    raise OSError(38, "Function not implemented")


@pytest.mark.parametrize("name", EXPORTS)
def test_export_is_refused_while_another_export_writes(models, tmp_path, monkeypatch, name):
    export = EXPORTS[name]
    is_writing, may_end = Event(), Event()

    def wait_and_write(*arguments, **keywords):
        is_writing.set()
        assert may_end.wait(60)
        write_about(*arguments, **keywords)

    function = "write_config" if name == "model" else "write_about"
    write_about = getattr(exports, function)
    monkeypatch.setattr(exports, function, wait_and_write)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(export, models[0], tmp_path / "output")
        try:
            assert is_writing.wait(60)
            with pytest.raises(UserError, match=r"^another process is writing .*/output \(process"):
                export(models[1], tmp_path / "output")
        finally:
            may_end.set()
        first.result()
    check_digests(tmp_path / "output")
    assert names(tmp_path) == ["output"]


@pytest.mark.parametrize("name", EXPORTS)
def test_export_does_not_replace_an_export_that_finished_first(models, tmp_path, monkeypatch, name):
    """Another process publishes its export between the check of the output and the lock."""
    export = EXPORTS[name]

    def check_first(output, **keywords):
        check_output(output, **keywords)
        (output / "published").mkdir(parents=True)

    check_output = exports.check_output
    monkeypatch.setattr(exports, "check_output", check_first)
    with pytest.raises(UserError, match="output already exists: another process has just written"):
        export(models[1], tmp_path / "output")
    assert names(tmp_path / "output") == ["published"]
    assert names(tmp_path) == ["output"]


def test_import_is_refused_while_another_process_writes(tmp_path):
    layout = marian(tmp_path / "opus")
    output = tmp_path / "imported"
    command = [sys.executable, "-m", "tt.cli.main", "import", "ctranslate2", str(layout.folder)]
    with atomic_folder(output):
        ended = subprocess.run(
            [*command, "--output", str(output)], capture_output=True, text=True, check=False
        )
        assert ended.returncode == 2
        [line] = ended.stderr.splitlines()
        assert f"another process is writing {output} (process " in line
        assert names(tmp_path) != ["opus"]  # there are the lock and a temporary folder
    assert names(output) == []


def test_import_does_not_replace_an_import_that_finished_first(tmp_path, monkeypatch):
    layout = marian(tmp_path / "opus")
    output = tmp_path / "imported"
    request = ImportRequest(format="ctranslate2", model=str(layout.folder), output=str(output))
    monkeypatch.setattr(importing, "check_output", lambda *_, **__: (output / "x").mkdir(parents=1))
    with pytest.raises(UserError, match="another process has just written it"):
        request.write()
    assert names(output) == ["x"]
