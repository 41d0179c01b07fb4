"""One model per process: which steps share it, and when it is released."""

from __future__ import annotations

import gc
import os
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from apache_beam.internal import pickler
from fakes import Reverser
from memory_store import MemoryStore

from tt.model.formats.model_folder import CONFIG_FILE, WEIGHTS_FILE
from tt.model.text.vocabulary import SHARED_MODEL, VOCABULARY_FILE
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference import model_loading
from tt.pipelines.inference.model_copies import SharedTranslator
from tt.pipelines.inference.model_loading import ModelLoader

loads: list[Reverser] = []
begun = threading.Event()


def load() -> Reverser:
    begun.wait(0.05)  # lets other threads ask for the model as well
    made = Reverser()
    loads.append(made)
    return made


@pytest.fixture(autouse=True)
def no_loads():
    loads.clear()
    yield
    loads.clear()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder that looks like a model folder."""
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(model_loading, "load_translator", lambda *_, **__: load())
    return tmp_path


def copy_of(load) -> SharedTranslator:
    """Return the translator of a step after it was sent to a worker."""
    return pickler.loads(pickler.dumps(SharedTranslator(load)))


def test_steps_and_threads_with_one_loader_share_one_model():
    steps = [copy_of(load) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(SharedTranslator.acquire, steps))
    assert len(loads) == 1
    assert all(each is loads[0] for each in found)


@pytest.fixture
def remote(tmp_path, monkeypatch):
    """A model on another file system, not yet copied; lists the messages about copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(model_loading, "load_translator", lambda *_, **__: load())
    MemoryStore.clear()
    for name in (CONFIG_FILE, WEIGHTS_FILE, VOCABULARY_FILE, SHARED_MODEL):
        MemoryStore.put(f"mem://bucket/model/{name}", name.encode())
    staged = []
    monkeypatch.setattr(model_loading._LOGGER, "info", staged.append)
    yield staged
    MemoryStore.clear()


def test_remote_model_is_copied_and_loaded_once_per_worker(remote, tmp_path):
    loader = ModelLoader("mem://bucket/model", Decoding())
    steps = [copy_of(loader) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(SharedTranslator.acquire, steps))
    assert len(remote) == 1, remote
    assert len(loads) == 1
    assert all(each is loads[0] for each in found)
    for file in tmp_path.glob("cache/**/*"):
        os.utime(file)  # as if another process on this machine had copied the model again
    assert copy_of(loader).acquire() is loads[0]
    MemoryStore.put(f"mem://bucket/model/{WEIGHTS_FILE}", b"trained for longer")
    assert copy_of(loader).acquire() is not found[0]
    assert (len(remote), len(loads)) == (2, 2)


def test_model_of_a_folder_is_kept_until_another_model_is_loaded(folder):
    loader = ModelLoader(str(folder), Decoding())
    kept = weakref.ref(copy_of(loader).acquire())
    loads.clear()
    gc.collect()
    assert kept() is copy_of(loader).acquire()
    copy_of(ModelLoader(str(folder), Decoding(beam_size=2))).acquire()
    gc.collect()
    assert kept() is None


def test_failed_load_is_repeated_by_the_next_step(folder):
    (folder / WEIGHTS_FILE).rename(folder / "elsewhere")
    shared = SharedTranslator(ModelLoader(str(folder), Decoding()))
    for _ in range(2):
        with pytest.raises(Exception, match="no exported model"):
            shared.acquire()
    (folder / "elsewhere").rename(folder / WEIGHTS_FILE)
    assert shared.acquire() is loads[0]
