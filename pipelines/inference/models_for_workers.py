"""The loader of a job's model for its workers, and the number of model copies per machine."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from tt.model.engines.loading import convert
from tt.model.engines.machine import calls_at_once, cores
from tt.model.engines.translator import Engine
from tt.model.errors import counted, require
from tt.model.formats.model_folder import is_ctranslate2, model_files, model_fingerprint
from tt.model.imports.hub import parse_address
from tt.model.storage.files import AT_ONCE, make_folder, write_whole
from tt.model.transformer.search_options import Decoding
from tt.pipelines.inference.model_loading import FoundModel, Loader, ModelLoader
from tt.pipelines.runners.beam_options import (
    has_direct_workers,
    local_workers,
)
from tt.pipelines.runners.workers import are_elsewhere

_CHUNK_BYTES = 8 << 20


def make_loader(
    model: str | Loader,
    *,
    found: FoundModel,
    decoding: Decoding,
    engine: Engine,
    threads: int,
    place: str,
    beam_arguments: Sequence[str],
) -> Loader:
    """Return a function that loads a job's model in its workers.

    For CTranslate2, this function converts the model, so that workers do not need TensorFlow.
    Workers on other machines get a copy of a model from the hub of Hugging Face.

    Args:
      model: The model that the user gave.
      found: The result of `find_model`.
      decoding: Options of the search.
      engine: The engine that translates.
      threads: Number of threads per translation; see `load_translator`.
      place: Folder for a converted model if the workers are on other machines. Workers on this
        machine use the cache.
      beam_arguments: Options of Apache Beam.

    Raises:
      UserError: The model cannot be converted, or the cache cannot be written.
    """
    loader = found.loader(model, decoding=decoding, engine=engine, threads=threads)
    if not isinstance(loader, ModelLoader) or found.folder is None:
        return loader
    is_elsewhere = are_elsewhere(beam_arguments)
    is_converted = is_ctranslate2(found.folder)
    is_from_hub = parse_address(str(model)) is not None
    if engine.name != "ctranslate2" or (is_converted and not (is_from_hub and is_elsewhere)):
        return loader
    converted = convert(found.folder)
    folder = _put(converted, place=place) if is_elsewhere else str(converted)
    return dataclasses.replace(loader, folder=folder, fingerprint=model_fingerprint(converted))


def _put(folder: Path, *, place: str) -> str:
    """Copy a model to a folder on any file system, and return that folder."""
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
