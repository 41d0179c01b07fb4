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
_kept: list[Any] = []  # the last one, which steps that are idle may have let go of


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
        self._key = _make_key(load)
        self._held: _Holder | None = None

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
            model = _models.get(key)
            if model is None:
                model = _as_referable(self._load())
                _models[key] = model
        if state is not None:
            with _lock:
                _kept[:] = [model]
        if not isinstance(model, _Holder):
            translator: Translator = model
            return translator
        self._held = model  # nothing else refers to it
        return model.translator

    def __getstate__(self) -> dict[str, Any]:
        """Leaves the translator out, which each process has its own of."""
        return self.__dict__ | {"_held": None}


class _Holder:
    """A translator to which nothing can refer weakly, as it has `__slots__`."""

    def __init__(self, translator: Translator) -> None:
        self.translator = translator


def _as_referable(translator: Translator) -> Any:
    try:
        weakref.ref(translator)
    except TypeError:
        return _Holder(translator)
    return translator


def _make_key(load: Callable[[], Translator]) -> Hashable:
    """Returns the loader where its copies are equal to it, as those of a method are not."""
    pickled: bytes = pickler.dumps(load)
    copy = pickler.loads(pickled)
    try:
        return load if hash(copy) == hash(load) and copy == load else pickled
    except TypeError:  # what it holds has no hash
        return pickled
