"""Trainers of small models, as the tests of training want them."""

from __future__ import annotations

import dataclasses
import json

from toy import toy_config

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.folders.remote import read_text
from model.training.config import TrainingConfig
from model.training.request import TrainRequest
from model.updates.strategies import make_strategy

FAST = TrainingConfig(
    steps=12, batch_tokens=256, peak_learning_rate=0.01, warmup_steps=20, save_every=4,
    validate_every=6, score_every=0, log_every=3, keep_checkpoints=2,
)  # fmt: skip


def make_trainer(dataset, run, strategy=None, training=FAST, restart=False, **fields):
    # One layer: tracing takes most of the time of these tests.
    request = TrainRequest(
        dataset=dataset,
        run=run,
        model=toy_config(**{"layers": 1, **fields}),
        training=training,
        restart_from_model=restart,
    )
    return request.plan().start(strategy or make_strategy("one-device"))


def two_replicas():
    strategy = make_strategy("mirrored", devices=["cpu:0", "cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


def changed(**fields):
    return dataclasses.replace(FAST, **fields)


def weights_of(holder):
    """Takes a trainer or a translator."""
    return [variable.numpy() for variable in holder.model.trainable_variables]


def log_of(run):
    return [json.loads(line) for line in read_text(f"{run}/train.jsonl").splitlines()]


def ignore(report):
    """Takes a report and does nothing with it."""


def weights_in(folder):
    return weights_of(TensorFlowTranslator.load(folder))
