"""Training as in sections 3 and 5 of the paper, in NumPy and float64, one batch at a time.

This is the oracle of the training loop. It takes the product's options, initial weights and
batches, and makes the same updates with the same dropout masks. It shares with the product only the
names of the weights and the layout of `numpy_transformer.py`. Its gradients come from
`numpy_gradients.py`.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import tensorflow as tf
from numpy_gradients import Value, gradients

PAD = 0
HIDDEN = -1e9


class Masks:
    """Dropout masks of a forward pass: one byte per element, from a stateless generator.

    Args:
      seed: The seed of the run.
      number: The number of the pass in the run; each batch and each replica has another number.
    """

    def __init__(self, seed, number):
        self.seed, self.number, self.place = seed, number, 0

    def __call__(self, x, rate):
        if rate == 0:
            return x
        self.place += 1
        words = tf.random.stateless_uniform(
            [-(-x.data.size // 4)], seed=[self.seed + self.place, self.number],
            minval=None, maxval=None, dtype=tf.int32,
        )  # fmt: skip
        random = words.numpy().view(np.uint8)[: x.data.size].reshape(x.data.shape)
        dropped = max(1, round(256 * rate))
        return x * ((random >= dropped) * (256 / (256 - dropped)))


def no_masks(x, rate):
    return x


def softmax(x):
    exponentials = (x - x.data.max(-1, keepdims=True)).exp()
    return exponentials / exponentials.sum(-1)


class NumpyModel:
    """The Transformer of section 3, with dropout as in section 5.4.

    Args:
      config: The product's configuration.
      weights: Arrays by path.
    """

    def __init__(self, config, weights):
        self.config = config
        self.weights = {path: Value(array) for path, array in weights.items()}

    def norm(self, x, name):
        centred = x - x.mean(-1)
        normal = centred / ((centred * centred).mean(-1) + 1e-6) ** 0.5
        return normal * self.weights[f"{name}/scale"] + self.weights[f"{name}/shift"]

    def linear(self, x, name):
        return x @ self.weights[f"{name}/kernel"] + self.weights[f"{name}/bias"]

    def heads(self, x, name, parts):
        """Split [B, T, D] into `parts` values [B, H, T, K]."""
        x = x @ self.weights[f"{name}/kernel"]
        width = self.config.d_model
        return [
            x[:, :, i * width : (i + 1) * width]
            .reshape(*x.data.shape[:2], self.config.heads, width // self.config.heads)
            .transpose(0, 2, 1, 3)
            for i in range(parts)
        ]

    def attention(self, queries, keys, values, bias, name, drop):
        logits = queries @ keys.transpose(0, 1, 3, 2) * queries.data.shape[-1] ** -0.5 + bias
        weights = drop(softmax(logits), self.config.attention_dropout)
        mixed = (weights @ values).transpose(0, 2, 1, 3)
        rows, length, heads, width = mixed.data.shape
        return mixed.reshape(rows, length, heads * width) @ self.weights[f"{name}/output/kernel"]

    def self_attention(self, x, bias, name, drop):
        parts = self.heads(x, f"{name}/query_key_value", 3)
        return self.attention(*parts, bias, name, drop)

    def cross_attention(self, x, memory, bias, name, drop):
        (queries,) = self.heads(x, f"{name}/query", 1)
        keys_and_values = self.heads(memory, f"{name}/key_value", 2)
        return self.attention(queries, *keys_and_values, bias, name, drop)

    def feed_forward(self, x, name):
        return self.linear(self.linear(x, f"{name}/inner").relu(), f"{name}/outer")

    def residual(self, x, name, sub_layer, drop):
        if self.config.norm == "pre":
            return x + drop(sub_layer(self.norm(x, f"{name}_norm")), self.config.dropout)
        return self.norm(x + drop(sub_layer(x), self.config.dropout), f"{name}_norm")

    def end(self, x, name):
        return self.norm(x, name) if self.config.norm == "pre" else x

    def embed(self, ids, table, drop):
        width = self.config.d_model
        angles = np.arange(ids.shape[1])[:, None] / self.config.position_base ** (
            2 * np.arange(width // 2) / width
        )
        positions = np.concatenate([np.sin(angles), np.cos(angles)], 1)
        return drop(table[ids] * width**0.5 + positions, self.config.dropout)

    def tables(self):
        shared = self.config.shared_vocabulary
        source, target = ("embedding",) * 2 if shared else ("source_embedding", "target_embedding")
        output = target if self.config.tie_embeddings else "output_embedding"
        return [self.weights[f"{name}/table"] for name in (source, target, output)]

    def logits(self, source, target, drop):
        """Compute logits [B, T, V] from int ids [B, S] and [B, T]."""
        source_table, target_table, output_table = self.tables()
        sees_source = np.where(source == PAD, HIDDEN, 0.0)[:, None, None]
        sees_earlier = np.triu(np.full([target.shape[1]] * 2, HIDDEN), 1)
        x = self.embed(source, source_table, drop)
        for i in range(self.config.depths[0]):
            name = f"encoder_{i}/attention"
            x = self.residual(
                x, name, lambda h, n=name: self.self_attention(h, sees_source, n, drop), drop
            )
            name = f"encoder_{i}/feed_forward"
            x = self.residual(x, name, lambda h, n=name: self.feed_forward(h, n), drop)
        memory = self.end(x, "encoder_norm")
        y = self.embed(target, target_table, drop)
        for i in range(self.config.depths[1]):
            name = f"decoder_{i}/attention"
            y = self.residual(
                y, name, lambda h, n=name: self.self_attention(h, sees_earlier, n, drop), drop
            )
            name = f"decoder_{i}/cross_attention"
            y = self.residual(
                y, name,
                lambda h, n=name: self.cross_attention(h, memory, sees_source, n, drop), drop,
            )  # fmt: skip
            name = f"decoder_{i}/feed_forward"
            y = self.residual(y, name, lambda h, n=name: self.feed_forward(h, n), drop)
        return self.end(y, "decoder_norm") @ output_table.transpose(1, 0)

    def log_probabilities(self, source, target, drop):
        """Return the log-probabilities [P, V] at the real positions."""
        logits = self.logits(source, target[:, :-1], drop)[target[:, 1:] != PAD]
        greatest = logits.data.max(-1, keepdims=True)
        return logits - greatest - (logits - greatest).exp().sum(-1).log()

    def losses(self, source, target, *, smoothing, drop=no_masks):
        """Return the smoothed loss as a `Value`, and the sums [loss, nll, correct, tokens]."""
        labels = target[:, 1:][target[:, 1:] != PAD]  # [P]
        log_p = self.log_probabilities(source, target, drop)  # [P, V]
        size = log_p.data.shape[-1]
        one_hot = np.eye(size)[labels]
        loss = (log_p * ((1 - smoothing) * one_hot + smoothing / size)).sum() * -1
        nll = -(log_p.data * one_hot).sum()
        correct = (log_p.data.argmax(-1) == labels).sum()
        return loss, np.array([loss.data.item(), nll, correct, len(labels)])


@dataclasses.dataclass
class Update:
    """The results of an update: means per target token, and the weights by path."""

    rate: float
    loss: float
    nll: float
    accuracy: float
    gradient_norm: float
    weights: dict


def numpy_training(*, config, training, weights, batches, replicas=1):
    """Make the updates of a run.

    Args:
      config: The product's configuration of the model.
      training: The product's configuration of the training.
      weights: The initial weights, arrays by path.
      batches: Enough global batches (source, target) for all replicas.
      replicas: Number of replicas; each takes every n-th row.

    Returns:
      An `Update` for each update.
    """
    batches, updates, number = iter(batches), [], 0
    seed = int(np.random.default_rng(training.seed).integers(2**30))
    whole = training.batch_tokens * replicas
    batches_an_update = -(-(training.effective_batch_size or whole) // whole)
    peak = training.peak_learning_rate
    if peak is None:
        peak = (config.d_model * training.warmup_steps) ** -0.5
    weights = {path: np.asarray(array, np.float64) for path, array in weights.items()}
    first = {path: np.zeros_like(array) for path, array in weights.items()}
    second = {path: np.zeros_like(array) for path, array in weights.items()}
    for step in range(1, training.steps + 1):
        total, sums = dict.fromkeys(weights, 0.0), np.zeros(4)
        for _ in range(batches_an_update):
            source, target = next(batches)
            for replica in range(replicas):
                model = NumpyModel(config, weights)
                loss, found = model.losses(
                    source[replica::replicas], target[replica::replicas],
                    smoothing=training.label_smoothing,
                    drop=Masks(seed, number * replicas + replica),
                )  # fmt: skip
                own = gradients(loss, list(model.weights.values()))
                total = {path: total[path] + g for path, g in zip(weights, own, strict=True)}
                sums += found
            number += 1
        loss_sum, nll_sum, correct, tokens = sums
        total = {path: gradient / tokens for path, gradient in total.items()}
        norm = np.sqrt(sum((gradient**2).sum() for gradient in total.values()))
        if training.clip_norm is not None and norm > training.clip_norm:
            total = {path: g * training.clip_norm / norm for path, g in total.items()}
        rate = peak * step / training.warmup_steps
        if step > training.warmup_steps:
            falls = training.schedule == "inverse-sqrt"
            rate = peak * ((training.warmup_steps / step) ** 0.5 if falls else 1)
        for path, gradient in total.items():
            # Kingma and Ba, end of section 2: this order leaves epsilon outside the correction.
            first[path] = 0.9 * first[path] + 0.1 * gradient
            second[path] = 0.98 * second[path] + 0.02 * gradient**2
            corrected = rate * np.sqrt(1 - 0.98**step) / (1 - 0.9**step)
            change = corrected * first[path] / (np.sqrt(second[path]) + 1e-9)
            weights[path] = weights[path] - change
        done = Update(
            rate=rate, loss=loss_sum / tokens, nll=nll_sum / tokens,
            accuracy=correct / tokens, gradient_norm=norm, weights=dict(weights),
        )  # fmt: skip
        updates.append(done)
    return updates
