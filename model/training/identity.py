"""What tells one run from another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from model.dataset.manifest import DatasetManifest
from model.folders.differences import describe_differences

DATASET_SOURCE = "dataset_source"  # where `describe_dataset` puts what it finds
_SHOWN_CORPORA = 3

# What may change when a run is resumed: the weights up to then do not depend on it.
_MAY_CHANGE = (
    "data", DATASET_SOURCE, "replicas", "training.steps", "training.epochs",
    "training.validate_every", "training.score_every", "training.score_sentences",
    "training.patience", "training.keep_best", "training.save_every", "training.keep_checkpoints",
    "training.average", "training.log_every", "training.jit",
)  # fmt: skip

# What follows from the dataset: where that is another, it says nothing more.
_OF_THE_DATASET = (
    "model.source_vocabulary_size", "model.target_vocabulary_size", "model.shared_vocabulary",
)  # fmt: skip


def describe_dataset(manifest: DatasetManifest, *, folder: str) -> dict[str, Any]:
    """Returns what of a configuration tells which dataset it is; runs are not compared by it."""
    names = [source["name"] for source in manifest.sources if not source.get("is_held_out")]
    return {
        DATASET_SOURCE: {
            "folder": folder,
            "pairs": manifest.pairs_kept,
            "corpora": list(dict.fromkeys(names)),
        }
    }


def fill_defaults(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return a configuration with the defaults of the options that its parts lack.

    >>> fill_defaults({"training": {"seed": 2}}, {"training": {"seed": 1, "ema": None}})
    {'training': {'seed': 2, 'ema': None}}
    """
    return {**config, **{part: {**found, **config[part]} for part, found in defaults.items()}}


def describe_difference(saved: dict[str, Any], asked: dict[str, Any]) -> str:
    """Describe how the configurations of a saved run and a requested run differ, or return ""."""

    def datasets(*_: str) -> list[str]:  # their fingerprints tell a user nothing
        there, here = (_dataset_words(config.get(DATASET_SOURCE)) for config in (saved, asked))
        if there == here:
            return [f"its dataset, {here}, has been made anew since, of other input or otherwise"]
        return [f"it trains on the dataset {there}, not on {here}"]

    def initial(*_: Any) -> list[str]:
        there, here = (config.get("init_from") for config in (saved, asked))
        if (there or {}).get("fingerprint") == (here or {}).get("fingerprint"):
            return []  # the same model in another place
        words = [f"the weights of {each['model']}" if each else "random weights"
                 for each in (there, here)]  # fmt: skip
        return [f"it began with {words[0]}, not with {words[1]}"]

    words = {"dataset": datasets, "init_from": initial}
    is_other = saved.get("dataset") != asked.get("dataset")
    ignored = (*_MAY_CHANGE, *(_OF_THE_DATASET if is_other else ()))
    saved, asked = (_dataset_first(config) for config in (saved, asked))
    return "; ".join(describe_differences(saved, asked, words=words, ignored=ignored))


def _dataset_first(config: dict[str, Any]) -> dict[str, Any]:
    """Returns it in the order of messages: what else differs may follow from the dataset."""
    return {name: config[name] for name in ("dataset",) if name in config} | config


def _dataset_words(source: dict[str, Any] | None) -> str:
    if not source:
        return "of another fingerprint (an older tt did not write down its folder)"
    corpora = source["corpora"]
    shown = [*corpora[:_SHOWN_CORPORA], *(["..."] if len(corpora) > _SHOWN_CORPORA else [])]
    of_corpora = f" of {', '.join(shown)}" if shown else ""
    return f"{source['folder']} ({source['pairs']:,} pairs{of_corpora})"
