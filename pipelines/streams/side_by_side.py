"""The texts of one call on all cores: in shares of like length, each by a thread of the model.

Two threads of a product of so few rows gain less than two translations at once. A job on tables has
as many units at once as cores; a stream has one bundle at a time, which is divided here.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tt.model.engines.machine import cores
from tt.model.engines.translator import Translation, Translator, Work, between, is_on_gpus

_LEAST_ROWS = 8  # fewer take as long as one
_MOST_TOKENS = 2048  # of a share over all beams: larger batches are hardly faster


class SideBySide:
    """A translator whose calls are divided among threads; in all else that which is given.

    Args:
      translator: Of one thread; threads may share it.
      calls: Calls of it at once.
      pool: Threads that make the calls; None makes them.
    """

    def __init__(
        self, translator: Translator, *, calls: int, pool: ThreadPoolExecutor | None = None
    ) -> None:
        self._translator = translator
        self._calls = calls
        self._pool = pool or ThreadPoolExecutor(calls, thread_name_prefix="translate")
        self.decoding, self.encode = translator.decoding, translator.encode
        self.count_unknown = translator.count_unknown
        self.is_input_error = translator.is_input_error

    def between(self, *, source: str, target: str) -> SideBySide:
        """Return one between two languages, with the same threads; see `between`."""
        other = between(self._translator, source=source, target=target)
        return SideBySide(other, calls=self._calls, pool=self._pool)

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Translate ids, in their order; waits for all shares.

        Raises:
          Exception: What a share raised; rather what was no fault of a source, as that is not to be
            tried again in parts.
        """
        most = max(1, _MOST_TOKENS // self.decoding.beam_size)
        shares = divide([len(row) for row in source_ids], calls=self._calls, most_tokens=most)
        if len(shares) == 1:
            return self._translator.translate_ids(source_ids)
        waiting = [
            self._pool.submit(self._translator.translate_ids, [source_ids[i] for i in share])
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
        return [translations[i] for i in range(len(source_ids))], work


_pools: list[SideBySide] = []  # the last one of this process
_lock = threading.Lock()


def share(translator: Translator) -> SideBySide:
    """Return the translator side by side on all cores; a process has one pool of threads for it."""
    with _lock:
        if not _pools or _pools[0]._translator is not translator:
            calls = 1 if is_on_gpus(translator) else cores()
            _pools[:] = [SideBySide(translator, calls=calls)]
        return _pools[0]


def divide(lengths: Sequence[int], *, calls: int, most_tokens: int) -> list[list[int]]:
    """Return shares of rows of like length, the longest first, by the rows' places.

    There are as many shares as keep all calls busy to the end, of about as many tokens.

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
