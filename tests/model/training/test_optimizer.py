"""The learning rate schedule, and Adam."""

from __future__ import annotations

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from tt.model.training.optimizer import Adam
from tt.model.training.options import TrainingConfig
from tt.model.training.schedule import learning_rate


def test_schedule_matches_equation_3():
    training = TrainingConfig(warmup_steps=4000)
    for step in (1, 100, 4000, 4001, 50_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, training, width=512) == pytest.approx(expected, rel=1e-12)


def test_constant_schedule_keeps_the_peak_rate():
    training = TrainingConfig(peak_learning_rate=0.5, warmup_steps=10, schedule="constant")
    rates = [learning_rate(step, training, width=8) for step in (1, 5, 10, 11, 1000)]
    assert rates == [0.05, 0.25, 0.5, 0.5, 0.5]


@pytest.mark.parametrize("scale", [1.0, 1e-9], ids=["gradients", "gradients as small as epsilon"])
def test_adam_matches_section_5_3(scale):
    # Algorithm 1 of Kingma and Ba in float64, with epsilon at the place where TensorFlow and Keras
    # add it.
    generator = np.random.default_rng(0)
    start, steps = generator.normal(size=[3, 4]), scale * generator.normal(size=[6, 3, 4])
    variable = tf.Variable(start, dtype=tf.float32)
    keras_variable = keras.Variable(start, dtype="float32")
    adam = Adam([variable])
    theirs = keras.optimizers.Adam(0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-9)
    expected, first, second = start.copy(), np.zeros([3, 4]), np.zeros([3, 4])
    for t, gradient in enumerate(steps, 1):
        given = [tf.constant(gradient, tf.float32)]
        adam.apply(given, rate=tf.constant(0.01), update=tf.constant(float(t)))
        theirs.apply(given, [keras_variable])
        first = 0.9 * first + 0.1 * gradient
        second = 0.98 * second + 0.02 * gradient**2
        rate = 0.01 * math.sqrt(1 - 0.98**t) / (1 - 0.9**t)
        expected -= rate * first / (np.sqrt(second) + 1e-9)
    np.testing.assert_allclose(variable.numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(variable.numpy(), keras_variable.numpy(), atol=1e-5)
