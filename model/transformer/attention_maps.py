"""The attention weights of all layers and heads while a model predicts a target.

Axes: L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from model.text.normalization import WORD_BOUNDARY
from model.text.vocabulary import Vocabulary, VocabularyPair
from model.transformer.transformer import Transformer

# The rows and the columns of a map, by its kind.
AXES = {
    "cross": ("predicted target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("predicted target", "target so far"),
}
LEGEND = '"_" marks the start of a word; <bos> and <eos> are the start and the end of a sentence.'


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The weights of one kind of attention."""

    kind: str  # one of `AXES`
    weights: npt.NDArray[np.float32]  # [L, H, rows, columns]; each row adds up to 1
    rows: list[str]  # labels of the tokens that attend
    columns: list[str]  # labels of the tokens that they attend to


def attention_maps(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> dict[str, AttentionMap]:
    """Return the attention of all layers and heads while the model predicts a given target.

    Both sides have ids from BOS to EOS. A row of "cross" and of "decoder" is the token that is
    predicted there; the columns of "decoder" are the tokens before it, BOS first.
    """
    _, found = model.decode_with_attention(
        tf.constant([source_ids], tf.int32), target=tf.constant([target_ids[:-1]], tf.int32)
    )
    seen = source_ids if model.config.source_bos else source_ids[1:]
    source = token_labels(vocabularies.source, seen)
    target = token_labels(vocabularies.target, target_ids)
    labels = {
        "cross": (found.cross, target[1:], source),
        "encoder": (found.encoder, source, source),
        "decoder": (found.decoder, target[1:], target[:-1]),
    }
    return {
        kind: AttentionMap(
            kind,
            np.stack([tf.cast(layer[0], tf.float32).numpy() for layer in layers]),
            rows,
            columns,
        )
        for kind, (layers, rows, columns) in labels.items()
    }


def token_labels(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """Name ids by their pieces, with "_" for SentencePiece's U+2581, which few fonts have."""
    return [name.replace(WORD_BOUNDARY, "_") for name in vocabulary.names(ids)]
