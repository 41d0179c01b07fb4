"""Greedy search or beam search with a Transformer.

Axes: B sentences, S source positions.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from tt.model.text.vocabulary import BOS_ID, PAD_ID, UNK_ID, VocabularyPair
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.loop import Prediction, SearchResult, longest_limit
from tt.model.transformer.search import beam_search, greedy_search
from tt.model.transformer.search_options import Decoding
from tt.model.transformer.transformer import Transformer


def hidden_ids(config: TransformerConfig, vocabularies: VocabularyPair) -> list[int]:
    """Return the ids that the search never chooses: PAD, UNK, BOS, and ids without a piece."""
    unused = range(vocabularies.target.piece_count, config.target_vocabulary_size)
    return [PAD_ID, UNK_ID, BOS_ID, *unused]


def search_batch(
    model: Transformer,
    source: tf.Tensor,
    *,
    decoding: Decoding,
    hidden_ids: Sequence[int],
) -> SearchResult:
    """Encode sources and search their translations.

    Args:
      model: The model.
      source: Source ids, int32 [B, S], with BOS and EOS, then PAD.
      decoding: Options of the search.
      hidden_ids: Ids that are never chosen.

    Returns:
      `decoding.beam_size` hypotheses per source.
    """
    beams, layers = decoding.beam_size, len(model.decoder_layers)
    source_lengths = tf.math.count_nonzero(source != PAD_ID, 1, dtype=tf.int32)  # [B]
    limits = length_limits(source_lengths, decoding)
    encoded = model.encode(source, target_length=longest_limit(limits), hidden_ids=hidden_ids)

    def step(
        ids: tf.Tensor, *, position: tf.Tensor, caches: list[tf.Tensor], sources: list[tf.Tensor]
    ) -> tuple[Prediction, list[tf.Tensor]]:
        *projected, bias = sources
        left = dataclasses.replace(
            encoded, keys=projected[:layers], values=projected[layers:], bias=bias
        )
        return model.decode_step(ids, position=position, caches=caches, encoded=left)

    start: dict[str, Any] = {
        "caches": model.empty_caches(tf.shape(source)[0]),
        "sources": [*encoded.keys, *encoded.values, encoded.bias],
        "limits": limits,
        "no_repeat_ngram_size": decoding.no_repeat_ngram_size,
    }
    if beams == 1:
        return greedy_search(step, **start)
    return beam_search(
        step,
        beam_size=beams,
        length_penalty=decoding.length_penalty,
        patience=decoding.patience,
        n_best=decoding.n_best,
        **start,
    )


def length_limits(source_lengths: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Return the result of `Decoding.length_limit` for each source.

    Args:
      source_lengths: Number of tokens in each source, including BOS and EOS, int32 [B].
      decoding: Options of the search.

    Returns:
      int32 [B].
    """
    longest = min(decoding.max_decoding_length, tf.int32.max)
    ratio = min(decoding.max_length_ratio, float(longest))  # larger ratios change nothing
    scaled = tf.math.ceil(tf.cast(source_lengths, tf.float32) * ratio)
    # Compute the minimum in floating point, because the product may overflow int32.
    limits = tf.cast(scaled, tf.float64) + decoding.max_extra_tokens
    return tf.cast(tf.minimum(limits, float(longest)), tf.int32)
