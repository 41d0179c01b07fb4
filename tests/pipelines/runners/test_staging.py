"""Remote datasets and models are copied to the cache completely, once, and concurrently."""

import dataclasses
import errno
import io
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from memory_store import MemoryStore
from toy import write_dataset, write_vocabulary

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.errors import DiskFullError, UserError
from tt.model.formats.model_folder import CONFIG_FILE, WEIGHTS_FILE
from tt.model.storage import files
from tt.model.text.vocabulary import SHARED_MODEL, VOCABULARY_FILE, load_vocabularies
from tt.pipelines.runners.staging import stage_dataset, stage_model

REMOTE = "mem://bucket/dataset"
SHARDS = [f"train-0000{i}-of-00004.tfrecord" for i in range(4)]
VALIDATION_SHARD = "validation-00000-of-00001.tfrecord"
# Every call reads the manifest and the vocabularies, to find out which files to copy.
READ_FIRST = [MANIFEST_FILE, VOCABULARY_FILE, SHARED_MODEL]


@pytest.fixture
def remote(tmp_path):
    """A dataset on `mem://`, as the bytes of each file to copy."""
    local = tmp_path / "local"
    manifest = write_dataset(local, train=1, validation=5, fingerprint="ab12")
    train = dataclasses.replace(manifest.splits["train"], shards=SHARDS)
    manifest = dataclasses.replace(manifest, splits={**manifest.splits, "train": train})
    content = {
        # The files have several sizes, and one is empty. Staging does not read their content.
        **{name: os.urandom(1000 * i + i) for i, name in enumerate(SHARDS)},
        MANIFEST_FILE: manifest.to_json().encode(),
        **{
            name: (local / name).read_bytes()
            for name in (VOCABULARY_FILE, SHARED_MODEL, VALIDATION_SHARD)
        },
    }
    MemoryStore.clear()
    for name, data in content.items():
        MemoryStore.put(f"{REMOTE}/{name}", data)
    MemoryStore.put(f"{REMOTE}/rejected-00000.parquet", b"not needed for training")
    yield content
    MemoryStore.clear()


@pytest.fixture
def opened(monkeypatch):
    """The names of the remote files that are opened, in order."""
    names = []
    on_open(monkeypatch, names.append)
    return names


def on_open(monkeypatch, action):
    """Call `action` with the name of each remote file before it is opened."""

    def observe(read):
        def observed(path):
            action(path.rpartition("/")[2])
            return read(path)

        return observed

    for name in ("open_binary", "read_bytes"):
        monkeypatch.setattr(files, name, observe(getattr(files, name)))


def stage(cache):
    """Stage the dataset; return the folder and the reported lines."""
    reports = []
    return stage_dataset(REMOTE, cache=cache, report=reports.append), reports


def contents(folder):
    """Return the bytes of each file in a folder; an empty dict if there is no folder."""
    found = folder.iterdir() if folder.exists() else ()
    return {path.name: path.read_bytes() for path in found}


def test_a_staged_dataset_equals_the_remote_dataset(tmp_path, remote, opened):
    folder, reports = stage(tmp_path / "cache")
    assert opened[-1] == MANIFEST_FILE, "the manifest is copied last"
    assert folder == tmp_path / "cache/ab12"
    assert contents(folder) == remote  # no rejected pairs and no temporary files
    size = f"{sum(map(len, remote.values())) / 1e6:.1g} MB"
    assert reports == [f"Staging {REMOTE} (8 of 8 files, {size}) to {folder}"]
    assert DatasetManifest.load(folder).to_json().encode() == remote[MANIFEST_FILE]
    assert load_vocabularies(folder).source.piece_count == 14


def test_separate_vocabularies_are_staged(tmp_path, remote):
    own = remote[VOCABULARY_FILE].replace(b'"shared": true', b'"shared": false')
    assert own != remote[VOCABULARY_FILE]
    MemoryStore.put(f"{REMOTE}/{VOCABULARY_FILE}", own)
    for name in ("source.spm", "target.spm"):
        MemoryStore.put(f"{REMOTE}/{name}", remote[SHARED_MODEL])
    MemoryStore.delete(f"{REMOTE}/{SHARED_MODEL}")
    folder, _ = stage(tmp_path)
    model = remote.pop(SHARED_MODEL)
    expected = {VOCABULARY_FILE: own, "source.spm": model, "target.spm": model}
    assert contents(folder) == remote | expected


@pytest.mark.parametrize("error", [PermissionError(13, "denied"), KeyboardInterrupt()])
def test_an_interrupted_copy_resumes(tmp_path, remote, monkeypatch, opened, error):
    calls = []

    def fail_at_the_third_copy(name):
        calls.append(name)
        if len(calls) == len(READ_FIRST) + 3:
            raise error

    with monkeypatch.context() as patch:
        on_open(patch, fail_at_the_third_copy)
        with pytest.raises((UserError, KeyboardInterrupt)):
            stage(tmp_path)
    copied = contents(tmp_path / "ab12")
    assert len(copied) == 2
    assert copied == {name: remote[name] for name in copied}
    assert MANIFEST_FILE not in copied
    opened.clear()
    folder, [line] = stage(tmp_path)
    assert "(6 of 8 files, " in line
    assert sorted(opened) == sorted([*READ_FIRST, *(set(remote) - set(copied))])
    assert contents(folder) == remote


def test_files_that_the_cache_lost_are_copied_again(tmp_path, remote, opened):
    folder, _ = stage(tmp_path)
    for name in (SHARDS[1], VOCABULARY_FILE, MANIFEST_FILE):
        for damage in (Path.unlink, lambda path: os.truncate(path, 100)):
            damage(folder / name)
            opened.clear()
            _, [line] = stage(tmp_path)
            assert "(1 of 8 files, " in line
            assert opened == [*READ_FIRST, name]
            assert contents(folder) == remote


class FullDisk(io.FileIO):
    """A file on a disk that has room for only 1,000 bytes of it."""

    def write(self, data):
        if self.tell() + len(data) > 1000:
            super().write(data[: 1000 - self.tell()])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(data)


def test_a_full_disk_leaves_no_partial_file(tmp_path, remote, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Path, "open", lambda path, mode="r", **_: FullDisk(path, mode))
        with pytest.raises(DiskFullError) as raised:
            stage(tmp_path)
    message = str(raised.value)
    assert message.startswith(f"{tmp_path}/ab12/")
    assert f"cannot be written: {os.strerror(errno.ENOSPC)}. Free some space and run" in message
    assert message.endswith("or choose another cache folder (XDG_CACHE_HOME)")
    assert "\n" not in message
    found = contents(tmp_path / "ab12")
    assert found == {name: remote[name] for name in found}
    assert set(found) <= {name for name, data in remote.items() if len(data) <= 1000}
    assert contents(stage(tmp_path)[0]) == remote


def test_an_unwritable_cache_gives_a_one_line_error(tmp_path, remote):
    (tmp_path / "cache").write_text("a file, not a folder")
    with pytest.raises(UserError, match=r"/cache/ab12/.* cannot be written: .*cache folder \(XDG"):
        stage(tmp_path / "cache")


@pytest.mark.parametrize("name", [SHARED_MODEL, SHARDS[3]])
def test_a_missing_file_of_a_dataset_gives_a_one_line_error(tmp_path, remote, name):
    MemoryStore.delete(f"{REMOTE}/{name}")
    with pytest.raises(UserError, match=rf"^{REMOTE}/{name} cannot be read: [^\n]*$"):
        stage(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "local"]  # nothing was copied before the error


@pytest.mark.parametrize("name", [MANIFEST_FILE, SHARDS[3]])
def test_an_unreadable_file_gives_a_one_line_error(tmp_path, remote, monkeypatch, name):
    def forbid(opened):
        if opened == name:
            raise PermissionError(13, "no access")

    on_open(monkeypatch, forbid)
    with pytest.raises(UserError, match=rf"{REMOTE}/{name} .*no access[).]"):
        stage(tmp_path)
    assert MANIFEST_FILE not in contents(tmp_path / "ab12")


def test_a_truncated_file_is_not_kept(tmp_path, remote, monkeypatch):
    def cut(path):
        return io.BytesIO(MemoryStore.read(path)[: 3000 if path.endswith(SHARDS[3]) else None])

    monkeypatch.setattr(files, "open_binary", cut)
    message = rf"^{REMOTE}/{SHARDS[3]} should have 3,003 bytes\. Received: 3,000, because"
    with pytest.raises(UserError, match=message):
        stage(tmp_path)
    found = contents(tmp_path / "ab12")
    assert found == {name: remote[name] for name in found}
    assert not {SHARDS[3], MANIFEST_FILE} & set(found)


def test_an_unfinished_dataset_is_not_staged(tmp_path, remote):
    MemoryStore.delete(f"{REMOTE}/{MANIFEST_FILE}")
    with pytest.raises(UserError, match=rf"^{REMOTE} is not a finished dataset folder"):
        stage(tmp_path)


@pytest.mark.parametrize("old", [SHARDS[1], "ab12"])
def test_names_that_point_outside_the_cache_are_refused(tmp_path, remote, old):
    for new in ("..", "../evil", "/evil", "a/b", ".hidden", ""):
        changed = remote[MANIFEST_FILE].replace(f'"{old}"'.encode(), f'"{new}"'.encode())
        assert changed != remote[MANIFEST_FILE]
        MemoryStore.put(f"{REMOTE}/{MANIFEST_FILE}", changed)
        message = rf"must name files inside its folder\. Received: '{new}'\. "
        with pytest.raises(UserError, match=message):
            stage(tmp_path / "cache")
    assert list(tmp_path.iterdir()) == [tmp_path / "local"]


def test_files_of_killed_processes_are_deleted_after_a_day(tmp_path, remote):
    folder, _ = stage(tmp_path)
    left = folder / f"{SHARDS[1]}.0123.tmp"
    written = folder / f"{SHARDS[1]}.4567.tmp"  # another process is writing it
    for path, hours in {left: 25, written: 23}.items():
        path.write_bytes(b"part")
        os.utime(path, (time.time() - hours * 3600,) * 2)
    assert stage(tmp_path) == (folder, [])
    assert contents(folder) == {**remote, written.name: b"part"}


def test_a_local_dataset_is_not_copied(tmp_path):
    missing = tmp_path / "nowhere"
    assert stage_dataset(str(missing), cache=tmp_path / "cache", report=pytest.fail) == missing
    assert stage_dataset("dataset", cache=tmp_path / "cache", report=pytest.fail) == Path("dataset")
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------- models

REMOTE_MODEL = "mem://bucket/run/model"


@pytest.fixture
def remote_model(tmp_path):
    """A model on `mem://`, as the bytes of each file to copy."""
    write_vocabulary(tmp_path / "vocabulary")
    content = {
        CONFIG_FILE: b"{}",
        WEIGHTS_FILE: os.urandom(5000),
        **{p.name: p.read_bytes() for p in (tmp_path / "vocabulary").iterdir()},
    }
    MemoryStore.clear()
    for name, data in content.items():
        MemoryStore.put(f"{REMOTE_MODEL}/{name}", data)
    MemoryStore.put("mem://bucket/run/config.json", b"of the run")
    MemoryStore.put(f"{REMOTE_MODEL}/notes.txt", b"not needed")
    yield content
    MemoryStore.clear()


def stage_remote(cache, model=REMOTE_MODEL):
    """Stage a model; return the folder and the reported lines."""
    reports = []
    return stage_model(model, cache=cache, report=reports.append), reports


@pytest.mark.parametrize("given", ["mem://bucket/run", "mem://bucket/run/", f"{REMOTE_MODEL}/"])
def test_a_run_folder_is_staged_as_its_model(tmp_path, remote_model, opened, given):
    folder, _ = stage_remote(tmp_path)
    read = len(opened)
    assert stage_remote(tmp_path, given) == (folder, [])
    assert len(opened) == read == 4, "each file is downloaded once"


def test_a_changed_model_is_staged_next_to_the_old_one(tmp_path, remote_model):
    old, _ = stage_remote(tmp_path / "cache")
    MemoryStore.put(f"{REMOTE_MODEL}/{WEIGHTS_FILE}", os.urandom(5000))  # the same size
    new, reports = stage_remote(tmp_path / "cache")
    assert new != old
    assert len(reports) == 1
    assert contents(old) == remote_model
    assert contents(new)[WEIGHTS_FILE] != remote_model[WEIGHTS_FILE]


def test_several_processes_may_stage_a_model_at_once(tmp_path, remote_model, monkeypatch):
    all_read = threading.Barrier(4)
    on_open(monkeypatch, lambda name: name == WEIGHTS_FILE and all_read.wait(timeout=60))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: stage_remote(tmp_path / "cache")[0], range(4)))
    assert len(set(found)) == 1
    assert contents(found[0]) == remote_model
    assert list((tmp_path / "cache").iterdir()) == found[:1]


def test_a_model_that_changes_during_the_copy_is_not_kept(tmp_path, remote_model, monkeypatch):
    def export_again(name):
        if name == WEIGHTS_FILE:
            MemoryStore.put(f"{REMOTE_MODEL}/{CONFIG_FILE}", b"[]")

    on_open(monkeypatch, export_again)
    with pytest.raises(UserError, match=rf"^{REMOTE_MODEL} was changed while it was copied\. Run "):
        stage_remote(tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_ctranslate2_model_is_staged_with_its_vocabulary(tmp_path, remote_model):
    names = {"model.bin": b"weights", "shared_vocabulary.json": b"[]", CONFIG_FILE: b"{}"}
    exported = {n: d for n, d in remote_model.items() if n != WEIGHTS_FILE} | names
    for name, data in exported.items():
        MemoryStore.put(f"mem://bucket/exported/{name}", data)
    folder, _ = stage_remote(tmp_path, "mem://bucket/exported")
    assert contents(folder) == exported
    assert stage_model(str(folder), cache=tmp_path / "no", report=pytest.fail) == folder


def test_a_local_model_is_not_copied(tmp_path, random_model):
    for given in (random_model.parent, random_model):
        staged = stage_model(str(given), cache=tmp_path / "cache", report=pytest.fail)
        assert staged == random_model
    with pytest.raises(UserError, match="no model folder at"):
        stage_model(str(tmp_path / "nowhere"), cache=tmp_path / "cache", report=pytest.fail)
    assert not (tmp_path / "cache").exists()


@pytest.mark.parametrize("deleted", [CONFIG_FILE, VOCABULARY_FILE])
def test_an_incomplete_model_gives_a_one_line_error(tmp_path, remote_model, deleted):
    MemoryStore.delete(f"{REMOTE_MODEL}/{deleted}")
    with pytest.raises(UserError, match=r"^mem://bucket/run contains no exported model ") as caught:
        stage_remote(tmp_path / "cache", "mem://bucket/run")
    assert "\n" not in str(caught.value)
    assert not [path for path in (tmp_path / "cache").glob("*") if path.is_dir()]
