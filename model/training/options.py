"""The options of a training, and the configuration of a run that is made of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tt.model.dataset.manifest import DatasetManifest
from tt.model.errors import CHOICES, one_of, require, require_one_of
from tt.model.formats.model_card import TrainingData
from tt.model.json_files import describe_differences
from tt.model.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from tt.model.training.initial_model import InitialModel

SCHEDULES = ("inverse-sqrt", "constant")
COMPUTE_TYPES = ("float32", "mixed_bfloat16")
METRICS = ("loss", "nll", "perplexity", "bleu", "chrf")  # of a validation
AVERAGES = ("none", "last", "best")
STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker")  # of `tt.model.training.strategies`
DATASET_SOURCE = "dataset_source"  # the part of a run's configuration that names its dataset
# These parts may change when a run resumes: the weights until then do not depend on them.
_MAY_CHANGE = (
    "data", DATASET_SOURCE, "replicas", "training.steps", "training.epochs",
    "training.validate_every", "training.score_every", "training.score_sentences",
    "training.patience", "training.keep_best", "training.save_every", "training.keep_checkpoints",
    "training.average", "training.log_every", "training.jit",
)  # fmt: skip
# These options follow from the dataset, so they say nothing more than another dataset.
_OF_THE_DATASET = (
    "model.source_vocabulary_size", "model.target_vocabulary_size", "model.shared_vocabulary",
)  # fmt: skip
_MOST = 2**31 - 1  # of what is counted: the numbers of TensorFlow's shapes and steps


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """How a model is trained, section 5 of the paper.

    Attributes:
      steps: Updates of the weights in all.
      epochs: Passes over the training split, in place of `steps`, which then follow from them. By
        default `steps` say how long to train.
      batch_tokens: Rows times the longer side's padded length in a batch, for each replica, at
        most.
      effective_batch_size: Tokens an update, over all replicas, counted as `batch_tokens` counts
        them; batches are accumulated until there are so many. By default an update is one batch.
      peak_learning_rate: Learning rate at the end of the warm-up. By default it fits the width.

        None is the paper's, d_model^-0.5 * warmup_steps^-0.5.
      warmup_steps: Updates with a linearly rising learning rate.
      schedule: Learning rate after the warm-up: "inverse-sqrt" falls with the square root of the
        step (section 5.3), "constant" stays.
      label_smoothing: Probability mass spread over the whole vocabulary.
      subword_dropout: Probability that a token of the training text is split into the two it is
        made of, and its parts likewise: other segmentations in each epoch, for small corpora.
      r_drop: Weight of the divergence between two passes with different dropout, such as 5: R-Drop,
        of which an update takes more than twice as long. By default there is one pass.

        It is that of Liang et al. 2021; all of the loss is half of the paper's, so that it compares
        with that of one pass.
      ema: Decay of an exponential moving average of the weights, such as 0.9999, which is what is
        validated and exported. By default the weights themselves are.

        Early on, the decay of update t is (1 + t) / (10 + t) where that is less.
      clip_norm: Scale gradients of a greater global norm down to this. By default none are.
      compute_type: Type of the matrix products: "float32", or "mixed_bfloat16" for GPUs.

        The weights are float32.
      seed: Seed of the weights, the order of the batches and dropout.
      validate_every: Run over the validation split every N updates.
      score_every: Translate the validation split every N updates, for BLEU and chrF; 0 never does.
        A multiple of `validate_every`. By default every validation does.
      score_sentences: Translate at most N validation sentences.
      best_metric: Metric that makes a validation the best: "loss", "nll", "perplexity", "bleu" or
        "chrf".
      patience: Stop after N validations without a new best. By default the run does not stop early.
      keep_best: Keep the weights of the N best validations.
      save_every: Save a checkpoint every N updates.
      keep_checkpoints: Keep the last N checkpoints.
      average: Weights that the exported model is the mean of: "none" exports those at the end,
        "last" and "best" the mean of what `keep_checkpoints` or `keep_best` kept.
      log_every: Report every N updates.
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
    r_drop: float | None = None
    ema: float | None = None
    clip_norm: float | None = None
    compute_type: str = one_of(COMPUTE_TYPES, default="float32")
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
        for name in ("peak_learning_rate", "clip_norm", "r_drop"):
            value = getattr(self, name)
            require(value is None or 0 < value < math.inf, f"`{name}` must be positive", value)
        for name in ("label_smoothing", "subword_dropout"):
            value = getattr(self, name)
            require(0 <= value < 1, f"`{name}` must be in [0, 1)", value)
        require(self.ema is None or 0 < self.ema < 1, "`ema` must be in (0, 1)", self.ema)
        require(0 <= self.seed < 2**32, "`seed` must be 0 to 4,294,967,295", self.seed)
        require(
            not self.score_every
            or (self.score_every > 0 and self.score_every % self.validate_every == 0),
            "`score_every` must be 0 or a multiple of `validate_every`",
            f"{self.score_every} and {self.validate_every}",
        )
        require(
            self.best_metric not in ("bleu", "chrf") or self.score_every != 0,
            "`best_metric` must be loss, nll or perplexity where `score_every` is 0",
            self.best_metric,
        )

    def batches_an_update(self, replicas: int) -> int:
        """Return how many batches an update accumulates, each one for all replicas."""
        wanted = self.effective_batch_size
        return -(-wanted // (self.batch_tokens * replicas)) if wanted else 1

    def rate(self, update: int, *, width: int) -> float:
        """Return the learning rate of an update, from 1, of a model of that width (equation 3)."""
        ratio = update / self.warmup_steps
        after = ratio**-0.5 if self.schedule == "inverse-sqrt" else 1.0
        return self.peak_rate(width) * min(ratio, after)

    def peak_rate(self, width: int) -> float:
        """Return the rate at the end of the warm-up, of a model of that width."""
        return self.peak_learning_rate or width**-0.5 * self.warmup_steps**-0.5

    def scores_at(self, step: int) -> bool:
        """Say whether the validation after `step` updates translates, too; the last one does."""
        if self.score_every == 0:
            return False
        return step >= self.steps or step % (self.score_every or self.validate_every) == 0


def run_config(
    *,
    model: TransformerConfig,
    training: TrainingConfig,
    manifest: DatasetManifest,
    dataset: str,
    replicas: int,
    initial: InitialModel | None = None,
) -> dict[str, Any]:
    """Return the configuration of a run, as the run folder saves it.

    `dataset` is the name of the dataset folder.

    Raises:
      UserError: A file of the initial model is damaged.
    """
    data = TrainingData.of(manifest)
    names = [source["name"] for source in manifest.sources if not source.get("is_held_out")]
    return {
        "model": model.to_json(),
        "training": dataclasses.asdict(training),
        "dataset": data.fingerprint,
        "data": dataclasses.asdict(data),
        "replicas": replicas,
        **({"init_from": initial.to_json()} if initial else {}),
        DATASET_SOURCE: {
            "folder": dataset,
            "pairs": manifest.pairs_kept,
            "corpora": list(dict.fromkeys(names)),
        },
    }


def describe_difference(saved: Mapping[str, Any], asked: Mapping[str, Any]) -> str:
    """Describe how the configurations of a saved run and a requested run differ, or return ""."""
    then, now = _sources(saved), _sources(asked)
    # A folder may be moved, so only fingerprints decide; but a user knows the folder.
    others = [name for name in then if then[name][0] != now[name][0]]
    shown = [
        {name: "{1} (fingerprint {0})".format(*each[name]) for name in others if each[name][0]}
        for each in (then, now)
    ]
    ignored = (*_MAY_CHANGE, *then, *(_OF_THE_DATASET if "dataset" in others else ()))
    whole = (_with_defaults(saved), _with_defaults(asked))
    return "; ".join(describe_differences(*shown) + describe_differences(*whole, ignored=ignored))


def _with_defaults(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the defaults of options that are newer than the configuration."""
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
