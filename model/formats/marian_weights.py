"""Which of Marian's arrays make up which of our variables.

A kernel of ours is one array of Marian's or several side by side (queries, keys and values). Tables
of embeddings and the bias of the logits have a row for each token, and are not among these.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from model.transformer.attention import CrossAttention, SelfAttention
from model.transformer.config import TransformerConfig
from model.transformer.layers import FeedForward, LayerNorm, Linear
from model.transformer.transformer import DecoderLayer, EncoderLayer, Transformer

OUTPUT_BIAS = "decoder_ff_logit_out_b"
# The table of an output that is not tied: [D, V] since ever, [V, D] of version 1.12 on.
OUTPUT, OUTPUT_TRANSPOSED = "decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"


def table_names(config: TransformerConfig) -> tuple[str, str]:
    """Returns the names of the tables of source and target embeddings."""
    return ("Wemb", "Wemb") if config.shared_vocabulary else ("encoder_Wemb", "decoder_Wemb")


def arrays_of(model: Transformer) -> Iterator[tuple[Any, list[str]]]:
    """Gives each variable with the names of the arrays that stand side by side in it."""
    is_pre = model.config.norm == "pre"
    for side, norm in (("encoder", model.encoder_norm), ("decoder", model.decoder_norm)):
        if norm is not None:
            yield from _norm(norm, f"{side}_top", is_pre=False)
    of_embeddings = (model.source_embedding_norm, model.target_embedding_norm)
    for side, norm in zip(("encoder", "decoder"), of_embeddings, strict=True):
        if norm is not None:
            yield from _norm(norm, f"{side}_emb", is_pre=True)
    for i, layer in enumerate(model.encoder_layers, 1):
        yield from _layer(layer, f"encoder_l{i}", is_pre=is_pre)
    for i, layer in enumerate(model.decoder_layers, 1):
        yield from _layer(layer, f"decoder_l{i}", is_pre=is_pre)
        context = f"decoder_l{i}_context"
        yield from _attention(layer.cross_attention, context)
        yield from _norm(layer.cross_attention_norm, f"{context}_Wo", is_pre=is_pre)


def _layer(
    layer: EncoderLayer | DecoderLayer, name: str, *, is_pre: bool
) -> Iterator[tuple[Any, list[str]]]:
    yield from _attention(layer.attention, f"{name}_self")
    yield from _norm(layer.attention_norm, f"{name}_self_Wo", is_pre=is_pre)
    yield from _feed_forward(layer.feed_forward, f"{name}_ffn")
    yield from _norm(layer.feed_forward_norm, f"{name}_ffn_ffn", is_pre=is_pre)


def _attention(
    attention: SelfAttention | CrossAttention, name: str
) -> Iterator[tuple[Any, list[str]]]:
    if isinstance(attention, SelfAttention):
        yield from _linear(attention.query_key_value, name, "qkv")
    else:
        yield from _linear(attention.query, name, "q")
        yield from _linear(attention.key_value, name, "kv")
    yield from _linear(attention.output_projection, name, "o")


def _feed_forward(feed_forward: FeedForward, name: str) -> Iterator[tuple[Any, list[str]]]:
    yield from _linear(feed_forward.inner, name, "1")
    yield from _linear(feed_forward.outer, name, "2")


def _linear(linear: Linear, name: str, parts: str) -> Iterator[tuple[Any, list[str]]]:
    yield linear.kernel, [f"{name}_W{part}" for part in parts]
    if linear.bias is not None:
        yield linear.bias, [f"{name}_b{part}" for part in parts]


def _norm(norm: LayerNorm, name: str, *, is_pre: bool) -> Iterator[tuple[Any, list[str]]]:
    suffix = "_pre" if is_pre else ""
    yield norm.scale, [f"{name}_ln_scale{suffix}"]
    yield norm.shift, [f"{name}_ln_bias{suffix}"]
