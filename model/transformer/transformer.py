"""The Transformer (section 3 of the paper): encoder, decoder, and one decoding step.

Axes: B batch, S source positions, T target positions, D model width, H heads, K width of a head
(D / H), V target vocabulary, N beams per sentence, R rows of a decoding step (B * N), I hidden ids.

With post-norm (section 3.1), a residual sublayer is LayerNorm(x + Dropout(sublayer(x))). With
pre-norm, it is x + Dropout(sublayer(LayerNorm(x))).
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
    Receiver,
    SelfAttention,
    ignore_weights,
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
    bias_width,
    no_noise,
    sinusoidal_positions,
    with_one,
)
from tt.model.transformer.loop import HIDDEN, Prediction


@contextlib.contextmanager
def dtype_policy(name: str) -> Iterator[None]:
    """Set the Keras dtype policy, such as "mixed_bfloat16", of layers created in a `with` block."""
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


class _ResidualLayer(keras.layers.Layer):
    """The sublayers of an encoder or decoder layer, with their normalizations."""

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
    """An encoder layer (section 3.1): self-attention, then a feed-forward layer."""

    def call(
        self,
        x: tf.Tensor,
        *,
        bias: tf.Tensor,
        noise: Noise,
        attention_noise: Noise,
        receive: Receiver = ignore_weights,
    ) -> tf.Tensor:
        """Apply the layer to all source positions.

        Args:
          x: [B, S, D].
          bias: Bias that hides padding, [B, 1, 1, S].
          noise: Dropout of the sublayers' outputs.
          attention_noise: Dropout of the attention weights.
          receive: Called with the attention weights, [B, H, S, S].

        Returns:
          The output, [B, S, D].
        """
        attended = self.attention(
            self._before(self.attention_norm, x),
            bias=bias,
            noise=attention_noise,
            receive=receive,
        )  # [B, S, D]
        x = self._after(self.attention_norm, x + noise(attended))
        transformed = self.feed_forward(self._before(self.feed_forward_norm, x))
        return self._after(self.feed_forward_norm, x + noise(transformed))


class DecoderLayer(_ResidualLayer):
    """A decoder layer (section 3.1): self-attention, cross-attention, then a feed-forward layer."""

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
        receive: Receiver = ignore_weights,
        receive_cross: Receiver = ignore_weights,
    ) -> tf.Tensor:
        """Apply the layer to all target positions.

        Args:
          x: [B, T, D].
          memory: Output of the encoder, [B, S, D].
          bias: Bias that hides later positions, [1, 1, T, T].
          source_bias: Bias that hides padding of the source, [B, 1, 1, S].
          noise: Dropout of the sublayers' outputs.
          attention_noise: Dropout of the attention weights.
          receive: Called with the weights of self-attention, [B, H, T, T].
          receive_cross: Called with the weights of cross-attention, [B, H, T, S].

        Returns:
          The output, [B, T, D].
        """
        attended = self.attention(
            self._before(self.attention_norm, x),
            bias=bias,
            noise=attention_noise,
            receive=receive,
        )  # [B, T, D]
        x = self._after(self.attention_norm, x + noise(attended))
        keys, values = self.cross_attention.project(memory)  # [B, H, S, K] each
        attended = self.cross_attention(
            self._before(self.cross_attention_norm, x),
            keys=keys,
            values=values,
            bias=source_bias,
            noise=attention_noise,
            receive=receive_cross,
        )  # [B, T, D]
        x = self._after(self.cross_attention_norm, x + noise(attended))
        transformed = self.feed_forward(self._before(self.feed_forward_norm, x))
        return self._after(self.feed_forward_norm, x + noise(transformed))

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
        """Apply the layer to one new position per beam.

        Args:
          x: The new positions, [R, D].
          beams: Number of beams N.
          caches: Keys and values of the T earlier positions, [R, H, T, K] each.
          keys: Keys of the source, [B, H, S, K].
          values: Values of the source, [B, H, S, K].
          source_bias: Bias that hides padding of the source, [B, 1, 1, S].

        Returns:
          The output, [R, D], and the caches with the new position, [R, H, T + 1, K] each.
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
    """The attention weights of a forward pass, with one tensor per layer."""

    encoder: list[tf.Tensor]  # self-attention of the encoder, [B, H, S, S] each
    decoder: list[tf.Tensor]  # self-attention of the decoder, [B, H, T, T] each
    cross: list[tf.Tensor]  # attention from target positions to source positions, [B, H, T, S] each


@dataclasses.dataclass(frozen=True)
class OutputProjection:
    """The output embedding in a form that makes decoding fast."""

    # [D + 1, V]: the transposed table, and a last row with the bias of each id. The bias is the
    # model's output bias, or 0, plus HIDDEN for hidden ids. With few rows, the product with the
    # table itself would take two to five times as long on a CPU, and a separate addition of the
    # bias would take as long as the product. On GPUs, seven rows of zeros follow.
    kernel: tf.Tensor
    hidden: tf.Tensor  # [D, I], the embeddings of the hidden ids
    hidden_bias: tf.Tensor | None  # [I], the output bias of the hidden ids, if the model has one

    def __call__(self, x: tf.Tensor) -> Prediction:
        """Return the logits for outputs of the decoder, [R, D]."""
        width = self.kernel.shape[0] - x.shape[1]
        logits = tf.matmul(with_one(x, width=width), self.kernel)  # [R, V]
        hidden = tf.matmul(x, self.hidden)  # [R, I]
        if self.hidden_bias is not None:
            hidden += self.hidden_bias
        return Prediction(tf.cast(logits, tf.float32), tf.cast(hidden, tf.float32))


@dataclasses.dataclass(frozen=True)
class EncodedSource:
    """The tensors that all decoding steps of a batch share."""

    keys: list[tf.Tensor]  # keys of the source for each decoder layer, [B, H, S, K] each
    values: list[tf.Tensor]  # values of the source for each decoder layer, [B, H, S, K] each
    bias: tf.Tensor  # bias that hides padding of the source, float32 [B, 1, 1, S]
    positions: tf.Tensor  # positional encodings of the target positions, [T, D]
    projection: OutputProjection  # projection of the decoder's output to logits


class Transformer(keras.Model):
    """A Transformer; the constructor creates all variables.

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
        # Pre-norm layers do not normalize their sums, so the last sum of each side is normalized.
        is_pre_norm = config.norm == "pre"
        self.encoder_norm = LayerNorm(width, "encoder_norm") if is_pre_norm else None
        self.decoder_norm = LayerNorm(width, "decoder_norm") if is_pre_norm else None
        self.built = True

    def call(
        self, source: tf.Tensor, *, target: tf.Tensor, dropout: Dropout | None = None
    ) -> tf.Tensor:
        """Encode the source and decode all target positions at once.

        Args:
          source: Source ids, int32 [B, S], with BOS and EOS, then PAD.
          target: Target ids, int32 [B, T], starting with BOS.
          dropout: Dropout of a training step; None in inference.

        Returns:
          The output of the decoder, [B, T, D]. The output at a position predicts the next id.
        """
        return self._decode(source, target=target, dropout=dropout)

    def decode_with_attention(
        self, source: tf.Tensor, *, target: tf.Tensor
    ) -> tuple[tf.Tensor, AttentionWeights]:
        """Return the result of `call` without dropout, and the attention weights."""
        attention = AttentionWeights([], [], [])
        return self._decode(source, target=target, attention=attention), attention

    def logits(self, output: tf.Tensor) -> tf.Tensor:
        """Return the logits for outputs of the decoder, [..., D] -> [..., V] (section 3.4).

        The logits use the output embedding, which is the target embedding if the two are tied, and
        the output bias if the model has one.
        """
        table = tf.cast(self.output_embedding.table, output.dtype)
        output_rows = tf.reshape(output, [-1, self.config.d_model])  # [R, D]
        rows = tf.matmul(output_rows, table, transpose_b=True)  # [R, V]
        if self.output_bias is not None:
            rows += tf.cast(self.output_bias.values, output.dtype)
        return tf.reshape(rows, tf.concat([tf.shape(output)[:-1], [table.shape[0]]], 0))

    def encode(
        self, source: tf.Tensor, *, target_length: tf.Tensor, hidden_ids: Sequence[int] = ()
    ) -> EncodedSource:
        """Encode the source and compute the tensors that all decoding steps share.

        Args:
          source: Source ids, int32 [B, S], with BOS and EOS, then PAD.
          target_length: Maximum number of decoding steps, an int32 scalar.
          hidden_ids: Ids that the search must never choose.
        """
        source = self._seen(source)
        bias = padding_bias(source)  # [B, 1, 1, S]
        memory = self._encode(source, bias, no_noise, no_noise)  # [B, S, D]
        projected = [layer.cross_attention.project(memory) for layer in self.decoder_layers]
        return EncodedSource(
            keys=[keys for keys, _ in projected],
            values=[values for _, values in projected],
            bias=bias,
            positions=self._positions(target_length),
            projection=self._output_projection(hidden_ids),
        )

    def empty_caches(self, rows: tf.Tensor) -> list[tf.Tensor]:
        """Return the caches before the first step: keys and values of all decoder layers.

        Args:
          rows: Number of rows R.

        Returns:
          Keys and values of layer after layer, [R, H, 0, K] each.
        """
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
        """Predict the next id of each beam.

        Args:
          ids: Last id of each beam, int32 [B, N] with a static N.
          position: Position of these ids, an int32 scalar; BOS has position 0.
          caches: Keys and values of layer after layer, [R, H, position, K] each.
          encoded: The tensors that all decoding steps share, from `encode`.

        Returns:
          The prediction, and the caches with the new position, [R, H, position + 1, K] each.
        """
        beams = ids.shape[1]
        # Use rows instead of [B, N, D], because with three axes, half of the operations of a step
        # would compute shapes.
        x = self._embed_target(tf.reshape(ids, [-1])) + encoded.positions[position]  # [R, D]
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
        table = tf.cast(self.output_embedding.table, self.compute_dtype)  # [V, D]
        bias = np.zeros([1, table.shape[0]], np.float32)  # [1, V]
        bias[0, list(hidden_ids)] = HIDDEN
        ids = tf.constant(hidden_ids, tf.int32, [len(hidden_ids)])  # [I]
        hidden_bias = None
        if self.output_bias is not None:
            values = tf.convert_to_tensor(self.output_bias.values)  # [V]
            bias += values
            hidden_bias = tf.cast(tf.gather(values, ids), table.dtype)  # [I]
        hidden = tf.gather(table, ids)  # [I, D]
        return OutputProjection(
            kernel=tf.pad(
                tf.concat([tf.transpose(table), tf.cast(bias, table.dtype)], 0),
                [[0, bias_width() - 1], [0, 0]],
            ),
            hidden=tf.ensure_shape(tf.transpose(hidden), [table.shape[1], len(hidden_ids)]),
            hidden_bias=hidden_bias,
        )

    def _decode(
        self,
        source: tf.Tensor,
        *,
        target: tf.Tensor,
        dropout: Dropout | None = None,
        attention: AttentionWeights | None = None,
    ) -> tf.Tensor:
        """Return the output of the decoder, [B, T, D]; add the weights to `attention`."""
        noise = dropout.at(self.config.dropout) if dropout else no_noise
        attention_noise = dropout.at(self.config.attention_dropout) if dropout else no_noise
        receivers: list[Receiver] = [ignore_weights] * 3
        if attention:
            receivers = [x.append for x in (attention.encoder, attention.decoder, attention.cross)]
        source = self._seen(source)
        source_bias = padding_bias(source)  # [B, 1, 1, S]
        # [B, S, D]
        memory = self._encode(source, source_bias, noise, attention_noise, receivers[0])
        x = noise(self._embed_target(target) + self._positions(tf.shape(target)[1]))  # [B, T, D]
        # Padding is at the end of the target, so the look-ahead mask hides it from real positions.
        bias = look_ahead_bias(tf.shape(target)[1])  # [1, 1, T, T]
        for layer in self.decoder_layers:
            x = layer(
                x,
                memory=memory,
                bias=bias,
                source_bias=source_bias,
                noise=noise,
                attention_noise=attention_noise,
                receive=receivers[1],
                receive_cross=receivers[2],
            )
        return _normalized(self.decoder_norm, x)

    def _encode(
        self,
        source: tf.Tensor,
        bias: tf.Tensor,
        noise: Noise,
        attention_noise: Noise,
        receive: Receiver = ignore_weights,
    ) -> tf.Tensor:
        """Return the output of the encoder, [B, S, D]; `receive` gets the attention weights."""
        x = noise(self.source_embedding(source) + self._positions(tf.shape(source)[1]))  # [B, S, D]
        for layer in self.encoder_layers:
            x = layer(x, bias=bias, noise=noise, attention_noise=attention_noise, receive=receive)
        return _normalized(self.encoder_norm, x)

    def _seen(self, source: tf.Tensor) -> tf.Tensor:
        """Return the source ids that the encoder reads: without BOS if the model has no BOS."""
        return source if self.config.source_bos else source[:, 1:]

    def _embed_target(self, ids: tf.Tensor) -> tf.Tensor:
        """Return the embeddings of target ids, int32 [...] -> [..., D]."""
        rows = self.target_embedding(ids)  # [..., D]
        if self.config.zero_start:
            rows *= tf.cast(ids != BOS_ID, rows.dtype)[..., None]
        return rows

    def _positions(self, length: tf.Tensor) -> tf.Tensor:
        """Return the encodings of the first positions, [length, D]."""
        config = self.config
        rows = sinusoidal_positions(length, config.d_model, config.position_base)
        return tf.cast(rows, self.compute_dtype)  # [length, D]


def _normalized(norm: LayerNorm | None, x: tf.Tensor) -> tf.Tensor:
    """Apply a normalization to [..., D], unless the architecture has none here."""
    return x if norm is None else norm(x)
