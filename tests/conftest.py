"""What several test modules share."""

import collections
import fcntl
import gc
import os
import pickle
import shutil
import signal
from pathlib import Path

import pytest
import tensorflow as tf
import toy
from hypothesis import HealthCheck, settings
from slow_tests import LONGEST, is_slow

# A program that a shell started in the background ignores SIGINT, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines with a GPU run the same tests: on the CPU, which is cut into two devices so that two
# replicas can be compared with one. Both must be said before TensorFlow looks at its devices.
# For test_gpu_smoke.
os.environ.setdefault("TT_VISIBLE_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# XLA need not optimise what runs once, here and in the processes that are started: that would take
# longer than the rest of its work.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# Machines are slow or shared: a first call that takes long is no failure. Whether the tests pass
# is no matter of chance: "patient" draws the same examples each time, "random" draws others.
patience = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("patient", derandomize=True, **patience)
settings.register_profile("random", derandomize=False, **patience)
settings.load_profile("patient")

WORKER_MEMORY = 3 * 2**30  # bytes that a process which runs tests may come to need


def pytest_xdist_auto_num_workers():
    """Returns how many processes `-n auto` has, as cores and memory allow; 0 is this one."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist's own hook returns that
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    workers = min(len(os.sched_getaffinity(0)), memory // WORKER_MEMORY)
    return workers if workers > 1 else 0


def pytest_collection_finish():
    """Has the garbage collector pass over what the imports made, and look less often.

    TensorFlow traces by making objects by the hundred thousand.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Marks slow tests, and has the workers of xdist begin with the longest modules.

    Then come those of most slow tests, so that the workers end at once. A module stays with one
    worker, as its fixtures do.
    """
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)
    if not hasattr(config, "workerinput"):
        return
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    longest = [Path(__file__).parent / module for module in LONGEST]
    items.sort(key=lambda item: (item.path not in longest, -slow[item.path]))


SHARED_DATA = Path(__file__).parents[2] / "shared/data"


@pytest.fixture
def shared_data():
    """The folder of real corpora, which stand outside of the repository."""
    if not SHARED_DATA.is_dir():
        reason = f"no real corpora at {SHARED_DATA}"
        if os.environ.get("TT_REQUIRE_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED_DATA


@pytest.fixture(scope="session")
def corpus(tmp_path_factory):
    """Line-aligned texts of `corpora.PAIRS`, to be read only."""
    from corpora import PAIRS, write_pairs

    return write_pairs(tmp_path_factory.mktemp("corpus"), PAIRS)


@pytest.fixture(scope="session")
def dataset(tmp_path_factory, corpus):
    """A finished dataset of `corpus`, to be read only."""
    from corpora import ONE_THREAD, options, preprocess

    output = tmp_path_factory.mktemp("dataset") / "data"
    preprocess(sources=[corpus], options=options(output), beam_arguments=ONE_THREAD)
    return output


@pytest.fixture(scope="session")
def toy_dataset(tmp_path_factory):
    """A small dataset of digit words, to be read only."""
    folder = tmp_path_factory.mktemp("toy") / "dataset"
    toy.write_dataset(folder)
    return folder


@pytest.fixture(scope="session")
def finish_run(tmp_path_factory, toy_dataset):
    """Makes a folder what a run on `toy_dataset` leaves; each is trained once, and copied."""
    from trainers import FAST, ignore, make_trainer

    finished = {}

    def finish_run(run, training=FAST):
        if training not in finished:
            folder = tmp_path_factory.mktemp("finished") / "run"
            make_trainer(toy_dataset, folder, training=training).train(ignore)
            finished[training] = folder
        return shutil.copytree(finished[training], run)

    return finish_run


@pytest.fixture
def shallow_presets(monkeypatch):
    """Gives the presets one layer: tracing the others takes seconds."""
    from tt.model.transformer.config import PRESETS

    for fields in PRESETS.values():
        for side in ("encoder_layers", "decoder_layers"):
            monkeypatch.delitem(fields, side, raising=False)
        monkeypatch.setitem(fields, "layers", 1)


@pytest.fixture(scope="session")
def trained_toy(tmp_path_factory):
    """A folder with `dataset` and `run`: a model that reverses digit words, trained in seconds.

    The first worker of xdist to ask for it trains it, and the others take that.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    folder = shared / "trained"
    with (shared / "trained.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "reports").exists():
            (folder / "reports").write_bytes(pickle.dumps(train_toy(folder)))
    reports = pickle.loads((folder / "reports").read_bytes())
    return toy.TrainedToy(folder / "dataset", folder / "run", reports)


def train_toy(folder):
    """Trains the model of `trained_toy`; returns the reports."""
    from tt.model.training.options import TrainingConfig
    from tt.model.training.request import TrainRequest

    toy.write_dataset(folder / "dataset")
    training = TrainingConfig(
        steps=500, batch_tokens=1024, peak_learning_rate=0.005, warmup_steps=60, save_every=500,
        validate_every=500, log_every=125,
    )  # fmt: skip
    request = TrainRequest(
        dataset=folder / "dataset", run=folder / "run", model=toy.toy_config(), training=training
    )
    reports = []
    request.plan().run(reports.append)
    return reports
