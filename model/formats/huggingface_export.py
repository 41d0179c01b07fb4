"""Export of a model folder in the layout of Hugging Face's MarianMTModel.

Source:
  `modeling_marian.py` and `tokenization_marian.py` in huggingface/transformers, version 4.57.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from tt.model.errors import UserError
from tt.model.folders import OTHER_OUTPUT, atomic_folder, storage_errors
from tt.model.formats.exports import piece_tokens
from tt.model.formats.model_folder import check_output, find_model_folder, load_about, write_about
from tt.model.formats.weights import load_model
from tt.model.text.tokenization import START_TOKEN, load_pieces
from tt.model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, load_vocabularies
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.decode import hidden_ids
from tt.model.transformer.transformer import Transformer

_POSITIONS = 512
# The names of the arrays into which a variable is divided, in the layer of the variable.
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


def export_huggingface(model_folder: Path, output: Path, *, overwrite: bool = False) -> None:
    """Write a model that `transformers.MarianMTModel` and `MarianTokenizer` load.

    Greedy search gives the same ids as `tt`. If the model puts BOS before each source, put
    ">>bos<< " before each text.

    Args:
      model_folder: Model folder or run folder.
      output: The folder to write.
      overwrite: Whether an earlier export may be replaced.

    Raises:
      UserError: There is no finished model, Transformers has no such architecture, or the output
        cannot be written.
    """
    path = find_model_folder(model_folder)
    model, vocabularies = load_model(path)
    _check(model.config, path=path)
    check_output(output, model=path, overwrite=overwrite)
    with (
        storage_errors(str(output.resolve()), remedy=OTHER_OUTPUT),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        files = load_vocabularies(path).files
        names = ("source.spm", "target.spm")
        sizes = (model.config.source_vocabulary_size, model.config.target_vocabulary_size)
        for name, file in zip(names, (files[1], files[-1]), strict=True):
            (folder / name).write_bytes((path / file).read_bytes())
        tokens = [
            _tokens(path / file, size=size, has_bos=model.config.source_bos)
            for file, size in zip((files[1], files[-1]), sizes, strict=True)
        ]
        _write_json(folder / "vocab.json", {name: i for i, name in enumerate(tokens[0])})
        if not vocabularies.is_shared:
            _write_json(folder / "target_vocab.json", {name: i for i, name in enumerate(tokens[1])})
        hidden = hidden_ids(model.config, vocabularies)
        config = _config(model.config, hidden=hidden, is_shared=vocabularies.is_shared)
        _write_json(folder / "config.json", config)
        generation = (
            "bad_words_ids", "decoder_start_token_id", "eos_token_id", "forced_eos_token_id",
            "pad_token_id",
        )  # fmt: skip
        _write_json(
            folder / "generation_config.json",
            {name: config[name] for name in generation} | {"max_length": _POSITIONS},
        )
        about = load_about(path)
        _write_json(
            folder / "tokenizer_config.json",
            {
                "tokenizer_class": "MarianTokenizer",
                "source_lang": about.data.source_language or None,
                "target_lang": about.data.target_language or None,
                "separate_vocabs": not vocabularies.is_shared,
                "model_max_length": _POSITIONS,
                "eos_token": tokens[0][EOS_ID],
                "pad_token": tokens[0][PAD_ID],
                "unk_token": tokens[0][UNK_ID],
            },
        )
        has_one_table = config["share_encoder_decoder_embeddings"]
        arrays = _arrays(model, has_one_table=has_one_table)
        save_file(arrays, folder / "model.safetensors", metadata={"format": "pt"})
        write_about(folder, about)


def _check(config: TransformerConfig, *, path: Path) -> None:
    reasons = {
        "normalizes before its layers (`norm=pre`)": config.norm != "post",
        "has positions with another base than 10,000": config.position_base != 10_000,
    }
    for reason, holds in reasons.items():
        if holds:
            raise UserError(
                f"{path} {reason}, which MarianMTModel of Transformers does not support. Choose "
                "another format"
            )


def _config(config: TransformerConfig, *, hidden: list[int], is_shared: bool) -> dict[str, Any]:
    encoder_layers, decoder_layers = config.depths
    sides = {
        f"{side}_{name}": value
        for side, layers in (("encoder", encoder_layers), ("decoder", decoder_layers))
        for name, value in (
            ("layers", layers), ("attention_heads", config.heads), ("ffn_dim", config.d_ff),
        )
    }  # fmt: skip
    return {
        "architectures": ["MarianMTModel"],
        "model_type": "marian",
        "d_model": config.d_model,
        **sides,
        "activation_function": config.activation,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": 0.0,
        "scale_embedding": True,
        "static_position_embeddings": True,
        "max_position_embeddings": _POSITIONS,
        "vocab_size": config.source_vocabulary_size,
        "decoder_vocab_size": config.target_vocabulary_size,
        "share_encoder_decoder_embeddings": is_shared and config.shared_vocabulary,
        "tie_word_embeddings": config.tie_embeddings,
        "is_encoder_decoder": True,
        "bos_token_id": BOS_ID,
        "eos_token_id": EOS_ID,
        "forced_eos_token_id": EOS_ID,
        "pad_token_id": PAD_ID,
        # The embedding of PAD is zero, so it is a start token for models without one.
        "decoder_start_token_id": PAD_ID if config.zero_start else BOS_ID,
        "bad_words_ids": [[number] for number in hidden],
        "torch_dtype": "float32",
    }


def _tokens(path: Path, *, size: int, has_bos: bool) -> list[str]:
    """Return the names of the tokens, in which BOS has a name that MarianTokenizer keeps."""
    tokens = piece_tokens(load_pieces(path), size=size)
    if has_bos:
        tokens[BOS_ID] = START_TOKEN
    return tokens


def _arrays(model: Transformer, *, has_one_table: bool) -> dict[str, np.ndarray]:
    config = model.config
    width = config.d_model
    found: dict[str, np.ndarray] = {}
    for variable in model.variables:
        owner, _, kind = variable.path.rpartition("/")
        layer, _, part = owner.partition("/")
        side, _, number = layer.partition("_")
        if part not in _PARTS:
            continue  # the code below copies the embeddings and the bias of the logits
        values = variable.numpy()
        names = [f"model.{side}.layers.{number}.{name}" for name in _PARTS[part]]
        if kind in ("scale", "shift"):
            found[f"{names[0]}.{'weight' if kind == 'scale' else 'bias'}"] = values
            continue
        end = "weight" if kind == "kernel" else "bias"
        for name, piece in zip(names, np.split(values, len(names), axis=-1), strict=True):
            found[f"{name}.{end}"] = np.ascontiguousarray(piece.T)
        if not config.projection_bias and "attention" in part:
            zeros = np.zeros([width], np.float32)
            found |= {f"{name}.bias": zeros.copy() for name in names}
    sides = {"encoder": model.source_embedding, "decoder": model.target_embedding}
    for side, embedding in sides.items():
        table = embedding.table.numpy().copy()
        table[PAD_ID] = 0
        found[f"model.{side}.embed_tokens.weight"] = table
    if has_one_table:
        found["model.shared.weight"] = found["model.encoder.embed_tokens.weight"].copy()
        if config.tie_embeddings:  # otherwise Transformers 5 reads an array for each side
            del found["model.encoder.embed_tokens.weight"]
            del found["model.decoder.embed_tokens.weight"]
    if not config.tie_embeddings:
        found["lm_head.weight"] = model.output_embedding.table.numpy()
    bias = np.zeros([1, config.target_vocabulary_size], np.float32)
    if model.output_bias is not None:
        bias[0] = model.output_bias.values.numpy()
    found["final_logits_bias"] = bias
    return found


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", "utf-8")
