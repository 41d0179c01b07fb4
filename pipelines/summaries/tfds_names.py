"""What a tfds: name offers, before one chooses: subsets, languages, splits and sizes.

Nothing is asked of the network: what is prepared on this machine tells all of itself, and of the
rest TensorFlow Datasets' package knows names, languages, parts and the bytes to download.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from model.errors import UserError

# Datasets of TensorFlow Datasets that have translations.
DATASETS = (
    "flores", "opus", "para_crawl", "ted_hrlr_translate", "ted_multi_translate", "wmt13_translate",
    "wmt14_translate", "wmt15_translate", "wmt16_translate", "wmt17_translate", "wmt18_translate",
    "wmt19_translate", "wmt_t2t_translate",
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSplit:
    """A split of a dataset."""

    name: str
    pairs: int
    bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class TfdsSubset:
    """A dataset in a pair of languages."""

    name: str  # as `tt preprocess` takes it, without tfds:
    languages: list[str]  # empty where they are not known
    is_prepared: bool  # on this machine
    splits: list[TfdsSplit]  # empty where it is not prepared
    # Names that `--subset SPLIT=NAME` takes, by split, of what TFDS makes of several corpora.
    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    download_bytes: int = 0  # of all subsets of the dataset together; 0 where they are not known


def list_tfds(name: str, *, data_dir: str | None = None) -> list[TfdsSubset]:
    """Returns what a name offers: "" all datasets, "opus" its subsets, "opus/en-de" its splits.

    It imports TensorFlow.

    Raises:
      UserError: There is no such dataset or subset.
    """
    import tensorflow_datasets as tfds

    folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    if not name:
        return [
            TfdsSubset(
                name=each,
                languages=[],
                is_prepared=any((folder / each).glob("**/dataset_info.json")),
                splits=[],
            )
            for each in DATASETS
        ]
    dataset, _, config = name.partition("/")
    prepared = {subset.name: subset for subset in _prepared(folder, dataset)}
    known = {subset.name: subset for subset in _known(dataset) if subset.name not in prepared}
    found = {**prepared, **known}
    if config:
        found = {key: found[key] for key in found if key == name or key.startswith(f"{name}/")}
    if not found:
        raise UserError(
            f"TensorFlow Datasets knows no tfds:{name}, and none is prepared in {folder}: "
            "`tt show tfds:` lists the datasets"
        )
    return [found[key] for key in sorted(found)]


def _prepared(folder: Path, dataset: str) -> Iterator[TfdsSubset]:
    """Yields what lies on this machine, by its own files."""
    import tensorflow_datasets as tfds

    for path in sorted((folder / dataset).glob("**/dataset_info.json")):
        with contextlib.suppress(OSError, ValueError):  # what cannot be read is not prepared
            builder = tfds.builder_from_directory(os.fspath(path.parent))
            config = path.parent.relative_to(folder / dataset).parent.as_posix()
            yield TfdsSubset(
                name=dataset if config == "." else f"{dataset}/{config}",
                languages=_languages(builder),
                is_prepared=True,
                splits=_splits(builder),
            )


def _known(dataset: str) -> Iterator[TfdsSubset]:
    """Yields what the package says; pairs of a split are known when it is prepared."""
    import tensorflow_datasets as tfds

    try:
        kind: Any = tfds.builder_cls(dataset)
    except (tfds.core.DatasetNotFoundError, ValueError):  # or no name of one
        return
    download = sum(info.size for info in kind.url_infos.values() if info.size)
    for config in kind.BUILDER_CONFIGS or [None]:
        parts = getattr(config, "subsets", None) or {}
        if not isinstance(parts, Mapping):  # of OPUS, which has but one split
            parts = {"train": parts}
        yield TfdsSubset(
            name=f"{dataset}/{config.name}" if config else dataset,
            languages=list(getattr(config, "language_pair", None) or ()),
            is_prepared=False,
            splits=[],
            parts={str(split): list(names) for split, names in parts.items()},
            download_bytes=int(download),
        )


def _languages(builder: Any) -> list[str]:
    keys = builder.info.supervised_keys
    if keys:
        return [str(key) for key in keys]
    return [str(key) for key in builder.info.features]


def _splits(builder: Any) -> list[TfdsSplit]:
    return [
        TfdsSplit(name=name, pairs=split.num_examples, bytes=split.num_bytes)
        for name, split in builder.info.splits.items()
    ]
