"""The model card: what a model was trained on, how, for how long and by what.

It is the section `about` of what a model folder says of itself, see `model.formats.model_folder`.

Nothing here needs TensorFlow.
"""

from __future__ import annotations

import dataclasses
import importlib.metadata
from collections.abc import Iterable, Mapping
from typing import Any

from model.dataset.manifest import TRAIN, DatasetManifest, ratio_of_place

_PROGRAMS = ("tt-translate", "tensorflow", "keras", "sentencepiece")

_QUANTILES = (0.001, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingData:
    """What a model was trained on; empty where that was not written down.

    Attributes:
      source_language: Code as it was given, or "".
      target_language: Code as it was given, or "".
      corpora: Names of the corpora, those held out not among them.
      fingerprint: Fingerprint of the dataset; see `DatasetManifest`.
      pairs: Number of pairs.
      source_lengths: `source_lengths[i]` pairs have 8i to 8i+7 source ids, BOS and EOS counted.
      target_lengths: Likewise, of the target.
      length_ratios: Quantiles of target tokens for a source token, by their names: "50%" is the
        median. None of datasets that were made before they were counted.
    """

    source_language: str = ""
    target_language: str = ""
    corpora: list[str] = dataclasses.field(default_factory=list)
    fingerprint: str = ""
    pairs: int = 0
    source_lengths: list[int] = dataclasses.field(default_factory=list)
    target_lengths: list[int] = dataclasses.field(default_factory=list)
    length_ratios: dict[str, float] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, manifest: DatasetManifest) -> TrainingData:
        """Takes what a dataset says of itself."""
        split = manifest.splits[TRAIN]
        names = [each["name"] for each in manifest.sources if not each.get("is_held_out")]
        return cls(
            source_language=manifest.source_language,
            target_language=manifest.target_language,
            corpora=list(dict.fromkeys(names)) or [manifest.corpus],
            fingerprint=manifest.fingerprint,
            pairs=split.records,
            source_lengths=split.source_lengths,
            target_lengths=split.target_lengths,
            length_ratios=ratio_quantiles(split.length_ratios),
        )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> TrainingData:
        """Takes what `dataclasses.asdict` gave; what is not known here is left out."""
        return cls(**_known(cls, values))


@dataclasses.dataclass(frozen=True, kw_only=True)
class About:
    """What a model is; empty where that was not written down.

    Attributes:
      data: What it was trained on.
      steps: Updates of its weights.
      checkpoints: Names of the checkpoints of which it is one, or the mean; none of the weights
        at the end of a training.
      recipe: The options of the training, and the number of replicas.
      versions: Versions of the programs that wrote it.
    """

    data: TrainingData = dataclasses.field(default_factory=TrainingData)
    steps: int = 0
    checkpoints: list[str] = dataclasses.field(default_factory=list)
    recipe: dict[str, Any] = dataclasses.field(default_factory=dict)
    versions: dict[str, str] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> About:
        """Takes what `dataclasses.asdict` gave; what is not known here is left out."""
        known = _known(cls, values)
        return cls(**{**known, "data": TrainingData.from_json(known.get("data", {}))})


def describe_run(config: Mapping[str, Any]) -> About:
    """Returns what the configuration of a run says of its models, whatever their steps.

    Args:
      config: Configuration of a `RunFolder`; an old one without "data" has its dataset's
        fingerprint.
    """
    data = config.get("data") or {"fingerprint": config["dataset"]}
    return About(
        data=TrainingData.from_json(data),
        recipe={**config["training"], "replicas": config["replicas"]},
        versions=versions_of(_PROGRAMS),
    )


def ratio_quantiles(counts: list[int]) -> dict[str, float]:
    """Returns quantiles of what `SplitInfo.length_ratios` counts; of nothing, none.

    >>> import numpy as np
    >>> from model.dataset.manifest import ratio_places
    >>> counts = np.bincount(ratio_places(np.array([9] * 98 + [4] * 2), np.array([9] * 100)))
    >>> ratio_quantiles(counts.tolist())["50%"], ratio_quantiles(counts.tolist())["99%"]
    (1.0, 3.364)
    """
    total = sum(counts)
    found = {}
    for share in _QUANTILES if total else ():
        below = 0
        for place, count in enumerate(counts):
            below += count
            if below >= share * total:
                found[f"{100 * share:g}%"] = round(ratio_of_place(place), 3)
                break
    return found


def versions_of(names: Iterable[str]) -> dict[str, str]:
    """Returns the versions of packages; "not installed" of those that are not there."""
    versions = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def _known(kind: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
