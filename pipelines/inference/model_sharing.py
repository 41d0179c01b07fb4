"""Share one model per process between all steps and threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from apache_beam.utils.shared import Shared

from tt.model.engines.translator import Translator
from tt.pipelines.inference.model_loading import ModelLoader

_lock = threading.Lock()


class SharedTranslator:
    """A translator that all steps of a process share if their loaders are equal.

    Args:
      load: Function that creates the translator. It must pickle.
    """

    def __init__(self, load: Callable[[], Translator]) -> None:
        self._load = load
        try:
            self._shared = _share(load)
        except TypeError:  # the loader is not hashable
            self._shared = Shared()

    def acquire(self) -> Translator:
        """Return the translator of this process, and load it if it is not yet loaded.

        A model folder whose files have changed is loaded again.
        """
        # Only a `ModelLoader` can tell whether the model has changed. The lock also covers
        # `find_state`, because that copies a remote model.
        with _lock:
            state = self._load.find_state() if isinstance(self._load, ModelLoader) else None
            found: Translator = self._shared.acquire(self._load, tag=state)
        return found


@functools.lru_cache(maxsize=64)
def _share(load: Callable[[], Translator]) -> Shared:
    """Return the same handle for equal loaders; a process loads one model per handle."""
    return Shared()
