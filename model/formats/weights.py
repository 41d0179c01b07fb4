"""The weights of a model folder, written and loaded."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from model.errors import UserError, first_line
from model.folders.access import check_readable
from model.folders.atomic import atomic_folder, is_free
from model.folders.long_work import writing
from model.folders.remote import storage_errors
from model.formats.ctranslate2_files import CTRANSLATE2_FILE
from model.formats.model_card import About
from model.formats.model_folder import (
    CONFIG_FILE,
    SAVED_MODEL_FILE,
    WEIGHTS_FILE,
    check_files,
    check_vocabulary_sizes,
    checked_meanwhile,
    find_model_folder,
    load_about,
    load_config,
    write_config,
)
from model.text.vocabulary import INCOMPLETE, VocabularyPair, load_vocabularies
from model.transformer.config import TransformerConfig
from model.transformer.transformer import Transformer, dtype_policy


def save_model(
    model: Transformer,
    folder: Path,
    *,
    vocabulary_folder: Path,
    vocabularies: VocabularyPair,
    about: About | None = None,
    overwrite: bool = True,
) -> None:
    """Write all files that translation needs into a folder that can be moved on its own.

    With `overwrite`, the finished folder replaces an older model.

    Raises:
      UserError: Another process is writing the folder, or has written it without `overwrite`.
    """
    with atomic_folder(folder, overwrite=overwrite) as made:
        for name in vocabularies.files:
            shutil.copyfile(vocabulary_folder / name, made / name)
        _reserve(made / WEIGHTS_FILE, 4 * model.count_params() + 4096 * len(model.variables))
        model.save_weights(made / WEIGHTS_FILE)
        write_config(made, model.config, about or About())


class LoadedModel(NamedTuple):
    """A model of a model folder, with its weights and vocabularies."""

    model: Transformer
    vocabularies: VocabularyPair

    @property
    def bytes(self) -> int:
        """The size of its weights in float32."""
        return 4 * int(self.model.count_params())


def load_model(
    folder: str | Path,
    *,
    compute_type: str = "float32",
    device: str | None = None,
    is_checked: bool = False,
) -> LoadedModel:
    """Loads an exported model, of a model folder or the run folder that it lies in.

    `compute_type`, "float32", "bfloat16" or "float16", is that of the products and their weights.
    `device`, such as "GPU:1", holds the weights; None leaves it to TensorFlow. With `is_checked`,
    its files are known to be those that it was written with.

    Raises:
      UserError: There is no finished model, a file is damaged, or the weights are not finite.
    """
    path = find_model_folder(folder)
    vocabularies, config = load_vocabularies(path), load_config(path)
    sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
    check_readable(path / WEIGHTS_FILE)
    with contextlib.nullcontext() if is_checked else checked_meanwhile(path):
        _check_size(path / WEIGHTS_FILE, config)
        check_vocabulary_sizes(path, vocabularies, sizes=sizes)
        with dtype_policy(compute_type), on_device(device):
            model = Transformer(config)
        try:
            model.load_weights(path / WEIGHTS_FILE)
        except (ValueError, OSError, RuntimeError, KeyError) as error:  # also of h5py
            raise UserError(
                f"{path / WEIGHTS_FILE} is damaged, or does not hold the weights of {CONFIG_FILE} "
                f"({first_line(error)}): {INCOMPLETE}"
            ) from error
    if strange := _not_finite(model):
        raise UserError(
            f"{path / WEIGHTS_FILE} holds weights that are not finite ({strange[0]}, one of "
            f"{len(strange)}): export another checkpoint with `tt export --checkpoint`, or "
            "train again with a lower rate"
        )
    return LoadedModel(model, vocabularies)


def _check_size(path: Path, config: TransformerConfig) -> None:
    """Raise a UserError if a file is too small for an architecture, before that takes memory."""
    size, least = path.stat().st_size, 4 * config.least_parameters
    if size < least:
        raise UserError(
            f"{path} is damaged, or does not hold the weights of {CONFIG_FILE} (it has {size:,} "
            f"bytes, and they need {least:,}): {INCOMPLETE}"
        )


def _reserve(path: Path, size: int) -> None:
    """Raises an OSError where there is no room for a file; HDF5 ends the process instead."""
    if hasattr(os, "posix_fallocate"):
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def on_device(device: str | None) -> contextlib.AbstractContextManager[None]:
    """Places what its block makes on a device; None leaves that to TensorFlow."""
    return tf.device(device) if device else contextlib.nullcontext()


def _not_finite(model: Transformer) -> list[str]:
    """Names the variables that hold a number that is infinite or not a number."""
    # A sum tells it in a tenth of the time, but may overflow.
    return [
        variable.path
        for variable in model.variables
        if not tf.math.is_finite(tf.reduce_sum(variable))
        and not tf.reduce_all(tf.math.is_finite(variable))
    ]


_EXPORT_FILES = (WEIGHTS_FILE, SAVED_MODEL_FILE, CTRANSLATE2_FILE)


def copy_model(model_folder: Path, output: Path, *, overwrite: bool = False) -> None:
    """Copies all that translation needs, and nothing else, of a model folder or run folder.

    The copy has digests of its files, also where the model was written before there were any.

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    check_output(output, model=path, overwrite=overwrite)
    for name in (CONFIG_FILE, WEIGHTS_FILE):
        check_readable(path / name)
    check_files(path)
    with (
        storage_errors(str(output.resolve())),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        with writing(folder, total=(path / WEIGHTS_FILE).stat().st_size):
            shutil.copyfile(path / WEIGHTS_FILE, folder / WEIGHTS_FILE)
        copy_vocabularies(path, folder)
        write_config(folder, load_config(path), load_about(path))


def check_output(output: Path, *, model: Path, overwrite: bool) -> None:
    """Raises a UserError unless an export may be written to a folder."""
    if is_free(output):
        return
    output = output.resolve()
    if not output.is_dir():
        raise UserError(f"the output must be a folder; {output} is a file: name another")
    if not any((output / name).is_file() for name in _EXPORT_FILES):
        raise UserError(f"{output} is not an exported model: it is not overwritten; name another")
    if output in (model.resolve(), *model.resolve().parents):
        raise UserError(f"{output} holds the model that is exported: name another folder")
    if not overwrite:
        raise UserError(f"{output} exists already: name another folder, or `overwrite`")


def copy_vocabularies(model_folder: Path, folder: Path) -> None:
    """Copies the vocabularies of a model folder to another folder."""
    for name in load_vocabularies(model_folder).files:
        shutil.copyfile(model_folder / name, folder / name)
