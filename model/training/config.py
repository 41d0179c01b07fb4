"""The configuration of a run: what is trained and how, and what tells one run from another."""

from __future__ import annotations

import dataclasses
from typing import Any

from model.dataset.manifest import DatasetManifest
from model.formats.about import TrainingData
from model.transformer.config import TrainingConfig, TransformerConfig

_DATASET_SOURCE = "dataset_source"  # where `describe_dataset` puts what it finds
_SHOWN_CORPORA = 3

# What may change when a run is resumed: the weights up to then do not depend on it.
_MAY_CHANGE = (
    "steps", "validate_every", "score_every", "score_sentences", "patience", "keep_best",
    "save_every", "keep_checkpoints", "average", "log_every", "replicas", "jit",
)  # fmt: skip


def run_config(
    *, model: TransformerConfig, training: TrainingConfig, data: TrainingData, replicas: int
) -> dict[str, Any]:
    """Returns what is trained and how.

    Args:
      model: The architecture.
      training: How it is trained.
      data: What it is trained on, of which the fingerprint decides.
      replicas: That train together.
    """
    return {
        "model": dataclasses.asdict(model),
        "training": dataclasses.asdict(training),
        "dataset": data.fingerprint,
        "data": dataclasses.asdict(data),
        "replicas": replicas,
    }


def describe_dataset(manifest: DatasetManifest, *, folder: str) -> dict[str, Any]:
    """Returns what tells a user which dataset a run trains on; nothing is compared by it.

    Args:
      manifest: Of the dataset.
      folder: As the user knows it.
    """
    names = [source["name"] for source in manifest.sources if not source.get("is_held_out")]
    return {
        _DATASET_SOURCE: {
            "folder": folder,
            "pairs": manifest.pairs_kept,
            "corpora": list(dict.fromkeys(names)),
        }
    }


def describe_difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Names what makes two configurations other runs, or returns "".

    Args:
      found: Of `run_config`, with what `describe_dataset` adds: of the run that is there.
      wanted: The same of the one that is asked for.
    """
    there, here = _lasting(found), _lasting(wanted)
    return ", ".join(
        _dataset_difference(found, wanted)
        if key == "dataset"
        else f"{key} is {there.get(key)} there and {here.get(key)} here"
        for key in {**there, **here}
        if there.get(key) != here.get(key)
    )


def _lasting(config: dict[str, Any]) -> dict[str, Any]:
    """Returns what the weights depend on, flat."""
    flat = {**config, **config["model"], **config["training"]}
    left_out = ("model", "training", "data", _DATASET_SOURCE, *_MAY_CHANGE)
    return {key: value for key, value in flat.items() if key not in left_out}


def _dataset_difference(found: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Names the dataset of a run, and another one; their fingerprints tell a user nothing."""
    there, here = (_dataset_words(config.get(_DATASET_SOURCE)) for config in (found, wanted))
    if there == here:
        return f"its dataset, {here}, has been made anew since, of other input or otherwise"
    return f"it trains on the dataset {there}, not on {here}"


def _dataset_words(source: dict[str, Any] | None) -> str:
    if not source:
        return "of another fingerprint (an older tt did not write down which folder that was)"
    corpora = source["corpora"]
    shown = [*corpora[:_SHOWN_CORPORA], *(["..."] if len(corpora) > _SHOWN_CORPORA else [])]
    of_corpora = f" of {', '.join(shown)}" if shown else ""
    return f"{source['folder']} ({source['pairs']:,} pairs{of_corpora})"
