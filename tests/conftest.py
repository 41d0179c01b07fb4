"""Settings and fixtures for all tests."""

import collections
import fcntl
import gc
import hashlib
import os
import pickle
import shutil
import signal
from pathlib import Path

import pytest
import tensorflow as tf
import toy
from hypothesis import HealthCheck, settings
from slow_tests import LONGEST, is_for_releases, is_long, is_slow

# A shell starts background programs with SIGINT ignored, and their child processes inherit this.
signal.signal(signal.SIGINT, signal.default_int_handler)

# The tests use only the CPU, also on machines with a GPU. The CPU is split into two devices, so
# that the tests can compare two replicas with a single one. Both settings must precede the
# initialization of TensorFlow's devices. TT_VISIBLE_GPUS lists the GPUs for test_gpu_smoke.
os.environ.setdefault("TT_VISIBLE_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# Tests run most programs once, so XLA's optimizations would take longer than they save. Processes
# that the tests start inherit this setting.
os.environ.setdefault(
    "XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
)

# An example that takes long is not a failure, because machines can be slow or busy. The profile
# "patient" draws the same examples in each run, and the profile "random" draws different ones.
patience = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("patient", derandomize=True, **patience)
settings.register_profile("random", derandomize=False, **patience)
settings.load_profile("patient")

# Tests end programs, but not the machine, so they need not wait for the disk.
os.fsync = lambda descriptor: None

WORKER_MEMORY = 3 * 2**30  # bytes that a process of xdist may need


def pytest_xdist_auto_num_workers():
    """Return the number of processes for `-n auto`; 0 means that this process runs the tests."""
    if os.environ.get("PYTEST_XDIST_AUTO_NUM_WORKERS"):
        return None  # xdist then reads the variable
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    # One more than the cores, because many tests wait for processes and files.
    workers = min(len(os.sched_getaffinity(0)) + 1, memory // WORKER_MEMORY)
    return workers if workers > 1 else 0


def pytest_collection_finish():
    """Freeze all imported objects, and collect garbage less often.

    TensorFlow creates hundreds of thousands of objects when it traces functions.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark slow and long tests, and sort the modules so that all workers end at the same time.

    The longest modules come first, followed by the modules with the most slow tests. The tests of a
    module stay together, because they share fixtures.
    """
    for item in items:
        if is_slow(item):
            item.add_marker(pytest.mark.slow)
        if is_long(item):
            item.add_marker(pytest.mark.long)
        if is_for_releases(item):
            item.add_marker(pytest.mark.release)
    if not hasattr(config, "workerinput"):
        return
    slow = collections.Counter(item.path for item in items if item.get_closest_marker("slow"))
    longest = [Path(__file__).parent / module for module in LONGEST]
    items.sort(key=lambda item: (item.path not in longest, -slow[item.path]))


@pytest.fixture
def eager():
    """Execute TensorFlow's functions directly, and draw no attention maps, to save seconds.

    For tests of files, locks, errors and reports. Fixtures of a module or a session are made before
    this setting, so their functions are compiled.
    """
    from trainers import eagerly

    with eagerly():
        yield


SHARED_DATA = Path(__file__).parents[2] / "shared/data"


@pytest.fixture
def shared_data():
    """Return the folder of real corpora, which are not in the repository."""
    if not SHARED_DATA.is_dir():
        reason = f"no real corpora at {SHARED_DATA}"
        if os.environ.get("TT_REQUIRE_DATA") == "1":
            pytest.fail(reason)
        pytest.skip(reason)
    return SHARED_DATA


@pytest.fixture(scope="session")
def make_once(tmp_path_factory):
    """Return a function that makes a folder in a test session, for all workers of xdist.

    `make_once(name, make)` calls `make` with the path of the folder, unless a worker has done this.
    It returns the folder and the result of `make`.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent

    def make_once(name, make):
        result = shared / f"{name}.result"
        with (shared / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                shutil.rmtree(shared / name, ignore_errors=True)  # if a worker failed
                result.write_bytes(pickle.dumps(make(shared / name)))
        return shared / name, pickle.loads(result.read_bytes())

    return make_once


@pytest.fixture(scope="session")
def corpus(make_once):
    """Return read-only, line-aligned texts of `corpora.PAIRS`."""
    from corpora import PAIRS, write_pairs

    def make(folder):
        folder.mkdir()
        return write_pairs(folder, PAIRS)

    return make_once("corpus", make)[1]


@pytest.fixture(scope="session")
def dataset(make_once, corpus):
    """Return a read-only dataset of `corpus`."""
    from corpora import ONE_THREAD, options, preprocess

    def make(folder):
        preprocess(sources=[corpus], options=options(folder / "data"), beam_arguments=ONE_THREAD)

    return make_once("dataset", make)[0] / "data"


@pytest.fixture(scope="session")
def toy_dataset(make_once):
    """Return a small, read-only dataset of digit words."""
    folder, _ = make_once("toy", lambda folder: toy.write_dataset(folder / "dataset"))
    return folder / "dataset"


@pytest.fixture(scope="session")
def finish_run(make_once, toy_dataset):
    """Return a function that makes a finished run on `toy_dataset`.

    Each configuration is trained only once, and its run folder is copied. A run that was trained
    with the fixture `eager` is another run, because its numbers may differ in the last bits.
    """
    from trainers import FAST, ignore, make_trainer

    def finish_run(run, training=FAST):
        def make(folder):
            make_trainer(toy_dataset, folder / "run", training=training).train(ignore)

        kind = "eager" if tf.config.functions_run_eagerly() else "compiled"
        digest = hashlib.sha256(repr(training).encode()).hexdigest()[:16]
        return shutil.copytree(make_once(f"{kind}-{digest}", make)[0] / "run", run)

    return finish_run


@pytest.fixture
def shallow_presets(monkeypatch):
    """Reduce all presets to one layer, because tracing more layers takes seconds."""
    from tt.model.transformer.config import PRESETS

    for fields in PRESETS.values():
        for side in ("encoder_layers", "decoder_layers"):
            monkeypatch.delitem(fields, side, raising=False)
        monkeypatch.setitem(fields, "layers", 1)


@pytest.fixture(scope="session")
def trained_toy(make_once):
    """Return a dataset and a run whose model reverses digit words; the training takes seconds."""
    folder, reports = make_once("trained", train_toy)
    return toy.TrainedToy(folder / "dataset", folder / "run", reports)


def train_toy(folder):
    """Train the model of `trained_toy`, and return the reports."""
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
