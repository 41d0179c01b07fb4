"""The Transformer of the paper in NumPy and float64, one sentence and one head at a time.

It follows only the paper, and is simple but slow. It shares with the product only the names and the
layout of the weights: query_key_value is the three projections side by side, and a projection is
its heads side by side.
"""

from __future__ import annotations

import statistics

import numpy as np

PAD = 0


class NumpyTransformer:
    """A Transformer with the product's configuration, and its weights by path."""

    def __init__(self, config, weights):
        self.config = config
        self.weights = {path: np.asarray(value, np.float64) for path, value in weights.items()}

    def get(self, *names):
        return self.weights["/".join(names)]

    def project(self, x, *names):
        """Apply a projection of attention, which has no bias in the paper."""
        if self.config.projection_bias:
            return self.linear(x, *names)
        return x @ self.get(*names, "kernel")

    def linear(self, x, *names):
        return x @ self.get(*names, "kernel") + self.get(*names, "bias")

    def layer_norm(self, x, *names):
        mean = x.mean(-1, keepdims=True)
        deviation = np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + 1e-6)
        return (x - mean) / deviation * self.get(*names, "scale") + self.get(*names, "shift")

    def attention(self, queries, keys, values, visible):
        """Section 3.2: all heads; visible[t, s] says whether position t may attend to s."""
        heads = self.config.heads
        width = queries.shape[1] // heads
        outputs, all_weights = [], []
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            logits = queries[:, part] @ keys[:, part].T / np.sqrt(width)
            logits = np.where(visible, logits, -np.inf)
            exponentials = np.exp(logits - logits.max(-1, keepdims=True))
            weights = exponentials / exponentials.sum(-1, keepdims=True)
            outputs.append(weights @ values[:, part])
            all_weights.append(weights)
        return np.concatenate(outputs, -1), np.stack(all_weights)

    def self_attention(self, x, visible, *names):
        queries, keys, values = np.split(self.project(x, *names, "query_key_value"), 3, axis=-1)
        mixed, weights = self.attention(queries, keys, values, visible)
        return self.project(mixed, *names, "output"), weights

    def cross_attention(self, x, memory, visible, *names):
        keys, values = np.split(self.project(memory, *names, "key_value"), 2, axis=-1)
        mixed, weights = self.attention(self.project(x, *names, "query"), keys, values, visible)
        return self.project(mixed, *names, "output"), weights

    def feed_forward(self, x, *names):
        inner = self.linear(x, *names, "inner")
        hidden = {
            "relu": np.maximum(0, inner),
            "swish": inner / (1 + np.exp(-inner)),
            "gelu": inner * np.vectorize(statistics.NormalDist().cdf)(inner),
        }
        return self.linear(hidden[self.config.activation], *names, "outer")

    def embed(self, ids, table, side):
        """Sections 3.4 and 3.5: sqrt(D) times the row, plus the sinusoids."""
        width = self.config.d_model
        x = table[ids] * np.sqrt(width)
        if side == "target" and self.config.zero_start:
            x[0] = 0
        for position in range(len(ids)):
            for i in range(width // 2):
                angle = position / self.config.position_base ** (2 * i / width)
                x[position, i] += np.sin(angle)
                x[position, width // 2 + i] += np.cos(angle)
        return x

    def tables(self):
        if self.config.shared_vocabulary:
            source = target = self.get("embedding", "table")
        else:
            source = self.get("source_embedding", "table")
            target = self.get("target_embedding", "table")
        tied = self.config.tie_embeddings
        return source, target, target if tied else self.get("output_embedding", "table")

    def residual(self, x, sub_layer, *norm):
        """Section 3.1's LayerNorm(x + f(x)), or pre-norm's x + f(LayerNorm(x))."""
        if self.config.norm == "pre":
            return x + sub_layer(self.layer_norm(x, *norm))
        return self.layer_norm(x + sub_layer(x), *norm)

    def end(self, x, name):
        """Normalize the sum of all layers in pre-norm; post-norm has already done so."""
        return self.layer_norm(x, name) if self.config.norm == "pre" else x

    def one_sentence(self, source, target):
        source_table, target_table, output_table = self.tables()
        if not self.config.source_bos:
            source = source[1:]
        attention = {"encoder": [], "decoder": [], "cross": []}
        is_real = (source != PAD)[None, :]
        sees_source = np.repeat(is_real, len(source), 0)

        def keep(kind, attended_and_weights):
            attended, weights = attended_and_weights
            attention[kind].append(weights)
            return attended

        x = self.embed(source, source_table, "source")
        for i in range(self.config.depths[0]):
            name = f"encoder_{i}"
            x = self.residual(
                x,
                lambda h, name=name: keep(
                    "encoder", self.self_attention(h, sees_source, name, "attention")
                ),
                name, "attention_norm",
            )  # fmt: skip
            x = self.residual(
                x,
                lambda h, name=name: self.feed_forward(h, name, "feed_forward"),
                name, "feed_forward_norm",
            )  # fmt: skip
        memory = self.end(x, "encoder_norm")
        y = self.embed(target, target_table, "target")
        earlier = np.tril(np.ones([len(y), len(y)], bool))
        sees_source = np.repeat(is_real, len(y), 0)
        for i in range(self.config.depths[1]):
            name = f"decoder_{i}"
            y = self.residual(
                y,
                lambda h, name=name: keep(
                    "decoder", self.self_attention(h, earlier, name, "attention")
                ),
                name, "attention_norm",
            )  # fmt: skip
            y = self.residual(
                y,
                lambda h, name=name: keep(
                    "cross",
                    self.cross_attention(h, memory, sees_source, name, "cross_attention"),
                ),
                name, "cross_attention_norm",
            )  # fmt: skip
            y = self.residual(
                y,
                lambda h, name=name: self.feed_forward(h, name, "feed_forward"),
                name, "feed_forward_norm",
            )  # fmt: skip
        y = self.end(y, "decoder_norm")
        logits = y @ output_table.T
        if self.config.output_bias:
            logits = logits + self.get("output_bias", "values")
        return logits, attention

    def logits(self, source, target):
        """Return logits [B, T, V], and the attention weights by kind as lists of layers."""
        sentences = [self.one_sentence(s, t) for s, t in zip(source, target, strict=True)]
        attention = {
            kind: [np.stack(layer) for layer in zip(*(a[kind] for _, a in sentences), strict=True)]
            for kind in ("encoder", "decoder", "cross")
        }
        return np.stack([logits for logits, _ in sentences]), attention
