"""Export of a model folder to a copy, a SavedModel or a CTranslate2 model."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf
from ctranslate2 import specs

from tt.model.folders import OTHER_OUTPUT, atomic_folder, storage_errors
from tt.model.formats.foreign import POSITIONS
from tt.model.formats.model_folder import (
    WEIGHTS_FILE,
    check_files,
    check_output,
    find_model_folder,
    load_about,
    load_config,
    write_about,
    write_config,
)
from tt.model.formats.weights import load_model
from tt.model.text.tokenization import load_pieces
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, load_vocabularies
from tt.model.transformer.decode import hidden_ids, search_batch
from tt.model.transformer.layers import LayerNorm, sinusoidal_positions
from tt.model.transformer.search_options import Decoding
from tt.model.transformer.transformer import Transformer

SIGNATURE = "serving_default"
VOCABULARY_FOLDER = "assets.extra"  # TensorFlow's name for files that the graph does not read
# Far below any logit, but within the range of float16, which CTranslate2 may use.
_HIDDEN_BIAS = -1e4

# The parts of CTranslate2's specification by the paths of our layers.
_LAYER = re.compile(r"(?P<side>encoder|decoder)_(?P<number>\d+)/(?P<part>.+)")
_PARTS: dict[str, Callable[[Any], Any]] = {
    "attention/query_key_value": lambda layer: layer.self_attention.linear[0],
    "attention/output": lambda layer: layer.self_attention.linear[1],
    "attention_norm": lambda layer: layer.self_attention.layer_norm,
    "cross_attention/query": lambda layer: layer.attention.linear[0],
    "cross_attention/key_value": lambda layer: layer.attention.linear[1],
    "cross_attention/output": lambda layer: layer.attention.linear[2],
    "cross_attention_norm": lambda layer: layer.attention.layer_norm,
    "feed_forward/inner": lambda layer: layer.ffn.linear_0,
    "feed_forward/outer": lambda layer: layer.ffn.linear_1,
    "feed_forward_norm": lambda layer: layer.ffn.layer_norm,
}
_NORMS: dict[str, Callable[[Any], Any]] = {
    "encoder_norm": lambda spec: spec.encoder.layer_norm,
    "decoder_norm": lambda spec: spec.decoder.layer_norm,
}
# CTranslate2's names of variables by our names.
_VARIABLES = {"kernel": "weight", "bias": "bias", "scale": "gamma", "shift": "beta"}


@contextlib.contextmanager
def _new_export(
    path: Path, output: Path, *, overwrite: bool, within: str = "", remedy: str = OTHER_OUTPUT
) -> Iterator[Path]:
    """Yield a new folder that contains the vocabularies, and publish it after the block.

    Args:
      path: The model folder.
      output: The folder to publish.
      overwrite: Whether an earlier export may be replaced.
      within: Subfolder for the vocabularies.
      remedy: Second half of the advice on a full disk.

    Raises:
      UserError: The output cannot be written.
    """
    check_output(output, model=path, overwrite=overwrite)
    with (
        storage_errors(str(output.resolve()), remedy=remedy),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        (folder / within).mkdir(exist_ok=True)
        for name in load_vocabularies(path).files:
            shutil.copyfile(path / name, folder / within / name)
        yield folder


def copy_model(model_folder: Path, output: Path, *, overwrite: bool = False) -> None:
    """Copy the files that translation needs.

    Args:
      model_folder: Model folder or run folder.
      output: The folder to write.
      overwrite: Whether an earlier export may be replaced.

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    check_files(path)
    with _new_export(path, output, overwrite=overwrite) as folder:
        shutil.copyfile(path / WEIGHTS_FILE, folder / WEIGHTS_FILE)
        write_config(folder, load_config(path), load_about(path))


def export_saved_model(
    model_folder: Path, output: Path, *, decoding: Decoding, overwrite: bool = False
) -> None:
    """Write a SavedModel that searches like `tt translate` and needs only TensorFlow.

    The search is part of the graph, and the caller builds the batches. The signature
    `serving_default` has the input `ids`, int32 [B, S], with BOS and EOS, and PAD at the end. It
    returns the best hypotheses first (see `tt.model.transformer.loop.SearchResult`):

    - `ids`, int32 [B, N, L], with EOS, and PAD at the end.
    - `scores`, float32 [B, N], log-probabilities.

    The vocabularies are in `assets.extra/`.

    >>> search = tf.saved_model.load("saved").signatures["serving_default"]  # doctest: +SKIP
    >>> search(ids=tf.constant([[2, 57, 310, 3]]))["ids"].shape  # doctest: +SKIP
    TensorShape([1, 4, 5])

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    model, vocabularies = load_model(path)
    hidden = hidden_ids(model.config, vocabularies)
    with _new_export(path, output, overwrite=overwrite, within=VOCABULARY_FOLDER) as folder:

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids")], autograph=False
        )
        def search(ids: tf.Tensor) -> dict[str, tf.Tensor]:
            found = search_batch(model, ids, decoding=decoding, hidden_ids=hidden)
            beams = decoding.beam_size
            return {
                "ids": tf.ensure_shape(found.ids, [None, beams, None]),
                "scores": tf.ensure_shape(found.scores, [None, beams]),
            }

        # A plain module with plain variables: a saved Keras model needs Keras to load.
        module = tf.Module()
        module.weights = [variable.value for variable in model.variables]
        tf.saved_model.save(module, str(folder), signatures={SIGNATURE: search})
        write_about(folder, load_about(path), within=VOCABULARY_FOLDER)


def export_ctranslate2(
    model_folder: Path, output: Path, *, overwrite: bool = False, remedy: str = OTHER_OUTPUT
) -> None:
    """Write a CTranslate2 model, whose inputs and outputs are SentencePiece pieces.

    CTranslate2 adds BOS and EOS to a source, because config.json says so. The weights are float32,
    and `compute_type` of `ctranslate2.Translator` quantizes them at loading.

    >>> import ctranslate2, sentencepiece  # doctest: +SKIP
    >>> pieces = sentencepiece.SentencePieceProcessor(model_file="ct2/vocabulary.spm")
    ... # doctest: +SKIP
    >>> found = ctranslate2.Translator("ct2").translate_batch(
    ...     pieces.encode(["A dog runs."], out_type=str), beam_size=1)  # doctest: +SKIP
    >>> pieces.decode(found[0].hypotheses[0])  # doctest: +SKIP
    'Ein Hund läuft.'

    With `beam_size=1`, the translations equal those of `tt translate`, except for two defaults of
    CTranslate2: `max_decoding_length` is 256 pieces (ours is the number of source tokens + 49), and
    `min_decoding_length=1` forbids empty translations. In beam search, CTranslate2 ranks by log p /
    length^alpha (its `length_penalty`, 1 by default), and we rank by log p / ((5 + length) /
    6)^alpha. With alpha 0, only the conditions for stopping differ.

    CTranslate2 never chooses PAD, UNK, BOS and ids without a piece, because the output projection
    has a bias against them. Their probability is spread over the other ids, as with CTranslate2's
    `suppress_sequences`, so scores are slightly higher than ours. CTranslate2 raises an error for a
    source or translation with more than `POSITIONS` tokens.

    Args:
      model_folder: Model folder or run folder.
      output: The folder to write.
      overwrite: Whether an earlier export may be replaced.
      remedy: Second half of the advice on a full disk.

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    model, vocabularies = load_model(path)
    config = model.config
    with _new_export(path, output, overwrite=overwrite, remedy=remedy) as folder:
        spec = specs.TransformerSpec.from_config(
            config.depths,
            config.heads,
            pre_norm=config.norm == "pre",
            activation=getattr(specs.Activation, config.activation.upper()),
        )
        _fill(spec, model, hidden_ids=hidden_ids(config, vocabularies))
        source_file, target_file = (vocabularies.files[i] for i in (1, -1))
        source = piece_tokens(load_pieces(path / source_file), size=config.source_vocabulary_size)
        target = piece_tokens(load_pieces(path / target_file), size=config.target_vocabulary_size)
        # CTranslate2 needs the same special tokens on both sides. No text contains these tokens.
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
        spec.optimize()  # stores a matrix only once if several layers use it
        spec.save(str(folder))
        write_about(folder, load_about(path))


def piece_tokens(processor: sentencepiece.SentencePieceProcessor, *, size: int) -> list[str]:
    """Return the pieces of a SentencePiece model by id, followed by names for unused ids."""
    pieces = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    # A name with spaces is unique, because SentencePiece replaces spaces by U+2581 in pieces.
    return pieces + [f"<no piece {i}>" for i in range(len(pieces), size)]


def _fill(spec: Any, model: Transformer, *, hidden_ids: list[int]) -> None:
    """Copy the weights of a model to CTranslate2's specification."""
    for variable in model.variables:
        owner, _, kind = variable.path.rpartition("/")
        if found := _LAYER.fullmatch(owner):
            layer = getattr(spec, found["side"]).layer[int(found["number"])]
            part = _PARTS[found["part"]](layer)
        elif owner in _NORMS:
            part = _NORMS[owner](spec)
        else:
            continue  # the code below copies the embeddings and the bias of the logits
        values = variable.numpy()
        # CTranslate2's matrices are [outputs, inputs]. As in our model, one matrix contains the
        # projections of queries, keys and values in this order.
        setattr(part, _VARIABLES[kind], values.T if kind == "kernel" else values)
    config, encoder, decoder = model.config, spec.encoder, spec.decoder
    positions = sinusoidal_positions(tf.constant(POSITIONS), config.d_model, config.position_base)
    for side, table, embedding in (
        (encoder, encoder.embeddings[0], model.source_embedding),
        (decoder, decoder.embeddings, model.target_embedding),
    ):
        side.position_encodings.encodings = np.asarray(positions)
        table.weight = embedding.table.numpy()
        table.multiply_by_sqrt_depth = True
    decoder.start_from_zero_embedding = config.zero_start
    decoder.projection.weight = model.output_embedding.table.numpy()
    decoder.projection.bias = np.zeros([config.target_vocabulary_size], np.float32)
    if model.output_bias is not None:
        decoder.projection.bias += model.output_bias.values.numpy()
    decoder.projection.bias[hidden_ids] = _HIDDEN_BIAS
