"""What a model is, how it is trained and how it decodes: frozen, validated, saved as JSON."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

from model.errors import UserError

NORMS = ("post", "pre")
SCHEDULES = ("inverse-sqrt", "constant")
COMPUTE_TYPES = ("float32", "mixed_bfloat16", "mixed_float16")
METRICS = ("loss", "nll", "perplexity", "bleu", "chrf")  # of a validation
AVERAGES = ("none", "last", "best")
ENGINES = {"tensorflow": ("float32", "bfloat16", "float16"), "ctranslate2": ("float32", "int8")}

_MOST = 2**31 - 1  # of what is counted: the numbers of TensorFlow's shapes and steps

# Layers a side, width, heads, width of the feed-forward layer, dropout. `base` and `big` are
# those of the paper's table 3 (`big` with its dropout for English to German).
PRESETS: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 4, "d_model": 128, "heads": 8, "d_ff": 512, "dropout": 0.1},
    "small": {"layers": 3, "d_model": 256, "heads": 8, "d_ff": 512, "dropout": 0.1},
    "base": {"layers": 6, "d_model": 512, "heads": 8, "d_ff": 2048, "dropout": 0.1},
    "big": {"layers": 6, "d_model": 1024, "heads": 16, "d_ff": 4096, "dropout": 0.3},
}


def preset_fields(preset: str | None) -> dict[str, Any]:
    """Returns a copy of a preset's fields; of None, nothing.

    Raises:
      UserError: There is no such preset.
    """
    if preset is None:
        return {}
    if preset not in PRESETS:
        raise UserError(f"no preset {preset!r}: choose one of {', '.join(PRESETS)}")
    return dict(PRESETS[preset])


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise UserError(message)


def option_flag(field: str) -> str:
    """Returns the option of a field: "--beam-size" of "beam_size"."""
    return f"--{field.replace('_', '-')}"


def _require_one_of(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    _require(value in choices, f"{name} must be one of {', '.join(choices)}. Received: {value}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TransformerConfig:
    """The architecture, section 3 of the paper.

    Attributes:
      source_vocabulary_size: Rows of the source embedding.
      target_vocabulary_size: Rows of the target embedding, and logits.
      shared_vocabulary: One embedding for both sides.
      layers: N, in the encoder and in the decoder.
      d_model: Width of the model.
      heads: Attention heads; they divide `d_model`.
      d_ff: Inner width of the feed-forward layers.
      dropout: Rate after each sub-layer and after the embeddings (section 5.4); rates are rounded
        to multiples of 1/256, and none but 0 to 0.
      attention_dropout: Rate on the attention weights; 0 in the paper.
      norm: Where layers are normalised: "post", after each residual sum as in the paper, or
        "pre", before each sub-layer and once at the end of each side (Xiong et al. 2020).
      tie_embeddings: The output projection is the target embedding (section 3.4).
      position_base: Base of the wavelengths of the sinusoids (section 3.5).
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
    norm: str = "post"
    tie_embeddings: bool = True
    position_base: float = 10000.0

    def __post_init__(self) -> None:
        for name in ("source_vocabulary_size", "target_vocabulary_size", "layers", "d_model",
                     "heads", "d_ff"):  # fmt: skip
            value = getattr(self, name)
            _require(value >= 1, f"{name} must be at least 1. Received: {value}")
        _require(
            self.d_model % (2 * self.heads) == 0,
            "d_model must be a multiple of twice the heads. "
            f"Received: d_model={self.d_model}, heads={self.heads}",
        )
        for name in ("dropout", "attention_dropout"):
            value = getattr(self, name)
            _require(0 <= value <= 0.9, f"{name} must be 0 to 0.9. Received: {value}")
        _require_one_of("norm", self.norm, NORMS)
        _require(
            1 < self.position_base < math.inf,
            f"position_base must be greater than 1. Received: {self.position_base}",
        )
        _require(
            not self.shared_vocabulary
            or self.source_vocabulary_size == self.target_vocabulary_size,
            "a shared vocabulary has one size. Received: "
            f"{self.source_vocabulary_size} and {self.target_vocabulary_size}",
        )

    @classmethod
    def from_preset(cls, preset: str, **fields: Any) -> TransformerConfig:
        """Takes a preset's fields; `fields` go on top.

        Raises:
          UserError: There is no such preset, or a value is out of range.
        """
        return cls(**{**preset_fields(preset), **fields})


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, section 5 of the paper.

    Attributes:
      steps: Updates of the weights in all.
      batch_tokens: Rows times the longer side's padded length of a batch, a replica, at the most.
      effective_batch_size: Tokens an update, over all replicas, counted as `batch_tokens` is;
        batches are accumulated until it is reached. None updates after every batch.
      peak_learning_rate: Reached at the end of the warm-up; None takes the paper's
        d_model^-0.5 * warmup_steps^-0.5.
      warmup_steps: Updates with a linearly rising rate.
      schedule: After the warm-up: "inverse-sqrt" falls as the inverse square root of the step
        (section 5.3), "constant" stays.
      label_smoothing: Mass that is spread over the whole vocabulary.
      subword_dropout: Probability that a piece of the training text is split into the two that
        it is made of, and its parts likewise; other ones in each epoch.
      clip_norm: Gradients of a greater global norm are scaled down to it; None never.
      compute_type: "float32", or "mixed_bfloat16" or "mixed_float16": products in that type,
        weights in float32. In float16 the loss is scaled, and updates that overflow are left out.
      jit: XLA compiles the model, once for each shape of a batch.
      seed: Of the weights, the order of the batches and dropout.
      validate_every: Updates between two runs over the validation split.
      score_every: Updates between two translations of the validation split, for BLEU and chrF;
        None scores at every validation, 0 never. A multiple of `validate_every`.
      score_sentences: Sentences of the validation split that are translated, at the most.
      best_metric: Which validations are the best: one of `METRICS`.
      patience: Validations without a new best after which the run stops early; None never.
      keep_best: How many of the best weights are kept.
      save_every: Updates between two checkpoints.
      keep_checkpoints: How many of the last checkpoints are kept.
      average: What the exported model is: "none", the weights at the end, or the mean of the
        "last" or the "best" that are kept.
      log_every: Updates between two reports.
    """

    steps: int = 100_000
    batch_tokens: int = 4096
    effective_batch_size: int | None = None
    peak_learning_rate: float | None = None
    warmup_steps: int = 4000
    schedule: str = "inverse-sqrt"
    label_smoothing: float = 0.1
    subword_dropout: float = 0.0
    clip_norm: float | None = None
    compute_type: str = "float32"
    jit: bool = False
    seed: int = 1
    validate_every: int = 500
    score_every: int | None = None
    score_sentences: int = 2000
    best_metric: str = "loss"
    patience: int | None = None
    keep_best: int = 1
    save_every: int = 500
    keep_checkpoints: int = 3
    average: str = "none"
    log_every: int = 50

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "warmup_steps", "validate_every", "score_sentences",
                     "keep_best", "save_every", "keep_checkpoints", "log_every"):  # fmt: skip
            value = getattr(self, name)
            _require(value >= 1, f"{name} must be at least 1. Received: {value}")
            _require(value <= _MOST, f"{name} must be at most {_MOST:,}. Received: {value}")
        for name in ("peak_learning_rate", "clip_norm", "effective_batch_size", "patience"):
            value = getattr(self, name)
            _require(
                value is None or 0 < value < math.inf,
                f"{name} must be positive. Received: {value}",
            )
        for name in ("effective_batch_size", "patience"):
            value = getattr(self, name)
            _require(
                value is None or value <= _MOST,
                f"{name} must be at most {_MOST:,}. Received: {value}",
            )
        _require_one_of("schedule", self.schedule, SCHEDULES)
        _require_one_of("compute_type", self.compute_type, COMPUTE_TYPES)
        _require_one_of("average", self.average, AVERAGES)
        _require_one_of("best_metric", self.best_metric, METRICS)
        _require(
            not self.score_every
            or (self.score_every > 0 and self.score_every % self.validate_every == 0),
            "score_every must be 0 or a multiple of validate_every. "
            f"Received: {self.score_every} and {self.validate_every}",
        )
        _require(
            self.best_metric not in ("bleu", "chrf") or self.score_every != 0,
            f"best_metric cannot be {self.best_metric} where score_every is 0",
        )
        _require(
            0 <= self.label_smoothing < 1,
            f"label_smoothing must be in [0, 1). Received: {self.label_smoothing}",
        )
        _require(
            0 <= self.subword_dropout < 1,
            f"subword_dropout must be in [0, 1). Received: {self.subword_dropout}",
        )
        _require(0 <= self.seed < 2**32, f"seed must be 0 to 4,294,967,295. Received: {self.seed}")

    def batches_an_update(self, replicas: int) -> int:
        """Returns how many batches are accumulated, each one for all replicas."""
        wanted = self.effective_batch_size
        return -(-wanted // (self.batch_tokens * replicas)) if wanted else 1

    def peak_rate(self, width: int) -> float:
        """Returns the rate at the end of the warm-up, of a model of that width."""
        return self.peak_learning_rate or width**-0.5 * self.warmup_steps**-0.5

    def scores_at(self, step: int) -> bool:
        """Says whether the validation after `step` updates translates too; the last one does."""
        if self.score_every == 0:
            return False
        return step >= self.steps or step % (self.score_every or self.validate_every) == 0


# Padded source positions of a batch times the beam size. On a GPU they are eight times those of
# a CPU: with beams of 4, 512 sources of 32 tokens. The caches of such a batch, in `base` 24 KB a
# position of a beam, grow to some 2 GB and are copied once; where that is too much, batches are
# halved. This is reckoned: no GPU has been measured.
BATCH_TOKENS, GPU_BATCH_TOKENS = 8192, 65_536

# Ids of a source that is translated, BOS and EOS counted: the 256 pieces that `tt preprocess`
# lets into training by default, and those two.
MAX_SOURCE_TOKENS = 258


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How translations are searched for.

    A translation has at most min(max_decoding_length, ceil(max_length_ratio * source) +
    max_extra_tokens) ids, EOS counted, where the source counts with BOS and EOS; there it is
    made to end. By default that is the paper's source + 50 (section 6.1).

    Attributes:
      beam_size: 1 is greedy search.
      length_penalty: alpha of Wu et al. 2016 (GNMT), equation 14: hypotheses are ranked by
        log p / ((5 + length) / 6)^alpha, where EOS counts as a token; 0 ranks by log p, and
        10 is the most: 2,048^10 is within float32.
      n_best: Hypotheses returned of each source, at most `beam_size`.
      max_length_ratio: Ids for each id of the source.
      max_extra_tokens: Ids beside those.
      max_decoding_length: Ids at the most, whatever the source.
      no_repeat_ngram_size: No n-gram of ids of this size occurs twice in a hypothesis; 0 lets
        them.
      batch_tokens: Padded source positions a batch times the beam size at the most; None takes
        BATCH_TOKENS, or GPU_BATCH_TOKENS on a GPU.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    n_best: int = 1
    max_length_ratio: float = 1.0
    max_extra_tokens: int = 50
    max_decoding_length: int = 512
    no_repeat_ngram_size: int = 0
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_decoding_length", "batch_tokens"):
            value = getattr(self, name)
            _require(
                value is None or value >= 1,
                f"{option_flag(name)} must be at least 1. Received: {value}",
            )
        _require(
            0 <= self.length_penalty <= 10,  # not NaN
            f"--length-penalty must be 0 to 10. Received: {self.length_penalty}",
        )
        for name in ("max_length_ratio", "max_extra_tokens"):
            value = getattr(self, name)
            _require(
                math.isfinite(value) and value >= 0,
                f"{option_flag(name)} must be finite and not negative. Received: {value}",
            )
        _require(
            self.max_length_ratio > 0 or self.max_extra_tokens > 0,
            "max_length_ratio and max_extra_tokens must not both be 0: no translation fits",
        )
        _require(
            self.n_best <= self.beam_size,
            f"--n-best must be at most --beam-size, {self.beam_size}. Received: {self.n_best}",
        )
        _require(
            self.no_repeat_ngram_size >= 0,
            "--no-repeat-ngram-size must be 0 (off) or the size of an n-gram. "
            f"Received: {self.no_repeat_ngram_size}",
        )


@dataclasses.dataclass(frozen=True, kw_only=True)
class Engine:
    """What computes translations.

    Attributes:
      name: `tensorflow`, or `ctranslate2` (the extra of that name).
      compute_type: Of the matrix products: one of ENGINES[name].
    """

    name: str = "tensorflow"
    compute_type: str = "float32"

    def __post_init__(self) -> None:
        _require_one_of("--engine", self.name, tuple(ENGINES))
        _require_one_of(
            f"--compute-type of the engine {self.name}", self.compute_type, ENGINES[self.name]
        )
