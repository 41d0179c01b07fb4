"""The training objective: label-smoothed cross-entropy over real target tokens.

Axes: P real target positions of a batch, D width, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from tt.model.text.vocabulary import PAD_ID
from tt.model.transformer.layers import Dropout
from tt.model.transformer.transformer import Transformer


class TokenSums(NamedTuple):
    """Sums over the real target tokens of a batch, float32 scalars."""

    loss: tf.Tensor  # label-smoothed cross-entropy in nats, what is minimised
    cross_entropy: tf.Tensor  # without smoothing, in nats: exp of its mean is the perplexity
    correct: tf.Tensor  # tokens whose logit is the greatest
    tokens: tf.Tensor  # how many there are


def batch_sums(
    model: Transformer,
    source: tf.Tensor,
    target: tf.Tensor,
    *,
    smoothing: float,
    dropout: Dropout | None = None,
    r_drop: float | None = None,
) -> TokenSums:
    """Runs the model with the true target as its input (teacher forcing).

    `source` is int32 [B, S], `target` int32 [B, T], BOS and EOS included; `smoothing` is the mass
    spread over the vocabulary; `dropout` is None in validation. `r_drop` is the weight of the
    divergence between two passes with different dropout, whose other sums are then means; None
    makes one pass.
    """
    passes = 2 if r_drop and dropout else 1
    outputs = [model(source, target=target[:, :-1], dropout=dropout) for _ in range(passes)]
    labels = tf.reshape(target[:, 1:], [-1])
    outputs = [tf.reshape(output, [-1, output.shape[-1]]) for output in outputs]
    # The product with the vocabulary is the most expensive one: padding leaves before it.
    real = tf.where(labels != PAD_ID)[:, 0]
    labels = tf.gather(labels, real)  # [P]
    outputs = [tf.gather(output, real) for output in outputs]  # [P, D] each
    table = tf.convert_to_tensor(model.output_embedding.table)
    if model.output_bias is not None:  # one more column, which 1 is multiplied with
        outputs = [
            tf.concat([each, tf.ones_like(each[:, :1])], 1) for each in outputs
        ]  # [P, D + 1]
        bias = tf.convert_to_tensor(model.output_bias.values)  # [V]
        table = tf.concat([table, bias[:, None]], 1)  # [V, D + 1]
    found = [smoothed_cross_entropy(output, table, labels, smoothing) for output in outputs]
    of_tokens = tuple(tf.add_n(values) / passes for values in zip(*found, strict=True))
    if r_drop and dropout:
        first, second = outputs
        losses, *others = of_tokens
        of_tokens = (losses + r_drop / 4 * symmetric_divergence(first, second, table), *others)
    losses, cross_entropies, correct = of_tokens
    return TokenSums(
        loss=tf.reduce_sum(losses),
        cross_entropy=tf.reduce_sum(cross_entropies),
        correct=tf.reduce_sum(correct),
        tokens=tf.math.count_nonzero(labels, dtype=tf.float32),  # PAD_ID is 0
    )


def symmetric_divergence(first: tf.Tensor, second: tf.Tensor, table: tf.Tensor) -> tf.Tensor:
    """Kullback-Leibler divergence of two predictions from each other, KL(p, q) + KL(q, p).

    `first` and `second` are outputs of the decoder, [P, D]; `table`, float32 [V, D], is the output
    embedding. Returns float32 [P], in nats.
    """
    rows = tf.cast(table, first.dtype)
    logs = [
        tf.nn.log_softmax(tf.cast(tf.matmul(output, rows, transpose_b=True), tf.float32))
        for output in (first, second)
    ]  # [P, V] each
    p, q = map(tf.exp, logs)
    return tf.reduce_sum((p - q) * (logs[0] - logs[1]), -1)


def smoothed_cross_entropy(
    output: tf.Tensor, table: tf.Tensor, labels: tf.Tensor, smoothing: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cross-entropy to the mix of one-hot labels and the uniform distribution.

    With logits z and smoothing e, the loss is lse(z) - (1 - e) z[label] - e mean(z). It is written
    as the plain cross-entropy plus e (z[label] - mean(z)), and the last two come from the
    embeddings without another pass over the logits; the gradient is written by hand for the same
    reason.

    `output` is the decoder's, [P, D], float32 or bfloat16: the type of the products; `table`,
    float32 [V, D], is the output embedding; `labels` are int32 [P]. Returns float32 [P] each: the
    smoothed loss, which alone has a gradient, the plain cross-entropy, and 1 where the label has
    the greatest logit.
    """

    @tf.custom_gradient
    def loss(
        output: tf.Tensor, table: tf.Tensor
    ) -> tuple[tuple[tf.Tensor, tf.Tensor, tf.Tensor], Callable[..., tuple[tf.Tensor, tf.Tensor]]]:
        output32, rows_of_table = tf.cast(output, tf.float32), tf.cast(table, output.dtype)
        logits = tf.matmul(output, rows_of_table, transpose_b=True)  # [P, V]
        logits = tf.cast(logits, tf.float32)
        # Plain operations: TensorFlow's fused cross-entropy takes 1.8 times as long on a CPU.
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
            # d loss / d z = softmax - (1 - e) onehot - e / V: only the first is dense; the rest
            # is added behind the products, where it is cheap.
            rows = upstream[:, None]  # [P, 1]
            softmax = tf.cast(exponentials * (upstream / totals)[:, None], output.dtype)  # [P, V]
            to_output = tf.cast(tf.matmul(softmax, rows_of_table), tf.float32)
            to_output -= rows * ((1 - smoothing) * label_rows + smoothing * mean_row)
            to_table = tf.cast(tf.matmul(softmax, output, transpose_a=True), tf.float32)
            weighted = rows * output32
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
