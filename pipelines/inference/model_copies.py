"""Copies of the model: how many work at once on a machine."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from model.engines.machine import calls_at_once, cores
from model.errors import require
from pipelines.runners.beam_options import has_direct_workers, has_worker_processes, local_workers


@dataclasses.dataclass(frozen=True)
class ModelCopies:
    """How a job shares the cores of a machine."""

    copies: int | None  # translations at once; None where another runner decides it
    threads: int  # threads of each translation
    # Whether each has a process and a model of its own; threads share one.
    are_processes: bool = False
    gpus: int = 0  # GPUs, each of which makes one translation at a time; 0 leaves it to the cores

    def describe(self) -> str:
        """Says it in a line.

        >>> ModelCopies(2, 1).describe()
        'Translating 2 units of rows at once, each by 1 thread'
        """
        if self.gpus and self.copies is not None:
            at_once = min(self.copies, self.gpus)
            return f"Translating {_units(at_once)}, {'on the' if at_once == 1 else 'each on a'} GPU"
        threads = f"{self.threads} thread{'' if self.threads == 1 else 's'}"
        if self.copies is None:
            return f"Translating a unit of rows in each worker that the runner starts, by {threads}"
        if self.copies == 1:
            return f"Translating {_units(1)}, by {threads}"
        models = ", each with a copy of the model" if self.are_processes else ""
        return f"Translating {_units(self.copies)}, each by {threads}{models}"


def _units(at_once: int) -> str:
    return "a unit of rows at a time" if at_once == 1 else f"{at_once} units of rows at once"


def plan_copies(copies: int | None, *, beam_arguments: Sequence[str], gpus: int = 0) -> ModelCopies:
    """Decides how many translations run at once on this machine, and by how many threads each.

    By default each GPU has one. Without any, each core has one, of one thread: two threads of a
    product of so few rows gain less than two translations. Another runner starts the workers
    itself (Dataflow a process a core), so that one thread each is right there. A number of workers
    among Beam's flags is the number of copies.

    Raises:
      UserError: The two contradict each other, or exceed the cores of the machine.
    """
    require(copies is None or copies >= 1, "`copies` must be at least 1", copies)
    if not has_direct_workers(beam_arguments):
        require(
            copies is None,
            "`copies` is for jobs of a direct runner; another --runner has options of its own for "
            "the workers of a machine",
            copies,
        )
        return ModelCopies(None, 1)
    workers = local_workers(beam_arguments)
    require(
        workers is None or copies in (None, workers),
        f"`copies` is {copies} and Beam's flags ask for {workers} workers: they are the same, give "
        "one of them",
    )
    found = workers or copies or min(gpus, cores()) or cores()
    name = "--direct_num_workers" if copies is None else "`copies`"
    require(found <= cores(), f"{name} must be at most {cores()}, this machine's cores", found)
    return ModelCopies(
        found, calls_at_once(found), are_processes=has_worker_processes(beam_arguments), gpus=gpus
    )
