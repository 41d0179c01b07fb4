"""The model of a job as its workers load it: converted once, where the job starts."""

from __future__ import annotations

import concurrent.futures
from collections.abc import Callable, Sequence
from pathlib import Path

from model.engines.loading import convert
from model.engines.translator import Engine, Translator
from model.formats.model_folder import is_ctranslate2, model_files, model_fingerprint
from model.transformer.search_options import Decoding
from pipelines.inference.model_loading import CustomModel, FoundModel, ModelLoader
from pipelines.runners.workers import are_elsewhere
from pipelines.storage.files import AT_ONCE, make_folder, write_whole
from pipelines.storage.paths import is_local

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
    """Returns what loads a job's model in its workers.

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
    if isinstance(model, CustomModel):
        return model.load
    folder, fingerprint = model, found.fingerprint  # workers make copies of their own
    if is_local(model) and found.folder is not None:
        folder = str(found.folder.absolute())  # they may have another working folder
    is_converted = found.folder is None or is_ctranslate2(found.folder)
    if engine.name == "ctranslate2" and found.folder is not None and not is_converted:
        converted = convert(found.folder)
        fingerprint = model_fingerprint(converted)
        is_elsewhere = are_elsewhere(beam_arguments)
        folder = _put(converted, place=place) if is_elsewhere else str(converted)
    return ModelLoader(
        folder=folder, decoding=decoding, engine=engine, threads=threads, fingerprint=fingerprint
    )


def _put(folder: Path, *, place: str) -> str:
    """Copies a model to a folder of any file system; returns that folder."""
    make_folder(place)

    def copy(name: str) -> None:
        with (
            (folder / name).open("rb") as source,
            write_whole(f"{place}/{name}", temporary_folder=place) as target,
        ):
            while chunk := source.read(_CHUNK_BYTES):
                target.write(chunk)

    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(copy, model_files(folder)))
    return place
