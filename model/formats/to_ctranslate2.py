"""A model folder to a CTranslate2 model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
from ctranslate2 import specs

from model.folders.atomic import atomic_folder
from model.folders.long_work import writing
from model.folders.remote import OTHER_OUTPUT, storage_errors
from model.formats.ctranslate2_files import POSITIONS
from model.formats.model_folder import find_model_folder, load_about, write_about
from model.formats.weights import check_output, copy_vocabularies, load_model
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from model.transformer.attention import CrossAttention, SelfAttention
from model.transformer.config import TransformerConfig
from model.transformer.decode import hidden_ids
from model.transformer.layers import Embedding, FeedForward, LayerNorm, Linear, sinusoidal_positions
from model.transformer.transformer import Transformer

# Far below any logit, and within float16, which CTranslate2 may compute in.
_HIDDEN_BIAS = -1e4
# CTranslate2's names.
_ACTIVATIONS = {"relu": "RELU", "swish": "SWISH", "gelu": "GELU"}


def export_ctranslate2(
    model_folder: Path, output: Path, *, overwrite: bool = False, remedy: str = OTHER_OUTPUT
) -> None:
    """Writes a CTranslate2 model, which translates SentencePiece pieces as `tt translate` would.

    BOS and EOS are added to the source by CTranslate2, as its config says, and the weights are
    float32: `compute_type` of `ctranslate2.Translator` quantises them when they are loaded.

    >>> import ctranslate2, sentencepiece  # doctest: +SKIP
    >>> pieces = sentencepiece.SentencePieceProcessor(model_file="ct2/vocabulary.spm")
    ... # doctest: +SKIP
    >>> found = ctranslate2.Translator("ct2").translate_batch(
    ...     pieces.encode(["A dog runs."], out_type=str), beam_size=1)  # doctest: +SKIP
    >>> pieces.decode(found[0].hypotheses[0])  # doctest: +SKIP
    'Ein Hund läuft.'

    With `beam_size=1` the translations are ours, but for two defaults of CTranslate2's calls:
    `max_decoding_length` is 256 pieces, ours the tokens of the source + 49; and
    `min_decoding_length=1` forbids the empty translation. With beams, CTranslate2 ranks by log p /
    length^alpha (its `length_penalty`, 1 by default), we by log p / ((5 + length) / 6)^alpha; with
    alpha 0 the two agree but for when they stop.

    PAD, UNK, BOS and ids without a piece are never chosen: the output projection has a bias against
    them. Their share of the probability is spread over the others, as by CTranslate2's own
    `suppress_sequences`, so scores are a little higher than ours. Beyond `POSITIONS` tokens of a
    source or translation, CTranslate2 raises an error. `remedy` is advice where the disk is full.

    Raises:
      UserError: A finished model is missing, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    check_output(output, model=path, overwrite=overwrite)
    loaded = load_model(path)
    with (
        storage_errors(str(output.resolve()), remedy=remedy),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        model, vocabularies = loaded.model, loaded.vocabularies
        config = model.config
        spec = specs.TransformerSpec.from_config(
            config.depths,
            config.heads,
            pre_norm=config.norm == "pre",
            activation=getattr(specs.Activation, _ACTIVATIONS[config.activation]),
            layernorm_embedding=config.embedding_norm,
        )
        _fill_encoder(spec.encoder, model)
        _fill_decoder(spec.decoder, model, hidden_ids=hidden_ids(config, vocabularies))
        source_file, target_file = (vocabularies.files[i] for i in (1, -1))
        source = _tokens(path / source_file, size=config.source_vocabulary_size)
        target = _tokens(path / target_file, size=config.target_vocabulary_size)
        # CTranslate2 has one name for both sides; in pieces, none of these occurs.
        for i in (PAD_ID, UNK_ID, BOS_ID, EOS_ID):
            target[i] = source[i]
        spec.register_source_vocabulary(source)
        spec.register_target_vocabulary(target)
        spec.config.unk_token = source[UNK_ID]
        spec.config.bos_token = spec.config.decoder_start_token = source[BOS_ID]
        spec.config.eos_token = source[EOS_ID]
        spec.config.add_source_bos, spec.config.add_source_eos = config.source_bos, True
        spec.config.layer_norm_epsilon = LayerNorm.EPSILON
        spec.validate()
        spec.optimize()  # writes a matrix that stands in several places once
        with writing(folder, total=loaded.bytes):
            spec.save(str(folder))
        copy_vocabularies(path, folder)
        write_about(folder, load_about(path))


def _tokens(path: Path, *, size: int) -> list[str]:
    """Returns the pieces of a SentencePiece model by id, and behind them names without use."""
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    # No piece has a space: SentencePiece writes it as U+2581.
    return pieces + [f"<no piece {i}>" for i in range(len(pieces), size)]


# What follows fills CTranslate2's specs. Its matrices are [outputs, inputs], ours the transpose;
# like ours, its projections of queries, keys and values stand in one matrix, in this order.


def _fill_encoder(spec: Any, model: Transformer) -> None:
    _fill_embedding(spec.embeddings[0], model.source_embedding)
    _fill_side(spec, model.config, model.encoder_norm, model.source_embedding_norm)
    for layer_spec, layer in zip(spec.layer, model.encoder_layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, layer.attention, layer.attention_norm)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_norm)


def _fill_decoder(spec: Any, model: Transformer, *, hidden_ids: list[int]) -> None:
    _fill_embedding(spec.embeddings, model.target_embedding)
    _fill_side(spec, model.config, model.decoder_norm, model.target_embedding_norm)
    spec.start_from_zero_embedding = model.config.zero_start
    for layer_spec, layer in zip(spec.layer, model.decoder_layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, layer.attention, layer.attention_norm)
        _fill_cross_attention(
            layer_spec.attention, layer.cross_attention, layer.cross_attention_norm
        )
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_norm)
    spec.projection.weight = model.output_embedding.table.numpy()
    spec.projection.bias = np.zeros([model.config.target_vocabulary_size], np.float32)
    if model.output_bias is not None:
        spec.projection.bias += model.output_bias.values.numpy()
    spec.projection.bias[hidden_ids] = _HIDDEN_BIAS


def _fill_side(
    spec: Any, config: TransformerConfig, norm: LayerNorm | None, embedding_norm: LayerNorm | None
) -> None:
    positions = sinusoidal_positions(
        tf.constant(POSITIONS), config.d_model, config.position_base, scale=config.position_scale
    )
    spec.position_encodings.encodings = np.asarray(positions)
    if norm is not None:  # of pre-norm alone
        _fill_norm(spec.layer_norm, norm)
    if embedding_norm is not None:
        _fill_norm(spec.layernorm_embedding, embedding_norm)


def _fill_embedding(spec: Any, embedding: Embedding) -> None:
    spec.weight = embedding.table.numpy()
    spec.multiply_by_sqrt_depth = True


def _fill_self_attention(spec: Any, attention: SelfAttention, norm: LayerNorm) -> None:
    _fill_linear(spec.linear[0], attention.query_key_value)
    _fill_linear(spec.linear[1], attention.output_projection)
    _fill_norm(spec.layer_norm, norm)


def _fill_cross_attention(spec: Any, attention: CrossAttention, norm: LayerNorm) -> None:
    _fill_linear(spec.linear[0], attention.query)
    _fill_linear(spec.linear[1], attention.key_value)
    _fill_linear(spec.linear[2], attention.output_projection)
    _fill_norm(spec.layer_norm, norm)


def _fill_feed_forward(spec: Any, feed_forward: FeedForward, norm: LayerNorm) -> None:
    _fill_linear(spec.linear_0, feed_forward.inner)
    _fill_linear(spec.linear_1, feed_forward.outer)
    _fill_norm(spec.layer_norm, norm)


def _fill_linear(spec: Any, linear: Linear) -> None:
    spec.weight = linear.kernel.numpy().T
    if linear.bias is not None:
        spec.bias = linear.bias.numpy()


def _fill_norm(spec: Any, norm: LayerNorm) -> None:
    spec.gamma = norm.scale.numpy()
    spec.beta = norm.shift.numpy()
