"""One model per process, however many steps and threads ask for it."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable

from apache_beam.utils.shared import Shared

from tt.model.engines.translator import Translator
from tt.pipelines.inference.model_loading import ModelLoader

_lock = threading.Lock()


class SharedTranslator:
    """A translator that all steps with an equal loader share, in each process.

    Args:
      load: Makes the translator; must pickle.
    """

    def __init__(self, load: Callable[[], Translator]) -> None:
        self._load = load
        try:
            self._shared = _share(load)
        except TypeError:  # the loader has no hash
            self._shared = Shared()

    def acquire(self) -> Translator:
        """Return the translator of this process; load it unless another step has done so.

        A model folder that has changed is loaded again.
        """
        # Only of a `ModelLoader` it is known whether its model has changed.
        with _lock:  # to find the state as well: that copies a model of another file system
            state = self._load.find_state() if isinstance(self._load, ModelLoader) else None
            found: Translator = self._shared.acquire(self._load, tag=state)
        return found


@functools.lru_cache(maxsize=64)
def _share(load: Callable[[], Translator]) -> Shared:
    """Return one handle for equal loaders; each process that unpickles it has one model."""
    return Shared()
