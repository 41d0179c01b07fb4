"""Train the same Transformer as an ordinary PyTorch program, on the same batches, as a peer.

The program does the same work as `tt`'s model: post-norm, tied embeddings, no biases in the
attention projections, no dropout of attention weights. It uses `scaled_dot_product_attention` and
the fused Adam, and drops padding before the product with the vocabulary. PyTorch is not a
dependency of `tt`: `make bench-train` installs it into .venv/torch.

The file from `train.py` contains `config`, which is JSON, and int32 arrays `source_0`, `target_0`,
`source_1`... For each line "FIRST END" on stdin, the program trains on those batches and prints the
seconds.

Axes: B batch, S source, T target positions, D width, H heads, K width of a head, P real target
positions of a batch, V vocabulary.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

_PAD_ID = 0
_EPSILON = 1e-6


class SelfAttention(nn.Module):
    """Multi-head attention of a sequence to itself."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["d_model"]
        self.heads = config["heads"]
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, *, visible: Tensor | None) -> Tensor:
        """[B, T, D] -> [B, T, D]; without `visible`, positions see themselves and earlier ones."""
        queries, keys, values = split_heads(self.query_key_value(x), self.heads, parts=3)
        attended = functional.scaled_dot_product_attention(
            queries, keys, values, attn_mask=visible, is_causal=visible is None
        )
        return self.output(combine_heads(attended))


class CrossAttention(nn.Module):
    """Multi-head attention of the target to the encoded source."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        width = config["d_model"]
        self.heads = config["heads"]
        self.query = nn.Linear(width, width, bias=False)
        self.key_value = nn.Linear(width, 2 * width, bias=False)
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor, memory: Tensor, *, visible: Tensor) -> Tensor:
        """[B, T, D] and [B, S, D] -> [B, T, D]."""
        (queries,) = split_heads(self.query(x), self.heads, parts=1)
        keys, values = split_heads(self.key_value(memory), self.heads, parts=2)
        attended = functional.scaled_dot_product_attention(queries, keys, values, attn_mask=visible)
        return self.output(combine_heads(attended))


def split_heads(x: Tensor, heads: int, *, parts: int) -> tuple[Tensor, ...]:
    """Split [B, T, parts * D] into tensors [B, H, T, K]."""
    batch, length, _ = x.shape
    return x.view(batch, length, parts, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)


def combine_heads(x: Tensor) -> Tensor:
    """Join [B, H, T, K] to [B, T, D]."""
    return x.transpose(1, 2).flatten(2)


class Layer(nn.Module):
    """A layer of the encoder, or of the decoder if it attends to a memory."""

    def __init__(self, config: dict[str, Any], *, has_memory: bool) -> None:
        super().__init__()
        width = config["d_model"]
        self.attention = SelfAttention(config)
        self.attention_norm = nn.LayerNorm(width, _EPSILON)
        self.cross_attention = CrossAttention(config) if has_memory else None
        self.cross_attention_norm = nn.LayerNorm(width, _EPSILON) if has_memory else None
        self.feed_forward = nn.Sequential(
            nn.Linear(width, config["d_ff"]), nn.ReLU(), nn.Linear(config["d_ff"], width)
        )
        self.feed_forward_norm = nn.LayerNorm(width, _EPSILON)
        self.dropout = nn.Dropout(config["dropout"])

    def forward(
        self, x: Tensor, *, visible: Tensor | None, memory: Tensor | None, is_real: Tensor
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]."""
        x = self.attention_norm(x + self.dropout(self.attention(x, visible=visible)))
        if self.cross_attention is not None:
            attended = self.cross_attention(x, memory, visible=is_real)
            x = self.cross_attention_norm(x + self.dropout(attended))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Transformer(nn.Module):
    """The whole model."""

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__()
        layers, width = range(config["layers"]), config["d_model"]
        self.width = width
        self.embedding = nn.Embedding(config["vocabulary_size"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.encoder = nn.ModuleList(Layer(config, has_memory=False) for _ in layers)
        self.decoder = nn.ModuleList(Layer(config, has_memory=True) for _ in layers)
        self.dropout = nn.Dropout(config["dropout"])
        angles = torch.arange(config["longest"])[:, None] / (
            10000 ** (2 * torch.arange(width // 2) / width)
        )
        positions = torch.cat([angles.sin(), angles.cos()], dim=1)
        self.register_buffer("positions", positions)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """[B, S] and [B, T] -> [B, T, D]."""
        is_real = (source != _PAD_ID)[:, None, None, :]
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory, visible=is_real, memory=None, is_real=is_real)
        x = self._embed(target)
        for layer in self.decoder:
            x = layer(x, visible=None, memory=memory, is_real=is_real)
        return x

    def _embed(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids) * self.width**0.5 + self.positions[: ids.shape[1]]
        return self.dropout(x)


def mean_loss(model: Transformer, source: Tensor, target: Tensor, *, smoothing: float) -> Tensor:
    """[B, S] and [B, T + 1] -> the label-smoothed loss per token."""
    labels = target[:, 1:]
    is_real = labels != _PAD_ID
    output = model(source, target[:, :-1])[is_real]  # [P, D]
    logits = functional.linear(output, model.embedding.weight)  # [P, V]
    return functional.cross_entropy(logits, labels[is_real], label_smoothing=smoothing)


def main() -> None:
    """Train on the batches that stdin requests, and print the seconds."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("batches", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    arrays = np.load(options.batches)
    config = json.loads(str(arrays["config"]))
    model = Transformer(config).train()
    adam = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for line in sys.stdin:
        first, end = map(int, line.split())
        batches = [
            tuple(torch.from_numpy(arrays[f"{side}_{i}"]).long() for side in ("source", "target"))
            for i in range(first, end)
        ]
        start = time.perf_counter()
        for source, target in batches:
            adam.zero_grad()
            loss = mean_loss(model, source, target, smoothing=config["label_smoothing"])
            loss.backward()
            adam.step()
        seconds = time.perf_counter() - start
        print(f"{seconds} seconds, loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    main()
