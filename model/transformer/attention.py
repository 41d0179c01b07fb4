"""Attention (section 3.2 of the paper): heads, masks, self-attention and cross-attention.

Axes: B batch, S source positions (keys), T target positions (queries), D model width, H heads, K
width of a head (D / H), N beams per sentence, R rows of a decoding step (B * N).

In self-attention, queries and keys are positions of the same sequence.
"""

from __future__ import annotations

from collections.abc import Callable

import keras
import tensorflow as tf

from tt.model.text.vocabulary import PAD_ID
from tt.model.transformer.layers import Linear, Noise, no_noise

# Not -inf, so that a row without a visible key stays finite. Keras casts the biases to the type of
# the layer, so the number must be within the range of float16.
MASKED = -3e4

# Receives the attention weights of a layer, float32 [B, H, T, S].
Receiver = Callable[[tf.Tensor], None]


def ignore_weights(weights: tf.Tensor) -> None:
    """Ignore the attention weights, which only drawings need."""


def padding_bias(ids: tf.Tensor) -> tf.Tensor:
    """Return a bias that hides padding.

    Args:
      ids: int32 [B, S].

    Returns:
      The bias of the attention logits, float32 [B, 1, 1, S].
    """
    return tf.where(ids == PAD_ID, MASKED, 0.0)[:, None, None, :]  # [B, 1, 1, S]


def look_ahead_bias(length: tf.Tensor) -> tf.Tensor:
    """Return a bias that hides later positions (section 3.2.3).

    Args:
      length: Number of positions T, an int32 scalar.

    Returns:
      The bias of the attention logits, float32 [1, 1, T, T].
    """
    visible = tf.linalg.band_part(tf.ones([length, length]), -1, 0)  # [T, T]
    return tf.where(visible > 0, 0.0, MASKED)[None, None]  # [1, 1, T, T]


def scaled_dot_product_attention(
    queries: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor | None, noise: Noise
) -> tuple[tf.Tensor, tf.Tensor]:
    """Compute scaled dot-product attention, softmax(Q K^T / sqrt(d_k)) V (equation 1 of the paper).

    The paper's d_k is the axis K. Logits and softmax are float32. Rounded to bfloat16, a logit of
    16 to 32 would have steps of 0.125, and change the weights by up to 6 %.

    Args:
      queries: [B, H, T, K].
      keys: [B, H, S, K].
      values: [B, H, S, K].
      bias: Float32, broadcasts to [B, H, T, S]; None shows all keys.
      noise: Dropout of the attention weights.

    Returns:
      The attended values, [B, H, T, K], and the weights before dropout, float32 [B, H, T, S].
    """
    # Scale the queries instead of the product. Otherwise, TensorFlow fuses product, scale and bias
    # into one operation that takes half of a training step on CPUs.
    scale = queries.shape[-1] ** -0.5  # 1 / sqrt(K)
    # Cast before the product, because it would round the logits to the type of its arguments.
    queries, keys = tf.cast(queries, tf.float32) * scale, tf.cast(keys, tf.float32)
    logits = tf.matmul(queries, keys, transpose_b=True)  # [B, H, T, S]
    if bias is not None:
        logits += tf.cast(bias, tf.float32)
    weights = tf.nn.softmax(logits)  # [B, H, T, S]
    return tf.matmul(noise(tf.cast(weights, values.dtype)), values), weights


def split_heads(x: tf.Tensor, heads: int, parts: int = 1) -> list[tf.Tensor]:
    """Split joined projections, [B, T, parts * D], into `parts` tensors of shape [B, H, T, K]."""
    batch, length = tf.shape(x)[0], tf.shape(x)[1]
    width = x.shape[-1] // (parts * heads)
    x = tf.reshape(x, [batch, length, parts, heads, width])  # [B, T, parts, H, K]
    return list(tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts))  # [B, H, T, K] each


def combine_heads(x: tf.Tensor) -> tf.Tensor:
    """Join the heads, [B, H, T, K] -> [B, T, D]: the inverse of `split_heads`."""
    shape = tf.shape(x)
    width = x.shape[1] * x.shape[3]  # D
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [shape[0], shape[2], width])  # [B, T, D]


class SelfAttention(keras.layers.Layer):
    """Multi-head attention of a sequence to itself (section 3.2.2); the paper has no biases.

    One matrix product computes queries, keys and values. Glorot's initialization gives the joined
    kernel a bound that is 2^-0.5 times the bound of three separate kernels. Post-norm models train
    well with this gain.
    """

    def __init__(self, d_model: int, heads: int, name: str, *, use_bias: bool = False) -> None:
        super().__init__(name=name)
        self.heads = heads
        with keras.name_scope(name):
            self.query_key_value = Linear(
                d_model, 3 * d_model, "query_key_value", use_bias=use_bias
            )
            self.output_projection = Linear(d_model, d_model, "output", use_bias=use_bias)
        self.built = True

    def call(
        self,
        x: tf.Tensor,
        *,
        bias: tf.Tensor,
        noise: Noise = no_noise,
        receive: Receiver = ignore_weights,
    ) -> tf.Tensor:
        """Attend from each position to all visible positions.

        Args:
          x: [B, T, D].
          bias: Bias that hides positions; broadcasts to [B, H, T, T].
          noise: Dropout of the attention weights.
          receive: Called with the attention weights, [B, H, T, T].

        Returns:
          The output, [B, T, D].
        """
        queries, keys, values = split_heads(self.query_key_value(x), self.heads, 3)  # [B, H, T, K]
        attended, weights = scaled_dot_product_attention(queries, keys, values, bias, noise)
        receive(weights)
        return self.output_projection(combine_heads(attended))

    def step(
        self, x: tf.Tensor, *, keys: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Attend from one new position per row to all earlier positions and to itself.

        Args:
          x: The new positions, [R, D].
          keys: Keys of the T earlier positions, [R, H, T, K].
          values: Values of the T earlier positions, [R, H, T, K].

        Returns:
          The output, [R, D], and the keys and values with the new position, [R, H, T + 1, K] each.
        """
        width = x.shape[-1]  # D
        # [R, 3 * H, 1, K]
        joined = tf.reshape(self.query_key_value(x), [-1, 3 * self.heads, 1, width // self.heads])
        queries, new_keys, new_values = tf.split(joined, 3, axis=1)  # [R, H, 1, K] each
        # [R, H, T + 1, K] each
        keys, values = tf.concat([keys, new_keys], 2), tf.concat([values, new_values], 2)
        attended, _ = scaled_dot_product_attention(queries, keys, values, None, no_noise)
        rows = tf.reshape(attended, [-1, width])  # [R, H, 1, K] -> [R, D]
        return self.output_projection(rows), keys, values


class CrossAttention(keras.layers.Layer):
    """Multi-head attention of the target to the encoded source (section 3.2.3)."""

    def __init__(self, d_model: int, heads: int, name: str, *, use_bias: bool = False) -> None:
        super().__init__(name=name)
        self.heads = heads
        with keras.name_scope(name):
            self.query = Linear(d_model, d_model, "query", use_bias=use_bias)
            self.key_value = Linear(d_model, 2 * d_model, "key_value", use_bias=use_bias)
            self.output_projection = Linear(d_model, d_model, "output", use_bias=use_bias)
        self.built = True

    def project(self, memory: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the keys and values of the encoded source; decoding computes them only once.

        Args:
          memory: Output of the encoder, [B, S, D].

        Returns:
          Keys and values, [B, H, S, K] each.
        """
        keys, values = split_heads(self.key_value(memory), self.heads, 2)  # [B, H, S, K] each
        return keys, values

    def call(
        self,
        x: tf.Tensor,
        *,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor,
        noise: Noise = no_noise,
        receive: Receiver = ignore_weights,
    ) -> tf.Tensor:
        """Attend from each target position to all visible source positions.

        Args:
          x: [B, T, D].
          keys: Keys of the source, [B, H, S, K].
          values: Values of the source, [B, H, S, K].
          bias: Bias that hides padding, [B, 1, 1, S].
          noise: Dropout of the attention weights.
          receive: Called with the attention weights, [B, H, T, S].

        Returns:
          The output, [B, T, D].
        """
        (queries,) = split_heads(self.query(x), self.heads)  # [B, H, T, K]
        attended, weights = scaled_dot_product_attention(queries, keys, values, bias, noise)
        receive(weights)
        return self.output_projection(combine_heads(attended))

    def step(
        self, x: tf.Tensor, *, beams: int, keys: tf.Tensor, values: tf.Tensor, bias: tf.Tensor
    ) -> tf.Tensor:
        """Attend from one new position per beam to all visible source positions.

        The N beams of a sentence take the place of the T target positions in `call`.

        Args:
          x: The new positions, [R, D].
          beams: Number of beams N.
          keys: Keys of the source, [B, H, S, K].
          values: Values of the source, [B, H, S, K].
          bias: Bias that hides padding, [B, 1, 1, S].

        Returns:
          The output, [R, D].
        """
        width = x.shape[-1]  # D
        # [B, N, H, K]
        queries = tf.reshape(self.query(x), [-1, beams, self.heads, width // self.heads])
        attended, _ = scaled_dot_product_attention(
            tf.transpose(queries, [0, 2, 1, 3]), keys, values, bias, no_noise
        )  # [B, H, N, K]
        rows = tf.reshape(tf.transpose(attended, [0, 2, 1, 3]), [-1, width])  # [R, D]
        return self.output_projection(rows)
