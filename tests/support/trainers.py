"""Trainers of small models, for the tests of training."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import json
from unittest import mock

import keras
import tensorflow as tf
from toy import toy_config

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.storage.files import read_text
from tt.model.training.exporting import AverageRequest, export_checkpoints
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.training.trainer import _build

FAST = TrainingConfig(
    steps=12, batch_tokens=256, peak_learning_rate=0.01, warmup_steps=20, save_every=4,
    validate_every=6, score_every=0, log_every=3, keep_checkpoints=2,
)  # fmt: skip


@contextlib.contextmanager
def eagerly():
    """Execute TensorFlow's functions directly in this block, and draw no attention maps.

    Tracing functions and drawing pictures take most of the time of short trainings.
    """
    tf.config.run_functions_eagerly(True)
    try:
        with mock.patch("tt.model.training.trainer._DRAWINGS", 0):
            yield
    finally:
        tf.config.run_functions_eagerly(False)


@functools.cache
def one_device():
    return make_strategy("one-device")


@functools.cache
def two_replicas():
    strategy = make_strategy("mirrored", devices=["cpu:0", "cpu:1"])
    assert strategy.num_replicas_in_sync == 2
    return strategy


class _Built:
    """A model and its step, and their initial values."""

    def __init__(self, config, training, strategy):
        self.model, self.step = _build(config, training, strategy)
        self._attributes = dict(vars(self.step))
        parts = (self.step.adam, self.step.accumulator)
        variables = [variable for part in parts if part for variable in part.variables]
        self._values = [(each, each.numpy()) for each in [*self.model.variables, *variables]]

    def reset(self):
        vars(self.step).clear()
        vars(self.step).update(self._attributes)  # removes methods that a test replaced
        for variable, value in self._values:
            variable.assign(value)


class BuiltModels:
    """Models with their traced steps, which several tests use one after the other.

    Tracing a step takes seconds. Each test gets a model and a step in their initial state. No test
    gets a step that another test compiled under a patch.
    """

    def __init__(self):
        self._free = collections.defaultdict(list)
        self._lent = []
        self._keeps = False

    @contextlib.contextmanager
    def lend(self):
        """Let a test use the shared models, if the test patches no compiled code."""
        self._keeps = True
        yield
        self._keeps = False
        for key, built in self._lent:
            self._free[key].append(built)
        self._lent.clear()

    def build(self, config, training, strategy):
        """Build a model and its step, or reuse them; replaces the product's function."""
        if not self._keeps or strategy not in (one_device(), two_replicas()):
            return _build(config, training, strategy)
        key = (
            config, training.seed, training.label_smoothing, training.clip_norm,
            training.effective_batch_size is None, training.compute_type,
            training.xla, strategy,
        )  # fmt: skip
        if self._free[key]:
            keras.utils.set_random_seed(training.seed)
            built = self._free[key].pop()
            built.reset()
        else:
            built = _Built(config, training, strategy)
        self._lent.append((key, built))
        return built.model, built.step


BUILT_MODELS = BuiltModels()


def make_trainer(dataset, run, strategy=None, training=FAST, **fields):
    # One layer, because tracing takes most of the time of these tests.
    request = TrainRequest(
        dataset=dataset, run=run, model=toy_config(**{"layers": 1, **fields}), training=training
    )
    with mock.patch("tt.model.training.trainer._build", BUILT_MODELS.build):
        return request.plan().start(strategy or one_device())


def export_average(run, output, which="last", count=None):
    return AverageRequest(run=run, output=str(output), of=which, count=count).write()


def export_checkpoint(run, output, name):
    return export_checkpoints(run, output, find=lambda kept: [kept.find(name)])[0]


def changed(**fields):
    return dataclasses.replace(FAST, **fields)


def weights_of(holder):
    """Return the weights of a trainer or a translator."""
    return [variable.numpy() for variable in holder.model.trainable_variables]


def whole_log_of(run):
    return [json.loads(line) for line in read_text(f"{run}/train.jsonl").splitlines()]


def log_of(run):
    """Return the reports in the log, without the lines about started commands."""
    return [line for line in whole_log_of(run) if line["kind"] != "start"]


def ignore(report):
    """Ignore a report."""


def weights_in(folder):
    return weights_of(TensorFlowTranslator.load(folder))
