"""Saving and loading the weights of a model folder."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path
from typing import NamedTuple

import tensorflow as tf

from tt.model.errors import UserError, first_line
from tt.model.folders import atomic_folder
from tt.model.formats.model_card import About
from tt.model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_files,
    find_model_folder,
    load_config,
    write_config,
)
from tt.model.text.vocabulary import INCOMPLETE, VocabularyPair, load_vocabularies
from tt.model.transformer.transformer import Transformer, dtype_policy


def save_model(
    model: Transformer,
    folder: Path,
    *,
    vocabulary_folder: Path,
    vocabularies: VocabularyPair,
    about: About | None = None,
    overwrite: bool = True,
) -> None:
    """Write all files that translation needs to a model folder.

    Args:
      model: The model.
      folder: The folder to write.
      vocabulary_folder: The folder that contains the vocabulary files.
      vocabularies: The vocabularies.
      about: The model card.
      overwrite: Whether an older model may be replaced.

    Raises:
      UserError: Another process is writing the folder, or has written it and `overwrite` is false.
    """
    with atomic_folder(folder, overwrite=overwrite) as made:
        for name in vocabularies.files:
            shutil.copyfile(vocabulary_folder / name, made / name)
        _reserve(made / WEIGHTS_FILE, 4 * model.count_params() + 4096 * len(model.variables))
        model.save_weights(made / WEIGHTS_FILE)
        write_config(made, model.config, about or About())


class LoadedModel(NamedTuple):
    """A model with its weights and vocabularies."""

    model: Transformer
    vocabularies: VocabularyPair


def load_model(
    folder: str | Path,
    *,
    compute_type: str = "float32",
    device: str | None = None,
    is_checked: bool = False,
) -> LoadedModel:
    """Load an exported model from a model folder or its run folder.

    Args:
      folder: Model folder or run folder.
      compute_type: Type of matrix products and weights: "float32", "bfloat16" or "float16".
      device: Device for the weights, such as "GPU:1"; None lets TensorFlow choose.
      is_checked: Whether the files have already been compared with their digests.

    Raises:
      UserError: There is no finished model, or a file is damaged.
    """
    path = find_model_folder(folder)
    vocabularies, config = load_vocabularies(path), load_config(path)
    if not is_checked:
        check_files(path)
    with dtype_policy(compute_type), on_device(device):
        model = Transformer(config)
    try:
        model.load_weights(path / WEIGHTS_FILE)
    except (ValueError, OSError, RuntimeError, KeyError) as error:  # h5py raises some of these
        raise UserError(
            f"{path / WEIGHTS_FILE} is damaged, or does not match {CONFIG_FILE} "
            f"({first_line(error)}). {INCOMPLETE}"
        ) from error
    return LoadedModel(model, vocabularies)


def _reserve(path: Path, size: int) -> None:
    """Raise an OSError if the disk has no space for a file, because HDF5 would end the process."""
    if hasattr(os, "posix_fallocate"):
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def on_device(device: str | None) -> contextlib.AbstractContextManager[None]:
    """Return a context that places tensors on a device; None lets TensorFlow choose."""
    return tf.device(device) if device else contextlib.nullcontext()
