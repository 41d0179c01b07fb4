"""The datasets of a tfds: name: subsets, languages, splits and sizes.

This module does not use the network. Prepared datasets on this machine describe themselves. For
other datasets, the package tensorflow-datasets knows names, languages, parts and download sizes.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import types
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


# Splits of those whose package does not tell them before they are prepared.
_SPLITS = {
    "flores": ["validation", "test"],
    "opus": ["train"],
    "para_crawl": ["train"],
    "ted_hrlr_translate": ["train", "validation", "test"],
    "ted_multi_translate": ["train", "validation", "test"],
}


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
    split_names: list[str] = dataclasses.field(default_factory=list)
    # Names that `--subset SPLIT=NAME` takes, by split, of what TFDS makes of several corpora.
    parts: dict[str, list[str]] = dataclasses.field(default_factory=dict)
    # Bytes to download of each part; 0 where they are not known, or where you fetch it yourself.
    part_bytes: dict[str, int] = dataclasses.field(default_factory=dict)
    download_bytes: int = 0  # of all subsets together, or of the parts; 0 if not known


def list_tfds(name: str, *, data_dir: str | None = None) -> list[TfdsSubset]:
    """Return the datasets of a name: "" all datasets, "opus" its subsets, "opus/en-de" its splits.

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
    """Yield the datasets that this machine has prepared."""
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
                split_names=list(builder.info.splits),
            )


def _known(dataset: str) -> Iterator[TfdsSubset]:
    """Yield the datasets that the package knows, without the pairs of their splits."""
    import tensorflow_datasets as tfds

    try:
        kind: Any = tfds.builder_cls(dataset)
    except (tfds.core.DatasetNotFoundError, ValueError):  # or no name of one
        return
    download = sum(info.size for info in kind.url_infos.values() if info.size)
    for config in kind.BUILDER_CONFIGS or [None]:
        parts = _wmt_parts(kind, config) or getattr(config, "subsets", None) or {}
        if not isinstance(parts, Mapping):  # of OPUS, which has but one split
            parts = {"train": parts}
        sizes = _wmt_bytes(kind, config, parts) if hasattr(kind, "_subsets") else {}
        yield TfdsSubset(
            name=f"{dataset}/{config.name}" if config else dataset,
            languages=list(getattr(config, "language_pair", None) or ()),
            is_prepared=False,
            splits=[],
            split_names=[str(split) for split in parts] or _SPLITS.get(dataset, []),
            parts={str(split): list(names) for split, names in parts.items()},
            part_bytes=sizes,
            download_bytes=sum(sizes.values()) or int(download),
        )


def _wmt_parts(kind: Any, config: Any) -> dict[str, list[str]]:
    """Returns the corpora of each split of a dataset of WMT; of another dataset none.

    A builder says it, but one that is made asks the network for what is prepared elsewhere.
    """
    if config is None or not hasattr(kind, "_subsets"):
        return {}
    builder = types.SimpleNamespace(builder_config=config)
    builder._subsets = kind._subsets.fget(builder)
    found = kind.subsets.fget(builder)
    return {str(split): list(names) for split, names in found.items()}


def _wmt_bytes(kind: Any, config: Any, parts: Mapping[str, Any]) -> dict[str, int]:
    """Returns the bytes to download of each corpus; files that several share count for each."""
    import tensorflow_datasets as tfds

    found = {}
    for name in dict.fromkeys(name for names in parts.values() for name in names):
        corpus = tfds.translate.wmt.DATASET_MAP[name]
        source = next(each for each in config.language_pair if each in corpus.sources)
        urls = corpus.get_url(source)
        found[name] = sum(int(kind.url_infos[u].size or 0) for u in urls if u in kind.url_infos)
    return found


def _languages(builder: Any) -> list[str]:
    keys = builder.info.supervised_keys
    if keys:
        return [str(key) for key in keys]
    return [str(key) for key in builder.info.features]


def _splits(builder: Any) -> list[TfdsSplit]:
    return [
        TfdsSplit(name=name, pairs=split.num_examples, bytes=int(split.num_bytes))
        for name, split in builder.info.splits.items()
    ]
