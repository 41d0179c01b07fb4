"""A model folder to a translator of any engine; each is imported only where it is asked for."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from pathlib import Path

from model.engines.gpus import gpu_devices, let_memory_grow
from model.engines.translator import TranslatorLike
from model.formats.model_folder import find_model_folder, is_ctranslate2
from model.transformer.config import Decoding, Engine

_LOGGER = logging.getLogger(__name__)


def load_translator(
    folder: str,
    *,
    decoding: Decoding,
    engine: Engine,
    threads: int = 0,
    is_checked: bool = False,
) -> TranslatorLike:
    """Loads a model into an engine.

    Args:
      folder: A model folder or the run folder that it lies in; for `ctranslate2` also what
        `tt export --format ctranslate2` wrote.
      decoding: How to search.
      engine: What computes.
      threads: Of a translation; as many translations run at once as the cores allow. 0 leaves
        TensorFlow's settings as they are, and gives CTranslate2 all cores for one translation.
        Where TensorFlow has GPUs, each makes one translation at a time.
      is_checked: Whether its files are known to be those that it was written with, as
        `model_fingerprint` finds out; else that is looked at.

    Raises:
      UserError: There is no finished model, a file of it is another one, or the engine is not
        installed or cannot load it.
    """
    if engine.name == "ctranslate2":
        from model.engines.ctranslate2_engine import CTranslate2Translator

        return CTranslate2Translator.load(
            folder,
            decoding=decoding,
            compute_type=engine.compute_type,
            threads=threads or cores(),
            is_checked=is_checked,
        )
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(uses_onednn(engine))))
    keep_freed_memory()
    let_memory_grow()
    if threads:
        set_threads(threads)
    from model.engines.tensorflow_engine import Translator

    def load(device: str | None, *, is_checked: bool) -> Translator:
        return Translator.load(
            folder,
            decoding=decoding,
            compute_type=engine.compute_type,
            device=device,
            is_checked=is_checked,
        )

    devices = gpu_devices()
    if not devices:
        return load(None, is_checked=is_checked)
    from model.engines.pool import TranslatorPool

    first, *others = devices
    return TranslatorPool(
        [load(first, is_checked=is_checked), *(load(each, is_checked=True) for each in others)]
    )


def uses_onednn(engine: Engine) -> bool:
    """Says whether oneDNN makes searches faster; TensorFlow is told before it is imported.

    Each step has a shape of its own, for which oneDNN makes new kernels in float32.
    """
    return engine.compute_type != "float32"


def check_engine(
    folder: str | Path, *, decoding: Decoding, engine: Engine, max_source_tokens: int
) -> None:
    """Checks what can be known of loading a model without reading its weights.

    Args:
      folder: As `load_translator` takes it.
      decoding: How to search.
      engine: What computes.
      max_source_tokens: The most ids that a source will have.

    Raises:
      UserError: The engine is not installed, the model is not for it, or a length is beyond it.
    """
    if engine.name != "ctranslate2":
        find_model_folder(folder)
        return
    from model.engines.ctranslate2_engine import check_length, import_ctranslate2

    import_ctranslate2()
    if not is_ctranslate2(folder):
        find_model_folder(folder)
    check_length("--max-decoding-length", decoding.max_decoding_length)
    check_length("--max-source-tokens", max_source_tokens)


# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_FROM_HEAP = 32 * 2**20  # bytes; glibc refuses more


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory, where it is glibc.

    A step of a search takes and frees some tens of megabytes; returned to the system, they would
    be mapped and cleared again in each step, which takes 6 % of the time.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every C library
        if mallopt:
            mallopt(_M_MMAP_THRESHOLD, _MOST_FROM_HEAP)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def set_threads(threads: int) -> None:
    """Sets TensorFlow's threads of an operation, and as many operations at once as cores allow.

    A process in which TensorFlow has begun to compute keeps its threads; that is logged.
    """
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(calls_at_once(threads))
    except RuntimeError as error:
        _LOGGER.warning("TensorFlow keeps the threads that it has: %s", error)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def calls_at_once(threads: int) -> int:
    """Returns how many calls of so many threads keep the cores busy."""
    return max(1, cores() // threads)
