"""One model a process, however many steps and threads ask for it."""

from __future__ import annotations

import collections
import threading
import weakref
from collections.abc import Callable, Hashable
from typing import Any

from apache_beam.internal import pickler

from model.engines.translator import Translator
from pipelines.inference.model_loading import ModelLoader

_lock = threading.Lock()  # of all below
_loading: dict[Hashable, threading.Lock] = collections.defaultdict(threading.Lock)
_models: weakref.WeakValueDictionary[Hashable, Any] = weakref.WeakValueDictionary()
_kept: list[Translator] = []  # the last one, which steps that are idle may have let go of


class SharedTranslator:
    """A translator that all who have an equal loader share, in each process.

    Loaders are equal if they say so themselves, as each `ModelLoader` does, or if they pickle to
    the same bytes.

    Args:
      load: Makes the translator; must pickle.
    """

    def __init__(self, load: Callable[[], Translator]) -> None:
        self._load = load
        # Made where the job starts: what is pickled twice may have other bytes each time.
        self._key = load if _has_equality(load) else pickler.dumps(load)

    def acquire(self) -> Translator:
        """Returns the translator of this process; loads it where no other step has done so.

        A model folder that has changed since is loaded anew.
        """
        with _lock:
            loading = _loading[self._key]
        with loading:  # to find the state as well: that copies a model of another file system
            # Of a loader of another kind it cannot be known whether its model has changed.
            state = self._load.find_state() if isinstance(self._load, ModelLoader) else None
            key = (self._key, state)
            translator: Translator | None = _models.get(key)
            if translator is None:
                translator = self._load()
                _models[key] = translator
        if state is not None:
            with _lock:
                _kept[:] = [translator]
        return translator


def _has_equality(load: Callable[[], Translator]) -> bool:
    equality: object = type(load).__eq__
    return equality is not object.__eq__ and isinstance(load, Hashable)
