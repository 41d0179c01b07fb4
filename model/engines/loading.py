"""A model folder to a translator of any engine; each is imported only where it is asked for."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from model.engines.gpus import TranslatorPool, gpu_devices, let_memory_grow
from model.engines.machine import cores, keep_freed_memory, set_threads
from model.engines.translator import Engine, Translator
from model.errors import UserError
from model.folders.atomic import atomic_folder
from model.folders.cache import OTHER_CACHE, default_cache
from model.formats.ctranslate2_files import POSITIONS, read_sizes
from model.formats.foreign import is_foreign, open_foreign
from model.formats.model_folder import (
    checked_meanwhile,
    find_model_folder,
    is_ctranslate2,
    model_fingerprint,
)
from model.transformer.search_options import Decoding


def load_translator(
    folder: str, *, decoding: Decoding, engine: Engine, threads: int = 0, is_checked: bool = False
) -> Translator:
    """Loads a model into an engine, from a model folder, a run folder or an export for CTranslate2.

    As many translations of so many `threads` run at once as the cores allow. 0 leaves TensorFlow's
    settings as they are, and gives CTranslate2 all cores for one translation. If TensorFlow has
    GPUs, each makes one at a time. With `is_checked`, `model_fingerprint` has checked its files.

    Raises:
      UserError: There is no finished model, a file of it is another one, or the engine is not
        installed or cannot load it.
    """
    engine = engine.for_model(is_ctranslate2=is_ctranslate2(folder))
    if engine.name == "ctranslate2":
        return _load_ctranslate2(
            folder, decoding, engine, threads or cores(), is_checked=is_checked
        )
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", str(int(uses_onednn(engine))))
    keep_freed_memory()
    let_memory_grow()
    if threads:
        set_threads(threads)
    from model.engines.tensorflow_engine import TensorFlowTranslator

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


def _load_ctranslate2(
    folder: str, decoding: Decoding, engine: Engine, threads: int, *, is_checked: bool
) -> Translator:
    from model.engines.ctranslate2_engine import CTranslate2Translator

    converted = convert(folder)
    is_known = is_checked and converted == Path(folder)  # the cache's files are looked at
    with contextlib.nullcontext() if is_known else checked_meanwhile(converted):
        return CTranslate2Translator(converted, decoding=decoding, engine=engine, threads=threads)


def uses_onednn(engine: Engine) -> bool:
    """Says whether oneDNN makes searches faster: in float32 each step's shape needs new kernels."""
    return engine.compute_type != "float32"


def check_engine(
    folder: str | Path,
    *,
    decoding: Decoding,
    engine: Engine,
    max_source_tokens: int,
    is_here: bool = True,
) -> None:
    """Checks what `load_translator` needs, but for the weights, for sources of so many tokens.

    Where other machines translate (not `is_here`), their devices are not known.

    Raises:
      UserError: The engine is not installed, the model is not for it, or a length is beyond it.
    """
    engine = engine.for_model(is_ctranslate2=is_ctranslate2(folder))
    if engine.name != "ctranslate2":
        find_model_folder(folder)
        return
    from model.engines.ctranslate2_engine import check_length, find_device

    positions, added = POSITIONS, (0, 0)
    if not is_ctranslate2(folder):
        find_model_folder(folder)
    elif is_foreign(folder):
        model = open_foreign(folder)
        positions = read_sizes(model.weights_folder).positions
        told = model.tokenization
        added = (len(told.source_prefix) + len(told.source_suffix), len(told.target_prefix))
    if is_here:
        find_device(engine)
    check_length(
        "max_decoding_length", decoding.max_decoding_length, positions=positions - added[1]
    )
    check_length("max_source_tokens", max_source_tokens, positions=positions - added[0])


# Version of the folders that `export_ctranslate2` writes: no other version in the cache is used.
_EXPORT_VERSION = 2


def convert(folder: str | Path, *, prepare: Callable[[], None] | None = None) -> Path:
    """Returns the model for CTranslate2: made once in the cache, which its fingerprint names.

    An export for CTranslate2 is returned as it is. `prepare` is called before TensorFlow is
    imported, which only making it needs.

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
            from model.formats.to_ctranslate2 import export_ctranslate2

            export_ctranslate2(Path(folder), made, remedy=OTHER_CACHE)
    except OSError as error:
        raise UserError(
            f"{converted} cannot be written: {error.strerror or error}. Set XDG_CACHE_HOME to a "
            "folder with room"
        ) from error
    return converted
