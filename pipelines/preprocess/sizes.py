"""Choose the sizes of units, shards and buckets from the bytes of text in a corpus."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tt.model.dataset.manifest import TEST, TRAIN, VALIDATION
from tt.pipelines.preprocess.options import MAX_PLACEHOLDER_SHARE, PreprocessOptions
from tt.pipelines.preprocess.sources import SLICE_PAIRS
from tt.pipelines.preprocess.spills import SplitPlan
from tt.pipelines.preprocess.units import MAX_UNIT_BYTES, MAX_UNIT_PAIRS

_UNITS = 64  # A large input has at least this many units, so that many workers get some.
_MOST_UNITS = 1000  # An input has about this many units at most, if such units fit into memory.
_MAX_UNIT_PAIRS_OF_HUGE = 1024 * 1024
_PAIR_BYTES = 100  # A low estimate of the bytes of text per pair.
_LEAST_GROUP_BYTES = SLICE_PAIRS * _PAIR_BYTES  # about the smallest size of a unit
_BUCKET_BYTES = 64 << 20  # The most text per bucket in memory; its records have fewer bytes.
_RECORD_SHARE = 0.7  # approximate bytes of records per byte of text
_MAX_SHARDS = 1024
_VALIDATION_SHARD_BYTES = 256 << 20
_PLACEHOLDER_SHARE = 0.1  # of a large corpus; the share of a small corpus is larger
_PLACEHOLDER_PAIRS = 25_000  # at least about this many pairs, of which few have shared tokens


def plan_sizes(train: int, held_out: int, *, options: PreprocessOptions) -> dict[str, Any]:
    """Return the fields of a `DatasetPlan` that depend on the bytes of text.

    Args:
      train: The bytes of the sources to train on.
      held_out: The bytes of the held-out sources.
      options: The options of the dataset.
    """
    return {
        "unit_pairs": unit_pairs_of(train + held_out),
        "placeholder_share": _placeholder_share(train, options=options),
        "splits": _plan_splits(train, held_out, options=options),
    }


def unit_pairs_of(text_bytes: int) -> int:
    """Return the maximum number of pairs per unit for an input of this size.

    A small input has small units, so that all workers get units. A huge input has large units,
    because merging a shard takes at least one request per unit.
    """
    pairs = text_bytes // _PAIR_BYTES
    most = min(max(MAX_UNIT_PAIRS, math.ceil(pairs / _MOST_UNITS)), _MAX_UNIT_PAIRS_OF_HUGE)
    return min(most, max(1, math.ceil(pairs / _UNITS / SLICE_PAIRS)) * SLICE_PAIRS)


def _placeholder_share(text_bytes: int, *, options: PreprocessOptions) -> float:
    """Return the share of the pairs in which placeholders replace shared tokens.

    A small corpus has a larger share, because a model needs hundreds of pairs with placeholders.
    """
    if not options.protect or options.placeholder_share is not None:
        return options.placeholder_share or 0
    pairs = max(1, text_bytes // _PAIR_BYTES)
    return min(max(_PLACEHOLDER_SHARE, _PLACEHOLDER_PAIRS / pairs), MAX_PLACEHOLDER_SHARE)


def group_sources(text_bytes: Sequence[int], *, held_out_from: int) -> list[int]:
    """Return, for each source, the position of the first source in its group.

    The sources of a group share units. If there are many sources, neighboring small sources form
    groups; otherwise each source is a group. Held-out sources are never in a group with others.
    """
    if len(text_bytes) <= _MOST_UNITS:
        return list(range(len(text_bytes)))
    limit = min(max(sum(text_bytes) // _MOST_UNITS, _LEAST_GROUP_BYTES), MAX_UNIT_BYTES)
    groups: list[int] = []
    first = size = 0
    for order, own in enumerate(text_bytes):
        if order == held_out_from or size + own > limit:
            first, size = order, 0
        size += own
        groups.append(first)
    return groups


def _plan_splits(train: int, held_out: int, *, options: PreprocessOptions) -> dict[str, SplitPlan]:
    """Derive the shards and buckets from the bytes of text, so that a rerun has the same."""
    validation = held_out or math.ceil(train * options.validation_fraction)
    by_size = math.ceil(train * _RECORD_SHARE / (options.shard_megabytes * 2**20))
    shards = options.shards or min(max(1, by_size), _MAX_SHARDS)
    validation_shards = max(1, math.ceil(validation / _VALIDATION_SHARD_BYTES))

    def spread(text_bytes: int, shards: int) -> SplitPlan:
        buckets = max(1, math.ceil(text_bytes / shards / _BUCKET_BYTES))
        return SplitPlan(shards=shards, buckets_per_shard=buckets)

    splits = {TRAIN: spread(train, shards), VALIDATION: spread(validation, validation_shards)}
    if options.test_fraction:
        test = math.ceil(train * options.test_fraction)
        splits[TEST] = spread(test, max(1, math.ceil(test / _VALIDATION_SHARD_BYTES)))
    return splits
