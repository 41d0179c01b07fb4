"""The parts of the Transformer, as Keras layers that hold variables round plain TensorFlow.

Axes: B batch, S source, T target (or any) positions, D width of the model, H heads, K width of a
head (D / H), F inner width of the feed-forward layer. A bias is added to attention logits: 0
where a key may be seen, a very negative number where not.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

from model.text.vocabulary import PAD_ID

MASKED = -1e9  # instead of -inf: a row without any visible key stays finite
_MASKED_FLOAT16 = -3e4  # far enough from that type's end, -65504, for what is added to it

# What is done to activations on the way: dropout in training, nothing in inference.
Noise = Callable[[tf.Tensor], tf.Tensor]


def no_noise(x: tf.Tensor) -> tf.Tensor:
    """Returns its argument: inference has no dropout."""
    return x


class Dropout:
    """Dropout whose mask is a function of a seed and of the place in the forward pass.

    Nothing random is kept between steps, so a resumed run repeats the undisturbed one. A mask
    takes one random byte an element (a fourth of the generator's work): the rate is rounded to
    a multiple of 1/256, at least one, and the scale belongs to the rounded rate, so that the mean
    of a mask is 1 in every type; see `two_scales`.

    Args:
      seed: int32 [2], new in each step and on each replica.
    """

    def __init__(self, seed: tf.Tensor) -> None:
        self._seed = seed
        self._places = 0

    def at(self, rate: float) -> Noise:
        """Returns dropout at a rate; each call of it takes the next place."""
        if rate == 0:
            return no_noise
        threshold = max(1, round(rate * 256))

        def drop(x: tf.Tensor) -> tf.Tensor:
            self._places += 1
            size = tf.size(x)
            words = tf.random.stateless_uniform(
                [(size + 3) // 4],
                seed=tf.stack([self._seed[0] + self._places, self._seed[1]]),
                minval=None,
                maxval=None,
                dtype=tf.int32,
            )
            random_bytes = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
            is_kept = random_bytes >= tf.constant(threshold, tf.uint8)
            if x.dtype == tf.float32:
                mask = tf.cast(is_kept, x.dtype) * (256 / (256 - threshold))
            else:
                low, high, count = two_scales(threshold, x.dtype)
                is_high = random_bytes > tf.constant(255 - count, tf.uint8)
                scales = tf.where(is_high, tf.constant(high, x.dtype), tf.constant(low, x.dtype))
                mask = tf.where(is_kept, scales, tf.zeros([], x.dtype))
            return x * tf.reshape(mask, tf.shape(x))

        return drop


def two_scales(threshold: int, dtype: tf.DType) -> tuple[float, float, int]:
    """Returns the scales of what dropout keeps in a type that has not the right one.

    bfloat16 has eight bits: 256/230 is 1.109375 in it, 0.33 % too little. The numbers of the type
    below and above have the right mean, exactly, if a certain count of the bytes that are kept
    gets the greater one.

    Args:
      threshold: Bytes below it are dropped, 1 to 255.
      dtype: Of the scales.

    Returns:
      The lesser scale, the greater one, and how many of the bytes get the greater.

    >>> two_scales(26, tf.bfloat16)
    (1.109375, 1.1171875, 108)
    >>> 1.109375 * (230 - 108) + 1.1171875 * 108
    256.0
    """
    number, kept = dtype.as_numpy_dtype, 256 - threshold
    low = number(256 / kept)
    if float(low) > 256 / kept:
        low = np.nextafter(low, number(0))
    high = np.nextafter(low, number(np.inf))
    count = (256 - kept * float(low)) / (float(high) - float(low))
    return float(low), float(high), round(count)


def sinusoidal_positions(length: tf.Tensor, d_model: int, base: float = 10000.0) -> tf.Tensor:
    """Returns the position encodings of section 3.5, float32 [length, d_model].

    The paper interleaves sines and cosines; here all sines come first, as in its authors'
    tensor2tensor. The two differ by a fixed permutation of the width.
    """
    wavelengths = base ** (2 * np.arange(d_model // 2) / d_model)
    angles = tf.cast(tf.range(length), tf.float64)[:, None] / wavelengths
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=1), tf.float32)


def padding_bias(ids: tf.Tensor) -> tf.Tensor:
    """Hides padding: [B, S] ids to a float32 bias [B, 1, 1, S]."""
    return tf.where(ids == PAD_ID, MASKED, 0.0)[:, None, None, :]


def look_ahead_bias(length: tf.Tensor) -> tf.Tensor:
    """Hides what comes later: a float32 bias [1, 1, length, length]."""
    visible = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
    return tf.where(visible > 0, 0.0, MASKED)[None, None]


def scaled_dot_product_attention(
    queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor | None, noise: Noise
) -> tuple[tf.Tensor, tf.Tensor]:
    """Attention, equation 1 of the paper.

    Args:
      queries: [B, H, T, K].
      keys: [B, H, S, K].
      values: [B, H, S, K].
      bias: Broadcasts to [B, H, T, S]; None shows all keys.
      noise: Dropout of the attention weights.

    Returns:
      The attended values [B, H, T, K] and the weights before dropout [B, H, T, S].
    """
    # The queries are scaled, not the product: TensorFlow turns product, scale and bias in a row
    # into one fused operation that takes half of the training step on CPUs.
    scale = queries.shape[-1] ** -0.5
    logits = tf.matmul(queries * scale, keys, transpose_b=True)  # [B, H, T, S]
    if bias is not None:
        if logits.dtype == tf.float16:
            bias = tf.maximum(bias, _MASKED_FLOAT16)
        logits += tf.cast(bias, logits.dtype)
    weights = tf.nn.softmax(logits)
    return tf.matmul(noise(weights), values), weights


def split_heads(x: tf.Tensor, heads: int, parts: int = 1) -> list[tf.Tensor]:
    """Cuts [B, T, parts * D] into `parts` tensors [B, H, T, K]."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    width = x.shape[-1] // (parts * heads)
    x = tf.reshape(x, [batch, length, parts, heads, width])
    unstacked: list[tf.Tensor] = tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts)
    return unstacked


def combine_heads(x: tf.Tensor) -> tf.Tensor:
    """Joins [B, H, T, K] to [B, T, D]: the inverse of `split_heads`."""
    shape = tf.shape(x)
    width = x.shape[1] * x.shape[3]
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [shape[0], shape[2], width])


class Linear(keras.layers.Layer):
    """x W + b along the last axis; W is [inputs, units], b is [units] or not there."""

    def __init__(self, inputs: int, units: int, name: str, *, use_bias: bool = False) -> None:
        super().__init__(name=name)
        self.kernel = self.add_weight(
            name="kernel", shape=(inputs, units), initializer="glorot_uniform"
        )
        self.bias = None
        if use_bias:
            self.bias = self.add_weight(name="bias", shape=(units,), initializer="zeros")
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., inputs] -> [..., units]."""
        is_rows = x.shape.rank == 2
        # One matrix product over all rows; a batched one is slower forward and backward.
        rows = tf.matmul(x if is_rows else tf.reshape(x, [-1, x.shape[-1]]), self.kernel)
        if self.bias is not None:
            rows = tf.nn.bias_add(rows, self.bias)
        if is_rows:
            return rows
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [rows.shape[-1]]], 0))


class LayerNorm(keras.layers.Layer):
    """Normalises the last axis to mean 0 and variance 1, in float32, then scales and shifts."""

    EPSILON = 1e-6

    def __init__(self, width: int, name: str) -> None:
        super().__init__(name=name)
        self.scale = self.add_weight(
            name="scale", shape=(width,), initializer="ones", dtype="float32", autocast=False
        )
        self.shift = self.add_weight(
            name="shift", shape=(width,), initializer="zeros", dtype="float32", autocast=False
        )
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D]."""
        normal = normalize(tf.cast(x, tf.float32), self.EPSILON)
        return tf.cast(normal * self.scale + self.shift, x.dtype)


def normalize(x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Brings the last axis to mean 0 and variance 1.

    Its gradient is written by hand: that of automatic differentiation makes twice as many passes.

    Args:
      x: float32 [..., D].
      epsilon: Added to the variance.
    """

    @tf.custom_gradient
    def normal_of(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centred), -1, keepdims=True)
        inverse = tf.math.rsqrt(variance + epsilon)
        normal = centred * inverse

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            mean = tf.reduce_mean(upstream, -1, keepdims=True)
            along = tf.reduce_mean(upstream * normal, -1, keepdims=True)
            return inverse * (upstream - mean - normal * along)

        return normal, gradient

    normal: tf.Tensor = normal_of(x)
    return normal


class SelfAttention(keras.layers.Layer):
    """Multi-head attention of a sequence to itself, section 3.2.2: projections without biases.

    The projections of queries, keys and values are one product. Glorot's bound on the joined
    kernel is 2^-0.5 of that on three single ones, the gain that post-norm models train well with.
    """

    def __init__(self, d_model: int, heads: int, name: str) -> None:
        super().__init__(name=name)
        self.heads = heads
        with keras.name_scope(name):
            self.query_key_value = Linear(d_model, 3 * d_model, "query_key_value")
            self.output_projection = Linear(d_model, d_model, "output")
        self.built = True

    def call(
        self, x: tf.Tensor, *, bias: tf.Tensor, noise: Noise = no_noise
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, T, D] -> [B, T, D], and the attention weights [B, H, T, T]."""
        queries, keys, values = split_heads(self.query_key_value(x), self.heads, 3)
        attended, weights = scaled_dot_product_attention(queries, keys, values, bias, noise)
        return self.output_projection(combine_heads(attended)), weights

    def step(
        self, x: tf.Tensor, *, keys: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Attends from one new position to all before it and to itself.

        Args:
          x: [R, D], a row for each sentence and beam.
          keys: [R, H, T, K], of the T positions before.
          values: [R, H, T, K], the same.

        Returns:
          [R, D], and keys and values with the new position, [R, H, T + 1, K].
        """
        width = x.shape[-1]
        joined = tf.reshape(self.query_key_value(x), [-1, 3 * self.heads, 1, width // self.heads])
        queries, new_keys, new_values = tf.split(joined, 3, axis=1)
        keys, values = tf.concat([keys, new_keys], 2), tf.concat([values, new_values], 2)
        attended, _ = scaled_dot_product_attention(queries, keys, values, None, no_noise)
        return self.output_projection(tf.reshape(attended, [-1, width])), keys, values


class CrossAttention(keras.layers.Layer):
    """Multi-head attention of the target to the encoded source, section 3.2.3."""

    def __init__(self, d_model: int, heads: int, name: str) -> None:
        super().__init__(name=name)
        self.heads = heads
        with keras.name_scope(name):
            self.query = Linear(d_model, d_model, "query")
            self.key_value = Linear(d_model, 2 * d_model, "key_value")
            self.output_projection = Linear(d_model, d_model, "output")
        self.built = True

    def project(self, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, S, D] -> keys and values, [B, H, S, K] each: once a sentence when decoding."""
        keys, values = split_heads(self.key_value(memory), self.heads, 2)
        return keys, values

    def call(
        self,
        x: tf.Tensor,
        *,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor,
        noise: Noise = no_noise,
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, T, D] -> [B, T, D], and the attention weights [B, H, T, S]."""
        (queries,) = split_heads(self.query(x), self.heads)
        attended, weights = scaled_dot_product_attention(queries, keys, values, bias, noise)
        return self.output_projection(combine_heads(attended)), weights

    def step(
        self, x: tf.Tensor, *, beams: int, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor
    ) -> tf.Tensor:
        """Attends from one position of each beam: [B * N, D] -> [B * N, D], N `beams`."""
        width = x.shape[-1]
        queries = tf.reshape(self.query(x), [-1, beams, self.heads, width // self.heads])
        attended, _ = scaled_dot_product_attention(
            tf.transpose(queries, [0, 2, 1, 3]), keys, values, bias, no_noise
        )
        return self.output_projection(tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), [-1, width]))


class FeedForward(keras.layers.Layer):
    """max(0, x W1 + b1) W2 + b2, equation 2 of the paper."""

    def __init__(self, d_model: int, d_ff: int, name: str) -> None:
        super().__init__(name=name)
        with keras.name_scope(name):
            self.inner = Linear(d_model, d_ff, "inner", use_bias=True)
            self.outer = Linear(d_ff, d_model, "outer", use_bias=True)
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D]."""
        return self.outer(tf.nn.relu(self.inner(x)))


class Embedding(keras.layers.Layer):
    """Ids to vectors scaled by sqrt(D), and vectors back to logits, section 3.4."""

    def __init__(self, size: int, d_model: int, name: str) -> None:
        super().__init__(name=name)
        self.d_model = d_model
        self.table = self.add_weight(
            name="table",
            shape=(size, d_model),
            initializer=keras.initializers.RandomNormal(stddev=d_model**-0.5),
            # Rows of frequent ids add up many gradients, for which bfloat16 is too coarse.
            autocast=False,
        )
        self.built = True

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """[...] int32 -> [..., D]."""
        rows = tf.gather(tf.convert_to_tensor(self.table), ids) * self.d_model**0.5
        return tf.cast(rows, self.compute_dtype)
