"""Model folders from the arrays and vocabularies of another program.

Each supported program has a module that creates an `ImportedModel`, such as
`tt.model.imports.marian`.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tt.model.errors import UserError
from tt.model.formats.model_card import About
from tt.model.formats.weights import save_model
from tt.model.imports.imported_vocabularies import OurVocabulary
from tt.model.remote_files import storage_errors
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
    vocabulary_json,
)
from tt.model.transformer.config import TransformerConfig
from tt.model.transformer.transformer import Transformer

Array = npt.NDArray[np.float32]

# The bias of ids that the other program cannot choose. It is far below all other logits, but not so
# far that these ids dominate a loss with label smoothing if the model is trained further.
_UNUSED_BIAS = -50.0

# SentencePiece normalizes the texts, as in the other program.
_NORMALIZATION = TextNormalization(unicode_form="none", clean_whitespace=False)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ImportedModel:
    """A model of another program.

    Attributes:
      path: The file of the model.
      config: The architecture.
      arrays: Weights by the other program's names. Kernels are [inputs, outputs]. Embedding tables
        and the bias of the logits are in the order of the other program's tokens.
      names_of: Function that returns the names of the arrays to concatenate for one of our
        variables, given its path, such as "encoder_0/attention/output/kernel".
      source: Vocabulary for sources.
      target: Vocabulary for translations.
    """

    path: Path
    config: TransformerConfig
    arrays: Mapping[str, Array]
    names_of: Callable[[str], list[str]]
    source: OurVocabulary
    target: OurVocabulary


def write_model(
    found: ImportedModel, output: Path, *, about: About, overwrite: bool = True
) -> None:
    """Write a model folder.

    Args:
      found: The model of another program.
      output: The folder to write.
      about: The model card.
      overwrite: Whether an existing folder may be replaced.

    Raises:
      UserError: The weights do not fit the architecture, the output cannot be written, or it exists
        and `overwrite` is false.
    """
    model = Transformer(found.config)
    _fill(model, found)
    with storage_errors(str(output.resolve())), tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        is_shared = found.source.content == found.target.content
        names = (SHARED_MODEL, SHARED_MODEL) if is_shared else (SOURCE_MODEL, TARGET_MODEL)
        for name, vocabulary in zip(names, (found.source, found.target), strict=True):
            (folder / name).write_bytes(vocabulary.content)
        text = vocabulary_json(shared=is_shared, normalization=_NORMALIZATION)
        (folder / VOCABULARY_FILE).write_text(text, "utf-8")
        save_model(
            model,
            output,
            vocabulary_folder=folder,
            vocabularies=load_vocabularies(folder),
            about=about,
            overwrite=overwrite,
        )


def _fill(model: Transformer, found: ImportedModel) -> None:
    """Assign the arrays to the variables of a model.

    Raises:
      UserError: An array is missing or has another shape, or no variable needs it.
    """
    left = set(found.arrays)
    for variable in model.variables:
        names = found.names_of(variable.path)
        parts = [found.arrays[name] for name in names if name in found.arrays]
        left.difference_update(names)
        kind = variable.path.rpartition("/")[2]
        try:
            values = np.concatenate(parts, -1)
            if len(variable.shape) == 1:
                values = values.reshape(-1)  # vectors may have the shape [1, n]
            if kind == "table":
                is_source = variable is model.source_embedding.table
                values = _rows(values, found.source if is_source else found.target, other=0.0)
            elif kind == "values":
                unused = float(values.min()) + _UNUSED_BIAS
                values = _rows(values, found.target, other=unused)
                values[~found.target.is_chosen] = unused
            fits = len(parts) == len(names) and values.shape == variable.shape
        except (ValueError, IndexError):  # arrays cannot be concatenated, or have too few rows
            fits = False
        if not fits:
            shapes = {name: getattr(found.arrays.get(name), "shape", None) for name in names}
            raise UserError(
                f"{found.path} does not fit its configuration: {variable.path} needs the shape "
                f"{tuple(variable.shape)}. Received: {shapes}. Copy the file again"
            )
        variable.assign(values)
    if left:
        raise UserError(
            f"{found.path} has an array {min(left)} that its configuration does not need, so it is "
            "another kind of model. Choose a Transformer model"
        )


def _rows(table: Array, vocabulary: OurVocabulary, *, other: float) -> Array:
    """Return the rows of a table in the order of our ids; `other` fills rows that are missing."""
    rows: Array = table[np.maximum(vocabulary.rows, 0)].copy()
    rows[vocabulary.rows < 0] = other
    return rows
