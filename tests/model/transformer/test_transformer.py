"""The forward pass is compared with NumPy, and checked for unwanted dependencies."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from models import SIZE, make_model, random_ids, small_config
from numpy_transformer import NumpyTransformer

from tt.model.text.vocabulary import PAD_ID
from tt.model.training.loss import batch_sums
from tt.model.transformer.attention import scaled_dot_product_attention
from tt.model.transformer.config import parameters_by_part
from tt.model.transformer.layers import Dropout, LayerNorm, no_noise, sinusoidal_positions
from tt.model.transformer.transformer import Transformer, dtype_policy

# The differences between OPUS-MT models and the paper's.
OPUS = {
    "projection_bias": True, "output_bias": True, "zero_start": True, "source_bos": False,
    "activation": "swish",
}  # fmt: skip


@pytest.mark.parametrize(
    "fields",
    [
        {},
        *({name: value} for name, value in OPUS.items()),
        {"activation": "gelu"},
        {**OPUS, "norm": "pre", "tie_embeddings": False},
        {"shared_vocabulary": False, "target_vocabulary_size": 24},
        {"tie_embeddings": False, "layers": 1, "heads": 1, "position_base": 100.0},
        {"encoder_layers": 3, "decoder_layers": 1},
        {"encoder_layers": 1, "decoder_layers": 3, "norm": "pre"},
        {"norm": "pre"},
    ],
    ids=[
        "shared and tied",
        *OPUS,
        "gelu",
        "OPUS-MT, pre-norm and untied",
        "separate vocabularies",
        "untied, one head, another base",
        "three layers and one",
        "one layer and three",
        "pre-norm",
    ],
)
def test_forward_pass_equals_numpy(fields):
    model = make_model(**fields)
    oracle = NumpyTransformer(model.config, {v.path: v.numpy() for v in model.variables})
    source = random_ids([7, 4, 3])
    target = random_ids([5, 6, 2], seed=2, size=model.config.target_vocabulary_size)

    output, attention = model.decode_with_attention(tf.constant(source), target=tf.constant(target))
    logits = model.logits(output).numpy()

    expected, expected_attention = oracle.logits(source, target)
    real = target != PAD_ID
    np.testing.assert_allclose(logits[real], expected[real], rtol=0, atol=1e-5)
    for name in ("encoder", "decoder", "cross"):
        for weights, wanted in zip(getattr(attention, name), expected_attention[name], strict=True):
            np.testing.assert_allclose(weights.numpy(), wanted, rtol=0, atol=1e-5)


def test_positions_match_section_3_5():
    rows = sinusoidal_positions(tf.constant(50), 8).numpy()
    assert rows.shape == (50, 8)
    for position in (0, 1, 49):
        for i in range(4):
            angle = position / 10000 ** (2 * i / 8)
            assert rows[position, i] == pytest.approx(np.sin(angle), abs=1e-6)
            assert rows[position, 4 + i] == pytest.approx(np.cos(angle), abs=1e-6)


def test_output_does_not_depend_on_later_targets():
    model = make_model()
    source, target = random_ids([6]), random_ids([7], seed=3)
    changed = target.copy()
    changed[0, 4:] = 17
    before = model(tf.constant(source), target=tf.constant(target)).numpy()
    after = model(tf.constant(source), target=tf.constant(changed)).numpy()
    np.testing.assert_array_equal(before[0, :4], after[0, :4])
    assert np.abs(before[0, 4:] - after[0, 4:]).max() > 1e-3


def test_output_does_not_depend_on_padding_or_batch():
    model = make_model()
    source, target = random_ids([4]), random_ids([3], seed=3)
    alone = model(tf.constant(source), target=tf.constant(target)).numpy()
    sources = np.zeros([3, 9], np.int32)
    sources[1:] = random_ids([9, 7], seed=4)
    sources[0, :4] = source[0]
    targets = np.zeros([3, 8], np.int32)
    targets[1:] = random_ids([8, 5], seed=5)
    targets[0, :3] = target[0]
    together = model(tf.constant(sources), target=tf.constant(targets)).numpy()
    np.testing.assert_allclose(together[:1, :3], alone, atol=1e-5)


@pytest.mark.parametrize("fields", [{}, {"norm": "pre"}, {"decoder_layers": 1}, OPUS], ids=str)
def test_cached_decoding_equals_the_full_pass(fields):
    model = make_model(**fields)
    source, target = tf.constant(random_ids([6, 4])), tf.constant(random_ids([7, 7], seed=3))
    whole = model.logits(model(source, target=target)).numpy()
    encoded = model.encode(source, target_length=tf.constant(7))
    caches = model.empty_caches(tf.constant(2))
    for position in range(7):
        prediction, caches = model.decode_step(
            target[:, position, None],
            position=tf.constant(position),
            caches=caches,
            encoded=encoded,
        )
        assert caches[0].shape == (2, 4, position + 1, 8)  # [R, H, T, K]
        np.testing.assert_allclose(prediction.logits.numpy(), whole[:, position], atol=1e-5)


@pytest.mark.parametrize("fields", [{}, OPUS], ids=["without", "with an output bias"])
def test_logits_of_hidden_ids_are_returned_separately(fields):
    model = make_model(**fields)
    source, ids = tf.constant(random_ids([6])), tf.constant([[7]])
    hidden_ids = [0, 1, 9]

    def predict(hidden):
        encoded = model.encode(source, target_length=tf.constant(1), hidden_ids=hidden)
        caches = model.empty_caches(tf.constant(1))
        return model.decode_step(ids, position=tf.constant(0), caches=caches, encoded=encoded)[0]

    plain, found = predict([]), predict(hidden_ids)
    logits = plain.logits.numpy()
    np.testing.assert_allclose(found.hidden, logits[:, hidden_ids], atol=1e-5)
    assert (found.logits.numpy()[:, hidden_ids] < -1e8).all()
    others = np.setdiff1d(np.arange(SIZE), hidden_ids)
    np.testing.assert_allclose(found.logits.numpy()[:, others], logits[:, others], atol=1e-5)


@pytest.mark.parametrize("fields", [{}, OPUS], ids=["without", "with an output bias"])
def test_widths_are_multiples_of_eight_on_gpus(monkeypatch, fields):
    model = make_model(**fields)
    source, target = (tf.constant(random_ids([6], seed=seed)) for seed in (1, 3))

    def results():
        encoded = model.encode(source, target_length=tf.constant(1), hidden_ids=[0])
        prediction, _ = model.decode_step(
            target[:, :1],
            position=tf.constant(0),
            caches=model.empty_caches(tf.constant(1)),
            encoded=encoded,
        )
        sums = batch_sums(model, source, target, smoothing=0.1)
        return encoded.projection.kernel.shape, prediction.logits, tf.stack(sums)

    shape, logits, sums = results()
    assert shape == (32 + 1, SIZE)
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind: [kind])
    shape, wide_logits, wide_sums = results()
    assert shape == (32 + 8, SIZE)
    np.testing.assert_allclose(wide_logits, logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(wide_sums, sums, rtol=1e-5)


def test_beams_of_a_sentence_are_independent():
    model = make_model()
    source = tf.constant(random_ids([6, 4]))
    encoded = model.encode(source, target_length=tf.constant(2))
    ids = tf.constant([[5, 9, 7], [11, 5, 8]])
    together, _ = model.decode_step(
        ids, position=tf.constant(0), caches=model.empty_caches(tf.constant(6)), encoded=encoded
    )
    for beam in range(3):
        alone, _ = model.decode_step(
            ids[:, beam, None],
            position=tf.constant(0),
            caches=model.empty_caches(tf.constant(2)),
            encoded=encoded,
        )
        np.testing.assert_allclose(together.logits[beam::3], alone.logits, atol=1e-5)


def test_dropout_depends_only_on_its_seed():
    x = tf.ones([100, 101])

    def drop(seed):
        noise = Dropout(tf.constant(seed)).at(0.25)
        return noise(x).numpy(), noise(x).numpy()

    first, second = drop([1, 2])
    again, _ = drop([1, 2])
    other, _ = drop([1, 3])
    np.testing.assert_array_equal(first, again)
    assert (first != second).any(), "each call has another mask"
    assert (first != other).any(), "each step has another mask"
    assert set(np.unique(first)) == {0.0, np.float32(256 / 192)}
    # With 10,100 elements, the kept share is within 5 standard deviations (0.0043) of 3/4.
    assert abs((first > 0).mean() - 0.75) < 0.0216


@pytest.mark.parametrize(
    ("rate", "dropped"), [(1e-9, 1), (0.001, 1), (0.0058, 1), (0.006, 2), (0.9, 230)]
)
def test_dropout_rate_is_rounded_but_never_to_zero(rate, dropped):
    kept = Dropout(tf.constant([1, 2])).at(rate)(tf.ones([256, 256])).numpy()
    assert set(np.unique(kept)) == {0.0, np.float32(256 / (256 - dropped))}
    expected, deviation = dropped / 256, (dropped / 256 * (1 - dropped / 256)) ** 0.5 / 256
    assert abs((kept == 0).mean() - expected) < 5 * deviation


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_dropout_keeps_the_mean_at_all_rates(monkeypatch, dtype):
    # Each of the 256 bytes occurs 64 times, instead of at random, so the rate is exact.
    every_byte = tf.constant(np.tile(np.arange(256, dtype=np.uint8), 64).view(np.int32))
    monkeypatch.setattr(tf.random, "stateless_uniform", lambda *_, **__: every_byte)
    x = tf.cast(1 + np.random.default_rng(1).random([128, 128]), dtype)
    for dropped in (1, 26, 77, 128, 230):  # the greatest allowed rate is 0.9
        kept = Dropout(tf.constant([1, 2])).at(dropped / 256)(x)
        assert kept.dtype == dtype
        values = kept.numpy().astype(np.float64)
        assert (values == 0).sum() == 64 * dropped
        ratio = values.sum() / x.numpy().astype(np.float64)[values > 0].sum()
        # The steps of bfloat16 are 0.8 %, so a single scale would be wrong by up to 0.4 %.
        tolerance = 2e-3 if dtype == tf.bfloat16 else 3e-4
        assert ratio == pytest.approx(256 / (256 - dropped), rel=tolerance)
        ones = Dropout(tf.constant([1, 2])).at(dropped / 256)(tf.ones([128, 128], dtype))
        assert ones.numpy().astype(np.float64).mean() == pytest.approx(1, rel=2e-4)


def test_dropout_changes_training_only():
    model = make_model()
    source, target = tf.constant(random_ids([6])), tf.constant(random_ids([5], seed=3))
    plain = model(source, target=target).numpy()
    np.testing.assert_array_equal(plain, model(source, target=target).numpy())
    dropped = model(source, target=target, dropout=Dropout(tf.constant([1, 1]))).numpy()
    assert np.abs(plain - dropped).max() > 0.1


def test_distributions_of_the_initial_weights():
    model = Transformer(small_config(target_vocabulary_size=2000, source_vocabulary_size=2000))
    for variable in model.variables:
        values = variable.numpy()
        if variable.name == "table":
            # Normal with standard deviation D^-0.5, which 64,000 values estimate to 0.5 %.
            assert values.mean() == pytest.approx(0, abs=5 * 32**-0.5 / 64_000**0.5)
            assert values.std() == pytest.approx(32**-0.5, rel=0.015)
            assert (np.abs(values) > 2 * 32**-0.5).mean() == pytest.approx(0.0455, abs=0.005)
        elif variable.name == "kernel":
            # Uniform, by equation 16 of Glorot and Bengio 2010.
            bound = (6 / sum(values.shape)) ** 0.5
            assert 0.98 * bound < np.abs(values).max() <= bound
            assert values.std() == pytest.approx(bound / 3**0.5, rel=0.1)
        else:
            assert (values == (1 if variable.name == "scale" else 0)).all()


def test_layer_norm_computes_in_float32():
    # Numbers around 300 have steps of 2 in bfloat16, so the mean and variance need more digits.
    generator = np.random.default_rng(0)
    x = tf.cast(300 + 10 * generator.normal(size=[5, 64]), tf.bfloat16)
    with dtype_policy("mixed_bfloat16"):
        norm = LayerNorm(64, "norm")
    assert {v.dtype for v in norm.variables} == {"float32"}
    scale, shift = generator.normal(size=[2, 64]).astype(np.float32)
    norm.scale.assign(scale)
    norm.shift.assign(shift)
    found = norm(x)
    assert found.dtype == tf.bfloat16
    exact = x.numpy().astype(np.float64)
    normal = (exact - exact.mean(-1, keepdims=True)) / np.sqrt(exact.var(-1, keepdims=True) + 1e-6)
    expected = normal * scale + shift
    # Only the result is rounded to the eight significant bits of bfloat16.
    np.testing.assert_allclose(found.numpy().astype(np.float64), expected, rtol=2**-8, atol=1e-5)


def test_pre_norm_normalizes_the_output_of_each_side():
    before, after = make_model(norm="post"), make_model(norm="pre")
    assert after.count_params() == before.count_params() + 2 * 2 * 32
    assert (before.encoder_norm, before.decoder_norm) == (None, None)


@pytest.mark.parametrize("dtype", [tf.float32, tf.bfloat16, tf.float16])
def test_attention_hides_padding_and_stays_finite_in_every_dtype(dtype):
    generator = np.random.default_rng(4)
    queries, keys, values = (
        tf.cast(4 * generator.normal(size=[2, 1, 3, 8]), dtype) for _ in range(3)
    )
    # The first row sees only one key, and the second row sees none.
    bias = tf.constant([[0.0, -1e9, -1e9], [-1e9, -1e9, -1e9]])[:, None, None, :]
    attended, weights = scaled_dot_product_attention(queries, keys, values, bias, no_noise)
    np.testing.assert_array_equal(tf.cast(weights[0], tf.float32)[..., 0], np.ones([1, 3]))
    np.testing.assert_array_equal(tf.cast(weights[0], tf.float32)[..., 1:], np.zeros([1, 3, 2]))
    np.testing.assert_array_equal(attended[0, 0], tf.repeat(values[0, 0, :1], 3, 0))
    assert np.isfinite(tf.cast(attended, tf.float32)).all()


@pytest.mark.parametrize("dtype", [tf.bfloat16, tf.float16])
def test_softmax_of_the_attention_is_in_float32(dtype):
    generator = np.random.default_rng(5)
    queries, keys = (tf.cast(2 * generator.normal(size=[2, 4, 30, 64]), dtype) for _ in range(2))
    _, weights = scaled_dot_product_attention(queries, keys, keys, None, no_noise)
    exact = [x.numpy().astype(np.float64) for x in (queries, keys)]
    logits = exact[0] @ exact[1].swapaxes(2, 3) / 8
    assert 16 < np.abs(logits).max() < 32, "bfloat16 rounds these logits to steps of 0.125"
    expected = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    assert weights.dtype == tf.float32
    np.testing.assert_allclose(weights, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        OPUS,
        {"shared_vocabulary": False, "target_vocabulary_size": 24},
        {"tie_embeddings": False, "output_bias": True},
        {"norm": "pre", "encoder_layers": 3, "decoder_layers": 1},
        {"projection_bias": True, "d_ff": 24, "norm": "pre", "output_bias": True},
    ],
)
def test_parameters_are_counted_without_building_the_model(fields):
    config = small_config(**fields)
    expected = {}
    for variable in Transformer(config).trainable_variables:
        *part, _ = variable.path.split("/")  # the last component names the matrix
        name = "/".join(part[:2])
        expected[name] = expected.get(name, 0) + int(np.prod(variable.shape))
    assert list(parameters_by_part(config).items()) == list(expected.items())
