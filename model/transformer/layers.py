"""The Transformer's other parts, as Keras layers that hold variables round plain TensorFlow."""

from __future__ import annotations

from collections.abc import Callable

import keras
import numpy as np
import tensorflow as tf

# What is done to activations on the way: dropout in training, nothing in inference.
Noise = Callable[[tf.Tensor], tf.Tensor]


def no_noise(x: tf.Tensor) -> tf.Tensor:
    """Returns its argument: inference has no dropout."""
    return x


class Dropout:
    """Dropout whose mask is a function of a seed and of the place in the forward pass.

    The seed, int32 [2], is new in each step and on each replica. There is no other state, so a
    resumed run repeats the undisturbed one. A mask takes one random byte per element, which is a
    fourth of the generator's work. So the rate is rounded to a multiple of 1/256, at least one, and
    the scale belongs to the rounded rate; see `two_scales`.
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
    """Return two scales whose mean is that of dropout, for a type that cannot hold the scale.

    bfloat16 has eight bits and rounds 256/230 to 1.109375, which is 0.33 % too little. Dropout
    drops bytes below `threshold`, 1 to 255. The scales are the numbers of the type below and above
    the exact scale. Returns the lower scale, the higher scale, and how many of the other bytes get
    the higher scale, so that the mean is exact.

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


def sinusoidal_positions(
    length: tf.Tensor, d_model: int, base: float = 10000.0, *, scale: str = "paper"
) -> tf.Tensor:
    """Returns the position encodings of section 3.5, float32 [length, d_model].

    The paper interleaves sines and cosines; here all sines come first, as in its authors'
    tensor2tensor. The two differ by a fixed permutation of the width. The wavelengths of the
    `scale` "paper" end one step before the base, those of "tensor2tensor" with it.
    """
    wavelengths = base ** (2 * np.arange(d_model // 2) / d_model)
    if scale == "tensor2tensor":
        wavelengths = base ** (np.arange(d_model // 2) / (d_model // 2 - 1))
    angles = tf.cast(tf.range(length), tf.float64)[:, None] / wavelengths
    return tf.cast(tf.concat([tf.sin(angles), tf.cos(angles)], axis=1), tf.float32)


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
    """Brings the last axis of float32 [..., D] to mean 0 and variance 1, to which epsilon is added.

    Its gradient is written by hand: that of automatic differentiation makes twice as many passes.
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

    return normal_of(x)


def swish(x: tf.Tensor) -> tf.Tensor:
    """Swish, x sigmoid(x): Ramachandran et al. 2017."""
    return x * tf.sigmoid(x)


def gelu(x: tf.Tensor) -> tf.Tensor:
    """GELU, x times the normal distribution's share below x: Hendrycks and Gimpel 2016."""
    return 0.5 * x * (1 + tf.math.erf(x * 2**-0.5))


_ACTIVATIONS: dict[str, Callable[[tf.Tensor], tf.Tensor]] = {
    "relu": tf.nn.relu,
    "swish": swish,
    "gelu": gelu,
}


class FeedForward(keras.layers.Layer):
    """f(x W1 + b1) W2 + b2; with f = max(0, .), equation 2 of the paper."""

    def __init__(self, d_model: int, d_ff: int, name: str, *, activation: str = "relu") -> None:
        super().__init__(name=name)
        self._activation = _ACTIVATIONS[activation]
        with keras.name_scope(name):
            self.inner = Linear(d_model, d_ff, "inner", use_bias=True)
            self.outer = Linear(d_ff, d_model, "outer", use_bias=True)
        self.built = True

    def call(self, x: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., D]."""
        return self.outer(self._activation(self.inner(x)))


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


class OutputBias(keras.layers.Layer):
    """What is added to the logits, a number for each id."""

    def __init__(self, size: int, name: str) -> None:
        super().__init__(name=name)
        self.values = self.add_weight(
            name="values", shape=(size,), initializer="zeros", autocast=False
        )
        self.built = True
