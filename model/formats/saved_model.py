"""A model folder to a SavedModel, which needs TensorFlow alone."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from model.folders.atomic import atomic_folder
from model.folders.long_work import writing
from model.folders.remote import storage_errors
from model.formats.model_folder import find_model_folder, load_about, write_about
from model.formats.weights import check_output, copy_vocabularies, load_model
from model.transformer.decode import hidden_ids, search_batch
from model.transformer.search_options import Decoding

SIGNATURE = "serving_default"
VOCABULARY_FOLDER = "assets.extra"  # TensorFlow's name for files that the graph does not read


def export_saved_model(
    model_folder: Path, output: Path, *, decoding: Decoding, overwrite: bool = False
) -> None:
    """Writes a SavedModel that searches as `tt translate` does and needs TensorFlow alone.

    Its signature `serving_default` takes `ids`, int32 [B, S], BOS and EOS included and PAD at the
    end, and gives `ids`, int32 [B, N, L], EOS included and PAD behind it, and `scores`, float32 [B,
    N], log-probabilities, best first (see `model.transformer.loop.SearchResult`). The vocabularies
    lie in `assets.extra/`. The search is a part of the graph; batches are the caller's.

    >>> search = tf.saved_model.load("saved").signatures["serving_default"]  # doctest: +SKIP
    >>> search(ids=tf.constant([[2, 57, 310, 3]]))["ids"].shape  # doctest: +SKIP
    TensorShape([1, 4, 5])

    Raises:
      UserError: There is no finished model, or the output cannot be written.
    """
    path = find_model_folder(model_folder)
    check_output(output, model=path, overwrite=overwrite)
    loaded = load_model(path)
    with (
        storage_errors(str(output.resolve())),
        atomic_folder(output, overwrite=overwrite) as folder,
    ):
        model = loaded.model
        hidden = hidden_ids(model.config, loaded.vocabularies)

        @tf.function(
            input_signature=[tf.TensorSpec([None, None], tf.int32, name="ids")], autograph=False
        )
        def search(ids: tf.Tensor) -> dict[str, tf.Tensor]:
            found = search_batch(model, ids, decoding=decoding, hidden_ids=hidden)
            beams = decoding.beam_size
            return {
                "ids": tf.ensure_shape(found.ids, [None, beams, None]),
                "scores": tf.ensure_shape(found.scores, [None, beams]),
            }

        # A plain module with plain variables: a saved Keras model would want Keras to load.
        module = tf.Module()
        module.weights = [variable.value for variable in model.variables]
        with writing(folder, total=loaded.bytes):
            tf.saved_model.save(module, str(folder), signatures={SIGNATURE: search})
        vocabulary_folder = folder / VOCABULARY_FOLDER
        vocabulary_folder.mkdir()
        copy_vocabularies(path, vocabulary_folder)
        write_about(folder, load_about(path), within=VOCABULARY_FOLDER)
