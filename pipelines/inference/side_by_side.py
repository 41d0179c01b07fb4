"""Divide one call of a translator among all cores or GPUs.

Rows of similar length form a share, and each thread translates one share at a time. The batches of
a stream are small, so two translations at once are faster than one translation on two threads, and
one translation uses only one GPU. A job on tables translates several units at once. A stream and
`tt translate` have only one batch at a time, so this module divides the batch.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tt.model.engines.machine import cores
from tt.model.engines.translator import (
    Input,
    Scorer,
    Translation,
    Translator,
    Work,
    count_used_gpus,
)
from tt.model.transformer.search_options import GPU_BATCH_TOKENS

_LEAST_ROWS = 8  # smaller calls are not divided, because fewer rows take as long as one row
# Tokens per share, counted once per beam; on a CPU, larger shares are hardly faster.
_MOST_TOKENS = 2048


class SideBySide:
    """A translator that gives the results of `translator`, but divides each call among threads.

    Args:
      translator: A single-threaded translator that threads may share.
      calls: Number of concurrent calls of `translator`.
    """

    def __init__(self, translator: Translator, *, calls: int) -> None:
        self._translator = translator
        self._calls = calls
        self._pool = ThreadPoolExecutor(calls, thread_name_prefix="translate")
        self.gpus = count_used_gpus(translator)
        self.decoding, self.prepare = translator.decoding, translator.prepare
        self.is_input_error = translator.is_input_error
        if isinstance(translator, Scorer):
            self.score = translator.score

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Translate inputs, and return the translations in the same order.

        Raises:
          Exception: The error of a share. If several shares fail, an error that no source caused
            takes precedence, because the caller must not retry it with fewer rows.
        """
        tokens = GPU_BATCH_TOKENS if self.gpus else _MOST_TOKENS
        most = max(1, tokens // self.decoding.beam_size)
        shares = divide([each.length + 2 for each in inputs], calls=self._calls, most_tokens=most)
        if len(shares) == 1:
            return self._translator.translate(inputs)
        waiting = [
            self._pool.submit(self._translator.translate, [inputs[i] for i in share])
            for share in shares
        ]
        errors = [error for each in waiting if (error := each.exception()) is not None]
        if errors:
            raise min(errors, key=lambda e: isinstance(e, Exception) and self.is_input_error(e))
        translations: dict[int, Translation] = {}
        work = Work()
        for share, each in zip(shares, waiting, strict=True):
            found, took = each.result()
            translations.update(zip(share, found, strict=True))
            work += took
        return [translations[i] for i in range(len(inputs))], work


_pools: list[SideBySide] = []  # the pool of this process, if there is one
_lock = threading.Lock()


def use_all_devices(translator: Translator) -> SideBySide:
    """Return a `SideBySide` with one call per GPU or core; a process has one pool of threads."""
    with _lock:
        if not _pools or _pools[0]._translator is not translator:
            _pools[:] = [SideBySide(translator, calls=count_used_gpus(translator) or cores())]
        return _pools[0]


def divide(lengths: Sequence[int], *, calls: int, most_tokens: int) -> list[list[int]]:
    """Divide rows into shares of similar length, the longest first; return row numbers per share.

    The shares have about the same number of tokens. Their number is a multiple of `calls`, which
    keeps all threads busy until the end.

    >>> divide([3, 9, 4, 8] * 2, calls=2, most_tokens=100)
    [[1, 5, 3], [7, 2, 6, 0, 4]]
    >>> divide([3, 9], calls=2, most_tokens=100)
    [[0, 1]]
    """
    total = sum(lengths)
    if calls == 1 or len(lengths) < _LEAST_ROWS or not total:
        return [list(range(len(lengths)))]
    count = calls * -(-total // (calls * most_tokens))
    shares: list[list[int]] = [[]]
    taken = 0
    for place in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        if shares[-1] and taken + lengths[place] / 2 > total * len(shares) / count:
            shares.append([])
        shares[-1].append(place)
        taken += lengths[place]
    return shares
