"""A model of Marian's to a model folder: first all is read and checked, then it is written."""

from __future__ import annotations

import dataclasses
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from model.errors import UserError
from model.formats.marian_architecture import read_architecture
from model.formats.marian_archive import Array, Arrays, read_archive
from model.formats.marian_pieces import PieceFile
from model.formats.marian_vocabularies import MarianTokens, OurVocabulary, pieces_beside, to_ours
from model.formats.model_card import About, TrainingData
from model.text.normalization import TextNormalization
from model.text.vocabulary import (
    SHARED_MODEL,
    SOURCE_MODEL,
    TARGET_MODEL,
    VOCABULARY_FILE,
    load_vocabularies,
    vocabulary_json,
)
from model.transformer.config import TransformerConfig

if TYPE_CHECKING:
    from model.transformer.transformer import Transformer

# Added to the logits of what Marian cannot choose: far below all that it can choose, and small
# enough not to rule a loss with label smoothing, should the model be trained on.
_UNUSED_BIAS = -50.0

# SentencePiece normalises as Marian has it do.
_NORMALIZATION = TextNormalization(unicode_form="none", clean_whitespace=False)


@dataclasses.dataclass(frozen=True)
class MarianModel:
    """A model of Marian's as it was found.

    Attributes:
      path: Its file.
      config: Its architecture.
      arrays: Its weights.
      source: Vocabulary of sources.
      target: Vocabulary of translations.
      is_one_file: Whether both sides have the same vocabulary.
      has_bias: Whether its logits have a bias.
    """

    path: Path
    config: TransformerConfig
    arrays: Arrays
    source: OurVocabulary
    target: OurVocabulary
    is_one_file: bool
    has_bias: bool


def read_marian(
    path: Path,
    *,
    source_vocabulary: Path,
    target_vocabulary: Path,
    lists: tuple[Path, ...] = (),
) -> MarianModel:
    """Reads a model of Marian's; TensorFlow is not imported.

    Args:
      path: Its .npz.
      source_vocabulary: SentencePiece model of sources.
      target_vocabulary: That of translations; may be the same.
      lists: Lists of tokens (vocab.yml) of both sides or of each; none where Marian numbers tokens
        as SentencePiece does.

    Raises:
      UserError: A file is missing or damaged, our Transformer cannot be so, or the vocabularies are
        not the model's.
    """
    settings, arrays = read_archive(path)
    # Before all else: a kind of model that cannot be is no matter of its vocabularies.
    least = read_architecture(settings, path=path, sizes=(8, 8)).least_parameters
    sizes = settings.get("dim-vocabs")
    if not isinstance(sizes, list) or [type(size) for size in sizes] != [int, int]:
        raise UserError(
            f'{path} must have two vocabularies; its configuration says "dim-vocabs: {sizes}". '
            "Name another model"
        )
    if len(lists) > 2:
        raise UserError(f"`vocab` must be one file, or one for each side. Received: {len(lists)}")
    paths = (source_vocabulary, target_vocabulary)
    files = {each: PieceFile(each) for each in dict.fromkeys(paths)}
    if lists:
        known = {each: MarianTokens.load(each) for each in dict.fromkeys(lists)}
        tokens = [known[lists[0]], known[lists[-1]]]
    else:
        tokens = [MarianTokens.of_pieces(files[each]) for each in paths]
    for side, rows, each in zip(("source", "target"), sizes, tokens, strict=True):
        each.check(rows=rows, side=side, model=path)
    is_shared = bool(settings.get("tied-embeddings-all") or settings.get("tied-embeddings-src"))
    if is_shared and tokens[0].names != tokens[1].names:
        raise UserError(
            f"{path} has one table of embeddings for both sides, and {tokens[0].path} and "
            f"{tokens[1].path} differ: name the vocabulary that it was trained with"
        )
    if least > arrays.size:
        raise UserError(
            f"{path} is not what its configuration says: it holds {arrays.size:,} weights, and "
            f"needs at least {least:,}. Copy the file again from where it came"
        )
    beside = [pieces_beside(files[p], each) for p, each in zip(paths, tokens, strict=True)]
    if is_shared:
        beside = [beside[0] + beside[1]] * 2
    source, target = (
        to_ours(files[p], each, beside=more)
        for p, each, more in zip(paths, tokens, beside, strict=True)
    )
    return MarianModel(
        path=path,
        config=read_architecture(settings, path=path, sizes=(source.size, target.size)),
        arrays=arrays,
        source=source,
        target=target,
        is_one_file=source.content == target.content,
        has_bias=not settings.get("output-omit-bias", False),
    )


def write_model(
    found: MarianModel, output: Path, *, data: TrainingData, overwrite: bool = True
) -> None:
    """Write a model folder; this imports TensorFlow.

    Raises:
      UserError: The weights do not fit the architecture, or the output cannot be written or exists
        without `overwrite`.
    """
    from model.folders.remote import storage_errors
    from model.formats.weights import save_model
    from model.transformer.transformer import Transformer

    model = Transformer(found.config)
    _fill(model, found)
    with (
        storage_errors(str(output.resolve())),
        tempfile.TemporaryDirectory() as scratch,
    ):
        folder = Path(scratch)
        contents = {SOURCE_MODEL: found.source.content, TARGET_MODEL: found.target.content}
        if found.is_one_file:
            contents = {SHARED_MODEL: found.source.content}
        for name, content in contents.items():
            (folder / name).write_bytes(content)
        text = vocabulary_json(shared=found.is_one_file, normalization=_NORMALIZATION)
        (folder / VOCABULARY_FILE).write_text(text, "utf-8")
        save_model(
            model,
            output,
            vocabulary_folder=folder,
            vocabularies=load_vocabularies(folder),
            about=About(data=data),
            overwrite=overwrite,
        )


def _fill(model: Transformer, found: MarianModel) -> None:
    from model.formats.marian_weights import (
        OUTPUT,
        OUTPUT_BIAS,
        OUTPUT_TRANSPOSED,
        arrays_of,
        table_names,
    )

    arrays, config = found.arrays, found.config
    for variable, names in arrays_of(model):
        *rows, width = variable.shape
        shape = (*rows, width // len(names))
        parts = [arrays.take(name, shape=shape) for name in names]
        variable.assign(np.concatenate(parts, -1))
    tables = [
        (model.source_embedding, table_names(config)[0], found.source),
        (model.target_embedding, table_names(config)[1], found.target),
    ]
    if not config.tie_embeddings:
        tables.append((model.output_embedding, OUTPUT_TRANSPOSED, found.target))
    for embedding, name, vocabulary in tables:
        shape = (1 + int(vocabulary.rows[vocabulary.is_chosen].max()), config.d_model)
        if name == OUTPUT_TRANSPOSED and OUTPUT in arrays:
            table = arrays.take(OUTPUT, shape=shape[::-1]).T
        else:
            table = arrays.take(name, shape=shape)
        embedding.table.assign(_rows(table, vocabulary, other=0.0))
    target = found.target
    bias = np.zeros([1 + int(target.rows[target.is_chosen].max())], np.float32)
    if found.has_bias:
        bias = arrays.take(OUTPUT_BIAS, shape=bias.shape)
    unused = float(bias.min()) + _UNUSED_BIAS
    values = _rows(bias, target, other=unused)
    assert model.output_bias is not None
    model.output_bias.values.assign(np.where(target.is_chosen, values, np.float32(unused)))
    arrays.check_all_taken()


def _rows(table: Array, vocabulary: OurVocabulary, *, other: float) -> Array:
    """Puts Marian's rows in the order of our ids; ids that Marian has not get another number."""
    rows: Array = table[np.maximum(vocabulary.rows, 0)].copy()
    rows[vocabulary.rows < 0] = other
    return rows
