"""The loss is compared with its definition, and its gradient with automatic differentiation."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from models import make_model, random_ids
from toy import toy_sentences

from tt.model.engines.batching import pad
from tt.model.formats.weights import load_model
from tt.model.text.vocabulary import PAD_ID
from tt.model.training.loss import batch_sums, smoothed_cross_entropy, sum_slices
from tt.model.transformer.transformer import Transformer, dtype_policy

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


# One slice, slices of three tokens and one of one token, and a slice per token.
@pytest.mark.parametrize("tokens", [P, 3, 1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(tf.float32, 1e-5), (tf.bfloat16, 2**-7)])
def test_slices_have_the_same_sums_and_gradients(monkeypatch, tokens, dtype, tolerance):
    monkeypatch.setattr("tt.model.training.loss._SLICE_LOGITS", tokens * V)
    output, table, labels = inputs()
    output = tf.cast(output, dtype)

    @tf.function(input_signature=[tf.TensorSpec([None, D], dtype), tf.TensorSpec([V, D])])
    def sliced(output, table):
        with tf.GradientTape() as tape:
            tape.watch([output, table])
            sums = sum_slices(output, table, labels, 0.1)
            loss = sums[0] / 4
        return sums, tape.gradient(loss, [output, table])

    sums, gradients = sliced(output, table)
    with tf.GradientTape() as tape:
        tape.watch([output, table])
        expected = [tf.reduce_sum(x) for x in smoothed_cross_entropy(output, table, labels, 0.1)]
        loss = expected[0] / 4
    np.testing.assert_allclose(sums, expected, rtol=1e-6)
    for found, wanted in zip(gradients, tape.gradient(loss, [output, table]), strict=True):
        assert found.dtype == wanted.dtype
        found, wanted = (tf.cast(x, tf.float32) for x in (found, wanted))
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance / 10)


MEMORY = """
import sys
from pathlib import Path
import tensorflow as tf
from tt.model.training import loss

loss._SLICE_LOGITS = 2**20
function = loss.sum_slices if sys.argv[1] == "slices" else loss._sum_tokens
output, table = tf.ones([4096, 8]), tf.ones([16384, 8])  # 256 MB of logits

@tf.function(reduce_retracing=True)
def gradients(output, labels):
    with tf.GradientTape() as tape:
        tape.watch([output, table])
        total = function(output, table, labels, 0.1)[0]
    return tape.gradient(total, [output, table])

def used(field):
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return int(lines[field].split()[0]) // 1024

gradients(output[:2], tf.zeros([2], tf.int32))
gradients(output[:3], tf.zeros([3], tf.int32))
Path("/proc/self/clear_refs").write_text("5")  # forget the peak
before = used("VmRSS")
gradients(output, tf.zeros([4096], tf.int32))
print(used("VmHWM") - before)
"""


def test_slices_need_no_memory_for_all_logits():
    whole, slices = (
        int(subprocess.run(
            [sys.executable, "-c", MEMORY, kind], check=True, capture_output=True, text=True
        ).stdout)
        for kind in ("whole", "slices")
    )  # fmt: skip
    assert whole >= 250  # MB
    assert slices < 64


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
        model, tf.constant(wide_source, tf.int32), tf.constant(wide_target, tf.int32), smoothing=0.1
    )
    np.testing.assert_allclose(padded, plain, rtol=1e-5)


@pytest.mark.parametrize("is_sliced", [False, True])
def test_replica_without_rows_adds_nothing(is_sliced):
    model = make_model()
    empty = tf.zeros([0, 5], tf.int32)
    with tf.GradientTape() as tape:
        sums = batch_sums(model, empty, empty, smoothing=0.1, is_sliced=is_sliced)
    assert [float(value) for value in sums] == [0, 0, 0, 0]
    for gradient in tape.gradient(sums.loss, [v.value for v in model.trainable_variables]):
        assert np.all(tf.convert_to_tensor(gradient).numpy() == 0)


def test_softmax_of_a_bfloat16_loss_is_in_float32():
    # bfloat16 represents whole numbers up to 256 exactly, and therefore these logits.
    generator = np.random.default_rng(2)
    output, table = (generator.integers(-2, 3, [n, D]).astype(np.float32) for n in (P, V))
    labels = tf.constant(generator.integers(0, V, P), tf.int32)
    rounded = tf.cast(output, tf.bfloat16)
    losses, cross_entropies, _ = smoothed_cross_entropy(rounded, tf.constant(table), labels, 0.1)
    for found, smoothing in ((losses, 0.1), (cross_entropies, 0.0)):
        expected = textbook(tf.constant(output), tf.constant(table), labels, smoothing)
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def token_losses(model, source, target):
    """Return the cross-entropy of each real target token in nats."""
    logits = tf.cast(model.logits(model(source, target=target[:, :-1])), tf.float32)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(target[:, 1:], logits)
    return losses.numpy()[target[:, 1:] != PAD_ID]


# The bounds are about 1.5 times the measured errors. Without a float32 softmax of the attention, a
# token of the trained model differs by up to 0.028.
@pytest.mark.parametrize(
    ("is_trained", "mean", "greatest", "mean_loss"),
    [(False, 0.025, 0.12, 3e-3), (True, 2e-3, 0.02, 2e-4)],
    ids=["random weights", "trained weights"],
)
def test_losses_of_bfloat16_are_close_to_float32(request, is_trained, mean, greatest, mean_loss):
    if is_trained:
        loaded = load_model(request.getfixturevalue("trained_toy").run)
        full, sides = loaded.model, zip(*toy_sentences(200, seed=5), strict=True)
        source, target = (pad(loaded.vocabularies.source.encode(list(side))) for side in sides)
    else:
        full = make_model(d_model=64, heads=2)
        source, target = random_ids([20] * 16), random_ids([18] * 16, seed=2)
    with dtype_policy("mixed_bfloat16"):
        low = Transformer(full.config)
    for ours, theirs in zip(low.variables, full.variables, strict=True):
        ours.assign(theirs)
    expected, found = (token_losses(model, source, target) for model in (full, low))
    difference = np.abs(found - expected)
    assert 0 < difference.mean() < mean
    assert difference.max() < greatest
    assert abs(found.mean() - expected.mean()) < mean_loss
