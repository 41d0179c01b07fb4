"""Files and folders survive a power loss: first the content, then the name, then deletions."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest
from disk_order import DiskOrder
from trainers import changed, ignore, make_trainer
from translation_jobs import translate, write

from tt.model.errors import DiskFullError
from tt.model.folders import atomic_folder, make_folder, publish
from tt.model.storage import files
from tt.model.training.exporting import AverageRequest, ExportRequest
from tt.model.training.run_folder import RunFolder
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.reports.folders import write_whole_file


def fill(folder):
    (folder / "inside").mkdir()
    (folder / "a").write_text("a")
    (folder / "inside/b").write_text("b")


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EACCES])
def test_folders_that_cannot_be_synced_are_no_error(number, tmp_path, monkeypatch):
    (tmp_path / "file.tmp").write_text("a")

    def fsync(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").is_dir():
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    publish(tmp_path / "file.tmp", tmp_path / "file")
    assert (tmp_path / "file").read_text() == "a"


def test_content_that_cannot_be_synced_is_not_published(tmp_path, monkeypatch):
    def fsync(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(DiskFullError, match=r"file cannot be written: No space left on device"):
        files.write_text(str(tmp_path / "file"), "a", temporary_folder=str(tmp_path))
    assert list(tmp_path.iterdir()) == []


def test_every_writer_publishes_in_order(tmp_path):
    folder = tmp_path / "folder"
    with DiskOrder(tmp_path) as order:
        for is_shared in (False, False, True):
            with atomic_folder(tmp_path / f"atomic-{is_shared}", is_shared=is_shared) as made:
                fill(made)
        make_folder(folder)
        RunFolder(folder).write(b"a", "index")
        files.copy(f"{folder}/index", f"{folder}/copy", temporary_folder=str(tmp_path))
        assert order.is_synced(folder / "copy")
        files.write_text(f"{folder}/text", "a", temporary_folder=str(tmp_path))
        write_whole_file(folder / "page", b"a")
    assert order.violations == []
    assert order.published == [
        "atomic-False", "atomic-False", "atomic-True", "folder/index", "folder/copy",
        "folder/text", "folder/page",
    ]  # fmt: skip


@pytest.mark.usefixtures("eager")
def test_old_checkpoints_are_deleted_after_the_new_index_is_synced(toy_dataset, tmp_path):
    run, deleted = tmp_path / "run", []
    folder = run / "checkpoints"

    def watch(kind, path, new=None):
        if new == folder / "checkpoints.json":
            kept = json.loads(path.read_text())
            for name in [*kept["last"], *kept["best"]]:
                parts = list(folder.glob(f"{name}.*"))
                assert len(parts) == 2
                assert all(map(order.is_synced, parts))
        if kind == "remove" and path.parent == folder and not path.name.endswith("_temp"):
            index = (folder / "checkpoints.json").read_text()
            assert path.name.partition(".")[0] not in index
            deleted.append(path.name.partition(".")[0])

    training = changed(steps=6, save_every=2, validate_every=2, keep_checkpoints=1)
    with DiskOrder(tmp_path, watch=watch) as order:
        make_trainer(toy_dataset, run, training=training).train(ignore)
    assert order.violations == []
    assert {"ckpt-2", "ckpt-4"} <= {*deleted}
    assert "ckpt-6" not in deleted
    names = [name for name in order.published if not name.startswith("run/vocabulary/")]
    assert names[0] == "run/config.json"
    assert order.published.count("run/checkpoints/checkpoints.json") == 3
    assert {"run/model", "run/best_model"} <= {*order.published}


@pytest.mark.usefixtures("eager")
def test_exports_are_published_in_order(finish_run, tmp_path):
    run = finish_run(tmp_path / "run")
    with DiskOrder(tmp_path) as order:
        AverageRequest(run=str(run), output=str(tmp_path / "averaged")).write()
        export = ExportRequest(model=str(run), output=str(tmp_path / "copy"), overwrite=True)
        export.write()
        export.write()
    assert order.violations == []
    assert order.published == ["averaged", "copy", "copy"]


def test_dataset_is_published_in_order(tmp_path):
    lines = [f"this is sentence number {i}\tdies ist der Satz Nummer {i}\n" for i in range(400)]
    (tmp_path / "corpus.tsv").write_text("".join(lines))
    output = tmp_path / "dataset"
    options = PreprocessOptions(
        output=str(output), shards=2, vocabulary_size=80, filters=Filters(min_letters=0)
    )
    with DiskOrder(tmp_path) as order:
        PreprocessRequest(corpora=(f"{tmp_path}/corpus.tsv",), options=options).plan().run()
    assert order.violations == []
    *others, last = order.published
    assert last == "dataset/dataset.json"
    kinds = {name.rpartition("/")[2].partition("-")[0] for name in others}
    assert {"spill", "train", "validation", "shard", "vocabulary.json", "run.json"} <= kinds


def test_translation_is_published_in_order(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": [f"text {i}" for i in range(50)]})
    with DiskOrder(tmp_path) as order:
        translate(source, tmp_path / "out", text_columns=("text",))
    assert order.violations == []
    names = [name.removeprefix("out/") for name in order.published]
    assert names[-1].endswith("manifest.json")
    assert any(name.endswith(".parquet") for name in names)
