"""The loss is compared with its definition, and its gradient with automatic differentiation."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from models import make_model, random_ids

from tt.model.text.vocabulary import PAD_ID
from tt.model.training.loss import batch_sums, smoothed_cross_entropy

P, D, V = 7, 5, 11


def inputs():
    generator = np.random.default_rng(0)
    output = generator.normal(size=[P, D]).astype(np.float32)
    table = generator.normal(size=[V, D]).astype(np.float32)
    labels = np.array([3, 0, 10, 3, 3, 7, 1], np.int32)  # one label occurs three times
    labels[1] = np.argmax(output[1] @ table.T)  # one label has the greatest logit
    return tf.constant(output), tf.constant(table), tf.constant(labels)


def textbook(output, table, labels, smoothing):
    """Return the cross-entropy between the smoothed labels and the softmax, by its definition."""
    logits = tf.matmul(output, table, transpose_b=True)
    wanted = tf.one_hot(labels, V) * (1 - smoothing) + smoothing / V
    return -tf.reduce_sum(wanted * tf.nn.log_softmax(logits), -1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_loss_matches_its_definition(smoothing):
    output, table, labels = inputs()
    losses, cross_entropies, correct = smoothed_cross_entropy(output, table, labels, smoothing)
    assert losses.shape == cross_entropies.shape == correct.shape == (P,)
    expected = textbook(output, table, labels, smoothing)
    np.testing.assert_allclose(losses.numpy(), expected.numpy(), rtol=1e-5)
    expected = textbook(output, table, labels, 0.0)
    np.testing.assert_allclose(cross_entropies.numpy(), expected.numpy(), rtol=1e-5)
    best = np.argmax(output.numpy() @ table.numpy().T, -1)
    np.testing.assert_array_equal(correct.numpy(), best == labels.numpy())
    assert 0 < correct.numpy().sum() < P


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
def test_gradient_matches_automatic_differentiation(smoothing):
    output, table, labels = inputs()
    weights = tf.constant(np.random.default_rng(1).uniform(0.5, 2, P), tf.float32)

    def gradients(function):
        with tf.GradientTape() as tape:
            tape.watch([output, table])
            total = tf.reduce_sum(weights * function())
        return tape.gradient(total, [output, table])

    ours = gradients(lambda: smoothed_cross_entropy(output, table, labels, smoothing)[0])
    theirs = gradients(lambda: textbook(output, table, labels, smoothing))
    for found, expected in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(found).numpy(), expected.numpy(), rtol=1e-4, atol=1e-6
        )


@pytest.mark.parametrize("fields", [{}, {"output_bias": True, "projection_bias": True}])
def test_gradients_of_the_whole_model_match_finite_differences(fields):
    model = make_model(dropout=0.0, **fields)
    source, target = tf.constant(random_ids([6, 4])), tf.constant(random_ids([5, 7], seed=3))

    def loss():
        return batch_sums(model, source, target, smoothing=0.1).loss

    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        value = loss()
    gradients = tape.gradient(value, variables)
    generator = np.random.default_rng(0)
    for variable, gradient in zip(variables, gradients, strict=True):
        # Differentiate along a random direction; float32 allows a relative error of about 1 %.
        direction = generator.normal(size=variable.shape).astype(np.float32)
        direction /= np.linalg.norm(direction)
        expected = float(tf.reduce_sum(tf.convert_to_tensor(gradient) * direction))
        kept, step = variable.numpy(), 3e-3
        variable.assign(kept + step * direction)
        above = float(loss())
        variable.assign(kept - step * direction)
        below = float(loss())
        variable.assign(kept)
        assert (above - below) / (2 * step) == pytest.approx(expected, rel=0.03, abs=0.03)


def test_padding_does_not_change_the_sums():
    model = make_model()
    source, target = random_ids([6]), random_ids([5], seed=3)
    plain = batch_sums(model, tf.constant(source), tf.constant(target), smoothing=0.1)
    assert float(plain.tokens) == 4, "each id except BOS is predicted"
    wide_source, wide_target = np.full([3, 9], PAD_ID), np.full([3, 8], PAD_ID)
    wide_source[0, :6], wide_target[0, :5] = source[0], target[0]
    padded = batch_sums(
        model,
        tf.constant(wide_source, tf.int32),
        tf.constant(wide_target, tf.int32),
        smoothing=0.1,
    )
    np.testing.assert_allclose(padded, plain, rtol=1e-5)


def test_replica_without_rows_adds_nothing():
    model = make_model()
    empty = tf.zeros([0, 5], tf.int32)
    with tf.GradientTape() as tape:
        sums = batch_sums(model, empty, empty, smoothing=0.1)
    assert [float(value) for value in sums] == [0, 0, 0, 0]
    for gradient in tape.gradient(sums.loss, [v.value for v in model.trainable_variables]):
        assert np.all(tf.convert_to_tensor(gradient).numpy() == 0)
