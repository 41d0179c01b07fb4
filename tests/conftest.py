"""What several test modules share."""

import os
from pathlib import Path

import pytest
import toy

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
def trained_toy(tmp_path_factory):
    """A folder with `dataset` and `run`: a model that reverses digit words, trained in seconds."""
    from model.config import TrainingConfig
    from model.training import Trainer, make_strategy

    folder = tmp_path_factory.mktemp("trained")
    toy.write_dataset(folder / "dataset")
    training = TrainingConfig(
        steps=400, batch_tokens=1024, peak_learning_rate=0.01, warmup_steps=60, save_every=400,
        validate_every=400, log_every=100,
    )  # fmt: skip
    trainer = Trainer(
        dataset=folder / "dataset", run=folder / "run", model_config=toy.toy_config(),
        training=training, strategy=make_strategy("one-device"),
    )  # fmt: skip
    reports = []
    trainer.train(reports.append)
    return toy.TrainedToy(folder / "dataset", folder / "run", reports)
