"""One model per process for all steps, and the number of translations at once on a machine."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence

from apache_beam.utils.shared import Shared

from tt.model.engines.machine import calls_at_once, cores
from tt.model.engines.translator import Translator
from tt.model.errors import counted, require
from tt.pipelines.inference.model_loading import ModelLoader
from tt.pipelines.runners.beam_options import has_direct_workers, local_workers

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


@dataclasses.dataclass(frozen=True)
class ModelCopies:
    """How a job divides a machine between parallel translations."""

    copies: int | None  # parallel translations; None if the runner decides
    threads: int  # threads per translation
    gpus: int = 0  # GPUs, each of which translates one unit at a time; 0 uses the cores

    def describe(self) -> str:
        """Return a line for the user.

        >>> ModelCopies(2, 1).describe()
        'Translating 2 units in parallel, with 1 thread each'
        """
        if self.copies is None:
            return "Translating in the workers that the runner starts"
        on = f"with {counted(self.threads, 'thread')} each"
        if self.gpus:
            on = f"on {counted(min(self.copies, self.gpus), 'GPU')}"
        return f"Translating {counted(self.copies, 'unit')} in parallel, {on}"


def plan_copies(copies: int | None, *, beam_arguments: Sequence[str], gpus: int = 0) -> ModelCopies:
    """Decide how many translations run in parallel on this machine, with how many threads each.

    By default, each GPU has two units: it translates one of them, while a core prepares the other.
    Without a GPU, each core runs one translation with one thread, because two translations with one
    thread each are faster than one with two threads. If Beam's options contain a number of workers,
    that is the number of copies. Runners on other machines decide how many workers to start.
    Dataflow starts one process per core, so a translation there has one thread.

    Args:
      copies: Number of copies that the user asks for, or None.
      beam_arguments: Options of Apache Beam.
      gpus: Number of GPUs.

    Raises:
      UserError: `copies` contradicts Beam's options, or exceeds the number of cores.
    """
    require(copies is None or copies >= 1, "`copies` must be at least 1", copies)
    if not has_direct_workers(beam_arguments):
        require(
            copies is None,
            f"`copies` works only with a direct runner. Received: {copies}. Remove the "
            "option, and set the runner's own option for the number of workers",
        )
        return ModelCopies(None, 1)
    workers = local_workers(beam_arguments)
    require(
        workers is None or copies in (None, workers),
        f"`copies` is {copies}, but Beam's options ask for {workers} workers. Remove either option",
    )
    asked = workers or copies or 0
    name = "--direct_num_workers" if copies is None else "`copies`"
    require(asked <= cores(), f"{name} must be at most {cores()}, this machine's cores", asked)
    found = asked or 2 * gpus or cores()
    return ModelCopies(found, calls_at_once(found), gpus=gpus)
