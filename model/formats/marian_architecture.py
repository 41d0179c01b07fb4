"""Marian's configuration of a transformer, and ours.

What its options mean is what Marian's own help says of them (`marian --help`, version 1.12), and
for the order of operations its forward pass, `src/models/transformer.h` of marian-nmt/marian-dev.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from model.errors import UserError
from model.formats.marian_archive import Settings
from model.transformer.config import ACTIVATIONS, TransformerConfig

# Options that must have one of the values that follow; the first is Marian's own default, which
# holds where an older version did not write the option.
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
    "lemma-dim-emb": (0,),
    "factors-combine": ("sum",),
    "input-types": ([],),
    "right-left": (False,),
    "ulr": (False,),
}
# Operations before a layer, behind it and at the end of a side, without dropout.
_NORMS = {("", "an", ""): "post", ("n", "a", "n"): "pre"}
_OPERATIONS = ("transformer-preprocess", "transformer-postprocess", "transformer-postprocess-top")
_OPERATION_DEFAULTS = ("", "dan", "")


def read_architecture(
    settings: Settings, *, path: Path, sizes: tuple[int, int]
) -> TransformerConfig:
    """Returns the architecture of a model of Marian's.

    Args:
      settings: Its configuration.
      path: Its file, for messages.
      sizes: Ids of our vocabularies of both sides.

    Raises:
      UserError: Our Transformer cannot be so.
    """
    for name, allowed in _MUST_BE.items():
        if settings.get(name, allowed[0]) not in allowed:
            raise _refused(path, settings, [name], wanted=" or ".join(_spell(v) for v in allowed))
    operations = [
        str(settings.get(name, default)).replace("d", "")
        for name, default in zip(_OPERATIONS, _OPERATION_DEFAULTS, strict=True)
    ]
    before, behind, end = operations
    norm = _NORMS.get((before, behind, end))
    if norm is None:
        there = [name for name in _OPERATIONS if name in settings]
        raise _refused(path, settings, there, wanted="'', dan and '', or n, da and n")
    of_embeddings = str(settings.get("transformer-postprocess-emb", "d"))
    if of_embeddings.replace("d", "") not in ("", "n"):
        raise _refused(path, settings, ["transformer-postprocess-emb"], wanted="d, nd, n or ''")
    width = _number(settings, "transformer-dim-ffn", path=path)
    if settings.get("transformer-decoder-dim-ffn", 0) not in (0, width):
        raise _refused(path, settings, ["transformer-decoder-dim-ffn"], wanted=f"0 or {width}")
    is_all = bool(settings.get("tied-embeddings-all", False))
    d_model, heads = (
        _number(settings, name, path=path) for name in ("dim-emb", "transformer-heads")
    )
    if d_model % (2 * heads) or d_model < 4:
        raise _refused(
            path, settings, ["dim-emb", "transformer-heads"], wanted="a multiple of 2 x heads"
        )
    return TransformerConfig(
        source_vocabulary_size=sizes[0],
        target_vocabulary_size=sizes[1],
        shared_vocabulary=is_all or bool(settings.get("tied-embeddings-src", False)),
        encoder_layers=_number(settings, "enc-depth", path=path),
        decoder_layers=_number(settings, "dec-depth", path=path),
        d_model=d_model,
        heads=heads,
        d_ff=width,
        norm=norm,
        tie_embeddings=is_all or bool(settings.get("tied-embeddings", False)),
        position_scale="tensor2tensor",
        activation=str(settings.get("transformer-ffn-activation", "swish")),
        projection_bias=True,
        output_bias=True,
        embedding_norm="n" in of_embeddings,
        zero_start=True,
        source_bos=False,
    )


def _number(settings: Settings, name: str, *, path: Path) -> int:
    value = settings.get(name)
    if not isinstance(value, int) or value < 1:
        raise _refused(path, {name: value}, [name], wanted="a whole number of at least 1")
    return value


def _refused(path: Path, settings: Settings, names: Iterable[str], *, wanted: str) -> UserError:
    lines = ", ".join(f"{name}: {_spell(settings.get(name))}" for name in names)
    return UserError(
        f'{path} cannot be imported: its configuration says "{lines}", and tt\'s Transformer has '
        f"only {wanted}. Name another model"
    )


def _spell(value: Any) -> str:
    """Writes a value as YAML does."""
    if isinstance(value, bool) or value is None:
        return str(value).lower()
    return "''" if value == "" else " ".join(str(value).split())
