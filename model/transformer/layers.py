"""The Transformer's other layers: Keras layers own the variables, and TensorFlow computes.

Axes: D model width, I width of an input, O width of an output, R rows. An ellipsis stands for any
leading axes.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

# A function applied to activations: dropout in training, the identity in inference.
Noise = Callable[[tf.Tensor], tf.Tensor]


def no_noise(x: tf.Tensor) -> tf.Tensor:
    """Return the argument; inference has no dropout."""
    return x


def bias_width() -> int:
    """Return the number of columns that `with_one` adds.

    The matrix products of GPUs are fast if widths are multiples of 8. On CPUs, a product with 136
    columns takes longer than a product with 129 columns.
    """
    return 8 if tf.config.list_logical_devices("GPU") else 1


def with_one(x: tf.Tensor, *, width: int) -> tf.Tensor:
    """Add a column of ones, and zeros up to a number of columns, [R, D] -> [R, D + width].

    A matrix product then adds a bias that is the row D of the other matrix.
    """
    one = tf.one_hot(tf.zeros([tf.shape(x)[0]], tf.int32), width, dtype=x.dtype)  # [R, width]
    return tf.concat([x, one], 1)


class Dropout:
    """Dropout whose masks depend only on a seed and on the number of the call in a forward pass.

    Dropout has no other state, so a resumed run uses the same masks as an uninterrupted run. A mask
    needs only one random byte per element; random floats would take four times as long. The rate is
    therefore rounded to a multiple of 1/256, but never to 0. The scale of the kept elements matches
    the rounded rate.

    Args:
      seed: int32 [2], different in each step and on each replica.
    """

    def __init__(self, seed: tf.Tensor) -> None:
        self._seed = seed
        self._places = 0

    def at(self, rate: float) -> Noise:
        """Return a dropout function with this rate; each call uses the next mask."""
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
            )  # int32 [ceil(size / 4)]
            random_bytes = tf.reshape(tf.bitcast(words, tf.uint8), [-1])
            if x.shape[-1] is None or x.shape[-1] % 4:  # else, no byte is left over
                random_bytes = random_bytes[:size]  # uint8 [size]
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
    """Return two scales whose mean is dropout's exact scale, for types that cannot represent it.

    Dropout drops the elements with a random byte below `threshold`, and scales the other elements
    by 256 / (256 - threshold). A threshold of 26 gives a scale of 256/230. bfloat16 has only eight
    significant bits, and rounds this scale to 1.109375, which is 0.33 % too low. The function
    returns the two nearest numbers of the type, one below and one above the exact scale.

    Args:
      threshold: Number of byte values that are dropped, 1 to 255.
      dtype: Type of the activations.

    Returns:
      The lower scale, the higher scale, and the number of kept byte values that get the higher
      scale. With this number, the mean over all bytes is exact.

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
    """Return the positional encodings of section 3.5.

    The paper interleaves sines and cosines. Here, all sines come first, as in the authors'
    tensor2tensor; this only permutes the width.

    Args:
      length: Number of positions, an int32 scalar.
      d_model: Width D of the model.
      base: Base of the wavelengths.

    Returns:
      The encodings, float32 [length, D].
    """
    # Divisors of the position (the wavelengths over 2 pi): base^(2 i / D).
    wavelengths = base ** (2 * np.arange(d_model // 2) / d_model)  # [D / 2]
    angles = tf.cast(tf.range(length), tf.float64)[:, None] / wavelengths  # [length, D / 2]
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=1), tf.float32)  # [length, D]


class Linear(keras.layers.Layer):
    """A linear layer, x W + b, with the kernel W [I, O] and an optional bias b [O]."""

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
        """Apply the layer to the last axis, [..., I] -> [..., O]."""
        is_rows = x.shape.rank == 2
        # Reshape to one matrix, because a batched product is slower, forward and backward.
        rows = tf.matmul(x if is_rows else tf.reshape(x, [-1, x.shape[-1]]), self.kernel)  # [R, O]
        if self.bias is not None:
            rows = tf.nn.bias_add(rows, self.bias)
        if is_rows:
            return rows
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [rows.shape[-1]]], 0))  # [..., O]


class LayerNorm(keras.layers.Layer):
    """Layer normalization (Ba et al. 2016), computed in float32, with a learned scale and shift."""

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
        """Normalize the last axis, [..., D] -> [..., D]."""
        normal = normalize(tf.cast(x, tf.float32), self.EPSILON)
        return tf.cast(normal * self.scale + self.shift, x.dtype)


def normalize(x: tf.Tensor, epsilon: float) -> tf.Tensor:
    """Normalize the last axis to mean 0 and variance 1: (x - mean) / sqrt(variance + epsilon).

    The gradient is written by hand, because automatic differentiation would make twice as many
    passes over the data.

    Args:
      x: Float32 [..., D].
      epsilon: Number that is added to the variance.

    Returns:
      Float32 [..., D].
    """

    @tf.custom_gradient
    def normal_of(x: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        centered = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(tf.square(centered), -1, keepdims=True)  # [..., 1]
        inverse = tf.math.rsqrt(variance + epsilon)  # [..., 1]
        normal = centered * inverse

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            mean = tf.reduce_mean(upstream, -1, keepdims=True)  # [..., 1]
            along = tf.reduce_mean(upstream * normal, -1, keepdims=True)  # [..., 1]
            return inverse * (upstream - mean - normal * along)

        return normal, gradient

    return normal_of(x)


class FeedForward(keras.layers.Layer):
    """A feed-forward layer, f(x W1 + b1) W2 + b2; f is max(0, .) in equation 2 of the paper."""

    def __init__(self, d_model: int, d_ff: int, name: str, *, activation: str = "relu") -> None:
        super().__init__(name=name)
        self._activation = getattr(tf.nn, activation)
        with keras.name_scope(name):
            self.inner = Linear(d_model, d_ff, "inner", use_bias=True)
            self.outer = Linear(d_ff, d_model, "outer", use_bias=True)
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """Apply the layer to each position, [..., D] -> [..., D]."""
        return self.outer(self._activation(self.inner(x)))


class Embedding(keras.layers.Layer):
    """An embedding of ids, scaled by sqrt(D); its table can also compute logits (section 3.4)."""

    def __init__(self, size: int, d_model: int, name: str) -> None:
        super().__init__(name=name)
        self.d_model = d_model
        self.table = self.add_weight(
            name="table",
            shape=(size, d_model),
            initializer=keras.initializers.RandomNormal(stddev=d_model**-0.5),
            # The rows of frequent ids sum many gradients, and bfloat16 is too coarse for that.
            autocast=False,
        )
        self.built = True

    def call(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the scaled embeddings of ids, int32 [...] -> [..., D]."""
        rows = tf.gather(tf.convert_to_tensor(self.table), ids) * self.d_model**0.5  # [..., D]
        return tf.cast(rows, self.compute_dtype)


class OutputBias(keras.layers.Layer):
    """A learned bias of the logits, with one number per id."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(name=name)
        self.values = self.add_weight(
            name="values", shape=(size,), initializer="zeros", autocast=False
        )
        self.built = True
