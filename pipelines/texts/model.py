"""How a worker gets its model, and how many work at once on a machine."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence

from model.engines.loading import calls_at_once, cores, load_translator
from model.engines.translator import TranslatorLike
from model.errors import UserError
from model.folders.cache import default_cache
from model.formats.model_folder import model_fingerprint
from model.transformer.config import Decoding, Engine
from pipelines.runners.runner import has_direct_workers, has_worker_processes, local_workers
from pipelines.runners.staging import stage_model

_LOGGER = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True)
class ModelLoader:
    """Loads a model in the worker, into which it is copied first; engines are imported there.

    Attributes:
      folder: A model folder, run folder or export for CTranslate2, of any file system that Beam
        knows.
      decoding: How to search.
      engine: What computes.
      threads: Of a translation; see `load_translator`.
      fingerprint: Of the model that was planned; None takes any.
    """

    folder: str
    decoding: Decoding
    engine: Engine = dataclasses.field(default_factory=Engine)
    threads: int = 0
    fingerprint: str | None = None

    def __call__(self) -> TranslatorLike:
        """Loads the model.

        Raises:
          UserError: It is missing, cannot be read, is not for the engine, or is another one.
        """
        folder = stage_model(self.folder, cache=default_cache(), report=_LOGGER.info)
        found = None if self.fingerprint is None else model_fingerprint(folder)
        if found != self.fingerprint:
            raise UserError(
                f"the model {self.folder} is another one for a worker ({found}) than when the run "
                f"was planned ({self.fingerprint}): put that back, or start again in another folder"
            )
        return load_translator(
            str(folder),
            decoding=self.decoding,
            engine=self.engine,
            threads=self.threads,
            is_checked=found is not None,
        )


@dataclasses.dataclass(frozen=True)
class ModelCopies:
    """How a job shares the cores of a machine.

    Attributes:
      copies: Translations at once; None where another runner decides it.
      threads: Of each of them.
      are_processes: Whether each has a process and a model of its own; threads share one.
      gpus: That each make one translation at a time; 0 leaves it to the cores.
    """

    copies: int | None
    threads: int
    are_processes: bool = False
    gpus: int = 0

    def describe(self) -> str:
        """Says it in a line.

        >>> ModelCopies(2, 1).describe()
        '2 translations at once, each by 1 thread'
        """
        if self.gpus and self.copies is not None:
            at_once = min(self.copies, self.gpus)
            return f"{at_once} translation{'' if at_once == 1 else 's'} at once, one a GPU"
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        if self.copies is None:
            return f"Translations by {threads} each, as many at once as the runner starts workers"
        if self.copies == 1:
            return f"1 translation at once, by {threads}"
        models = ", each with a copy of the model" if self.are_processes else ""
        return f"{self.copies} translations at once, each by {threads}{models}"


def plan_copies(copies: int | None, *, beam_arguments: Sequence[str], gpus: int = 0) -> ModelCopies:
    """Decides how many translations run at once on this machine, and by how many threads each.

    By default each GPU has one. Without any, each core has one, of one thread: two threads of a
    product of so few rows gain less than two translations. Another runner starts the workers
    itself (Dataflow a process a core), so that one thread each is right there.

    Args:
      copies: What the user asked for, if anything.
      beam_arguments: Beam's own flags; a number of workers among them is the number of copies.
      gpus: That the engine computes on.

    Raises:
      UserError: The two contradict each other, or are more than the machine has cores.
    """
    if copies is not None and copies < 1:
        raise UserError(f"--model-copies must be at least 1. Received: {copies}")
    if not has_direct_workers(beam_arguments):
        if copies is not None:
            raise UserError(
                "--model-copies is for jobs of a direct runner; of another --runner, its own "
                f"options say how many workers a machine has. Received: {copies}"
            )
        return ModelCopies(None, 1)
    workers = local_workers(beam_arguments)
    if copies is not None and workers is not None and copies != workers:
        raise UserError(
            f"--model-copies is {copies} and Beam's flags ask for {workers} workers: they are the "
            "same, give one of them"
        )
    found = workers or copies or min(gpus, cores()) or cores()
    if found > cores():
        flag = "--direct_num_workers" if copies is None else "--model-copies"
        raise UserError(
            f"{flag} must be at most {cores()}, this machine's cores. Received: {found}"
        )
    return ModelCopies(
        found,
        calls_at_once(found),
        are_processes=has_worker_processes(beam_arguments),
        gpus=gpus,
    )
