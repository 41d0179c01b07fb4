"""An exported model folder to what other programs load: a TensorFlow SavedModel, or CTranslate2.

Both translate ids, or pieces, that the vocabularies beside them make of normalised text:
`load_vocabularies` reads them out of the folder, or any SentencePiece after the normalisation
that `vocabulary.json` names.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import tensorflow as tf

from model.engines.ctranslate2_engine import POSITIONS
from model.engines.tensorflow_engine import Translator, hidden_ids, search_batch
from model.errors import UserError
from model.extras import install_extra
from model.folders.access import check_readable
from model.formats.model_folder import (
    CONFIG_FILE,
    CTRANSLATE2_FILE,
    WEIGHTS_FILE,
    check_files,
    find_model_folder,
    load_about,
    load_config,
    write_about,
    write_config,
)
from model.runs.run_folder import OTHER_OUTPUT, is_free, storage_errors
from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, load_vocabularies
from model.transformer.config import Decoding, TransformerConfig
from model.transformer.layers import (
    CrossAttention,
    Embedding,
    FeedForward,
    LayerNorm,
    Linear,
    SelfAttention,
    sinusoidal_positions,
)
from model.transformer.transformer import Transformer

SIGNATURE = "serving_default"
VOCABULARY_FOLDER = "assets.extra"  # TensorFlow's name for files that the graph does not read

# Far below any logit, and within float16, which CTranslate2 may compute in.
_HIDDEN_BIAS = -1e4

_EXPORT_FILES = (WEIGHTS_FILE, "saved_model.pb", CTRANSLATE2_FILE)


def copy_model(model_folder: Path, output: Path, *, overwrite: bool = False) -> None:
    """Copies all that translation needs, and nothing else, of a model folder or run folder.

    The copy has digests of its files, also where the model was written before there were any.

    Args:
      model_folder: A model folder, or the run folder that it lies in.
      output: The folder to write.
      overwrite: Replace an earlier export there.

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    _check_output(output, model=path, overwrite=overwrite)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        check_readable(path / name)
    check_files(path)
    with _whole_folder(output) as folder:
        shutil.copyfile(path / WEIGHTS_FILE, folder / WEIGHTS_FILE)
        _copy_vocabularies(path, folder)
        write_config(folder, load_config(path), load_about(path))


def export_saved_model(
    model_folder: Path, output: Path, *, decoding: Decoding, overwrite: bool = False
) -> None:
    """Writes a SavedModel that searches as `Translator` does and needs TensorFlow alone.

    Its signature `serving_default` takes `ids`, int32 [B, S], BOS and EOS included and PAD at
    the end, and gives `ids`, int32 [B, N, L], EOS included and PAD behind it, and `scores`,
    float32 [B, N], log-probabilities, best first (see `model.decoding.search.SearchResult`). The
    vocabularies lie in `assets.extra/`.

    >>> search = tf.saved_model.load("saved").signatures["serving_default"]  # doctest: +SKIP
    >>> search(ids=tf.constant([[2, 57, 310, 3]]))["ids"].shape  # doctest: +SKIP
    TensorShape([1, 4, 5])

    Args:
      model_folder: A model folder, or the run folder that it lies in.
      output: The folder to write.
      decoding: How to search: it is a part of the graph. Batches are the caller's.
      overwrite: Replace an earlier export there.

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    _check_output(output, model=path, overwrite=overwrite)
    translator = Translator.load(path)
    with _whole_folder(output) as folder:
        model = translator.model
        hidden = hidden_ids(model.config, translator.vocabularies)

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

        # A plain module with plain variables: a saved Keras model would want Keras to load.
        module = tf.Module()
        module.weights = [variable.value for variable in model.variables]
        tf.saved_model.save(module, str(folder), signatures={SIGNATURE: search})
        vocabulary_folder = folder / VOCABULARY_FOLDER
        vocabulary_folder.mkdir()
        _copy_vocabularies(path, vocabulary_folder)
        write_about(folder, load_about(path), within=VOCABULARY_FOLDER)


def export_ctranslate2(
    model_folder: Path, output: Path, *, overwrite: bool = False, remedy: str = OTHER_OUTPUT
) -> None:
    """Writes a CTranslate2 model that translates SentencePiece pieces as `Translator` does.

    BOS and EOS are added to the source by CTranslate2, as its config says, and the weights are
    float32: `compute_type` of `ctranslate2.Translator` quantises them when they are loaded.

    >>> import ctranslate2, sentencepiece  # doctest: +SKIP
    >>> pieces = sentencepiece.SentencePieceProcessor(model_file="ct2/vocabulary.spm")
    ... # doctest: +SKIP
    >>> found = ctranslate2.Translator("ct2").translate_batch(
    ...     pieces.encode(["A dog runs."], out_type=str), beam_size=1)  # doctest: +SKIP
    >>> pieces.decode(found[0].hypotheses[0])  # doctest: +SKIP
    'Ein Hund läuft.'

    With `beam_size=1` the translations are those of `Translator`, but for what CTranslate2 keeps
    to its calls: `max_decoding_length` is 256 pieces, here it is the source's ids + 49; and
    `min_decoding_length=1` forbids the empty translation. With beams, CTranslate2 ranks by
    log p / length^alpha (its `length_penalty`, 1 by default), here it is
    log p / ((5 + length) / 6)^alpha; with alpha 0 the two agree but for when they stop.

    PAD, UNK, BOS and ids without a piece are never chosen: the output projection has a bias
    against them. So their share of the probability is spread over the others, as CTranslate2's
    own `suppress_sequences` would do it, and scores are a little higher than `Translator`'s.
    Sources and translations have `POSITIONS` ids at the most; beyond, CTranslate2 raises.

    Args:
      model_folder: A model folder, or the run folder that it lies in.
      output: The folder to write.
      overwrite: Replace an earlier export there.
      remedy: What to do where the disk is full, beside making room.

    Raises:
      UserError: CTranslate2 is not installed, there is no finished model, or the output cannot
        be written.
    """
    try:
        from ctranslate2 import specs
    except ImportError as error:
        raise UserError(
            f"the format needs the package ctranslate2 ({error}): {install_extra('ctranslate2')}"
        ) from error
    path = find_model_folder(model_folder)
    _check_output(output, model=path, overwrite=overwrite)
    translator = Translator.load(path)
    with _whole_folder(output, remedy=remedy) as folder:
        model, vocabularies = translator.model, translator.vocabularies
        config = model.config
        spec = specs.TransformerSpec.from_config(
            config.layers,
            config.heads,
            pre_norm=config.norm == "pre",
            activation=specs.Activation.RELU,
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
        spec.config.add_source_bos = spec.config.add_source_eos = True
        spec.config.layer_norm_epsilon = LayerNorm.EPSILON
        spec.validate()
        spec.optimize()  # writes a matrix that stands in several places once
        spec.save(str(folder))
        _copy_vocabularies(path, folder)
        write_about(folder, load_about(path))


def _check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    if is_free(output):
        return
    output = output.resolve()
    if not output.is_dir():
        raise UserError(f"the output must be a folder; {output} is a file: name another")
    if not any((output / name).is_file() for name in _EXPORT_FILES):
        raise UserError(f"{output} is not an exported model: it is not overwritten; name another")
    if output in (model.resolve(), *model.resolve().parents):
        raise UserError(f"{output} holds the model that is exported: name another folder")
    if not overwrite:
        raise UserError(f"{output} exists already: name another folder, or give --overwrite")


@contextlib.contextmanager
def _whole_folder(output: Path, *, remedy: str = OTHER_OUTPUT) -> Iterator[Path]:
    """Gives a folder to write into; without an error in between it becomes the output."""
    output = output.resolve()
    temporary = output.with_name(f".{output.name}.tmp")
    replaced = output.with_name(f".{output.name}.old")
    try:
        with storage_errors(str(output), remedy=remedy):
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
            yield temporary
            shutil.rmtree(replaced, ignore_errors=True)
            if output.exists():
                output.replace(replaced)
            temporary.replace(output)
            shutil.rmtree(replaced, ignore_errors=True)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _copy_vocabularies(model_folder: Path, folder: Path) -> None:
    for name in load_vocabularies(model_folder).files:
        shutil.copyfile(model_folder / name, folder / name)


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
    spec.position_encodings.encodings = _positions(model.config)
    if model.encoder_norm is not None:  # of pre-norm alone
        _fill_norm(spec.layer_norm, model.encoder_norm)
    for layer_spec, layer in zip(spec.layer, model.encoder_layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, layer.attention, layer.attention_norm)
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_norm)


def _fill_decoder(spec: Any, model: Transformer, *, hidden_ids: list[int]) -> None:
    _fill_embedding(spec.embeddings, model.target_embedding)
    spec.position_encodings.encodings = _positions(model.config)
    spec.start_from_zero_embedding = False
    if model.decoder_norm is not None:  # of pre-norm alone
        _fill_norm(spec.layer_norm, model.decoder_norm)
    for layer_spec, layer in zip(spec.layer, model.decoder_layers, strict=True):
        _fill_self_attention(layer_spec.self_attention, layer.attention, layer.attention_norm)
        _fill_cross_attention(
            layer_spec.attention, layer.cross_attention, layer.cross_attention_norm
        )
        _fill_feed_forward(layer_spec.ffn, layer.feed_forward, layer.feed_forward_norm)
    spec.projection.weight = model.output_embedding.table.numpy()
    spec.projection.bias = np.zeros([model.config.target_vocabulary_size], np.float32)
    spec.projection.bias[hidden_ids] = _HIDDEN_BIAS


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


def _positions(config: TransformerConfig) -> np.ndarray:
    positions = sinusoidal_positions(tf.constant(POSITIONS), config.d_model, config.position_base)
    return np.asarray(positions)
