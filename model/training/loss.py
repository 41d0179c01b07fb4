"""The training loss: label-smoothed cross-entropy over real target tokens (section 5.4).

Axes: B batch, S source positions, T target positions, P real target positions of the whole batch
(without padding), D width, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tt.model.transformer.layers import Dropout, bias_width, with_one
from tt.model.transformer.transformer import Transformer

MOST_LOGITS = 2**27  # logits of a batch whose loss needs no slices, 512 MB in float32
_SLICE_LOGITS = 2**26  # logits of a slice


class TokenSums(NamedTuple):
    """Sums over the real target tokens of a batch, float32 scalars."""

    loss: tf.Tensor  # minimized loss: label-smoothed cross-entropy in nats
    cross_entropy: tf.Tensor  # cross-entropy without smoothing in nats; exp(mean) is the perplexity
    correct: tf.Tensor  # number of tokens that have the greatest logit
    tokens: tf.Tensor  # number of tokens


def batch_sums(
    model: Transformer,
    source: tf.Tensor,
    target: tf.Tensor,
    *,
    smoothing: float,
    dropout: Dropout | None = None,
    is_sliced: bool = False,
    has_xla: bool = False,
) -> TokenSums:
    """Run the model with the true target as its input (teacher forcing), and return the sums.

    Args:
      model: The model.
      source: Source ids, int32 [B, S], including BOS and EOS.
      target: Target ids, int32 [B, T], including BOS and EOS.
      smoothing: Share of the target probability that is spread over the vocabulary.
      dropout: Dropout of the training; None in validation.
      is_sliced: Whether to compute the logits in slices, which saves memory; see `sum_slices`.
      has_xla: Whether XLA compiles the layers, once for each shape of a batch.
    """

    def run_layers(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        return model(source, target=target, dropout=dropout)

    if has_xla:
        run_layers = tf.function(run_layers, jit_compile=True, autograph=False)
    output = run_layers(source, target[:, :-1])  # [B, T - 1, D]
    labels = tf.reshape(target[:, 1:], [-1])  # [B * (T - 1)]
    output = tf.reshape(output, [-1, output.shape[-1]])  # [B * (T - 1), D]
    # Remove padding first, because the product with the vocabulary is the most expensive operation.
    # TensorFlow keeps int32 on the host and finds the labels there, because PAD_ID is 0. A search
    # in bool would run on the GPU, and the host would wait for all of the GPU's work.
    real = tf.where(labels)[:, 0]  # [P]
    labels = tf.gather(labels, real)  # [P]
    output = tf.gather(output, real)  # [P, D]
    table = tf.convert_to_tensor(model.output_embedding.table)
    if model.output_bias is not None:  # add the bias as a column that is multiplied by 1
        width = bias_width()
        output = with_one(output, width=width)  # [P, D + width]
        bias = tf.convert_to_tensor(model.output_bias.values)  # [V]
        bias = tf.pad(bias[:, None], [[0, 0], [0, width - 1]])  # [V, width]
        table = tf.concat([table, bias], 1)  # [V, D + width]
    function = sum_slices if is_sliced else _sum_tokens
    loss, cross_entropy, correct = function(output, table, labels, smoothing)
    tokens = tf.math.count_nonzero(labels, dtype=tf.float32)  # PAD_ID is 0
    return TokenSums(loss=loss, cross_entropy=cross_entropy, correct=correct, tokens=tokens)


def _sum_tokens(
    output: tf.Tensor, table: tf.Tensor, labels: tf.Tensor, smoothing: float
) -> list[tf.Tensor]:
    """Return the sums of the three results of `smoothed_cross_entropy`, float32 scalars."""
    return [tf.reduce_sum(x) for x in smoothed_cross_entropy(output, table, labels, smoothing)]


def sum_slices(
    output: tf.Tensor, table: tf.Tensor, labels: tf.Tensor, smoothing: float
) -> list[tf.Tensor]:
    """Return the results of `_sum_tokens`, without the logits of all tokens at the same time.

    For 25,000 tokens and 32,000 ids, the logits alone would take 3.2 GB. The loop over slices of
    the tokens also computes the gradient of each slice, so no slice is computed twice. Sums of
    slices are rounded differently than sums of all tokens.

    Args:
      output: Output of the decoder, [P, D], float32 or bfloat16.
      table: Output embedding, float32 [V, D].
      labels: Target ids, int32 [P].
      smoothing: Share of the target probability that is spread over the vocabulary.
    """
    rows = max(1, _SLICE_LOGITS // table.shape[0])
    # A replica without rows has one empty slice.
    slices = tf.maximum(1, -(-tf.shape(labels)[0] // rows))

    @tf.custom_gradient
    def sums_of(
        output: tf.Tensor, table: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        def add_slice(
            i: tf.Tensor, sums: tf.Tensor, to_output: tf.TensorArray, to_table: tf.Tensor
        ) -> tuple[tf.Tensor, tf.Tensor, tf.TensorArray, tf.Tensor]:
            part = slice(i * rows, (i + 1) * rows)
            own = output[part]
            with tf.GradientTape() as tape:
                tape.watch([own, table])
                found = _sum_tokens(own, table, labels[part], smoothing)
            own_gradient, gradient = tape.gradient(found[0], [own, table])
            to_output, to_table = to_output.write(i, own_gradient), to_table + gradient
            return i + 1, sums + tf.stack(found), to_output, to_table

        shape = [None, output.shape[1]]
        gradients = tf.TensorArray(output.dtype, slices, infer_shape=False, element_shape=shape)
        start = (tf.constant(0), tf.zeros([3]), gradients, tf.zeros_like(table))
        _, sums, gradients, to_table = tf.while_loop(
            lambda i, *_: i < slices, add_slice, start, parallel_iterations=1
        )
        to_output = tf.ensure_shape(gradients.concat(), shape)  # [P, D]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            return tf.cast(upstream[0], output.dtype) * to_output, upstream[0] * to_table

        return sums, gradient

    loss, cross_entropy, correct = tf.unstack(sums_of(output, table))
    return [loss, cross_entropy, correct]


def smoothed_cross_entropy(
    output: tf.Tensor, table: tf.Tensor, labels: tf.Tensor, smoothing: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Return the label-smoothed cross-entropy (section 5.4), and figures for reports.

    The target distribution is a mix of the one-hot label and the uniform distribution. With logits
    z, smoothing e and lse = log-sum-exp, the loss is

        lse(z) - (1 - e) z[label] - e mean(z) = lse(z) - z[label] + e (z[label] - mean(z)).

    The code uses the right side. It computes the last two terms from the embeddings, without
    another pass over the logits. The gradient is written by hand for the same reason.

    Args:
      output: Output of the decoder, [P, D], float32 or bfloat16. The matrix products use its type.
      table: Output embedding, float32 [V, D].
      labels: Target ids, int32 [P].
      smoothing: Share of the target probability that is spread over the vocabulary.

    Returns:
      The smoothed loss, the cross-entropy without smoothing, and 1 for each label that has the
      greatest logit, else 0. All are float32 [P]; only the loss has a gradient.
    """

    @tf.custom_gradient
    def loss(
        output: tf.Tensor, table: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        output32, rows_of_table = tf.cast(output, tf.float32), tf.cast(table, output.dtype)
        logits = tf.matmul(output, rows_of_table, transpose_b=True)  # [P, V]
        logits = tf.cast(logits, tf.float32)
        # TensorFlow's fused cross-entropy takes 1.8 times as long as these operations on a CPU.
        greatest = tf.reduce_max(logits, -1)  # [P]
        exponentials = tf.exp(logits - greatest[:, None])  # [P, V]
        totals = tf.reduce_sum(exponentials, -1)  # [P]
        at_labels = tf.gather(logits, labels, batch_dims=1)  # [P]
        cross_entropy = tf.math.log(totals) + greatest - at_labels
        label_rows = tf.gather(table, labels)  # [P, D]
        mean_row = tf.reduce_mean(table, 0)  # [D]
        label_logits = tf.reduce_sum(output32 * label_rows, -1)  # [P]
        mean_logits = tf.linalg.matvec(output32, mean_row)  # [P]
        correct = tf.cast(at_labels >= greatest, tf.float32)

        def gradient(upstream: tf.Tensor, *_: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            # d loss / d z = softmax - (1 - e) onehot - e / V. Only the softmax needs a dense
            # product. The other terms are cheaper to add after the products.
            rows = upstream[:, None]  # [P, 1]
            softmax = tf.cast(exponentials * (upstream / totals)[:, None], output.dtype)  # [P, V]
            to_output = tf.cast(tf.matmul(softmax, rows_of_table), tf.float32)  # [P, D]
            to_output -= rows * ((1 - smoothing) * label_rows + smoothing * mean_row)
            to_table = tf.cast(tf.matmul(softmax, output, transpose_a=True), tf.float32)  # [V, D]
            weighted = rows * output32  # [P, D]
            to_table = tf.tensor_scatter_nd_sub(
                to_table, labels[:, None], (1 - smoothing) * weighted
            )
            size = tf.cast(tf.shape(table)[0], tf.float32)
            to_table -= smoothing * tf.reduce_sum(weighted, 0) / size
            return tf.cast(to_output, output.dtype), to_table

        losses = cross_entropy + smoothing * (label_logits - mean_logits)
        return (losses, cross_entropy, correct), gradient

    losses, cross_entropies, correct = loss(output, table)
    return losses, cross_entropies, correct
