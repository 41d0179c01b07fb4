"""The options of a training, and the configuration of a run that contains them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tt.model.errors import CHOICES, checked, one_of, require, require_one_of
from tt.model.json_files import describe_differences
from tt.model.transformer.config import TransformerConfig

SCHEDULES = ("inverse-sqrt", "constant")
COMPUTE_TYPES = ("float32", "mixed_bfloat16")
METRICS = ("loss", "nll", "perplexity", "bleu", "chrf")  # metrics of a validation
AVERAGES = ("none", "last", "best")
STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker")  # see `strategies.make_strategy`
EXCHANGES = ("auto", "ring")  # see `strategies.make_strategy`
CLUSTER = "TF_CONFIG"  # https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
DATASET_SOURCE = "dataset_source"  # key of the dataset's name and size in a run's configuration
# These parts of a configuration may change when a run resumes, because the weights of a checkpoint
# do not depend on them.
_MAY_CHANGE = (
    "data", DATASET_SOURCE, "replicas", "training.steps", "training.epochs",
    "training.validate_every", "training.score_every", "training.score_sentences",
    "training.patience", "training.keep_best", "training.save_every", "training.keep_checkpoints",
    "training.average", "training.log_every",
)  # fmt: skip
# The dataset determines these options, so a message about another dataset need not list them.
_OF_THE_DATASET = (
    "model.source_vocabulary_size", "model.target_vocabulary_size", "model.shared_vocabulary",
)  # fmt: skip
_MOST = 2**31 - 1  # greatest count: TensorFlow stores shapes and steps as int32


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The options of a training (section 5 of the paper).

    Attributes:
      steps: Train for N updates of the weights.
      epochs: Train for N passes over the training split. By default, `steps` is used instead.

        The number of updates follows from the dataset and the number of replicas.
      batch_tokens: Put at most N tokens, including padding, into each batch of a replica.

        The size of a batch is its number of rows times the padded length of its longer side.
      effective_batch_size: Accumulate batches until an update has N tokens. By default, an update
        has one batch.

        Tokens are counted as for `batch_tokens`, but over all replicas.
      peak_learning_rate: Reach this learning rate at the end of the warm-up. By default, the
        paper's rate for the model's width.

        The paper's rate is d_model^-0.5 * warmup_steps^-0.5.
      warmup_steps: Raise the learning rate linearly during the first N updates.
      schedule: Use this learning rate schedule after the warm-up.

        "inverse-sqrt" makes the rate proportional to step^-0.5 (section 5.3). "constant" keeps the
        peak rate.
      label_smoothing: Spread this share of the target probability evenly over the vocabulary.
      subword_dropout: Split each training token into its two parts with this probability.

        `tt` splits the parts again with the same probability. Each epoch therefore sees different
        tokens for the same text, which helps with small corpora.
      augment: Add typos, capitals or missing punctuation to this share of the source sentences.

        A changed sentence is in capitals or title case, or lacks its final punctuation or a space,
        or has typos. Each epoch changes other sentences.
      clip_norm: Scale larger gradients down to this global norm. By default, off.
      compute_type: Compute matrix products in this type; use mixed_bfloat16 only on GPUs.

        The weights are always float32.
      xla: Compile the layers with XLA, for each shape of a batch; the first epoch is slow.
      seed: Seed the initial weights, the order of the batches, and dropout.
      validate_every: Validate every N updates.
      score_every: Compute BLEU and chrF every N updates; 0 turns this off. By default, at each
        validation.

        N must be a multiple of `validate_every`.
      score_sentences: Score the first N validation sentences; fewer by default in a short run.

        In a new run, the default is lower if the scores would otherwise take more than about 5 % of
        the work of the training, but at least 50. All validations of a run score the same
        sentences.
      best_metric: Choose the best validation by this metric.
      patience: Stop after N validations in a row without a new best result. By default, never stop
        early.
      keep_best: Keep the weights of the N best validations.
      save_every: Save a checkpoint every N updates.
      keep_checkpoints: Keep the last N checkpoints.
      average: Export the mean of these checkpoints at the end.

        "none" exports the final weights. "last" and "best" export the mean of the checkpoints that
        `keep_checkpoints` and `keep_best` have kept.
      log_every: Report progress every N updates.
    """

    steps: int = 100_000
    epochs: int | None = None
    batch_tokens: int = 4096
    effective_batch_size: int | None = None
    peak_learning_rate: float | None = None
    warmup_steps: int = 4000
    schedule: str = one_of(SCHEDULES, default="inverse-sqrt")
    label_smoothing: float = 0.1
    subword_dropout: float = 0.0
    augment: float = 0.0
    clip_norm: float | None = None
    compute_type: str = one_of(COMPUTE_TYPES, default="float32")
    xla: bool = False
    seed: int = 1
    validate_every: int = 500
    score_every: int | None = None
    score_sentences: int = 2000
    best_metric: str = one_of(METRICS, default="loss")
    patience: int | None = None
    keep_best: int = 1
    save_every: int = 500
    keep_checkpoints: int = 3
    average: str = one_of(AVERAGES, default="none")
    log_every: int = 50

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            if choices := field.metadata.get(CHOICES):
                require_one_of(f"`{field.name}`", getattr(self, field.name), choices)
        for name in ("steps", "batch_tokens", "warmup_steps", "validate_every", "score_sentences",
                     "keep_best", "save_every", "keep_checkpoints", "log_every", "epochs",
                     "effective_batch_size", "patience"):  # fmt: skip
            value = getattr(self, name)
            require(value is None or value >= 1, f"`{name}` must be at least 1", value)
            require(value is None or value <= _MOST, f"`{name}` must be at most {_MOST:,}", value)
        for name in ("peak_learning_rate", "clip_norm"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"`{name}` must be positive", value)
        for name in ("label_smoothing", "subword_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"`{name}` must be at least 0 and below 1", value)
        require(0 <= self.augment <= 1, "`augment` must be 0 to 1", self.augment)
        require(0 <= self.seed < 2**32, "`seed` must be 0 to 4,294,967,295", self.seed)
        require(
            not self.score_every
            or (self.score_every > 0 and self.score_every % self.validate_every == 0),
            "`score_every` must be 0 or a multiple of `validate_every`",
            f"{self.score_every} and {self.validate_every}",
        )
        require(
            self.best_metric not in ("bleu", "chrf") or self.score_every != 0,
            "`best_metric` must be loss, nll or perplexity if `score_every` is 0",
            self.best_metric,
        )

    def batches_an_update(self, replicas: int) -> int:
        """Return the number of global batches per update."""
        wanted = self.effective_batch_size
        return -(-wanted // (self.batch_tokens * replicas)) if wanted else 1

    def scores_at(self, step: int) -> bool:
        """Return whether the validation after `step` updates computes BLEU and chrF."""
        if self.score_every == 0:
            return False
        return step >= self.steps or step % (self.score_every or self.validate_every) == 0


def describe_difference(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Return how the configurations of a saved and a requested run differ, or "" if they agree."""
    then, now = _sources(saved), _sources(asked)
    # Compare fingerprints, because a folder may have moved, but show the folder's path as well.
    others = [name for name in then if then[name][0] != now[name][0]]
    shown = [
        {name: "{1} (fingerprint {0})".format(*each[name]) for name in others if each[name][0]}
        for each in (then, now)
    ]
    ignored = {*_MAY_CHANGE, *then, *(_OF_THE_DATASET if "dataset" in others else ())}
    if saved.get("training", {}).get("best_metric") in ("bleu", "chrf"):
        ignored -= {"training.score_sentences"}  # the best value must be of the same sentences
    whole = (_with_defaults(saved), _with_defaults(asked))
    return "; ".join(describe_differences(*shown) + describe_differences(*whole, ignored=ignored))


def _with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with defaults for options that it does not contain yet."""
    whole = dict(config)
    for part, options in (("model", TransformerConfig), ("training", TrainingConfig)):
        fields = [f for f in dataclasses.fields(options) if f.default is not dataclasses.MISSING]
        whole[part] = {**{field.name: field.default for field in fields}, **config.get(part, {})}
    return whole


def _sources(config: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the fingerprint and the folder of the dataset and of the initial model."""
    source, initial = (config.get(name) or {} for name in (DATASET_SOURCE, "init_from"))
    return {
        "dataset": (config.get("dataset"), source.get("folder")),
        "init_from": (initial.get("fingerprint"), initial.get("model")),
    }
