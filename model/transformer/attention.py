"""Attention, section 3.2 of the paper: heads, masks, self-attention and cross-attention.

Axes: B batch, S source (keys), T target (queries), D width, H heads, K width of a head; R rows of a
step of decoding, one for each sentence and beam; N beams.
"""

from __future__ import annotations

import keras
import tensorflow as tf

from tt.model.text.vocabulary import PAD_ID
from tt.model.transformer.layers import Linear, Noise, no_noise

MASKED = -1e9  # instead of -inf: a row without any visible key stays finite
_MASKED_FLOAT16 = -3e4  # far enough from that type's end, -65504, for what is added to it


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

    `queries` are [B, H, T, K], `keys` and `values` [B, H, S, K]; `bias` broadcasts to [B, H, T, S],
    None shows all keys; `noise` is dropout of the weights. Returns the attended values [B, H, T, K]
    and the weights before dropout [B, H, T, S].
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
    x = tf.reshape(x, [batch, length, parts, heads, width])  # [B, T, parts, H, K]
    return list(tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts))  # [B, H, T, K] each


def combine_heads(x: tf.Tensor) -> tf.Tensor:
    """Joins [B, H, T, K] to [B, T, D]: the inverse of `split_heads`."""
    shape = tf.shape(x)
    width = x.shape[1] * x.shape[3]
    return tf.reshape(tf.transpose(x, [0, 2, 1, 3]), [shape[0], shape[2], width])


class SelfAttention(keras.layers.Layer):
    """Multi-head attention of a sequence to itself, section 3.2.2; the paper has no biases.

    The projections of queries, keys and values are one product. Glorot's bound on the joined
    kernel is 2^-0.5 of that on three single ones, the gain that post-norm models train well with.
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
        self, x: tf.Tensor, *, bias: tf.Tensor, noise: Noise = no_noise
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, T, D] -> [B, T, D], and the attention weights [B, H, T, T]."""
        queries, keys, values = split_heads(self.query_key_value(x), self.heads, 3)
        attended, weights = scaled_dot_product_attention(queries, keys, values, bias, noise)
        return self.output_projection(combine_heads(attended)), weights

    def step(
        self, x: tf.Tensor, *, keys: tf.Tensor, values: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """Attends from one new position of each row, [R, D], to all before it and to itself.

        `keys` and `values` are [R, H, T, K], of the T positions before. Returns [R, D], and keys
        and values with the new position, [R, H, T + 1, K].
        """
        width = x.shape[-1]
        joined = tf.reshape(self.query_key_value(x), [-1, 3 * self.heads, 1, width // self.heads])
        queries, new_keys, new_values = tf.split(joined, 3, axis=1)  # [R, H, 1, K] each
        keys, values = tf.concat([keys, new_keys], 2), tf.concat([values, new_values], 2)
        attended, _ = scaled_dot_product_attention(queries, keys, values, None, no_noise)
        return self.output_projection(tf.reshape(attended, [-1, width])), keys, values


class CrossAttention(keras.layers.Layer):
    """Multi-head attention of the target to the encoded source, section 3.2.3."""

    def __init__(self, d_model: int, heads: int, name: str, *, use_bias: bool = False) -> None:
        super().__init__(name=name)
        self.heads = heads
        with keras.name_scope(name):
            self.query = Linear(d_model, d_model, "query", use_bias=use_bias)
            self.key_value = Linear(d_model, 2 * d_model, "key_value", use_bias=use_bias)
            self.output_projection = Linear(d_model, d_model, "output", use_bias=use_bias)
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
