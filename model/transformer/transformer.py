"""The Transformer of section 3 of the paper: encoder, decoder, and one step of decoding.

Axes: B batch, S source, T target, D width, H heads, K width of a head, V target vocabulary, N beams
of a sentence, R rows of a step (B * N). Each residual sub-layer is LayerNorm(x +
Dropout(sublayer(x))) (post-norm, section 3.1), or x + Dropout(sublayer(LayerNorm(x))) (pre-norm).
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

import keras
import numpy as np
import tensorflow as tf

from tt.model.text.vocabulary import BOS_ID
from tt.model.transformer.attention import (
    CrossAttention,
    SelfAttention,
    look_ahead_bias,
    padding_bias,
)
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.layers import (
    Dropout,
    Embedding,
    FeedForward,
    LayerNorm,
    Noise,
    OutputBias,
    no_noise,
    sinusoidal_positions,
)
from tt.model.transformer.loop import HIDDEN, Prediction


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Gives the layers that are made inside a Keras policy, such as "mixed_bfloat16"."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class _ResidualLayer(keras.layers.Layer):
    """The sub-layers of a layer; norms stand before a sub-layer, or after its residual sum."""

    _has_source = False

    def __init__(self, config: TransformerConfig, name: str) -> None:
        super().__init__(name=name)
        self._is_pre_norm = config.norm == "pre"
        width, heads, use_bias = config.d_model, config.heads, config.projection_bias
        with keras.name_scope(name):
            self.attention = SelfAttention(width, heads, "attention", use_bias=use_bias)
            self.attention_norm = LayerNorm(width, "attention_norm")
            if self._has_source:
                self.cross_attention = CrossAttention(
                    width, heads, "cross_attention", use_bias=use_bias
                )
                self.cross_attention_norm = LayerNorm(width, "cross_attention_norm")
            self.feed_forward = FeedForward(
                width, config.d_ff, "feed_forward", activation=config.activation
            )
            self.feed_forward_norm = LayerNorm(width, "feed_forward_norm")
        self.built = True

    def _before(self, norm: LayerNorm, x: tf.Tensor) -> tf.Tensor:
        return norm(x) if self._is_pre_norm else x

    def _after(self, norm: LayerNorm, x: tf.Tensor) -> tf.Tensor:
        return x if self._is_pre_norm else norm(x)


class EncoderLayer(_ResidualLayer):
    """Self-attention, then a feed-forward layer."""

    def call(
        self, x: tf.Tensor, *, bias: tf.Tensor, noise: Noise, attention_noise: Noise
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """[B, S, D] -> [B, S, D], and the attention weights [B, H, S, S]."""
        attended, weights = self.attention(
            self._before(self.attention_norm, x), bias=bias, noise=attention_noise
        )
        x = self._after(self.attention_norm, x + noise(attended))
        transformed = self.feed_forward(self._before(self.feed_forward_norm, x))
        return self._after(self.feed_forward_norm, x + noise(transformed)), weights


class DecoderLayer(_ResidualLayer):
    """Self-attention, attention to the source, then a feed-forward layer."""

    _has_source = True

    def call(
        self,
        x: tf.Tensor,
        *,
        memory: tf.Tensor,
        bias: tf.Tensor,
        source_bias: tf.Tensor,
        noise: Noise,
        attention_noise: Noise,
    ) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
        """[B, T, D] -> [B, T, D], and the weights [B, H, T, T] and [B, H, T, S]."""
        attended, self_weights = self.attention(
            self._before(self.attention_norm, x), bias=bias, noise=attention_noise
        )
        x = self._after(self.attention_norm, x + noise(attended))
        keys, values = self.cross_attention.project(memory)
        attended, cross_weights = self.cross_attention(
            self._before(self.cross_attention_norm, x),
            keys=keys,
            values=values,
            bias=source_bias,
            noise=attention_noise,
        )
        x = self._after(self.cross_attention_norm, x + noise(attended))
        transformed = self.feed_forward(self._before(self.feed_forward_norm, x))
        x = self._after(self.feed_forward_norm, x + noise(transformed))
        return x, self_weights, cross_weights

    def step(
        self,
        x: tf.Tensor,
        *,
        beams: int,
        caches: list[tf.Tensor],
        keys: tf.Tensor,
        values: tf.Tensor,
        source_bias: tf.Tensor,
    ) -> tuple[tf.Tensor, list[tf.Tensor]]:
        """One new position of each of N = `beams` beams, x [B * N, D].

        `caches` are keys and values [B * N, H, T, K], see `SelfAttention.step`; `keys` and
        `values`, [B, H, S, K], and `source_bias`, [B, 1, 1, S], are of the source. Returns [B * N,
        D], and the caches with the new position.
        """
        attended, *caches = self.attention.step(
            self._before(self.attention_norm, x), keys=caches[0], values=caches[1]
        )
        x = self._after(self.attention_norm, x + attended)
        attended = self.cross_attention.step(
            self._before(self.cross_attention_norm, x),
            beams=beams,
            keys=keys,
            values=values,
            bias=source_bias,
        )
        x = self._after(self.cross_attention_norm, x + attended)
        transformed = self.feed_forward(self._before(self.feed_forward_norm, x))
        return self._after(self.feed_forward_norm, x + transformed), caches


@dataclasses.dataclass(frozen=True)
class AttentionWeights:
    """The attention of a forward pass, one tensor a layer."""

    encoder: list[tf.Tensor]  # [B, H, S, S] each
    decoder: list[tf.Tensor]  # [B, H, T, T] each
    cross: list[tf.Tensor]  # [B, H, T, S] each: from target positions to source positions


@dataclasses.dataclass(frozen=True)
class OutputProjection:
    """The output embedding as decoding wants it."""

    # [D + 1, V], transposed: with few rows, the product with the table as it stands takes two to
    # five times as long on a CPU. The last row is a bias, the model's (0 if it has none) and
    # HIDDEN; added by itself it would take as long as the product.
    kernel: tf.Tensor
    hidden: tf.Tensor  # [D, H], the columns of the hidden ids
    hidden_bias: tf.Tensor | None  # [H], their output bias, where the model has one

    def __call__(self, x: tf.Tensor) -> Prediction:
        """[R, D] to the logits."""
        ones = tf.ones([tf.shape(x)[0], 1], x.dtype)  # [R, 1]
        logits = tf.matmul(tf.concat([x, ones], 1), self.kernel)  # [R, V]
        hidden = tf.matmul(x, self.hidden)  # [R, hidden ids]
        if self.hidden_bias is not None:
            hidden += self.hidden_bias
        return Prediction(tf.cast(logits, tf.float32), tf.cast(hidden, tf.float32))


@dataclasses.dataclass(frozen=True)
class EncodedSource:
    """What decoding needs of the source, computed once a sentence."""

    keys: list[tf.Tensor]  # [B, H, S, K] for each decoder layer
    values: list[tf.Tensor]  # [B, H, S, K] for each decoder layer
    bias: tf.Tensor  # float32 [B, 1, 1, S], hides padding
    positions: tf.Tensor  # [T, D], encodings of the target positions that will be decoded
    projection: OutputProjection  # of the decoder's output to logits


class Transformer(keras.Model):
    """The whole model; its variables exist once it is constructed.

    >>> from tt.model.transformer.config import TransformerConfig
    >>> config = TransformerConfig.from_preset(
    ...     "tiny", source_vocabulary_size=16, target_vocabulary_size=24, shared_vocabulary=False)
    >>> model = Transformer(config)
    >>> source, target = tf.constant([[2, 5, 6, 3]]), tf.constant([[2, 7]])
    >>> model.logits(model(source, target=target)).shape
    TensorShape([1, 2, 24])
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__(name="transformer")
        self.config = config
        width, (encoder_layers, decoder_layers) = config.d_model, config.depths
        name = "embedding" if config.shared_vocabulary else "source_embedding"
        self.source_embedding = Embedding(config.source_vocabulary_size, width, name)
        self.target_embedding = (
            self.source_embedding
            if config.shared_vocabulary
            else Embedding(config.target_vocabulary_size, width, "target_embedding")
        )
        self.output_embedding = (
            self.target_embedding
            if config.tie_embeddings
            else Embedding(config.target_vocabulary_size, width, "output_embedding")
        )
        self.encoder_layers = [EncoderLayer(config, f"encoder_{i}") for i in range(encoder_layers)]
        self.decoder_layers = [DecoderLayer(config, f"decoder_{i}") for i in range(decoder_layers)]
        self.output_bias = (
            OutputBias(config.target_vocabulary_size, "output_bias") if config.output_bias else None
        )
        has_norm = config.embedding_norm
        self.source_embedding_norm = LayerNorm(width, "source_embedding_norm") if has_norm else None
        self.target_embedding_norm = LayerNorm(width, "target_embedding_norm") if has_norm else None
        # What pre-norm layers add up is normalised once, at the end of each side.
        is_pre_norm = config.norm == "pre"
        self.encoder_norm = LayerNorm(width, "encoder_norm") if is_pre_norm else None
        self.decoder_norm = LayerNorm(width, "decoder_norm") if is_pre_norm else None
        self.built = True

    def call(
        self, source: tf.Tensor, *, target: tf.Tensor, dropout: Dropout | None = None
    ) -> tf.Tensor:
        """Encodes the source and decodes the whole target at once, to [B, T, D].

        `source` is int32 [B, S], BOS and EOS included, PAD at the end; `target` int32 [B, T], BOS
        first: the output at a position predicts the next id. Without `dropout`, it is inference.
        """
        output, _ = self.decode_with_attention(source, target=target, dropout=dropout)
        return output

    def decode_with_attention(
        self, source: tf.Tensor, *, target: tf.Tensor, dropout: Dropout | None = None
    ) -> tuple[tf.Tensor, AttentionWeights]:
        """Does what `call` does and returns the attention weights too."""
        noise = dropout.at(self.config.dropout) if dropout else no_noise
        attention_noise = dropout.at(self.config.attention_dropout) if dropout else no_noise
        source = self._seen(source)
        source_bias = padding_bias(source)  # [B, 1, 1, S]
        attention = AttentionWeights([], [], [])
        # [B, S, D]
        memory = self._encode(source, source_bias, noise, attention_noise, attention.encoder)
        x = self._embed_target(target) + self._positions(tf.shape(target)[1])  # [B, T, D]
        x = noise(_normalized(self.target_embedding_norm, x))
        # Padding stands at the end, so the look-ahead mask hides it from all real positions.
        bias = look_ahead_bias(tf.shape(target)[1])  # [1, 1, T, T]
        for layer in self.decoder_layers:
            x, self_weights, cross_weights = layer(
                x,
                memory=memory,
                bias=bias,
                source_bias=source_bias,
                noise=noise,
                attention_noise=attention_noise,
            )
            attention.decoder.append(self_weights)
            attention.cross.append(cross_weights)
        return _normalized(self.decoder_norm, x), attention

    def logits(self, output: tf.Tensor) -> tf.Tensor:
        """[..., D] -> [..., V], by the (tied) output embedding and the bias, if there is one."""
        table = tf.cast(self.output_embedding.table, output.dtype)
        output_rows = tf.reshape(output, [-1, self.config.d_model])  # [R, D]
        rows = tf.matmul(output_rows, table, transpose_b=True)  # [R, V]
        if self.output_bias is not None:
            rows += tf.cast(self.output_bias.values, output.dtype)
        return tf.reshape(rows, tf.concat([tf.shape(output)[:-1], [table.shape[0]]], 0))

    def encode(
        self, source: tf.Tensor, *, target_length: tf.Tensor, hidden_ids: Sequence[int] = ()
    ) -> EncodedSource:
        """Encodes the source and projects the cross-attention's keys and values.

        `source` is int32 [B, S], BOS and EOS included, PAD at the end; `target_length` an int32
        scalar, the most steps that will be decoded; `hidden_ids` must not be decoded.
        """
        source = self._seen(source)
        bias = padding_bias(source)  # [B, 1, 1, S]
        memory = self._encode(source, bias, no_noise, no_noise, [])  # [B, S, D]
        projected = [layer.cross_attention.project(memory) for layer in self.decoder_layers]
        return EncodedSource(
            keys=[keys for keys, _ in projected],
            values=[values for _, values in projected],
            bias=bias,
            positions=self._positions(target_length),
            projection=self._output_projection(hidden_ids),
        )

    def empty_caches(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Returns each decoder layer's keys and values before the first step, [rows, H, 0, K]."""
        config = self.config
        shape = [rows, config.heads, 0, config.d_model // config.heads]
        count = 2 * len(self.decoder_layers)
        return [tf.zeros(shape, self.compute_dtype) for _ in range(count)]

    def decode_step(
        self,
        ids: tf.Tensor,
        *,
        position: tf.Tensor,
        caches: list[tf.Tensor],
        encoded: EncodedSource,
    ) -> tuple[Prediction, list[tf.Tensor]]:
        """Predicts the next id of each beam, and returns the caches one position longer, too.

        `ids`, int32 [B, N], are the last of each beam, N static; `position`, an int32 scalar, where
        they stand, BOS at 0; `caches` keys and values [B * N, H, position, K] of layer after layer.
        """
        beams = ids.shape[1]
        # Rows alone: with three axes, half of the operations of a step would compute shapes.
        x = self._embed_target(tf.reshape(ids, [-1])) + encoded.positions[position]  # [B * N, D]
        x = _normalized(self.target_embedding_norm, x)
        new_caches: list[tf.Tensor] = []
        for i, layer in enumerate(self.decoder_layers):
            x, longer = layer.step(
                x,
                beams=beams,
                caches=caches[2 * i : 2 * i + 2],
                keys=encoded.keys[i],
                values=encoded.values[i],
                source_bias=encoded.bias,
            )
            new_caches += longer
        return encoded.projection(_normalized(self.decoder_norm, x)), new_caches

    def _output_projection(self, hidden_ids: Sequence[int]) -> OutputProjection:
        table = tf.cast(self.output_embedding.table, self.compute_dtype)
        bias = np.zeros([1, table.shape[0]], np.float32)  # [1, V]
        bias[0, list(hidden_ids)] = HIDDEN
        ids = tf.constant(hidden_ids, tf.int32, [len(hidden_ids)])
        hidden_bias = None
        if self.output_bias is not None:
            values = tf.convert_to_tensor(self.output_bias.values)  # [V]
            bias += values
            hidden_bias = tf.cast(tf.gather(values, ids), table.dtype)  # [hidden ids]
        hidden = tf.gather(table, ids)  # [hidden ids, D]
        return OutputProjection(
            kernel=tf.concat([tf.transpose(table), tf.cast(bias, table.dtype)], 0),
            hidden=tf.ensure_shape(tf.transpose(hidden), [table.shape[1], len(hidden_ids)]),
            hidden_bias=hidden_bias,
        )

    def _encode(
        self,
        source: tf.Tensor,
        bias: tf.Tensor,
        noise: Noise,
        attention_noise: Noise,
        attention: list[tf.Tensor],
    ) -> tf.Tensor:
        x = self.source_embedding(source) + self._positions(tf.shape(source)[1])  # [B, S, D]
        x = noise(_normalized(self.source_embedding_norm, x))
        for layer in self.encoder_layers:
            x, weights = layer(x, bias=bias, noise=noise, attention_noise=attention_noise)
            attention.append(weights)
        return _normalized(self.encoder_norm, x)

    def _seen(self, source: tf.Tensor) -> tf.Tensor:
        """Returns what the encoder gets of sources, [B, S]: all, or what stands behind BOS."""
        return source if self.config.source_bos else source[:, 1:]

    def _embed_target(self, ids: tf.Tensor) -> tf.Tensor:
        rows = self.target_embedding(ids)  # [..., D]
        if self.config.zero_start:
            rows *= tf.cast(ids != BOS_ID, rows.dtype)[..., None]
        return rows

    def _positions(self, length: tf.Tensor) -> tf.Tensor:
        config = self.config
        rows = sinusoidal_positions(
            length, config.d_model, config.position_base, scale=config.position_scale
        )
        return tf.cast(rows, self.compute_dtype)  # [length, D]


def _normalized(norm: LayerNorm | None, x: tf.Tensor) -> tf.Tensor:
    """Normalises [..., D], where the architecture has it."""
    return x if norm is None else norm(x)
