"""The model and the training that are chosen by a dataset's size where no option says.

The table is what was measured and published, not a law:

- 29,000 pairs (Multi30k, 0.5M tokens): `tiny` with a dropout of 0.25 and batches of 2,048 tokens
  reaches its least validation loss in 10,000 to 16,000 updates (docs/measurements.md). Of peak
  rates, 0.001 learnt faster at the start than 0.003, and 0.005 is published for that width.
- 160,000 pairs (IWSLT 2014, 4M tokens): fairseq's recipe has a dropout of 0.3, batches of 4,096
  tokens and a peak rate of 0.0005 after 4,000 updates for a model of width 512; `small` is half as
  wide, and gets less dropout and a higher rate.
- 4.5 million pairs (WMT 2014): `base` of the paper, 100,000 updates.
- With less data, smaller models, smaller batches and more dropout are better: Sennrich and Zhang
  2019, "Revisiting Low-Resource Neural Machine Translation" (recurrent models), and Araabi and Monz
  2020, "Optimizing Transformer for Low-Resource Neural Machine Translation".
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tt.model.errors import counted
from tt.model.training.options import TrainingConfig
from tt.model.transformer.config import PRESETS, TransformerConfig, preset_fields, put_on_top

if TYPE_CHECKING:
    from tt.model.dataset.manifest import DatasetManifest, SplitInfo

EMBEDDED_CORPUS = "embedded"  # the corpus that comes with tt, by its name in the manifest

# It has short sentences of few words: a few minutes of two cores are enough.
EMBEDDED_OPTIONS: dict[str, Any] = {
    "preset": "tiny", "steps": 770, "batch_tokens": 2048, "peak_learning_rate": 0.002,
    "warmup_steps": 200, "validate_every": 200, "score_every": 1000, "save_every": 200,
}  # fmt: skip

MAX_STEPS = 100_000
_MAX_PASSES = 100
_FILL = 0.85  # of a batch's tokens are real: measured on Multi30k and Tatoeba
_PAPER_WARMUP = 4000  # section 5.3; with the width, it makes the paper's peak rate
_FEWEST_TO_VALIDATE = 50  # pairs
_SANE_PEAK = 4  # times the paper's: 0.0056 at width 128, where 0.005 is the highest published


@dataclasses.dataclass(frozen=True, kw_only=True)
class DatasetSize:
    """How large the training split is."""

    pairs: int
    tokens: int  # of its longer side, BOS and EOS counted
    longest: int  # the most tokens on any side of any pair

    @classmethod
    def of(cls, split: SplitInfo) -> DatasetSize:
        """Takes the size of a split from a dataset's manifest."""
        tokens = max(split.source_tokens, split.target_tokens)
        return cls(pairs=split.records, tokens=tokens, longest=split.longest)


@dataclasses.dataclass(frozen=True)
class _Row:
    """What datasets of less than so many tokens get."""

    below: float  # tokens of the longer side
    preset: str
    dropout: float  # in place of the preset's
    batch_tokens: int
    warmup_steps: int  # at the most; a quarter of the steps where that is less


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
    begun: Mapping[str, Any] | None = None,
    initial: TransformerConfig | None = None,
) -> tuple[TransformerConfig, TrainingConfig]:
    """Return the model and the training for a dataset.

    Options that are not `given`, by field or as "preset", are as the run was `begun` (None begins a
    run). In a new run, a model is like the `initial` model whose weights it gets; else the embedded
    corpus has settings of its own, and the size of any other dataset chooses.
    """
    preset = given.get("preset")
    if begun:
        fields = _begun_fields(begun["model"], preset=preset, given=given)
        defaults = _fields_of(TrainingConfig, begun["training"])
        if "steps" in given:
            defaults["epochs"] = None
        every, score = given.get("validate_every"), defaults.get("score_every")
        if every and score and score % every:
            defaults["score_every"] = None  # with every validation
    else:
        chosen = _choose(given, manifest=manifest, initial=initial)
        fields = preset_fields(preset or chosen.get("preset"))
        fields |= _fields_of(TransformerConfig, chosen)
        defaults = _fields_of(TrainingConfig, chosen)
        if initial:
            fields = put_on_top(initial.to_json(), preset_fields(preset))
    fields = put_on_top(fields, _fields_of(TransformerConfig, given))
    fields.update(
        source_vocabulary_size=manifest.source_vocabulary_size,
        target_vocabulary_size=manifest.target_vocabulary_size,
        shared_vocabulary=_is_shared(manifest, begun=begun, initial=initial),
    )
    return (
        TransformerConfig(**fields),
        TrainingConfig(**{**defaults, **_fields_of(TrainingConfig, given)}),
    )


def _choose(
    given: Mapping[str, Any], *, manifest: DatasetManifest, initial: TransformerConfig | None
) -> dict[str, Any]:
    """Return the options that are chosen for a new run."""
    stated = dict(given)
    if initial:  # so no preset or dropout is chosen
        known = {"preset": "", "d_model": initial.d_model, "dropout": initial.dropout}
        stated = {**known, **preset_fields(given.get("preset")), **given}
    if manifest.corpus != EMBEDDED_CORPUS:
        return choose_options(DatasetSize.of(manifest.splits["train"]), stated)
    chosen: dict[str, Any] = {k: v for k, v in EMBEDDED_OPTIONS.items() if k not in stated}
    steps = stated.get("steps", EMBEDDED_OPTIONS["steps"])
    if "validate_every" in chosen:
        chosen["validate_every"] = min(steps, chosen["validate_every"])
    if (
        chosen.get("validate_every") != EMBEDDED_OPTIONS["validate_every"]
        or "best_metric" in stated
    ):
        chosen.pop("score_every", None)  # with every validation
    return chosen


def _is_shared(
    manifest: DatasetManifest,
    *,
    begun: Mapping[str, Any] | None,
    initial: TransformerConfig | None,
) -> bool:
    """Says whether both sides share an embedding: one of Marian's may with two vocabulary files."""
    if begun and begun.get("init_from"):
        return bool(begun["model"]["shared_vocabulary"])
    return initial.shared_vocabulary if initial and not begun else manifest.shared_vocabulary


def describe_choices(
    given: Mapping[str, Any],
    *,
    manifest: DatasetManifest,
    initial: TransformerConfig | None = None,
) -> list[str]:
    """Return a line on the options that are chosen for a new run; `given` as in `configure`."""
    chosen = _choose(given, manifest=manifest, initial=initial)
    if not chosen:
        return []
    size = DatasetSize.of(manifest.splits["train"])
    by = f"the dataset's size, {size.pairs:,} pairs of {size.tokens:,} tokens"
    if manifest.corpus == EMBEDDED_CORPUS:
        by = "the embedded corpus"
    parts = " ".join(f"`{name}={value}`" for name, value in chosen.items())
    return [f"Chosen by {by}: {parts}. Each option that you give replaces its choice."]


def _begun_fields(
    begun: Mapping[str, Any], *, preset: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a model that was begun, under a preset that is given on resuming it.

    The dropout stays if the preset has that very shape: the dataset's size may have chosen it.
    """
    fields, named = _fields_of(TransformerConfig, begun), preset_fields(preset)
    shape = [name for name in named if name != "dropout"]
    is_begun = all(fields.get(name) == given.get(name, named[name]) for name in shape)
    return fields if is_begun else put_on_top(fields, named)


def _fields_of(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}


def choose_options(size: DatasetSize, given: Mapping[str, Any]) -> dict[str, Any]:
    """Chooses preset, dropout, steps, batches, rates and intervals that are not given, by name.

    What is given stands (None is not given), and the rest is chosen to fit: half the steps come
    with half the warm-up where that was a quarter of them, and larger batches with fewer steps. A
    preset that is given brings its own dropout, unless it is the one that the size has chosen.
    Steps are those of one replica.

    >>> multi30k = DatasetSize(pairs=29_000, tokens=465_000, longest=60)
    >>> chosen = choose_options(multi30k, {"batch_tokens": 4096})
    >>> chosen["preset"], chosen["steps"], chosen["warmup_steps"]
    ('tiny', 8200, 1000)
    """
    stated = {name: value for name, value in given.items() if value is not None}
    row = next(row for row in _TABLE if size.tokens < row.below)
    chosen: dict[str, Any] = {"preset": row.preset}
    if stated.get("preset", row.preset) == row.preset:
        chosen["dropout"] = row.dropout
    # A power of two that the longest pair fits into.
    chosen["batch_tokens"] = max(row.batch_tokens, 1 << (size.longest - 1).bit_length())
    found = {**chosen, **stated}
    update = found.get("effective_batch_size") or found["batch_tokens"]
    chosen["steps"] = _steps(size.tokens, update)
    found = {**chosen, **stated}
    chosen["warmup_steps"] = max(1, min(row.warmup_steps, found["steps"] // 4))
    width = found.get("d_model") or PRESETS.get(found["preset"], PRESETS["base"])["d_model"]
    chosen["peak_learning_rate"] = _rounded(paper_peak(width), 2)
    interval = min(_interval(found["steps"]), found["steps"])
    score_every = found.get("score_every")
    chosen["validate_every"] = score_every if score_every and score_every % interval else interval
    chosen["save_every"] = min(interval, 500)
    return {name: value for name, value in chosen.items() if name not in stated}


def paper_peak(width: int) -> float:
    """Returns the greatest rate of equation 3 of the paper with its warm-up of 4,000 steps."""
    return float(width**-0.5 * _PAPER_WARMUP**-0.5)


def doubts(
    training: TrainingConfig, *, width: int, validation_pairs: int = _FEWEST_TO_VALIDATE
) -> list[str]:
    """Return a warning about each option that is likely to spoil the training of a model."""
    found = []
    steps, warmup = training.steps, training.warmup_steps
    if steps <= warmup:
        found.append(
            f"the rate reaches only {steps / warmup:.1%} of its peak, because the warm-up of "
            f"{warmup:,} steps is not shorter than the training of {steps:,}: raise `steps`, or "
            "lower `warmup_steps`"
        )
    most, peak = _SANE_PEAK * paper_peak(width), training.peak_rate(width)
    if peak > most:
        found.append(
            f"training is likely to diverge with a peak rate of {peak:.3g}, which is above "
            f"{most:.3g} for the width {width}: lower `peak_learning_rate`"
        )
    if validation_pairs < _FEWEST_TO_VALIDATE:
        found.append(
            f"{counted(validation_pairs, 'validation pair')}: too few to tell which model is the "
            "best; hold out more, by a validation corpus or `tt preprocess --validation-fraction`"
        )
    return found


def _steps(tokens: int, update: int) -> int:
    """Returns the updates for about 60 passes over 0.5M tokens, and fewer over more."""
    passes = min(_MAX_PASSES, 60 * (0.5e6 / max(tokens, 1)) ** 0.4)
    steps = passes * max(1.0, tokens / (update * _FILL))
    return min(MAX_STEPS, int(_rounded(steps, 2)))


def _interval(steps: int) -> int:
    """Returns about a fortieth of the steps: 50, 100, 200, 500 or 1000."""
    return max(each for each in (50, 100, 200, 500, 1000) if each == 50 or each <= steps / 40)


def _rounded(value: float, digits: int) -> float:
    """Rounds to significant digits.

    >>> _rounded(0.00139754, 2), _rounded(12_345, 2)
    (0.0014, 12000.0)
    """
    return float(f"{value:.{digits}g}")
