"""The model of a job for its workers: how many copies of it work at once, and what loads them."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from tt.model.engines.loading import convert
from tt.model.engines.machine import calls_at_once, cores
from tt.model.engines.translator import Engine, Translator
from tt.model.errors import counted, require
from tt.model.formats.model_folder import is_ctranslate2, model_files, model_fingerprint
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import CustomModel, FoundModel, ModelLoader
from tt.pipelines.runners.beam_options import (
    has_direct_workers,
    local_workers,
)
from tt.pipelines.runners.workers import are_elsewhere
from tt.pipelines.storage.files import AT_ONCE, make_folder, write_whole

_CHUNK_BYTES = 8 << 20


def make_loader(
    model: str | CustomModel,
    *,
    found: FoundModel,
    decoding: Decoding,
    engine: Engine,
    threads: int,
    place: str,
    beam_arguments: Sequence[str],
) -> Callable[[], Translator]:
    """Return what loads a job's model in its workers.

    For CTranslate2 the model is converted here, so that workers need no TensorFlow.

    Args:
      model: The model that the user named.
      found: What was found there.
      decoding: How to search.
      engine: What computes.
      threads: Threads of a translation; see `load_translator`.
      place: Folder of the job's that gets a converted model, if the workers are of other machines;
        those of this one find it in its cache.
      beam_arguments: Beam's own flags.

    Raises:
      UserError: The model cannot be converted, or the cache cannot be written.
    """
    loader = found.loader(model, decoding=decoding, engine=engine, threads=threads)
    if not isinstance(loader, ModelLoader) or found.folder is None:
        return loader
    if engine.name != "ctranslate2" or is_ctranslate2(found.folder):
        return loader
    converted = convert(found.folder)
    is_elsewhere = are_elsewhere(beam_arguments)
    folder = _put(converted, place=place) if is_elsewhere else str(converted)
    return dataclasses.replace(loader, folder=folder, fingerprint=model_fingerprint(converted))


def _put(folder: Path, *, place: str) -> str:
    """Copy a model to a folder of any file system; returns that folder."""
    make_folder(place)

    def copy(name: str) -> None:
        with (
            (folder / name).open("rb") as source,
            write_whole(f"{place}/{name}", temporary_folder=place) as target,
        ):
            shutil.copyfileobj(source, target, _CHUNK_BYTES)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(copy, model_files(folder)))
    return place


@dataclasses.dataclass(frozen=True)
class ModelCopies:
    """How a job shares the cores of a machine."""

    copies: int | None  # translations at once; None where another runner decides it
    threads: int  # threads of each translation
    gpus: int = 0  # GPUs, each of which makes one translation at a time; 0 leaves it to the cores

    def describe(self) -> str:
        """Say it in a line.

        >>> ModelCopies(2, 1).describe()
        'Translating 2 units at once, with 1 thread each'
        """
        if self.copies is None:
            return "Translating in the workers that the runner starts"
        at_once = counted(min(self.copies, self.gpus or self.copies), "unit")
        each = "a GPU" if self.gpus else counted(self.threads, "thread")
        return f"Translating {at_once} at once, with {each} each"


def plan_copies(copies: int | None, *, beam_arguments: Sequence[str], gpus: int = 0) -> ModelCopies:
    """Decide how many translations run at once on this machine, and by how many threads each.

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
    return ModelCopies(found, calls_at_once(found), gpus=gpus)
