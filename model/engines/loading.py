"""Loading a model into an engine; an engine is imported only if it is used."""

from __future__ import annotations

import contextlib
import os
import queue
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tt.model.engines import machine
from tt.model.engines.machine import (
    cores,
    gpu_devices,
    keep_freed_memory,
    let_memory_grow,
    set_threads,
)
from tt.model.engines.translator import Engine, Input, ScoredText, Translation, Translator, Work
from tt.model.errors import UserError, checked, require
from tt.model.folders import OTHER_CACHE, atomic_folder, default_cache
from tt.model.formats.foreign import POSITIONS, is_foreign, open_foreign, read_sizes
from tt.model.formats.model_folder import (
    check_files,
    find_model_folder,
    is_ctranslate2,
    model_fingerprint,
)
from tt.model.transformer.search_options import Decoding

if TYPE_CHECKING:
    from tt.model.engines.tensorflow_engine import TensorFlowTranslator


@checked
def load_translator(
    folder: str, *, decoding: Decoding, engine: Engine, threads: int = 0, is_checked: bool = False
) -> Translator:
    """Load a model into an engine.

    Args:
      folder: Model folder, run folder or export for CTranslate2.
      decoding: Options of the search.
      engine: The engine, its device and its compute type.
      threads: CPU threads per translation. As many translations run at once as the cores allow, and
        one translation at a time on each GPU. 0 keeps TensorFlow's settings, and gives all cores to
        one translation in CTranslate2.
      is_checked: Whether `model_fingerprint` has already compared the files with their digests.

    Raises:
      UserError: There is no finished model, a file of the model has changed, the engine cannot load
        the model, or the decoding length exceeds the model's positions.
    """
    require(threads >= 0, "`threads` must be at least 0", threads)
    engine = engine.for_model(is_ctranslate2=is_ctranslate2(folder))
    if engine.name == "ctranslate2":
        from tt.model.engines.ctranslate2_engine import CTranslate2Translator

        check_engine(folder, decoding=decoding, engine=engine, max_source_tokens=0)
        converted = convert(folder)
        if not (is_checked and converted == Path(folder)):  # the cache may contain damaged files
            check_files(converted)
        return CTranslate2Translator(
            converted, decoding=decoding, engine=engine, threads=threads or cores()
        )
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(uses_onednn(engine))))
    keep_freed_memory()
    let_memory_grow()
    if threads:
        set_threads(threads)
    from tt.model.engines.tensorflow_engine import TensorFlowTranslator

    devices = gpu_devices()
    loaded = [
        TensorFlowTranslator.load(
            folder,
            decoding=decoding,
            compute_type=engine.compute_type,
            device=device,
            is_checked=is_checked or i > 0,
        )
        for i, device in enumerate(devices or [None])
    ]
    return TranslatorPool(loaded) if devices else loaded[0]


def uses_onednn(engine: Engine) -> bool:
    """Return whether oneDNN makes searches faster.

    It does not in float32, because oneDNN creates new kernels for the shapes of each step.
    """
    return engine.compute_type != "float32"


def count_gpus(engine: Engine) -> int:
    """Return the number of GPUs that an engine finds; this imports the engine's library."""
    if engine.name == "ctranslate2":
        from tt.model.engines import ctranslate2_engine

        return ctranslate2_engine.count_gpus(engine)
    return machine.count_gpus()


def check_engine(
    folder: str | Path,
    *,
    decoding: Decoding,
    engine: Engine,
    max_source_tokens: int,
    is_here: bool = True,
) -> None:
    """Check everything that `load_translator` needs, except the weights.

    Args:
      folder: Model folder, run folder or export for CTranslate2.
      decoding: Options of the search.
      engine: The engine, its device and its compute type.
      max_source_tokens: The maximum number of tokens per source.
      is_here: Whether this machine translates. If not, its devices are not checked.

    Raises:
      UserError: The engine cannot use the model, the device is missing, or a length exceeds the
        model's positions.
    """
    engine = engine.for_model(is_ctranslate2=is_ctranslate2(folder))
    if engine.name != "ctranslate2":
        find_model_folder(folder)
        return
    from tt.model.engines.ctranslate2_engine import find_device

    source_room = target_room = POSITIONS
    if not is_ctranslate2(folder):
        find_model_folder(folder)
    elif is_foreign(folder):
        model = open_foreign(folder)
        tokenization, positions = model.tokenization, read_sizes(model.weights_folder).positions
        source_room = positions - len(tokenization.source_prefix) - len(tokenization.source_suffix)
        target_room = positions - len(tokenization.target_prefix)
    if is_here:
        find_device(engine)
    for field, length, room in (
        ("max_decoding_length", decoding.max_decoding_length, target_room),
        ("max_source_tokens", max_source_tokens, source_room),
    ):
        require(
            length <= room,
            f"`{field}` must be at most {room:,}, the number of positions in CTranslate2's model",
            f"{length:,}",
        )


# Version of the folders that `export_ctranslate2` writes. Cached folders of other versions are not
# used.
_EXPORT_VERSION = 2


def convert(folder: str | Path, *, prepare: Callable[[], None] | None = None) -> Path:
    """Convert a model for CTranslate2, unless the cache already contains the converted model.

    Args:
      folder: Model folder, run folder or export for CTranslate2. An export is not converted.
      prepare: Function to call before TensorFlow is imported, which only the conversion needs.

    Returns:
      The folder for CTranslate2. In the cache, its name contains the model's fingerprint.

    Raises:
      UserError: There is no finished model, or the cache cannot be written.
    """
    if is_ctranslate2(folder):
        return Path(folder)
    converted = default_cache() / f"{model_fingerprint(folder)}-ctranslate2-{_EXPORT_VERSION}"
    if converted.is_dir():
        return converted
    try:
        with atomic_folder(converted, is_shared=True) as made:
            if prepare is not None:
                prepare()
            from tt.model.formats.exports import export_ctranslate2

            export_ctranslate2(Path(folder), made, remedy=OTHER_CACHE)
    except OSError as error:
        raise UserError(
            f"{converted} cannot be written: {error.strerror or error}. Set XDG_CACHE_HOME to a "
            "folder with free space"
        ) from error
    return converted


class TranslatorPool:
    """Translators of the same model on several GPUs; threads may share the pool.

    A call waits while all GPUs are busy. Two translations at once on one GPU would share its memory
    and would not be faster.

    Args:
      translators: One translator per GPU.
    """

    def __init__(self, translators: Sequence[TensorFlowTranslator]) -> None:
        first = translators[0]
        self.gpus = len(translators)
        self.decoding, self.prepare = first.decoding, first.prepare
        self.is_input_error = first.is_input_error
        self._free: queue.SimpleQueue[TensorFlowTranslator] = queue.SimpleQueue()
        for translator in translators:
            self._free.put(translator)

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Translate inputs on a free GPU; return the translations in their order."""
        with self._borrow() as translator:
            return translator.translate(inputs)

    def score(self, pairs: list[tuple[Input, str]]) -> list[ScoredText]:
        """Score a given translation of each input on a free GPU."""
        with self._borrow() as translator:
            return translator.score(pairs)

    @contextlib.contextmanager
    def _borrow(self) -> Iterator[TensorFlowTranslator]:
        translator = self._free.get()
        try:
            yield translator
        finally:
            self._free.put(translator)
