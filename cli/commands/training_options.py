"""The options of `tt train` to a model and a training."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cli.options import EMBEDDED
from model.training.choices import DatasetSize, choose_options, reason
from model.transformer.config import TrainingConfig, TransformerConfig, option_flag, preset_fields

if TYPE_CHECKING:
    from model.dataset.manifest import DatasetManifest

# The embedded corpus has short sentences of few words: a few minutes of two cores are enough.
EMBEDDED_PRESET = "tiny"
EMBEDDED_TRAINING = TrainingConfig(
    steps=700, batch_tokens=2048, peak_learning_rate=0.002, warmup_steps=200,
    validate_every=200, score_every=1000, save_every=200,
)  # fmt: skip


def configure(
    given: Mapping[str, Any], *, manifest: DatasetManifest, begun: Mapping[str, Any] | None = None
) -> tuple[TransformerConfig, TrainingConfig]:
    """Returns the model and the training for a dataset.

    What is not given is as the run was begun; in a new one, the embedded corpus has settings of its
    own, and for all others the size of the dataset chooses.

    Args:
      given: Option values by name; those that neither has a field for are left out.
      manifest: Of the dataset.
      begun: Configuration of the run that is gone on with; None begins one.
    """
    preset = given.get("preset")
    if begun:
        fields = _begun_fields(begun["model"], preset=preset, given=given)
        defaults = _fields_of(TrainingConfig, begun["training"])
        every, score = given.get("validate_every"), defaults.get("score_every")
        if every and score and score % every:
            defaults["score_every"] = None  # with every validation
    elif manifest.corpus == EMBEDDED:
        fields = preset_fields(preset or EMBEDDED_PRESET)
        defaults = dataclasses.asdict(EMBEDDED_TRAINING)
        if given.keys() & {"validate_every", "best_metric"}:
            defaults["score_every"] = None  # with every validation
    else:
        chosen = choose_options(DatasetSize.of(manifest.splits["train"]), given)
        fields = {
            **preset_fields(preset or chosen["preset"]), **_fields_of(TransformerConfig, chosen)
        }  # fmt: skip
        defaults = _fields_of(TrainingConfig, chosen)
    fields.update(
        _fields_of(TransformerConfig, given),
        source_vocabulary_size=manifest.source_vocabulary_size,
        target_vocabulary_size=manifest.target_vocabulary_size,
        shared_vocabulary=manifest.shared_vocabulary,
    )
    return (
        TransformerConfig(**fields),
        TrainingConfig(**{**defaults, **_fields_of(TrainingConfig, given)}),
    )


def describe_choices(
    given: Mapping[str, Any],
    *,
    model: TransformerConfig,
    training: TrainingConfig,
    size: DatasetSize,
) -> list[str]:
    """Returns what is said of the options that the dataset's size has chosen, and why.

    Args:
      given: Option values by name.
      model: As configured.
      training: As configured.
      size: Of the training split.
    """
    chosen = choose_options(size, given)
    if not chosen:
        return []
    values = {**dataclasses.asdict(model), **dataclasses.asdict(training), **chosen}
    why = f" ({reason(size)})" if "preset" in chosen else ""
    parts = [f"{option_flag(name)} {values[name]}" for name in chosen]
    return [
        f"Chosen by the dataset's size, {size.pairs:,} pairs of {size.tokens:,} tokens: "
        f"{' '.join(parts)}{why}. An option that is given stands, and the others are "
        "chosen to fit."
    ]


def _begun_fields(
    begun: Mapping[str, Any], *, preset: str | None, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the fields of a model that was begun, under a preset that is named on resuming it.

    Where the preset has that very shape, the dropout stays, too: the dataset's size may have chosen
    another than the preset's.
    """
    fields, named = _fields_of(TransformerConfig, begun), preset_fields(preset)
    shape = {name: value for name, value in named.items() if name != "dropout"}
    is_begun = all(fields.get(name) == given.get(name, value) for name, value in shape.items())
    return fields if is_begun else {**fields, **named}


def _fields_of(kind: Any, given: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in given.items() if name in names}
