"""Train with a plain TensorFlow step on prepared batches, as a yardstick.

The step does the same work as `tt`'s model (post-norm, tied embeddings, no biases in the attention
projections, no dropout of attention weights) without Keras and `tf.distribute`: raw variables, one
`tf.function`, one fused Adam operation per variable, no metrics. It is not the fastest possible
step, because `tt`'s step is faster. Both scale queries before their product, drop padding before
the product with the vocabulary, compute the gradient of the loss by hand, and take one random byte
per element of a dropout mask.

    python tests/bench/train.py --only tiny-float32 --rounds 1 --keep kept
    echo 0 8 | python tests/bench/train_reference.py kept/tiny-float32.npz --threads 1

The file contains `config`, which is JSON, and int32 arrays `source_0`, `target_0`, `source_1`...
For each line "FIRST END" on stdin, the program trains on those batches and prints the seconds.

Axes: B batch, S source, T target positions, D width, H heads, K width of a head, P real target
positions of a batch, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

_PAD_ID = 0
_HIDDEN = -1e9  # added to the logits of hidden keys
_EPSILON = 1e-6
_BETA_1, _BETA_2, _ADAM_EPSILON, _LEARNING_RATE = 0.9, 0.98, 1e-9, 1e-4


def make_weights(config: dict[str, Any]) -> dict[str, tf.Variable]:
    """Return all weights by name; kernels are [inputs, outputs]."""
    width, inner = config["d_model"], config["d_ff"]
    generator = np.random.default_rng(1)
    weights: dict[str, np.ndarray] = {}

    def add_kernel(name: str, inputs: int, outputs: int) -> None:
        bound = (6 / (inputs + outputs)) ** 0.5
        weights[name] = generator.uniform(-bound, bound, (inputs, outputs))

    def add_norm(name: str) -> None:
        weights[f"{name}/scale"], weights[f"{name}/shift"] = np.ones(width), np.zeros(width)

    table = generator.normal(0, width**-0.5, (config["vocabulary_size"], width))
    weights["embedding"] = table
    for side in ("encoder", "decoder"):
        for i in range(config["layers"]):
            layer = f"{side}/{i}"
            add_kernel(f"{layer}/self/query_key_value", width, 3 * width)
            add_kernel(f"{layer}/self/output", width, width)
            add_norm(f"{layer}/self/norm")
            if side == "decoder":
                add_kernel(f"{layer}/cross/query", width, width)
                add_kernel(f"{layer}/cross/key_value", width, 2 * width)
                add_kernel(f"{layer}/cross/output", width, width)
                add_norm(f"{layer}/cross/norm")
            add_kernel(f"{layer}/inner", width, inner)
            add_kernel(f"{layer}/outer", inner, width)
            weights[f"{layer}/inner/bias"] = np.zeros(inner)
            weights[f"{layer}/outer/bias"] = np.zeros(width)
            add_norm(f"{layer}/feed_forward/norm")
    return {
        name: tf.Variable(value.astype(np.float32), name=name.replace("/", "_"))
        for name, value in weights.items()
    }


class Reference:
    """A model with its optimizer.

    Args:
      config: Sizes and rates.
      compute_type: The type of the products and activations. Weights are float32.
    """

    def __init__(self, config: dict[str, Any], compute_type: tf.DType) -> None:
        self._config = config
        self._type = compute_type
        self._weights = make_weights(config)
        variables = list(self._weights.values())
        self._means = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
        self._squares = [tf.Variable(tf.zeros_like(variable)) for variable in variables]
        self._updates = tf.Variable(0, dtype=tf.int32)
        self._masks = 0  # dropout masks in the trace so far; each has its own seed
        shape = tf.TensorSpec([None, None], tf.int32)
        self.train_step = tf.function(self._train_step, input_signature=[shape, shape])

    def _train_step(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        """Update the weights once: [B, S] and [B, T + 1] to the mean loss."""
        update = self._updates.assign_add(1)
        self._masks = 0
        variables = list(self._weights.values())
        with tf.GradientTape() as tape:
            loss = self._mean_loss(source, target)
        gradients = tape.gradient(loss, variables)
        exponent = tf.cast(update, tf.float32)
        for variable, mean, square, gradient in zip(
            variables, self._means, self._squares, gradients, strict=True
        ):
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=mean.handle,
                v=square.handle,
                beta1_power=_BETA_1**exponent,
                beta2_power=_BETA_2**exponent,
                lr=_LEARNING_RATE,
                beta1=_BETA_1,
                beta2=_BETA_2,
                epsilon=_ADAM_EPSILON,
                grad=tf.convert_to_tensor(gradient),
            )
        return loss

    def _mean_loss(self, source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
        output = self._decode(target[:, :-1], source, self._encode(source))  # [B, T, D]
        labels = tf.reshape(target[:, 1:], [-1])
        real = tf.where(labels != _PAD_ID)[:, 0]
        output = tf.gather(tf.reshape(output, [-1, output.shape[-1]]), real)  # [P, D]
        losses = smoothed_cross_entropy(
            output,
            tf.convert_to_tensor(self._weights["embedding"]),
            tf.gather(labels, real),
            smoothing=self._config["label_smoothing"],
        )
        return tf.reduce_mean(losses)

    def _encode(self, source: tf.Tensor) -> tf.Tensor:
        x = self._embed(source)  # [B, S, D]
        bias = self._padding_bias(source)
        for i in range(self._config["layers"]):
            x = self._self_attention(x, f"encoder/{i}/self", bias)
            x = self._feed_forward(x, f"encoder/{i}")
        return x

    def _decode(self, target: tf.Tensor, source: tf.Tensor, memory: tf.Tensor) -> tf.Tensor:
        x = self._embed(target)  # [B, T, D]
        length = tf.shape(target)[1]
        visible = tf.linalg.band_part(tf.ones([length, length]), -1, 0)
        bias = tf.cast(tf.where(visible > 0, 0.0, _HIDDEN), self._type)  # [T, T]
        source_bias = self._padding_bias(source)
        for i in range(self._config["layers"]):
            x = self._self_attention(x, f"decoder/{i}/self", bias)
            x = self._cross_attention(x, f"decoder/{i}/cross", memory, source_bias)
            x = self._feed_forward(x, f"decoder/{i}")
        return x

    def _embed(self, ids: tf.Tensor) -> tf.Tensor:
        """[B, T] -> [B, T, D], with positions and dropout."""
        width = self._config["d_model"]
        # Use a dense tensor, because the gradient of the vocabulary product is dense anyway.
        rows = tf.gather(tf.convert_to_tensor(self._weights["embedding"]), ids)
        wavelengths = 10000 ** (2 * np.arange(width // 2) / width)
        positions = tf.range(tf.shape(ids)[1], dtype=tf.float32)[:, None]
        angles = positions / wavelengths.astype(np.float32)
        x = rows * width**0.5 + tf.concat([tf.sin(angles), tf.cos(angles)], 1)
        return tf.cast(self._dropout(x), self._type)

    def _padding_bias(self, ids: tf.Tensor) -> tf.Tensor:
        """[B, S] -> [B, 1, 1, S]."""
        return tf.cast(tf.where(ids == _PAD_ID, _HIDDEN, 0.0), self._type)[:, None, None, :]

    def _self_attention(self, x: tf.Tensor, name: str, bias: tf.Tensor) -> tf.Tensor:
        queries, keys, values = self._heads(self._product(x, f"{name}/query_key_value"), parts=3)
        return self._attend(x, name, queries, keys, values, bias)

    def _cross_attention(
        self, x: tf.Tensor, name: str, memory: tf.Tensor, bias: tf.Tensor
    ) -> tf.Tensor:
        (queries,) = self._heads(self._product(x, f"{name}/query"), parts=1)
        keys, values = self._heads(self._product(memory, f"{name}/key_value"), parts=2)
        return self._attend(x, name, queries, keys, values, bias)

    def _attend(
        self,
        x: tf.Tensor,
        name: str,
        queries: tf.Tensor,
        keys: tf.Tensor,
        values: tf.Tensor,
        bias: tf.Tensor,
    ) -> tf.Tensor:
        # Scaling the queries keeps TensorFlow from fusing product, scale and bias into a oneDNN
        # operation that is many times slower.
        scaled = queries * queries.shape[-1] ** -0.5
        weights = tf.nn.softmax(tf.matmul(scaled, keys, transpose_b=True) + bias)  # [B, H, T, S]
        attended = tf.transpose(tf.matmul(weights, values), [0, 2, 1, 3])  # [B, T, H, K]
        output = self._product(tf.reshape(attended, tf.shape(x)), f"{name}/output")
        return self._normalize(x + self._dropout(output), f"{name}/norm")

    def _feed_forward(self, x: tf.Tensor, layer: str) -> tf.Tensor:
        inner = tf.nn.relu(self._product(x, f"{layer}/inner"))
        output = self._product(inner, f"{layer}/outer")
        return self._normalize(x + self._dropout(output), f"{layer}/feed_forward/norm")

    def _heads(self, x: tf.Tensor, *, parts: int) -> list[tf.Tensor]:
        """Split [B, T, parts * D] into tensors [B, H, T, K]."""
        heads = self._config["heads"]
        batch, length = tf.shape(x)[0], tf.shape(x)[1]
        x = tf.reshape(x, [batch, length, parts, heads, self._config["d_model"] // heads])
        pieces: list[tf.Tensor] = tf.unstack(tf.transpose(x, [2, 0, 3, 1, 4]), parts)
        return pieces

    def _product(self, x: tf.Tensor, name: str) -> tf.Tensor:
        """[B, T, inputs] -> [B, T, outputs], in one matrix product over all rows."""
        kernel = tf.cast(self._weights[name], self._type)
        rows = tf.matmul(tf.reshape(x, [-1, kernel.shape[0]]), kernel)
        if f"{name}/bias" in self._weights:
            rows = tf.nn.bias_add(rows, tf.cast(self._weights[f"{name}/bias"], self._type))
        return tf.reshape(rows, tf.concat([tf.shape(x)[:-1], [kernel.shape[1]]], 0))

    def _normalize(self, x: tf.Tensor, name: str) -> tf.Tensor:
        x = tf.cast(x, tf.float32)
        centred = x - tf.reduce_mean(x, -1, keepdims=True)
        variance = tf.reduce_mean(centred * centred, -1, keepdims=True)
        normal = centred * tf.math.rsqrt(variance + _EPSILON)
        scaled = normal * self._weights[f"{name}/scale"] + self._weights[f"{name}/shift"]
        return tf.cast(scaled, self._type)

    def _dropout(self, x: tf.Tensor) -> tf.Tensor:
        self._masks += 1
        size = tf.size(x)
        words = tf.random.stateless_uniform(
            [(size + 3) // 4],
            seed=tf.stack([self._updates.read_value(), self._masks]),
            minval=None,
            maxval=None,
            dtype=tf.int32,
        )
        random_bytes = tf.reshape(tf.bitcast(words, tf.uint8), [-1])[:size]
        dropped = round(self._config["dropout"] * 256)  # of the 256 values of a byte
        kept = tf.cast(random_bytes >= tf.constant(dropped, tf.uint8), x.dtype)
        return x * (tf.reshape(kept, tf.shape(x)) * (256 / (256 - dropped)))


def smoothed_cross_entropy(
    output: tf.Tensor, table: tf.Tensor, labels: tf.Tensor, *, smoothing: float
) -> tf.Tensor:
    """Return the cross-entropy of the logits output x table^T to smoothed labels.

    Args:
      output: [P, D], in the type of the products.
      table: float32 [V, D].
      labels: int32 [P].
      smoothing: The probability mass that is spread over the vocabulary.

    Returns:
      float32 [P].
    """

    @tf.custom_gradient
    def losses(
        output: tf.Tensor, table: tf.Tensor
    ) -> tuple[tf.Tensor, Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]]]:
        product_type = output.dtype
        small_table = tf.cast(table, product_type)
        exact_output = tf.cast(output, tf.float32)
        logits = tf.cast(tf.matmul(output, small_table, transpose_b=True), tf.float32)  # [P, V]
        hard_losses, hard_gradients = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(
            features=logits, labels=labels
        )
        # The smoothing adds its mass times (logit of the label - mean logit); both come from the
        # table, without another pass over the logits.
        away = tf.gather(table, labels) - tf.reduce_mean(table, 0)  # [P, D]

        def gradient(upstream: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            column = upstream[:, None]  # [P, 1]
            to_logits = tf.cast(hard_gradients * column, product_type)  # [P, V]
            to_output = tf.cast(tf.matmul(to_logits, small_table), tf.float32)
            to_output += smoothing * column * away
            to_table = tf.cast(tf.matmul(to_logits, output, transpose_a=True), tf.float32)
            spread = smoothing * column * exact_output  # [P, D]
            to_table = tf.tensor_scatter_nd_add(to_table, labels[:, None], spread)
            to_table -= tf.reduce_sum(spread, 0) / table.shape[0]
            return tf.cast(to_output, product_type), to_table

        return hard_losses + smoothing * tf.reduce_sum(exact_output * away, -1), gradient

    result: tf.Tensor = losses(output, table)
    return result


def main() -> None:
    """Train on the batches that stdin requests, and print the seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("batches", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--bfloat16", action="store_true", help="Compute products in bfloat16.")
    options = parser.parse_args()
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    arrays = np.load(options.batches)
    reference = Reference(
        json.loads(str(arrays["config"])), tf.bfloat16 if options.bfloat16 else tf.float32
    )
    for line in sys.stdin:
        first, end = map(int, line.split())
        batches = [(arrays[f"source_{i}"], arrays[f"target_{i}"]) for i in range(first, end)]
        start = time.perf_counter()
        for source, target in batches:
            loss = reference.train_step(source, target).numpy()
        seconds = time.perf_counter() - start
        print(f"{seconds} seconds, loss {loss:.4f}", flush=True)


if __name__ == "__main__":
    main()
