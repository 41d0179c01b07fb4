"""The converted copy of a model from Hugging Face in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from tt.model.errors import UserError
from tt.model.folders import atomic_folder, default_cache, make_folder, wait_for_lock
from tt.model.formats.foreign import languages_of_name
from tt.model.formats.model_card import About
from tt.model.formats.model_folder import check_output
from tt.model.imports.hub import (
    PREFIX,
    describe_license,
    download,
    parse_address,
    read_license,
)
from tt.model.imports.huggingface import MARIAN, is_checkpoint, read_checkpoint, weight_files

CTRANSLATE2, TENSORFLOW = "ctranslate2", "tensorflow"
_VERSION = 1  # of the folders that `fetch_model` writes


class _Source(NamedTuple):
    """A model in Hugging Face's layout on this machine.

    Attributes:
      folder: The folder of the files.
      name: The address with the commit, or the path.
      identity: The values that change with the files.
    """

    folder: Path
    name: str
    identity: list[object]


def is_huggingface(model: str | Path) -> bool:
    """Return whether a model is on the hub, or a folder in the layout of Hugging Face."""
    name = str(model)
    return name.startswith(PREFIX) or ("://" not in name and is_checkpoint(Path(name)))


def fetch_model(
    model: str | Path,
    *,
    engine: str = CTRANSLATE2,
    report: Callable[[str], object],
    prepare: Callable[[], None] = lambda: None,
    is_apart: bool = False,
) -> Path:
    """Return the folder of a converted model in the cache, which is made if it is missing.

    Args:
      model: An address such as "hf:ORG/NAME", or a folder in the layout of Hugging Face.
      engine: CTRANSLATE2 or TENSORFLOW, the engine that loads the folder.
      report: Receives lines about slow steps, and the license of a newly converted model.
      prepare: Function to call before TensorFlow is imported.
      is_apart: Whether another process converts the model, so that TensorFlow does not start here.

    Raises:
      UserError: There is no such model, or `tt` does not support it.
      ServiceError: The hub does not answer.
      DiskFullError: The disk is full.
    """
    address = parse_address(str(model))
    if address is not None and address.is_pinned:
        output = _place([*address], name=_short_name(str(address)), engine=engine)
        if output.is_dir():  # so the hub need not answer
            return output
    source = _find_source(str(model), report=report)
    output = _place(source.identity, name=_short_name(source.name), engine=engine)
    if output.is_dir():
        return output
    if is_apart:
        _convert_apart(source, output, engine=engine)
    else:
        write_converted(source.folder, output, name=source.name, engine=engine, prepare=prepare)
    report(f"{source.name} is ready; {describe_license(read_license(source.folder))}")
    return output


def _convert_apart(source: _Source, output: Path, *, engine: str) -> None:
    """Convert a model in another process, unless another worker is already doing so."""
    with _writing(output):
        make_folder(default_cache())
        with wait_for_lock(default_cache() / "huggingface.lock"):
            if output.is_dir():
                return
            context = multiprocessing.get_context("spawn")
            with ProcessPoolExecutor(1, mp_context=context) as process:
                process.submit(
                    write_converted, source.folder, output, name=source.name, engine=engine
                ).result()


def _place(identity: list[object], *, name: str, engine: str) -> Path:
    """Return the folder in the cache for a converted model."""
    content = json.dumps([_VERSION, engine, *identity], sort_keys=True)
    digest = hashlib.blake2b(content.encode(), digest_size=16).hexdigest()
    return default_cache() / "huggingface" / f"{digest}-{name}"


def _find_source(model: str, *, report: Callable[[str], object]) -> _Source:
    address = parse_address(model)
    if address is not None:
        found = download(address, report=report)
        return _Source(found.folder, str(found.address), [*found.address])
    folder = Path(model).resolve()
    files = [*weight_files(folder), *sorted(folder.glob("*.json")), *sorted(folder.glob("*.spm"))]
    states = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    return _Source(folder, str(folder), [str(folder), *states])


def pin(model: str, *, report: Callable[[str], object] = lambda line: None) -> str:
    """Return the address of a model with its commit, so that it does not change any more."""
    address = parse_address(model)
    return model if address is None else str(download(address, report=report).address)


def import_huggingface(
    model: str,
    output: Path,
    *,
    name: str = "",
    overwrite: bool,
    prepare: Callable[[], None],
    report: Callable[[str], object] = lambda line: None,
) -> None:
    """Write a model for TensorFlow if possible, else a model for CTranslate2.

    Args:
      model: An address such as "hf:ORG/NAME", or a folder in the layout of Hugging Face.
      output: The folder to write.
      name: The path of the model for the model card, if `model` is a copy.
      overwrite: Whether an earlier import may be replaced.
      prepare: Function to call before TensorFlow is imported.
      report: Receives lines about slow steps.

    Raises:
      UserError: There is no such model, `tt` does not support it, or the output cannot be written.
    """
    if not is_huggingface(model):
        raise UserError(
            f"{model} is not a model of Hugging Face: it has no config.json with a model_type. "
            "Choose another folder, or an address such as hf:ORG/NAME"
        )
    source = _find_source(model, report=report)
    check_output(output, model=source.folder, overwrite=overwrite)
    checkpoint = read_checkpoint(source.folder)
    is_trainable = checkpoint.architecture == MARIAN and not checkpoint.is_multilingual
    write_converted(
        source.folder,
        output,
        name=name or source.name,
        engine=TENSORFLOW if is_trainable else CTRANSLATE2,
        prepare=prepare,
        overwrite=overwrite,
    )


def write_converted(
    folder: Path,
    output: Path,
    *,
    name: str,
    engine: str,
    prepare: Callable[[], None] = lambda: None,
    overwrite: bool = False,
) -> None:
    """Convert a model in Hugging Face's layout.

    Args:
      folder: The folder of the model.
      output: The folder to write.
      name: The address or the path of the model, for the model card.
      engine: CTRANSLATE2 or TENSORFLOW, the engine that loads the output.
      prepare: Function to call before TensorFlow is imported.
      overwrite: Whether an earlier import may be replaced.

    Raises:
      UserError: `tt` does not support the model, or the output cannot be written.
    """
    checkpoint = read_checkpoint(folder)
    about = About(
        data=languages_of_name(_short_name(name)),
        imported_from={"model": name, "license": read_license(folder)},
    )
    with _writing(output):
        if engine == TENSORFLOW:
            prepare()
            from tt.model.imports.huggingface_conversion import read_for_tensorflow
            from tt.model.imports.imported_model import write_model

            write_model(read_for_tensorflow(checkpoint), output, about=about, overwrite=overwrite)
            return
        from tt.model.imports.huggingface_conversion import write_ctranslate2

        with atomic_folder(output, is_shared=not overwrite, overwrite=overwrite) as made:
            write_ctranslate2(checkpoint, made, about=about)


@contextlib.contextmanager
def _writing(output: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror or error}. Free some space, or choose "
            "another folder"
        ) from error


def _short_name(name: str) -> str:
    """Return the part of an address or a path that may contain the languages.

    >>> _short_name("hf:Helsinki-NLP/opus-mt-en-es@1a2b"), _short_name("/models/opus-mt-en-es")
    ('opus-mt-en-es', 'opus-mt-en-es')
    """
    address = parse_address(name)
    return (name if address is None else address.repository).rpartition("/")[2]
