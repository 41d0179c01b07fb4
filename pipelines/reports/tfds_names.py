"""List the datasets of a tfds: name, with their subsets, languages, splits and sizes.

This module does not use the network. The datasets that this machine has prepared contain their own
descriptions. For other datasets, the package tensorflow-datasets knows the languages, and often the
parts and sizes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds

from tt.model.errors import UserError
from tt.model.inspection.blocks import Section, Table
from tt.pipelines.runners.formatting import megabytes

# The translation datasets in TensorFlow Datasets.
DATASETS = (
    "flores", "opus", "para_crawl", "ted_hrlr_translate", "ted_multi_translate", "wmt13_translate",
    "wmt14_translate", "wmt15_translate", "wmt16_translate", "wmt17_translate", "wmt18_translate",
    "wmt19_translate", "wmt_t2t_translate",
)  # fmt: skip
# Splits of datasets for which the package does not know the splits until they are prepared.
_SPLITS = {
    "flores": "validation, test",
    "opus": "train",
    "para_crawl": "train",
    "ted_hrlr_translate": "train, validation, test",
    "ted_multi_translate": "train, validation, test",
}
_TITLE = "Datasets of TensorFlow Datasets"
_COLUMNS = ("name", "languages", "prepared here", "splits", "download", "made of")

_Row = tuple[str, str, bool, str, str, str]


def tfds_section(name: str, *, data_dir: str | None = None) -> Section:
    """Describe all datasets (""), the subsets of a dataset ("opus"), or one subset ("opus/en-de").

    Raises:
      UserError: There is no such dataset or subset.
    """
    folder = Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
    if not name:
        prepared = {path.relative_to(folder).parts[0] for path in _prepared_paths(folder)}
        all_rows = [[f"tfds:{each}", each in prepared] for each in DATASETS]
        return Section("tfds", _TITLE, [Table(["name", "prepared here"], all_rows)])
    dataset = name.partition("/")[0]
    found = {row[0]: row for row in (*_known(dataset), *_prepared(folder, dataset))}
    rows = [
        found[each]
        for each in sorted(found)
        if name == dataset or f"{each}/".startswith(f"tfds:{name}/")
    ]
    if not rows:
        raise UserError(
            f"TensorFlow Datasets has no tfds:{name}, and {folder} contains no prepared copy. List "
            "the datasets with `tt show tfds:`"
        )
    used = [i for i, column in enumerate(zip(*rows, strict=True)) if i == 2 or any(column)]
    table = Table([_COLUMNS[i] for i in used], [[row[i] for i in used] for row in rows])
    return Section("tfds", _TITLE, [table])


def _prepared_paths(folder: Path) -> list[Path]:
    return sorted(path.parent for path in folder.glob("**/dataset_info.json"))


def _prepared(folder: Path, dataset: str) -> Iterator[_Row]:
    """Yield the datasets that this machine has prepared."""
    for path in _prepared_paths(folder / dataset):
        # An unreadable dataset counts as not prepared.
        with contextlib.suppress(OSError, ValueError):
            info = tfds.builder_from_directory(os.fspath(path)).info
            name = path.parent.relative_to(folder).as_posix()
            languages = " ".join(map(str, info.supervised_keys or info.features))
            splits = ", ".join(
                f"{split} {about.num_examples:,} ({megabytes(int(about.num_bytes))})"
                for split, about in info.splits.items()
            )
            yield f"tfds:{name}", languages, True, splits, "", ""


def _known(dataset: str) -> Iterator[_Row]:
    """Yield the datasets that the package lists, without the number of pairs per split."""
    try:
        kind: Any = tfds.builder_cls(dataset)
    except (tfds.core.DatasetNotFoundError, ValueError):  # ValueError: the name is not valid
        return
    for config in kind.BUILDER_CONFIGS or [None]:
        parts = getattr(config, "subsets", None) or {}
        parts = parts if isinstance(parts, Mapping) else {"train": parts}  # OPUS has one split
        # The files of WMT contain all language pairs, so their size would be misleading.
        urls = [] if dataset.startswith("wmt") else kind.url_infos.values()
        size = sum(each.size or 0 for each in urls)
        made_of = "; ".join(f"{split}: {', '.join(names)}" for split, names in parts.items())
        yield (
            f"tfds:{dataset}/{config.name}" if config else f"tfds:{dataset}",
            " ".join(getattr(config, "language_pair", None) or ()),
            False,
            ", ".join(map(str, parts)) or _SPLITS.get(dataset, ""),
            megabytes(int(size)) if size else "",
            made_of,
        )
