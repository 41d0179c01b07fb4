"""Loading a model in a worker, and dividing the cores between parallel translations."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest
from memory_store import MemoryStore
from models import model_texts, translated

from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.formats.model_folder import model_fingerprint
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_copies import ModelCopies, plan_copies
from tt.pipelines.inference.model_loading import ModelLoader

TEXTS = model_texts(3)


@pytest.fixture
def four_cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)), raising=False)


@pytest.mark.parametrize(
    ("copies", "arguments", "expected"),
    [
        (None, [], ModelCopies(4, 1)),
        (1, [], ModelCopies(1, 4)),
        (2, [], ModelCopies(2, 2)),
        (3, [], ModelCopies(3, 1)),
        (4, [], ModelCopies(4, 1)),
        (None, ["--direct_num_workers=2"], ModelCopies(2, 2)),
        (2, ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
         ModelCopies(2, 2)),
        (None, ["--direct_num_workers=0"], ModelCopies(4, 1)),
        (None, ["--direct_running_mode=in_memory"], ModelCopies(1, 4)),
        (None, ["--runner=DataflowRunner", "--direct_num_workers=2"], ModelCopies(None, 1)),
        (None, ["--runner", "FlinkRunner"], ModelCopies(None, 1)),
        (2, ["--runner=DirectRunner"], ModelCopies(2, 2)),
        (None, ["--runner", "fnapirunner", "--direct_num_workers=2"], ModelCopies(2, 2)),
    ],
)  # fmt: skip
def test_copies_and_threads_fill_the_cores(four_cores, copies, arguments, expected):
    assert plan_copies(copies, beam_arguments=arguments) == expected


@pytest.mark.parametrize(
    ("copies", "arguments", "message"),
    [
        (0, [], r"`copies` must be at least 1\. Received: 0"),
        (5, [], r"`copies` must be at most 4, this machine's cores\. Received: 5"),
        (None, ["--direct_num_workers=1000"],
         r"--direct_num_workers must be at most 4, this machine's cores\. Received: 1000"),
        (3, ["--direct_num_workers=2"], "`copies` is 3, but Beam's options ask for 2 workers"),
        (2, ["--runner=DataflowRunner"],
         r"`copies` works only with a direct runner.* Received: 2"),
    ],
)  # fmt: skip
def test_impossible_numbers_of_copies_are_refused(four_cores, copies, arguments, message):
    with pytest.raises(UserError, match=message):
        plan_copies(copies, beam_arguments=arguments)


def test_number_of_parallel_translations_is_described():
    fields = [(1, 2), (2, 1), (None, 1)]
    assert [ModelCopies(*each).describe() for each in fields] == [
        "Translating 1 unit in parallel, with 2 threads each",
        "Translating 2 units in parallel, with 1 thread each",
        "Translating in the workers that the runner starts",
    ]


def test_worker_refuses_a_model_that_has_changed(random_model, tmp_path):
    folder = shutil.copytree(random_model, tmp_path / "model")
    planned = model_fingerprint(folder)
    loader = ModelLoader(str(folder), Decoding(), fingerprint=planned)
    assert loader().prepare(TEXTS)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"dropout": 0.5}))
    with pytest.raises(
        UserError, match=rf"^the model at {folder} has changed .* was {planned} and is now "
    ):
        loader()
    assert ModelLoader(str(folder), Decoding())().prepare(TEXTS), "None accepts any model"


def test_worker_copies_a_remote_model_and_needs_no_shared_disk(random_model, tmp_path, monkeypatch):
    engine = Engine(name="ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    local = random_model
    expected = translated(ModelLoader(str(local), Decoding(), engine)(), TEXTS)
    MemoryStore.clear()
    for path in local.iterdir():
        MemoryStore.put(f"mem://bucket/run/model/{path.name}", path.read_bytes())
    loader = pickle.loads(pickle.dumps(ModelLoader("mem://bucket/run", Decoding(), engine)))
    translator = loader()
    MemoryStore.clear()
    assert translated(translator, TEXTS) == expected
    with pytest.raises(UserError, match=r"^mem://bucket/run contains no exported model "):
        loader()
    shutil.rmtree(tmp_path / "cache")
