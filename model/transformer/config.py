"""The architecture of a Transformer, and its presets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tt.model.errors import one_of, require, require_one_of

NORMS = ("post", "pre")
ACTIVATIONS = ("relu", "swish", "gelu")
POSITION_SCALES = ("paper", "tensor2tensor")

# Layers a side, width, heads, width of the feed-forward layer, dropout. `base` and `big` are
# those of the paper's table 3 (`big` with its dropout for English to German). The students have
# the shapes of the models that browsers run (Bogoychev et al. 2020, "Edinburgh's Submissions to
# the 2020 Machine Translation Efficiency Task"): a decoder of few layers, whose every step counts.
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 4, "d_model": 128, "heads": 8, "d_ff": 512, "dropout": 0.1},
    "small": {"layers": 3, "d_model": 256, "heads": 8, "d_ff": 512, "dropout": 0.1},
    "base": {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1},
    "big": {"layers": 6, "d_model": 1024, "heads": 16, "d_ff": 4096, "dropout": 0.3},
    "student-tiny": {
        "encoder_layers": 6, "decoder_layers": 2,
        "d_model": 256, "heads": 8, "d_ff": 1536, "dropout": 0.1,
    },
    "student-base": {
        "encoder_layers": 6, "decoder_layers": 2,
        "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1,
    },
}  # fmt: skip
_OF_A_SIDE = ("encoder_layers", "decoder_layers")
# Fields that came later. A file has them where they are not the default, so that copies of older
# models have the fingerprint of these.
_LATER = (
    *_OF_A_SIDE, "position_scale", "activation", "projection_bias", "output_bias",
    "embedding_norm", "zero_start", "source_bos",
)  # fmt: skip


def preset_fields(preset: str | None) -> dict[str, Any]:
    """Returns a copy of a preset's fields; of None, nothing.

    Raises:
      UserError: There is no such preset.
    """
    if preset is None:
        return {}
    require_one_of("`preset`", preset, tuple(PRESETS))
    return dict(PRESETS[preset])


def put_on_top(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the fields of a config with others on top; `layers` among these are of both sides.

    >>> put_on_top({"layers": 6, "decoder_layers": 2, "heads": 8}, {"layers": 4})
    {'layers': 4, 'heads': 8}
    """
    dropped = _OF_A_SIDE if "layers" in given else ()
    return {**{name: value for name, value in fields.items() if name not in dropped}, **given}


def count_layers(fields: Mapping[str, Any]) -> tuple[int, int]:
    """Returns the layers of the encoder and of the decoder by the fields of a config.

    >>> count_layers({"layers": 6, "decoder_layers": 2})
    (6, 2)
    """
    encoder, decoder = (fields.get(name) or fields.get("layers") for name in _OF_A_SIDE)
    return int(encoder or 0), int(decoder or 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The architecture, section 3 of the paper.

    Attributes:
      source_vocabulary_size: Rows of the source embedding.
      target_vocabulary_size: Rows of the target embedding, and logits.
      shared_vocabulary: Share one embedding between both sides.
      layers: Layers of the encoder, and of the decoder.
      encoder_layers: Layers of the encoder. By default the preset's.
      decoder_layers: Layers of the decoder; fewer translate faster. By default the preset's.
      d_model: Width of the model.
      heads: Attention heads; twice their number divides `d_model`.
      d_ff: Inner width of the feed-forward layers.
      dropout: Dropout rate after sub-layers and embeddings, in steps of 1/256.
      attention_dropout: Dropout rate of the attention weights; 0 in the paper.
      norm: Place of the layer normalisation: "post", after each residual sum as in the paper, or
        "pre", before each sub-layer and once at the end of each side.

        Pre-norm is that of Xiong et al. 2020.
      tie_embeddings: Use one matrix for target embedding and logits (section 3.4).
      position_base: Base of the wavelengths of the sinusoidal positions (section 3.5).
      position_scale: Wavelengths of the sinusoidal positions: "paper", of n the i-th is base^(i /
        n), counted from 0, or "tensor2tensor", base^(i / (n - 1)), as in Marian.
      activation: Activation of the feed-forward layers: "relu", "swish" or "gelu".
      projection_bias: Add biases to the projections of attention.
      output_bias: Add a bias to the logits.
      embedding_norm: Normalise the embeddings, positions included.
      zero_start: Begin the target with a vector of zeros in place of an embedding, as Marian does.
      source_bos: Give the encoder a BOS before each source; Marian has none.
    """

    source_vocabulary_size: int
    target_vocabulary_size: int
    shared_vocabulary: bool
    layers: int = 6
    d_model: int = 512
    heads: int = 8
    d_ff: int = 2048
    dropout: float = 0.1
    attention_dropout: float = 0.0
    norm: str = one_of(NORMS, default="post")
    tie_embeddings: bool = True
    position_base: float = 10000.0
    encoder_layers: int | None = None
    decoder_layers: int | None = None
    position_scale: str = one_of(POSITION_SCALES, default="paper")
    activation: str = one_of(ACTIVATIONS, default="relu")
    projection_bias: bool = False
    output_bias: bool = False
    embedding_norm: bool = False
    zero_start: bool = False
    source_bos: bool = True

    def __post_init__(self) -> None:
        for name in ("source_vocabulary_size", "target_vocabulary_size", "layers", "d_model",
                     "heads", "d_ff", *_OF_A_SIDE):  # fmt: skip
            value = getattr(self, name)
            require(value is None or value >= 1, f"`{name}` must be at least 1", value)
        require(
            self.d_model % (2 * self.heads) == 0,
            "`d_model` must be a multiple of twice `heads`",
            f"{self.d_model} and {self.heads}",
        )
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            require(0 <= value <= 0.9, f"`{name}` must be 0 to 0.9", value)
        require_one_of("`norm`", self.norm, NORMS)
        require_one_of("`activation`", self.activation, ACTIVATIONS)
        require_one_of("`position_scale`", self.position_scale, POSITION_SCALES)
        require(
            1 < self.position_base < math.inf,
            "`position_base` must be greater than 1",
            self.position_base,
        )
        require(
            not self.shared_vocabulary
            or self.source_vocabulary_size == self.target_vocabulary_size,
            "a shared vocabulary has one size",
            f"{self.source_vocabulary_size} and {self.target_vocabulary_size}",
        )
        self._spell_layers()

    def _spell_layers(self) -> None:
        """Gives each architecture one spelling, so that equal ones compare equal."""
        encoder, decoder = self.depths
        sides = (None, None) if encoder == decoder else (encoder, decoder)
        for name, value in zip(("layers", *_OF_A_SIDE), (encoder, *sides), strict=True):
            object.__setattr__(self, name, value)

    @property
    def depths(self) -> tuple[int, int]:
        """The layers of the encoder, and of the decoder."""
        return count_layers(dataclasses.asdict(self))

    def to_json(self) -> dict[str, Any]:
        """Returns the fields as files have them."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        fields = dataclasses.asdict(self)
        return {k: v for k, v in fields.items() if k not in _LATER or v != defaults[k]}

    @classmethod
    def from_preset(cls, preset: str, **fields: Any) -> TransformerConfig:
        """Takes a preset's fields; `fields` go on top.

        Raises:
          UserError: There is no such preset, or a value is out of range.
        """
        return cls(**put_on_top(preset_fields(preset), fields))
