"""Marian transformers: `.npz` files with the arrays, and the configuration as YAML.

The meaning of the options follows Marian's help (`marian --help`, version 1.12). The order of the
operations follows its forward pass (`src/models/transformer.h` in marian-nmt/marian-dev).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from tt.model.errors import UserError, check_readable, first_line
from tt.model.formats.archives import check_unpacked_size
from tt.model.imports.imported_model import Array, ImportedModel
from tt.model.imports.imported_vocabularies import NumberedTokens, find_missing_pieces, to_ours
from tt.model.transformer.config import ACTIVATIONS, TransformerConfig

Settings = Mapping[str, Any]

_SETTINGS = "special:model.yml"  # an array of bytes that ends with NULs
# The supported values of options. The first value is Marian's default, which applies if an older
# version did not write the option.
_MUST_BE: dict[str, tuple[Any, ...]] = {
    "type": ("transformer",),
    "transformer-decoder-autoreg": ("self-attention",),
    "transformer-no-projection": (False,),
    "transformer-pool": (False,),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-ffn-activation": ("swish", *(name for name in ACTIVATIONS if name != "swish")),
    "transformer-tied-layers": ([],),
    "transformer-train-position-embeddings": (False,),
    "transformer-train-positions": (False,),
    "transformer-disable-position-embeddings": (False,),
    "transformer-attention-mask": ("default",),
    "transformer-postprocess-emb": ("d", "nd", "dn", "n", ""),
    "lemma-dim-emb": (0,),
    "factors-combine": ("sum",),
    "input-types": ([],),
    "right-left": (False,),
    "ulr": (False,),
}
# The operations before a layer, after a layer, and at the end of the encoder or decoder, without
# dropout.
_NORMS = {",an,": "post", "n,a,n": "pre"}
_OPERATIONS = {
    "transformer-preprocess": "", "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
}  # fmt: skip

# Marian's names of the arrays to concatenate for one of our variables, by the layer's path.
_LAYER = re.compile(r"(?P<side>encoder|decoder)_(?P<number>\d+)/(?P<part>.+)")
_LINEAR = {
    "attention/query_key_value": ("self", "qkv"), "attention/output": ("self", "o"),
    "cross_attention/query": ("context", "q"), "cross_attention/key_value": ("context", "kv"),
    "cross_attention/output": ("context", "o"), "feed_forward/inner": ("ffn", "1"),
    "feed_forward/outer": ("ffn", "2"),
}  # fmt: skip
_NORM = {
    "attention_norm": "self_Wo", "cross_attention_norm": "context_Wo",
    "feed_forward_norm": "ffn_ffn", "source_embedding_norm": "encoder_emb",
    "target_embedding_norm": "decoder_emb", "encoder_norm": "encoder_top",
    "decoder_norm": "decoder_top",
}  # fmt: skip
_ROWS = {
    "embedding/table": "Wemb", "source_embedding/table": "encoder_Wemb",
    "target_embedding/table": "decoder_Wemb", "output_embedding/table": "decoder_ff_logit_out_Wt",
    "output_bias/values": "decoder_ff_logit_out_b",
}  # fmt: skip


def read_marian(
    path: Path,
    *,
    source_vocabulary: Path,
    target_vocabulary: Path,
    lists: tuple[Path, ...] = (),
) -> ImportedModel:
    """Read a Marian model.

    Args:
      path: The .npz file.
      source_vocabulary: SentencePiece model for sources.
      target_vocabulary: SentencePiece model for translations; may be the same.
      lists: Token lists (vocab.yml), one for both sides or one for each. Empty if Marian numbers
        the tokens like the SentencePiece models.

    Raises:
      UserError: A file is missing or damaged, our Transformer does not support the architecture, or
        the vocabularies belong to another model.
    """
    settings, arrays = _read_archive(path)
    architecture = _read_architecture(settings, path=path)
    sizes = settings.get("dim-vocabs")
    if not isinstance(sizes, list) or [type(size) for size in sizes] != [int, int]:
        raise _refused(path, settings, ["dim-vocabs"], wanted="two vocabularies")
    if len(lists) > 2:
        raise UserError(
            f"`vocab` must be one file, or one file per side. Received: {len(lists)} files"
        )
    paths = (source_vocabulary, target_vocabulary)
    if lists:
        tokens = [NumberedTokens.load(each) for each in dict.fromkeys(lists)]
    else:
        tokens = [NumberedTokens.of_pieces(each) for each in dict.fromkeys(paths)]
    tokens = [tokens[0], tokens[-1]]
    for side, rows, each in zip(("source", "target"), sizes, tokens, strict=True):
        each.check(rows=rows, side=side, model=path)
    if architecture["shared_vocabulary"] and tokens[0].names != tokens[1].names:
        raise UserError(
            f"{path} has one table of embeddings for both sides, but the vocabularies of the sides "
            "differ. Choose one vocabulary for both sides"
        )
    missing = [find_missing_pieces(p, each) for p, each in zip(paths, tokens, strict=True)]
    if architecture["shared_vocabulary"]:
        missing = [missing[0] + missing[1]] * 2
    source, target = (
        to_ours(p, each, missing=more) for p, each, more in zip(paths, tokens, missing, strict=True)
    )
    # Older versions write the output table as [D, V]. The bias may be missing.
    if (output := arrays.pop("decoder_ff_logit_out_W", None)) is not None:
        arrays["decoder_ff_logit_out_Wt"] = output.T
    if settings.get("output-omit-bias", False):
        arrays["decoder_ff_logit_out_b"] = np.zeros([1, sizes[1]], np.float32)
    config = TransformerConfig(
        source_vocabulary_size=source.size, target_vocabulary_size=target.size, **architecture
    )
    suffix = "_pre" if config.norm == "pre" else ""
    return ImportedModel(
        path=path,
        config=config,
        arrays=arrays,
        names_of=lambda name: _names_of(name, suffix=suffix),
        source=source,
        target=target,
    )


def _names_of(path: str, *, suffix: str) -> list[str]:
    """Return Marian's names of the arrays to concatenate for one of our variables.

    Args:
      path: The path of the variable.
      suffix: The end of the names of layer norms inside layers.

    >>> _names_of("decoder_0/cross_attention/key_value/bias", suffix="")
    ['decoder_l1_context_bk', 'decoder_l1_context_bv']
    """
    if path in _ROWS:
        return [_ROWS[path]]
    owner, _, kind = path.rpartition("/")
    if found := _LAYER.fullmatch(owner):
        layer, owner = f"{found['side']}_l{int(found['number']) + 1}", found["part"]
        if owner in _LINEAR:
            name, ends = _LINEAR[owner]
            letter = "W" if kind == "kernel" else "b"
            return [f"{layer}_{name}_{letter}{end}" for end in ends]
        name = f"{layer}_{_NORM[owner]}"
    else:
        name, suffix = _NORM[owner], "_pre" if owner.endswith("embedding_norm") else ""
    return [f"{name}_ln_{'scale' if kind == 'scale' else 'bias'}{suffix}"]


def _read_archive(path: Path) -> tuple[Settings, dict[str, Array]]:
    """Read the configuration and the arrays of a model.

    Raises:
      UserError: The file is not a Marian model, is truncated, or contains other numbers than finite
        floats.
    """
    if not path.is_file():
        raise UserError(f"no model at {path}. Choose the .npz file of a Marian model")
    check_readable(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            check_unpacked_size(archive.zip, path)
            read = {name: np.asarray(archive[name]) for name in archive.files}
        text = read.pop(_SETTINGS).tobytes().partition(b"\0")[0]
        settings = dict(yaml.safe_load(text))
    except Exception as error:  # zipfile, NumPy and PyYAML raise errors of many types for damage
        raise UserError(
            f"{path} is truncated, or not the .npz file of a Marian model "
            f"({type(error).__name__}: {first_line(error)}). Copy the file again"
        ) from error
    arrays = {name: values for name, values in read.items() if not name.startswith("special:")}
    for name, values in arrays.items():
        if values.dtype.kind != "f" or not np.isfinite(values).all():
            raise UserError(
                f"{path} must contain finite floats, but the array {name} ({values.dtype}) does "
                "not: the model may be quantized or damaged. Choose another checkpoint"
            )
    return settings, {name: values.astype(np.float32) for name, values in arrays.items()}


def _read_architecture(settings: Settings, *, path: Path) -> dict[str, Any]:
    """Return the fields of our configuration, without the sizes of the vocabularies.

    Raises:
      UserError: Our Transformer does not support the architecture.
    """
    for name, allowed in _MUST_BE.items():
        if settings.get(name, allowed[0]) not in allowed:
            raise _refused(path, settings, [name], wanted=" or ".join(map(repr, allowed)))
    operations = [str(settings.get(*each)).replace("d", "") for each in _OPERATIONS.items()]
    norm = _NORMS.get(",".join(operations))
    if norm is None:
        raise _refused(path, settings, _OPERATIONS, wanted="'', dan and '', or n, da and n")
    width = settings.get("transformer-dim-ffn")
    if settings.get("transformer-decoder-dim-ffn", 0) not in (0, width):
        raise _refused(path, settings, ["transformer-decoder-dim-ffn"], wanted=f"0 or {width}")
    is_all = bool(settings.get("tied-embeddings-all", False))
    numbers = {
        "encoder_layers": "enc-depth", "decoder_layers": "dec-depth", "d_model": "dim-emb",
        "heads": "transformer-heads", "d_ff": "transformer-dim-ffn",
    }  # fmt: skip
    for name in numbers.values():
        if not isinstance(settings.get(name), int) or settings[name] < 1:
            raise _refused(path, settings, [name], wanted="whole numbers of at least 1")
    return {
        **{ours: settings[name] for ours, name in numbers.items()},
        "shared_vocabulary": is_all or bool(settings.get("tied-embeddings-src", False)),
        "norm": norm,
        "tie_embeddings": is_all or bool(settings.get("tied-embeddings", False)),
        "position_scale": "tensor2tensor",
        "activation": str(settings.get("transformer-ffn-activation", "swish")),
        "projection_bias": True,
        "output_bias": True,
        "embedding_norm": "n" in str(settings.get("transformer-postprocess-emb", "d")),
        "zero_start": True,
        "source_bos": False,
    }


def _refused(path: Path, settings: Settings, names: Iterable[str], *, wanted: str) -> UserError:
    found = ", ".join(f"{name}: {settings.get(name)!r}" for name in names)
    return UserError(
        f"{path} cannot be imported: its configuration says {found}, but the Transformer of `tt` "
        f"supports only {wanted}. Choose another model"
    )
