"""What several test modules share."""

import os
from pathlib import Path

import pytest
import tensorflow as tf
import toy
from hypothesis import HealthCheck, settings

# Machines with a GPU run the same tests: on the CPU, which is cut into two devices so that two
# replicas can be compared with one. Both must be said before TensorFlow looks at its devices.
# For test_gpu_smoke.
os.environ.setdefault("TT_VISIBLE_GPUS", os.environ.get("CUDA_VISIBLE_DEVICES", ""))
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

# Machines are slow or shared: a first call that takes long is no failure.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

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
    from corpora import ONE_THREAD, options

    from pipelines.preprocess.job import preprocess

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
def trained_toy(tmp_path_factory):
    """A folder with `dataset` and `run`: a model that reverses digit words, trained in seconds."""
    from model.training.trainer import Trainer
    from model.transformer.config import TrainingConfig
    from model.updates.strategies import make_strategy

    folder = tmp_path_factory.mktemp("trained")
    toy.write_dataset(folder / "dataset")
    training = TrainingConfig(
        steps=500, batch_tokens=1024, peak_learning_rate=0.005, warmup_steps=60, save_every=500,
        validate_every=500, log_every=125,
    )  # fmt: skip
    trainer = Trainer(
        dataset=folder / "dataset", run=folder / "run", model_config=toy.toy_config(),
        training=training, strategy=make_strategy("one-device"),
    )  # fmt: skip
    reports = []
    trainer.train(reports.append)
    return toy.TrainedToy(folder / "dataset", folder / "run", reports)
