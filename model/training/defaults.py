"""Choose the model and the training options that fit a dataset's size.

The choices rest on measurements and publications:

- 29,000 pairs (Multi30k, 0.5M tokens): `tiny` with a dropout of 0.25 and batches of 2,048 tokens
  reaches its lowest validation loss after 10,000 to 16,000 updates (docs/benchmarks.md). A peak
  rate of 0.001 learned faster at the start than 0.003; the literature has 0.005 for this width.
- 160,000 pairs (IWSLT 2014, 4M tokens): fairseq's recipe has a dropout of 0.3, batches of 4,096
  tokens and a peak rate of 0.0005 after 4,000 updates for a model of width 512. `small` has half
  that width, and therefore gets less dropout and a higher rate.
- 4.5 million pairs (WMT 2014): `base` of the paper, 100,000 updates.
- Small datasets need smaller models, smaller batches and more dropout: Sennrich and Zhang 2019,
  "Revisiting Low-Resource Neural Machine Translation" (recurrent models), and Araabi and Monz
  2020, "Optimizing Transformer for Low-Resource Neural Machine Translation".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from tt.model.dataset.manifest import DatasetManifest, SplitInfo
from tt.model.errors import counted
from tt.model.training.options import TrainingConfig
from tt.model.training.schedule import peak_rate
from tt.model.transformer.config import PRESETS, TransformerConfig, preset_fields, put_on_top

EMBEDDED_CORPUS = "embedded"  # name, in the manifest, of the corpus that comes with tt

# The embedded corpus has short sentences and few words, so training takes minutes on two cores.
EMBEDDED_OPTIONS: dict[str, Any] = {
    "preset": "tiny", "steps": 770, "batch_tokens": 2048, "peak_learning_rate": 0.002,
    "warmup_steps": 200, "validate_every": 200, "score_every": 1000, "save_every": 200,
}  # fmt: skip

MAX_STEPS = 100_000
_MAX_PASSES = 100
_FILL = 0.85  # share of real tokens in a batch, measured on Multi30k and Tatoeba
_PAPER_WARMUP = 4000  # steps, section 5.3 of the paper
_FEWEST_TO_VALIDATE = 50  # pairs
# Share of BLEU and chrF in the work of a training. To translate a sentence greedily takes about as
# long as to train on its target tokens (`tiny` on two cores: 1.07 times).
_SCORES = 0.05
# Highest sensible peak rate, as a multiple of the paper's. For width 128 the limit is 0.0056, and
# the highest published rate is 0.005.
_SANE_PEAK = 4


@dataclasses.dataclass(frozen=True)
class _Row:
    """The choices for datasets below a size."""

    below: float  # the row is for datasets with fewer tokens on their longer side than this
    preset: str
    dropout: float  # replaces the preset's dropout
    batch_tokens: int
    warmup_steps: int  # upper limit; short trainings get a quarter of their steps


_TABLE = (
    _Row(1e6, "tiny", 0.25, 2048, 1000),
    _Row(10e6, "small", 0.2, 4096, 2000),
    _Row(50e6, "base", 0.2, 4096, 4000),
    _Row(math.inf, "base", 0.1, 4096, 4000),  # as in the paper
)


def configure(
    given: Mapping[str, Any],
    *,
    manifest: DatasetManifest,
    resumed: Mapping[str, Any] | None = None,
    initial: TransformerConfig | None = None,
    replicas: int = 1,
) -> tuple[TransformerConfig, TrainingConfig]:
    """Return the model configuration and the training options for a dataset.

    A resumed run keeps its own values for options that are not given. In a new run, the initial
    model determines the architecture. All other missing options follow from the dataset and the
    replicas: the embedded corpus has fixed settings, and the size of any other dataset decides.

    Args:
      given: Options from the user: "preset", and fields of `TransformerConfig` and
        `TrainingConfig`.
      manifest: Manifest of the dataset.
      resumed: Saved configuration of the run to resume, or None for a new run.
      initial: Architecture of the model whose weights a new run starts from, if there is one.
      replicas: Number of replicas that train a new run.
    """
    preset = given.get("preset")
    if resumed:
        fields, named = _fields_of(TransformerConfig, resumed["model"]), preset_fields(preset)
        # If the preset has the same shape as the saved model, the saved dropout stays, because it
        # may come from the dataset's size and not from the preset.
        if named and _shape(put_on_top(fields, given)) != _shape(put_on_top(named, given)):
            fields = put_on_top(fields, named)
        defaults = _fields_of(TrainingConfig, resumed["training"])
        if "steps" in given:
            defaults["epochs"] = None
        every, score = given.get("validate_every"), defaults.get("score_every")
        if every and score and score % every:
            defaults["score_every"] = None  # score at every validation
    else:
        chosen = _choose(given, manifest=manifest, initial=initial, replicas=replicas)
        fields = preset_fields(preset or chosen.get("preset"))
        fields |= _fields_of(TransformerConfig, chosen)
        defaults = _fields_of(TrainingConfig, chosen)
        if initial:
            fields = put_on_top(initial.to_json(), preset_fields(preset))
    fields = put_on_top(fields, _fields_of(TransformerConfig, given))
    fields.update(
        source_vocabulary_size=manifest.source_vocabulary_size,
        target_vocabulary_size=manifest.target_vocabulary_size,
    )
    # An imported OPUS-MT model may share one embedding although it has two vocabulary files.
    # Therefore, the initial model decides, if there is one, and not the dataset.
    if not (resumed.get("init_from") if resumed else initial):
        fields["shared_vocabulary"] = manifest.shared_vocabulary
    return (
        TransformerConfig(**fields),
        TrainingConfig(**{**defaults, **_fields_of(TrainingConfig, given)}),
    )


def _shape(fields: Mapping[str, Any]) -> list[Any]:
    """Return the numbers that a preset sets, except its dropout."""
    sides = [fields.get(side) or fields["layers"] for side in ("encoder_layers", "decoder_layers")]
    return [*sides, fields["d_model"], fields["heads"], fields["d_ff"]]


def _choose(
    given: Mapping[str, Any],
    *,
    manifest: DatasetManifest,
    initial: TransformerConfig | None,
    replicas: int,
) -> dict[str, Any]:
    """Return the options that the dataset and the replicas decide in a new run, by name."""
    stated = dict(given)
    if initial:  # its preset and dropout count as given, so none are chosen
        known = {"preset": "", "d_model": initial.d_model, "dropout": initial.dropout}
        stated = {**known, **preset_fields(given.get("preset")), **given}
    split = manifest.splits["train"]
    if manifest.corpus == EMBEDDED_CORPUS:
        chosen = _choose_for_embedded(stated, longest=split.longest, replicas=replicas)
    else:
        tokens = max(split.source_tokens, split.target_tokens)
        chosen = choose_options(stated, tokens=tokens, longest=split.longest, replicas=replicas)
    if "score_sentences" not in stated:
        options = {**chosen, **stated}
        chosen |= _choose_sentences(options, manifest.splits["validation"], replicas=replicas)
    return chosen


def _choose_sentences(
    options: Mapping[str, Any], split: SplitInfo, *, replicas: int
) -> dict[str, int]:
    """Return a lower `score_sentences` if scores would take too large a part of the training.

    The number depends only on options that a resumed run keeps, and not on the time, so all
    validations of a run score the same sentences.
    """
    training = TrainingConfig(**_fields_of(TrainingConfig, options))
    every = training.validate_every
    scores = sum(map(training.scores_at, range(every, training.steps, every))) + 1
    update = _tokens_an_update(options, replicas=replicas)
    budget = _SCORES * training.steps * update / scores
    most = max(_FEWEST_TO_VALIDATE, int(budget * split.records / max(1, split.target_tokens)))
    is_lower = training.score_every != 0 and most < min(training.score_sentences, split.records)
    return {"score_sentences": most} if is_lower else {}


def _choose_for_embedded(
    stated: Mapping[str, Any], *, longest: int, replicas: int
) -> dict[str, Any]:
    chosen: dict[str, Any] = {k: v for k, v in EMBEDDED_OPTIONS.items() if k not in stated}
    if "batch_tokens" in chosen:
        # The replicas share a batch, because a few hundred larger updates would not be enough.
        chosen["batch_tokens"] = max(longest, chosen["batch_tokens"] // replicas)
    steps = stated.get("steps", EMBEDDED_OPTIONS["steps"])
    if "validate_every" in chosen:
        chosen["validate_every"] = min(steps, chosen["validate_every"])
    if (
        chosen.get("validate_every") != EMBEDDED_OPTIONS["validate_every"]
        or "best_metric" in stated
    ):
        chosen.pop("score_every", None)  # score at every validation
    return chosen


def describe_choices(
    given: Mapping[str, Any],
    *,
    manifest: DatasetManifest,
    initial: TransformerConfig | None = None,
    replicas: int = 1,
) -> list[str]:
    """Return a line that lists the options chosen for a new run, or no line if there are none.

    `configure` describes the arguments.
    """
    chosen = _choose(given, manifest=manifest, initial=initial, replicas=replicas)
    if not chosen:
        return []
    split = manifest.splits["train"]
    tokens = max(split.source_tokens, split.target_tokens)
    by = f"the dataset's size ({split.records:,} pairs, {tokens:,} tokens)"
    if manifest.corpus == EMBEDDED_CORPUS:
        by = "the embedded corpus"
    if replicas > 1:
        by += f" and {replicas:,} replicas"
    parts = " ".join(f"`{name}={value}`" for name, value in chosen.items())
    return [f"Defaults chosen for {by}: {parts}. Set an option to replace its default."]


def _fields_of(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def choose_options(
    given: Mapping[str, Any], *, tokens: int, longest: int, replicas: int = 1
) -> dict[str, Any]:
    """Return values for the missing options: preset, dropout, steps, batches, rates and intervals.

    The chosen values fit the given ones: for example, larger batches lead to fewer steps, and
    fewer steps to a shorter warm-up. A given preset keeps its own dropout, unless the size would
    choose the same preset. More replicas train with fewer, larger updates for as many epochs.

    Args:
      given: Options by name; None counts as missing.
      tokens: Tokens of the training split, on the side that has more, including BOS and EOS.
      longest: Length of its longest source or target, in tokens.
      replicas: Number of replicas; each update has a batch per replica.

    >>> chosen = choose_options({"batch_tokens": 4096}, tokens=465_000, longest=60)  # Multi30k
    >>> chosen["preset"], chosen["steps"], chosen["warmup_steps"]
    ('tiny', 8200, 1000)
    >>> choose_options({"batch_tokens": 4096}, tokens=465_000, longest=60, replicas=8)["steps"]
    1000
    """
    stated = {name: value for name, value in given.items() if value is not None}
    row = next(row for row in _TABLE if tokens < row.below)
    chosen: dict[str, Any] = {"preset": row.preset}
    if stated.get("preset", row.preset) == row.preset:
        chosen["dropout"] = row.dropout
    # Round up to a power of two so that the longest pair fits into a batch.
    chosen["batch_tokens"] = max(row.batch_tokens, 1 << (longest - 1).bit_length())
    found = {**chosen, **stated}
    # The configurations refuse values below 1 later.
    chosen["steps"] = _steps(tokens, max(1, _tokens_an_update(found, replicas=replicas)))
    found = {**chosen, **stated}
    chosen["warmup_steps"] = max(1, min(row.warmup_steps, found["steps"] // 4))
    width = found.get("d_model") or PRESETS.get(found["preset"], PRESETS["base"])["d_model"]
    chosen["peak_learning_rate"] = _rounded(paper_peak(max(1, width)), 2)
    interval = max(1, min(_interval(found["steps"]), found["steps"]))
    score_every = max(0, found.get("score_every") or 0)
    chosen["validate_every"] = score_every if score_every % interval else interval
    chosen["save_every"] = min(interval, 500)
    return {name: value for name, value in chosen.items() if name not in stated}


def paper_peak(width: int) -> float:
    """Return the peak learning rate of the paper (equation 3, with a warm-up of 4,000 steps)."""
    return float(width**-0.5 * _PAPER_WARMUP**-0.5)


def option_warnings(
    training: TrainingConfig, *, width: int, validation_pairs: int = _FEWEST_TO_VALIDATE
) -> list[str]:
    """Return a warning about each option that is likely to spoil the training.

    Args:
      training: Options of the training.
      width: Width of the model.
      validation_pairs: Number of pairs in the validation split.
    """
    found = []
    steps, warmup = training.steps, training.warmup_steps
    if steps <= warmup:
        found.append(
            f"the learning rate reaches only {steps / warmup:.1%} of its peak, because the warm-up "
            f"({warmup:,} steps) is not shorter than the training ({steps:,} steps). Raise `steps` "
            "or lower `warmup_steps`"
        )
    most, peak = _SANE_PEAK * paper_peak(width), peak_rate(training, width=width)
    if peak > most:
        found.append(
            f"training is likely to diverge, because the peak learning rate {peak:.3g} is above "
            f"{most:.3g}, the limit for width {width}. Lower `peak_learning_rate`"
        )
    if validation_pairs < _FEWEST_TO_VALIDATE:
        found.append(
            f"{counted(validation_pairs, 'validation pair')} cannot show which checkpoint is best. "
            "Hold out more pairs with `tt preprocess --validation` or `--validation-fraction`"
        )
    return found


def _tokens_an_update(options: Mapping[str, Any], *, replicas: int) -> int:
    """Return the number of tokens in an update of all replicas, including padding."""
    batches: int = options["batch_tokens"] * replicas
    return max(batches, options.get("effective_batch_size") or 0)


def _steps(tokens: int, update: int) -> int:
    """Return the number of updates: about 60 epochs for 0.5M tokens, and fewer for more tokens."""
    passes = min(_MAX_PASSES, 60 * (0.5e6 / max(tokens, 1)) ** 0.4)
    steps = passes * max(1.0, tokens / (update * _FILL))
    return min(MAX_STEPS, int(_rounded(steps, 2)))


def _interval(steps: int) -> int:
    """Return an interval of about a fortieth of the steps: 50, 100, 200, 500 or 1000."""
    return max(each for each in (50, 100, 200, 500, 1000) if each == 50 or each <= steps / 40)


def _rounded(value: float, digits: int) -> float:
    """Round a number to significant digits.

    >>> _rounded(0.00139754, 2), _rounded(12_345, 2)
    (0.0014, 12000.0)
    """
    return float(f"{value:.{digits}g}")
