"""Model folders from the arrays and vocabularies of another program."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tt.model.folders import storage_errors
from tt.model.formats.model_card import About
from tt.model.formats.weights import save_model
from tt.model.imports.imported_vocabularies import OurVocabulary
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
      config: The architecture.
      arrays: Weights by the paths of our variables, such as "encoder_0/attention/output/kernel".
        Kernels are [inputs, outputs]. Embedding tables and the bias of the logits are in the order
        of the other program's tokens.
      source: Vocabulary for sources.
      target: Vocabulary for translations.
    """

    config: TransformerConfig
    arrays: Mapping[str, Array]
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
      UserError: The output cannot be written, or it exists and `overwrite` is false.
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
    """Assign the arrays to the variables of a model."""
    for variable in model.variables:
        values = found.arrays[variable.path]
        kind = variable.path.rpartition("/")[2]
        if kind == "table":
            is_source = variable is model.source_embedding.table
            values = _rows(values, found.source if is_source else found.target, other=0.0)
        elif kind == "values":
            unused = float(values.min()) + _UNUSED_BIAS
            values = _rows(values, found.target, other=unused)
            values[~found.target.is_chosen] = unused
        variable.assign(values)


def _rows(table: Array, vocabulary: OurVocabulary, *, other: float) -> Array:
    """Return the rows of a table in the order of our ids; `other` fills rows that are missing."""
    rows: Array = table[np.maximum(vocabulary.rows, 0)].copy()
    rows[vocabulary.rows < 0] = other
    return rows
