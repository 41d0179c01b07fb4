"""The architecture of a Transformer, and its presets."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tt.model.errors import checked, one_of, require, require_one_of

NORMS = ("post", "pre")
ACTIVATIONS = ("relu", "swish", "gelu")

# `base` and `big` come from table 3 of the paper (`big` with the dropout for English to German).
# The students have the shapes of models that run in browsers (Bogoychev et al. 2020, "Edinburgh's
# Submissions to the 2020 Machine Translation Efficiency Task"): their decoders have few layers,
# because the decoder runs once per output token.
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
# Fields that older versions of `tt` did not have. A file contains them only if they differ from
# their defaults, so that the fingerprints of older models do not change.
_LATER = (
    *_OF_A_SIDE, "activation", "projection_bias", "output_bias", "zero_start", "source_bos",
)  # fmt: skip


def preset_fields(preset: str | None) -> dict[str, Any]:
    """Return a copy of a preset's fields, or {} if the preset is None.

    Raises:
      UserError: The preset does not exist.
    """
    if preset is None:
        return {}
    require_one_of("`preset`", preset, tuple(PRESETS))
    return dict(PRESETS[preset])


def put_on_top(fields: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a configuration, with the given fields replaced.

    A given `layers` replaces the numbers of layers on both sides.

    >>> put_on_top({"layers": 6, "decoder_layers": 2, "heads": 8}, {"layers": 4})
    {'layers': 4, 'heads': 8}
    """
    dropped = _OF_A_SIDE if "layers" in given else ()
    return {**{name: value for name, value in fields.items() if name not in dropped}, **given}


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The architecture of a Transformer (section 3 of the paper).

    Attributes:
      source_vocabulary_size: Number of ids in the source vocabulary.
      target_vocabulary_size: Number of ids in the target vocabulary.
      shared_vocabulary: Share one embedding between source and target.
      layers: Use N layers in the encoder, and N layers in the decoder.
      encoder_layers: Use N encoder layers. By default the preset's.
      decoder_layers: Use N decoder layers; fewer layers translate faster. By default the
        preset's.
      d_model: Set the width of the model.
      heads: Use N attention heads; `d_model` must be a multiple of twice N.
      d_ff: Set the inner width of the feed-forward layers.
      dropout: Apply dropout after sublayers and embeddings at this rate, in steps of 1/256.
      attention_dropout: Apply dropout to the attention weights at this rate.
      norm: Normalize before or after each sublayer.

        "post" normalizes after each residual sum, as in the paper. "pre" normalizes before each
        sublayer, and once at the end of the encoder and of the decoder (Xiong et al. 2020).
      tie_embeddings: Use one matrix for the target embedding and the logits.

        Section 3.4 of the paper describes this.
      position_base: Use this base for the wavelengths of the sinusoidal positions.

        Section 3.5 of the paper has these positions and the base 10,000.
      activation: Use this activation in the feed-forward layers.
      projection_bias: Add biases to the projections of the attention layers.
      output_bias: Add a bias to the logits.
      zero_start: Start the target with a zero vector instead of the embedding of BOS, like Marian.
      source_bos: Put BOS before each source, unlike Marian.
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
    activation: str = one_of(ACTIVATIONS, default="relu")
    projection_bias: bool = False
    output_bias: bool = False
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
        require(
            1 < self.position_base < math.inf,
            "`position_base` must be greater than 1",
            self.position_base,
        )
        require(
            not self.shared_vocabulary
            or self.source_vocabulary_size == self.target_vocabulary_size,
            "a shared vocabulary must have the same size for source and target",
            f"{self.source_vocabulary_size} and {self.target_vocabulary_size}",
        )
        # Write the numbers of layers in one form, so that equal architectures compare equal.
        encoder, decoder = self.depths
        sides = (None, None) if encoder == decoder else (encoder, decoder)
        for name, value in zip(("layers", *_OF_A_SIDE), (encoder, *sides), strict=True):
            object.__setattr__(self, name, value)

    @property
    def depths(self) -> tuple[int, int]:
        """The numbers of encoder and decoder layers."""
        return self.encoder_layers or self.layers, self.decoder_layers or self.layers

    def to_json(self) -> dict[str, Any]:
        """Return the fields for a file, without newer fields that have their defaults."""
        defaults = {field.name: field.default for field in dataclasses.fields(self)}
        fields = dataclasses.asdict(self)
        return {k: v for k, v in fields.items() if k not in _LATER or v != defaults[k]}

    @classmethod
    def from_preset(cls, preset: str, **fields: Any) -> TransformerConfig:
        """Return the configuration of a preset, with the given fields replaced.

        Raises:
          UserError: The preset does not exist, or a value is out of range.
        """
        return cls(**put_on_top(preset_fields(preset), fields))


def parameters_by_part(config: TransformerConfig) -> dict[str, int]:
    """Return the number of trained parameters of each part, in the order of the model.

    A part is a sublayer such as "encoder_0/attention", or a layer without sublayers such as
    "embedding".
    """
    width, inner = config.d_model, config.d_ff
    source, target = config.source_vocabulary_size, config.target_vocabulary_size
    attention = 4 * width * (width + config.projection_bias)
    feed_forward = 2 * width * inner + inner + width
    norm = 2 * width  # the scale and the shift
    own = {"attention": attention, "attention_norm": norm}
    cross = {"cross_attention": attention, "cross_attention_norm": norm}
    last = {"feed_forward": feed_forward, "feed_forward_norm": norm}
    counts = {"embedding" if config.shared_vocabulary else "source_embedding": source * width}
    if not config.shared_vocabulary:
        counts["target_embedding"] = target * width
    if not config.tie_embeddings:
        counts["output_embedding"] = target * width
    for side, layers, parts in zip(
        ("encoder", "decoder"), config.depths, (own | last, own | cross | last), strict=True
    ):
        for i in range(layers):
            counts |= {f"{side}_{i}/{name}": count for name, count in parts.items()}
    if config.output_bias:
        counts["output_bias"] = target
    if config.norm == "pre":
        counts |= {"encoder_norm": norm, "decoder_norm": norm}
    return counts
