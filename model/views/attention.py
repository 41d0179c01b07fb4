"""The attention of a model while it predicts a target: its own translation, or a given one.

Axes: L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.errors import UserError
from model.text.vocabulary import BOS_ID, VocabularyPair, is_empty
from model.transformer.transformer import Transformer
from model.views.labels import token_labels

MAX_TOKENS = 256  # of a side; the weights grow with their square

KINDS = ("cross", "encoder", "decoder")
# What the rows and the columns of a map are.
AXES = {
    "cross": ("predicted target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("predicted target", "target so far"),
}


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The weights of one kind of attention."""

    kind: str  # one of `KINDS`
    weights: npt.NDArray[np.float32]  # [L, H, rows, columns]; each row adds up to 1
    rows: list[str]  # what looks
    columns: list[str]  # what is looked at


@dataclasses.dataclass(frozen=True)
class SentenceAttention:
    """A sentence, a translation of it, and the attention that belongs to them."""

    source: str
    target: str
    is_own: bool  # whether the model made the translation
    maps: dict[str, AttentionMap]  # by kind
    # Why the model cannot translate the sentence, of which more than half is unknown to it; or "".
    doubt: str = ""


def attention_of_ids(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> dict[str, AttentionMap]:
    """Returns the attention of all layers and heads while a given target is predicted.

    Both have ids from BOS to EOS. A row of "cross" and of "decoder" is the token that is predicted
    there; the columns of "decoder" are the tokens before it, BOS first.
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


def sentence_attention(
    translator: TensorFlowTranslator, sentence: str, *, reference: str | None = None
) -> SentenceAttention:
    """Translates a sentence, or takes the `reference` for its translation; returns the attention.

    The sentence is normalised, and neither cut nor are parts of it protected.

    Raises:
      UserError: A side is empty, or has more than `MAX_TOKENS`.
    """
    vocabularies = translator.vocabularies
    [source_ids] = translator.encode([sentence])
    _check("sentence", source_ids)
    if reference is None:
        target_ids = [BOS_ID, *translator.search_ids(source_ids)]
        [target] = vocabularies.target.decode([target_ids])
    else:
        target = reference
        [target_ids] = vocabularies.target.encode([reference])
        _check("reference", target_ids)
    maps = attention_of_ids(
        translator.model, vocabularies, source_ids=source_ids, target_ids=target_ids
    )
    doubt = translator.count_unknown(sentence).describe() or ""
    return SentenceAttention(sentence, target, reference is None, maps, doubt)


def _check(name: str, ids: list[int]) -> None:
    if is_empty(ids):
        raise UserError(f"`{name}` is empty: name a text with words")
    if len(ids) > MAX_TOKENS:
        raise UserError(
            f"`{name}` must have at most {MAX_TOKENS} tokens. Received: {len(ids)}; name a "
            "shorter one"
        )
