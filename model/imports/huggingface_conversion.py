"""Convert models in Hugging Face's layout to CTranslate2 and to TensorFlow.

Source:
  `modeling_marian.py` and `modeling_m2m_100.py` in huggingface/transformers, version 4.57.
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from ctranslate2 import specs

from tt.model.errors import UserError
from tt.model.formats.foreign import TOKENIZATION_FILE
from tt.model.formats.model_card import About
from tt.model.formats.model_folder import write_about
from tt.model.imports.huggingface import MARIAN, Checkpoint, Side
from tt.model.imports.huggingface_weights import Array, Weights
from tt.model.imports.imported_vocabularies import NumberedTokens, find_missing_pieces, to_ours

if TYPE_CHECKING:  # not at run time, because it imports TensorFlow
    from tt.model.imports.imported_model import ImportedModel

_NEVER_BIAS = -1e4  # far below any logit, but within the range of float16
_EPSILON = 1e-5  # of PyTorch's layer norm
_M2M100_OFFSET = 2  # rows of the position table before the first position
_LOGITS_BIAS = "final_logits_bias"
_OUTPUT = "lm_head.weight"
_SHARED = "model.shared.weight"
# The names of the arrays to concatenate for one of our variables, in the layer of the variable.
_PARTS = {
    "attention/query_key_value": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "attention/output": ("self_attn.out_proj",),
    "attention_norm": ("self_attn_layer_norm",),
    "cross_attention/query": ("encoder_attn.q_proj",),
    "cross_attention/key_value": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention/output": ("encoder_attn.out_proj",),
    "cross_attention_norm": ("encoder_attn_layer_norm",),
    "feed_forward/inner": ("fc1",),
    "feed_forward/outer": ("fc2",),
    "feed_forward_norm": ("final_layer_norm",),
}


class _Arrays:
    """The arrays of a model, with the shapes that its configuration demands."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._weights = Weights(checkpoint.folder)
        self._checkpoint = checkpoint
        self._width = checkpoint.d_model

    def linear(self, layer: str, parts: tuple[str, ...], *, d_ff: int) -> tuple[Array, Array]:
        """Return the weight [outputs, inputs] and the bias of concatenated projections."""
        outputs = d_ff if parts == ("fc1",) else self._width
        inputs = d_ff if parts == ("fc2",) else self._width
        read = self._weights.read
        return (
            np.concatenate(
                [read(f"{layer}.{part}.weight", shape=(outputs, inputs)) for part in parts]
            ),
            np.concatenate([read(f"{layer}.{part}.bias", shape=(outputs,)) for part in parts]),
        )

    def norm(self, name: str) -> tuple[Array, Array]:
        """Return the scale and the shift of a layer norm."""
        read, shape = self._weights.read, (self._width,)
        return read(f"{name}.weight", shape=shape), read(f"{name}.bias", shape=shape)

    def embeddings(self, side: str) -> Array:
        """Return the embedding table of a side, [V, D].

        If the logits are not tied, Transformers 5 does not share the embeddings either, whatever
        the configuration says. Each side then has its own array.
        """
        names = [f"model.{side}.embed_tokens.weight", _SHARED]
        rows = len(getattr(self._checkpoint, side).tokens)
        return self._weights.read(self._weights.first(names), shape=(rows, self._width))

    def output(self) -> Array:
        """Return the matrix of the logits, [V, D]."""
        if self._checkpoint.is_tied:
            return self.embeddings("decoder")
        shape = len(self._checkpoint.decoder.tokens), self._width
        return self._weights.read(_OUTPUT, shape=shape)

    def logits_bias(self) -> Array:
        """Return the bias of the logits, [V]."""
        rows = len(self._checkpoint.decoder.tokens)
        if _LOGITS_BIAS not in self._weights:
            return np.zeros([rows], np.float32)
        return self._weights.read(_LOGITS_BIAS, shape=(1, rows)).reshape(rows)

    def positions(self, side: str) -> Array:
        """Return the position table of a side, [positions, D], from the files or computed."""
        name = f"model.{side}.embed_positions.weight"
        expected = sinusoids(self._checkpoint)
        if name not in self._weights:
            return expected
        return self._weights.read(name, shape=expected.shape)


def sinusoids(checkpoint: Checkpoint) -> Array:
    """Return the table of sinusoidal positions, [positions, D]; see the sources of this module."""
    count, width = checkpoint.positions, checkpoint.d_model
    half = width // 2
    steps = np.arange(half)
    if checkpoint.architecture == MARIAN:
        rows, rates = np.arange(count), 10_000.0 ** (-2 * steps / width)
    else:
        rows = np.arange(count) + _M2M100_OFFSET
        rates = np.exp(-steps * (math.log(10_000) / (half - 1)))
    angles = rows[:, None] * rates[None, :]
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float32)


def write_ctranslate2(checkpoint: Checkpoint, output: Path, *, about: About) -> None:
    """Write a CTranslate2 model in float32, with its SentencePiece models and `tokenization.json`.

    Args:
      checkpoint: The model.
      output: The folder to write, which exists and is empty.
      about: The model card.

    Raises:
      UserError: The weights do not fit the configuration.
    """
    arrays = _Arrays(checkpoint)
    pre_norm = checkpoint.architecture != MARIAN
    activation = getattr(specs.Activation, checkpoint.activation.upper())
    options = {"pre_norm": pre_norm, "activation": activation}
    encoder, decoder = checkpoint.encoder, checkpoint.decoder
    spec = specs.TransformerSpec(
        specs.TransformerEncoderSpec(encoder.layers, encoder.heads, **options),
        specs.TransformerDecoderSpec(decoder.layers, decoder.heads, **options),
    )
    for name, side in (("encoder", encoder), ("decoder", decoder)):
        _fill_side(getattr(spec, name), name, side, arrays=arrays, pre_norm=pre_norm)
    for table, name in (
        (spec.encoder.embeddings[0], "encoder"), (spec.decoder.embeddings, "decoder"),
    ):  # fmt: skip
        table.weight = arrays.embeddings(name)
        getattr(spec, name).scale_embeddings = checkpoint.is_scaled
        getattr(spec, name).position_encodings.encodings = arrays.positions(name)
    spec.decoder.projection.weight = arrays.output()
    bias = arrays.logits_bias().copy()
    bias[list(checkpoint.never)] = _NEVER_BIAS
    spec.decoder.projection.bias = bias
    _set_vocabularies(spec, checkpoint)
    spec.validate()
    spec.optimize()  # stores a matrix only once if several layers use it
    spec.save(str(output))
    for name in checkpoint.tokenization.models:
        shutil.copyfile(checkpoint.folder / name, output / name)
    values = dataclasses.asdict(checkpoint.tokenization)
    text = json.dumps(values, indent=2, ensure_ascii=False)
    (output / TOKENIZATION_FILE).write_text(f"{text}\n", "utf-8")
    write_about(output, about)


def _fill_side(spec: Any, name: str, side: Side, *, arrays: _Arrays, pre_norm: bool) -> None:
    def set_linear(target: Any, layer: str, part: str) -> None:
        target.weight, target.bias = arrays.linear(layer, _PARTS[part], d_ff=side.d_ff)

    def set_norm(target: Any, path: str) -> None:
        target.gamma, target.beta = arrays.norm(path)

    for number in range(side.layers):
        layer, source = spec.layer[number], f"model.{name}.layers.{number}"
        set_linear(layer.self_attention.linear[0], source, "attention/query_key_value")
        set_linear(layer.self_attention.linear[1], source, "attention/output")
        set_norm(layer.self_attention.layer_norm, f"{source}.self_attn_layer_norm")
        if name == "decoder":
            set_linear(layer.attention.linear[0], source, "cross_attention/query")
            set_linear(layer.attention.linear[1], source, "cross_attention/key_value")
            set_linear(layer.attention.linear[2], source, "cross_attention/output")
            set_norm(layer.attention.layer_norm, f"{source}.encoder_attn_layer_norm")
        set_linear(layer.ffn.linear_0, source, "feed_forward/inner")
        set_linear(layer.ffn.linear_1, source, "feed_forward/outer")
        set_norm(layer.ffn.layer_norm, f"{source}.final_layer_norm")
    if pre_norm:
        set_norm(spec.layer_norm, f"model.{name}.layer_norm")


def _set_vocabularies(spec: Any, checkpoint: Checkpoint) -> None:
    source, target = checkpoint.encoder.tokens, list(checkpoint.decoder.tokens)
    if len(source) == len(target) and checkpoint.is_shared:
        target = source
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    end = target[checkpoint.end]
    spec.config.unk_token = "<unk>"
    spec.config.bos_token = "<s>" if "<s>" in target else end
    spec.config.eos_token = end
    spec.config.decoder_start_token = target[checkpoint.start]
    # `tokenization.json` adds the tokens around a source.
    spec.config.add_source_bos = spec.config.add_source_eos = False
    spec.config.layer_norm_epsilon = _EPSILON


def read_for_tensorflow(checkpoint: Checkpoint) -> ImportedModel:
    """Return a model for `write_model`, which writes a model folder for TensorFlow.

    Raises:
      UserError: Our Transformer does not support the model, or the weights do not fit its
        configuration.
    """
    from tt.model.imports.imported_model import ImportedModel
    from tt.model.transformer.config import TransformerConfig

    _check_for_tensorflow(checkpoint)
    arrays = _Arrays(checkpoint)
    folder, start = checkpoint.folder, checkpoint.start
    tables = [arrays.embeddings(side) for side in ("encoder", "decoder")]
    if checkpoint.is_shared and not np.array_equal(tables[0], tables[1]):
        checkpoint = dataclasses.replace(checkpoint, is_shared=False)
    if np.any(tables[1][start]):
        raise _only_ctranslate2(folder, "starts translations with a token that is not zero")
    for side in ("encoder", "decoder"):
        if not np.allclose(arrays.positions(side), sinusoids(checkpoint), atol=1e-4):
            raise _only_ctranslate2(folder, "has learned positions")
    paths = [folder / name for name in ("source.spm", "target.spm")]
    # The last token is <pad>, which Marian itself does not have.
    tokens = [
        NumberedTokens(each[:start], checkpoint.end, each.index("<unk>"))
        for each in (checkpoint.encoder.tokens, checkpoint.decoder.tokens)
    ]
    missing = [find_missing_pieces(p, each) for p, each in zip(paths, tokens, strict=True)]
    if checkpoint.is_shared:
        missing = [missing[0] + missing[1]] * 2
    source, target = (
        to_ours(p, each, missing=more) for p, each, more in zip(paths, tokens, missing, strict=True)
    )
    encoder, decoder = checkpoint.encoder, checkpoint.decoder
    config = TransformerConfig(
        source_vocabulary_size=source.size,
        target_vocabulary_size=target.size,
        shared_vocabulary=checkpoint.is_shared,
        encoder_layers=encoder.layers,
        decoder_layers=decoder.layers,
        d_model=checkpoint.d_model,
        heads=encoder.heads,
        d_ff=encoder.d_ff,
        tie_embeddings=checkpoint.is_tied,
        activation=checkpoint.activation,
        projection_bias=True,
        output_bias=True,
        zero_start=True,
        source_bos=False,
    )
    return ImportedModel(
        config=config,
        arrays=_arrays_for_tensorflow(checkpoint, arrays),
        source=source,
        target=target,
    )


def _arrays_for_tensorflow(checkpoint: Checkpoint, arrays: _Arrays) -> dict[str, Array]:
    """Return the arrays by the paths of our variables; kernels are [inputs, outputs]."""
    found = {"output_bias/values": arrays.logits_bias()}
    if checkpoint.is_shared:
        found["embedding/table"] = arrays.embeddings("decoder")
    else:
        found["source_embedding/table"] = arrays.embeddings("encoder")
        found["target_embedding/table"] = arrays.embeddings("decoder")
    if not checkpoint.is_tied:
        found["output_embedding/table"] = arrays.output()
    for name, side in (("encoder", checkpoint.encoder), ("decoder", checkpoint.decoder)):
        parts = [part for part in _PARTS if name == "decoder" or not part.startswith("cross")]
        for number in range(side.layers):
            layer, own = f"model.{name}.layers.{number}", f"{name}_{number}"
            for part in parts:
                if part.endswith("_norm"):
                    scale, shift = arrays.norm(f"{layer}.{_PARTS[part][0]}")
                    found |= {f"{own}/{part}/scale": scale, f"{own}/{part}/shift": shift}
                else:
                    weight, bias = arrays.linear(layer, _PARTS[part], d_ff=side.d_ff)
                    found |= {f"{own}/{part}/kernel": weight.T, f"{own}/{part}/bias": bias}
    return found


def _check_for_tensorflow(checkpoint: Checkpoint) -> None:
    folder, encoder, decoder = checkpoint.folder, checkpoint.encoder, checkpoint.decoder
    reasons = {
        f"is not a {MARIAN}": checkpoint.architecture != MARIAN,
        "has language tokens": checkpoint.is_multilingual,
        "does not scale its embeddings": not checkpoint.is_scaled,
        "has different numbers of heads": encoder.heads != decoder.heads,
        "has different widths of feed-forward layers": encoder.d_ff != decoder.d_ff,
        "does not have <pad> as its last token": any(
            side.tokens[checkpoint.start :] != ["<pad>"] for side in (encoder, decoder)
        ),
    }
    for reason, holds in reasons.items():
        if holds:
            raise _only_ctranslate2(folder, reason)


def _only_ctranslate2(folder: Path, reason: str) -> UserError:
    return UserError(
        f"{folder} {reason}, which the Transformer of tt does not support. It can translate with "
        "CTranslate2, but it cannot become a TensorFlow model. Choose another model"
    )
