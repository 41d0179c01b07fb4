"""Attributes of Beam's that are others while jobs of this process run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any


class Patch:
    """Another value for an attribute, as long as a block runs that wants it.

    Blocks of several threads may overlap: the first puts the value in, the last takes it out.

    Args:
      owner: Module or class.
      name: Name of its attribute.
      make: Makes the value, of that which is there.
    """

    def __init__(self, owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._make = owner, name, make
        self._lock = threading.Lock()
        self._blocks = 0
        self._before: Any = None

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Has the value in place while the block runs."""
        with self._lock:
            if not self._blocks:
                self._before = getattr(self._owner, self._name)
                setattr(self._owner, self._name, self._make(self._before))
            self._blocks += 1
        try:
            yield
        finally:
            with self._lock:
                self._blocks -= 1
                if not self._blocks:
                    setattr(self._owner, self._name, self._before)
