"""What is open once in a process, for all steps that ask for it.

Steps are pickled, and so cannot hold a client: they find it by what it is the client of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

_Key = TypeVar("_Key")
_Opened = TypeVar("_Opened")


class OpenOnce(Generic[_Key, _Opened]):
    """What is open in this process, by keys; all methods may be called from any thread.

    Args:
      make: Opens what belongs to a key, which must be hashable.
    """

    def __init__(self, make: Callable[[_Key], _Opened]) -> None:
        self._make = make
        self._opened: dict[_Key, _Opened] = {}
        self._lock = threading.Lock()

    def find(self, key: _Key) -> _Opened:
        """Returns what is open for a key, and opens it if nothing is.

        Raises:
          Exception: What opening it raised; the next call tries again.
        """
        with self._lock:
            if key not in self._opened:
                self._opened[key] = self._make(key)
            return self._opened[key]

    def take(self, key: _Key) -> _Opened | None:
        """Returns what is open for a key, if anything is, to be closed: it is not found again."""
        with self._lock:
            return self._opened.pop(key, None)
