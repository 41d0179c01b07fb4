"""A model folder to a model of Marian's, which `marian-decoder` and `pymarian` decode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import yaml

from model.folders.atomic import atomic_folder
from model.folders.long_work import writing
from model.folders.remote import storage_errors
from model.formats.marian.architecture import write_architecture
from model.formats.marian.archive import Array, write_archive
from model.formats.marian.pieces import PieceFile
from model.formats.marian.vocabularies import to_marians
from model.formats.marian.weights import OUTPUT, OUTPUT_BIAS, arrays_of, table_names
from model.formats.model_folder import find_model_folder, load_about, load_config, write_about
from model.formats.weights import MARIAN_FILE, check_output, load_model
from model.transformer.transformer import Transformer

DECODER_FILE = "decoder.yml"


def export_marian(model_folder: Path, output: Path, *, overwrite: bool = False) -> None:
    """Writes a model that Marian decodes, its vocabularies, and the decoder's configuration.

    `marian-decoder -c output/decoder.yml` takes plain texts: SentencePiece cuts them there. What
    `vocabulary.json` says of their normalisation is not done by Marian. Ids that are never chosen
    are left out, but for the unknown token, which Marian never chooses either; their share of the
    probability is spread over the others.

    Raises:
      UserError: Marian cannot be so, a finished model is missing, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    check_output(output, model=path, overwrite=overwrite)
    config = load_config(path)
    write_architecture(config, sizes=(1, 1))  # may refuse
    loaded = load_model(path)
    model, names = loaded.model, loaded.vocabularies.files[1:]
    with (
        storage_errors(str(output.resolve())),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        ids = []
        for name in names:
            content, of_side = to_marians(PieceFile(path / name))
            (folder / name).write_bytes(content)
            ids.append(of_side)
        source, target = ids[0], ids[-1]
        with writing(folder, total=loaded.bytes):
            write_archive(
                folder / MARIAN_FILE,
                settings=write_architecture(config, sizes=(len(source), len(target))),
                arrays=_arrays(model, source=source, target=target),
            )
        decoder = {
            "relative-paths": True,
            "models": [MARIAN_FILE],
            "vocabs": [names[0], names[-1]],
            "beam-size": 4,
            "normalize": 0.6,
        }
        (folder / DECODER_FILE).write_text(yaml.safe_dump(decoder, sort_keys=False), "utf-8")
        write_about(folder, load_about(path))


def _arrays(model: Transformer, *, source: np.ndarray, target: np.ndarray) -> dict[str, Array]:
    """Returns Marian's arrays by name; `source` and `target` are our id for each of its ids."""
    arrays: dict[str, Array] = {}
    for variable, names in arrays_of(model):
        arrays.update(zip(names, np.split(variable.numpy(), len(names), -1), strict=True))
    if not model.config.projection_bias:  # Marian has them always
        for name in [name for name in arrays if name[:-1].endswith("_W")]:
            start, part = name[:-2], name[-1]
            arrays.setdefault(f"{start}b{part}", np.zeros([arrays[name].shape[1]], np.float32))
    of_source, of_target = table_names(model.config)
    arrays[of_source] = model.source_embedding.table.numpy()[source]
    arrays[of_target] = model.target_embedding.table.numpy()[target]
    if not model.config.tie_embeddings:
        arrays[OUTPUT] = model.output_embedding.table.numpy()[target].T
    arrays[OUTPUT_BIAS] = np.zeros([len(target)], np.float32)
    if model.output_bias is not None:
        arrays[OUTPUT_BIAS] = model.output_bias.values.numpy()[target]
    return arrays
