"""An exported model folder to translations: what every translating command calls."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from model.decoding.search import (
    Prediction,
    SearchResult,
    beam_search,
    greedy_search,
    longest_limit,
)
from model.engines.batching import TokenBudget, count_work, pad, translate_in_batches
from model.engines.translator import NOTHING, Hypothesis, Translation, Work, check_scores
from model.errors import NotFiniteError, UserError
from model.folders.access import check_readable
from model.formats.about import About
from model.formats.model_folder import (
    CONFIG_FILE,
    WEIGHTS_FILE,
    check_vocabulary_sizes,
    checked_meanwhile,
    find_model_folder,
    load_config,
    model_fingerprint,
    write_config,
)
from model.text.unknown import UnknownParts
from model.text.vocabulary import (
    BOS_ID,
    INCOMPLETE,
    PAD_ID,
    UNK_ID,
    VocabularyPair,
    is_empty,
    load_vocabularies,
)
from model.transformer.config import BATCH_TOKENS, GPU_BATCH_TOKENS, Decoding, TransformerConfig
from model.transformer.transformer import EncodedSource, Transformer, dtype_policy

__all__ = [
    "CONFIG_FILE",
    "WEIGHTS_FILE",
    "Translator",
    "export_model",
    "find_model_folder",
    "hidden_ids",
    "length_limits",
    "model_fingerprint",
    "search_batch",
]


# What can be the fault of a source.
_INPUT_ERRORS = (ValueError, TypeError, tf.errors.InvalidArgumentError, NotFiniteError)


def export_model(
    model: Transformer,
    folder: Path,
    *,
    vocabulary_folder: Path,
    vocabularies: VocabularyPair,
    about: About | None = None,
) -> None:
    """Writes all that translation needs into a folder that can be moved on its own.

    It is made under another name, its config last, and takes the place of an older export whole.

    Args:
      model: With its weights.
      folder: To write.
      vocabulary_folder: Whose vocabularies are copied.
      vocabularies: That lie there.
      about: What the model is, if that is known.
    """
    temporary = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    for name in vocabularies.files:
        shutil.copyfile(vocabulary_folder / name, temporary / name)
    _reserve(temporary / WEIGHTS_FILE, 4 * model.count_params() + 4096 * len(model.variables))
    model.save_weights(temporary / WEIGHTS_FILE)
    write_config(temporary, model.config, about or About())
    if folder.exists():
        shutil.rmtree(folder)
    temporary.replace(folder)


def _reserve(path: Path, size: int) -> None:
    """Raises an OSError where there is no room for a file; HDF5 ends the process instead."""
    if hasattr(os, "posix_fallocate"):
        with path.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


class Translator:
    """A loaded model: texts in, translations out, in order. Threads may share one.

    Args:
      model: With its weights.
      vocabularies: Of the source and the target.
      decoding: How to search.
      device: What computes, such as "GPU:1", with the weights that lie there; None leaves it to
        TensorFlow.
    """

    def __init__(
        self,
        model: Transformer,
        vocabularies: VocabularyPair,
        decoding: Decoding,
        *,
        device: str | None = None,
    ) -> None:
        self.vocabularies = vocabularies
        self.decoding = decoding
        self.model = model
        tokens = decoding.batch_tokens or default_batch_tokens(device)
        self._budget = TokenBudget(tokens // decoding.beam_size)
        hidden = hidden_ids(model.config, vocabularies)

        def search(source: tf.Tensor) -> SearchResult:
            with _on_device(device):
                return search_batch(model, source, decoding=decoding, hidden_ids=hidden)

        # One signature with free lengths: no batch traces the function again.
        self._search = tf.function(
            search, input_signature=[tf.TensorSpec([None, None], tf.int32)], autograph=False
        )

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        decoding: Decoding | None = None,
        compute_type: str = "float32",
        device: str | None = None,
        is_checked: bool = False,
    ) -> Translator:
        """Loads an exported model.

        Args:
          folder: A model folder, or the run folder that it lies in.
          decoding: How to search; by default beam search as `Decoding` has it.
          compute_type: Of the products and of their weights: "float32", "bfloat16" or "float16".
          device: What computes; None leaves it to TensorFlow.
          is_checked: Whether its files are known to be those that it was written with.

        Raises:
          UserError: There is no finished model, a file of it cannot be read or is another one, or
            its weights are not finite.
        """
        path = find_model_folder(folder)
        vocabularies, config = load_vocabularies(path), load_config(path)
        sizes = (config.source_vocabulary_size, config.target_vocabulary_size)
        check_readable(path / WEIGHTS_FILE)
        with contextlib.nullcontext() if is_checked else checked_meanwhile(path):
            check_vocabulary_sizes(path, vocabularies, sizes=sizes)
            with dtype_policy(compute_type), _on_device(device):
                model = Transformer(config)
            _load_weights(model, path / WEIGHTS_FILE)
        if strange := _not_finite(model):
            raise UserError(
                f"{path / WEIGHTS_FILE} holds weights that are not finite ({strange[0]}, one of "
                f"{len(strange)}): export another checkpoint with `tt export --checkpoint`, or "
                "train again with a lower rate"
            )
        return cls(model, vocabularies, decoding or Decoding(), device=device)

    def translate(self, texts: list[str]) -> list[Translation]:
        """Translates texts of any number and length; an empty one gives "" with score 0.

        Empty is what normalisation leaves nothing of.

        >>> translator = Translator.load("run/model")  # doctest: +SKIP
        >>> translator.translate(["A dog runs."])[0].text  # doctest: +SKIP
        'Ein Hund läuft.'
        """
        ids = self.encode(texts)
        worded = [i for i, row in enumerate(ids) if not is_empty(row)]
        translations = [NOTHING] * len(texts)
        found, _ = self.translate_ids([ids[i] for i in worded])
        for i, translation in zip(worded, found, strict=True):
            translations[i] = translation
        return translations

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and encodes them as the training data was, BOS and EOS added."""
        return self.vocabularies.source.encode(texts)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self.vocabularies.source.count_unknown(text)

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Translates encoded texts: batches of like length, put back into order."""
        return translate_in_batches(
            source_ids,
            budget=self._budget,
            translate_batch=self._translate_batch,
            is_memory_error=lambda error: isinstance(error, tf.errors.ResourceExhaustedError),
        )

    def _translate_batch(self, rows: list[list[int]]) -> tuple[list[Translation], Work]:
        n_best = self.decoding.n_best
        result = self._search(tf.constant(pad(rows)))
        ids, scores = result.ids.numpy()[:, :n_best], result.scores.numpy()[:, :n_best]
        texts = self.vocabularies.target.decode([row for found in ids.tolist() for row in found])
        pairs = zip(texts, scores.ravel().tolist(), strict=True)
        hypotheses = [Hypothesis(text, score) for text, score in pairs]
        translations = [
            Translation(tuple(h for h in hypotheses[first : first + n_best] if h.score > -math.inf))
            for first in range(0, len(hypotheses), n_best)
        ]
        check_scores(translations)
        target_tokens = int(np.count_nonzero(ids[:, 0] != PAD_ID))
        return translations, count_work(rows, target_tokens=target_tokens)

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether what was raised can be the fault of a source, not of the machine."""
        return isinstance(error, _INPUT_ERRORS)


def _load_weights(model: Transformer, path: Path) -> None:
    try:
        model.load_weights(path)
    except (ValueError, OSError) as error:
        raise UserError(
            f"{path} is damaged, or does not hold the weights of {CONFIG_FILE} "
            f"({str(error).splitlines()[0]}): {INCOMPLETE}"
        ) from error


def _not_finite(model: Transformer) -> list[str]:
    """Names the variables of which a number is infinite or none."""
    # A sum tells it in a tenth of the time, but may overflow.
    return [
        variable.path
        for variable in model.variables
        if not tf.math.is_finite(tf.reduce_sum(variable))
        and not tf.reduce_all(tf.math.is_finite(variable))
    ]


def default_batch_tokens(device: str | None) -> int:
    """Returns the token budget of a batch where `Decoding` names none.

    >>> default_batch_tokens("/device:GPU:0") // default_batch_tokens("/device:CPU:0")
    8
    """
    return GPU_BATCH_TOKENS if device and "GPU" in device.upper() else BATCH_TOKENS


def _on_device(device: str | None) -> contextlib.AbstractContextManager[None]:
    return tf.device(device) if device else contextlib.nullcontext()


def hidden_ids(config: TransformerConfig, vocabularies: VocabularyPair) -> list[int]:
    """Returns the ids that are never chosen: PAD, UNK, BOS, and those without a piece."""
    unused = range(vocabularies.target.piece_count, config.target_vocabulary_size)
    return [PAD_ID, UNK_ID, BOS_ID, *unused]


def search_batch(
    model: Transformer, source: tf.Tensor, *, decoding: Decoding, hidden_ids: Sequence[int]
) -> SearchResult:
    """Encodes int32 [B, S] ids and searches their translations; see `model.decoding.search`."""
    beams, layers = decoding.beam_size, model.config.layers
    source_lengths = tf.math.count_nonzero(source != PAD_ID, 1, dtype=tf.int32)
    limits = length_limits(source_lengths, decoding)
    encoded = model.encode(source, target_length=longest_limit(limits), hidden_ids=hidden_ids)

    def step(
        ids: tf.Tensor, *, position: tf.Tensor, caches: list[tf.Tensor], sources: list[tf.Tensor]
    ) -> tuple[Prediction, list[tf.Tensor]]:
        left = EncodedSource(
            keys=sources[:layers],
            values=sources[layers : 2 * layers],
            bias=sources[2 * layers],
            positions=encoded.positions,
            projection=encoded.projection,
        )
        return model.decode_step(ids, position=position, caches=caches, encoded=left)

    start: dict[str, Any] = {
        "caches": model.empty_caches(tf.shape(source)[0]),
        "sources": [*encoded.keys, *encoded.values, encoded.bias],
        "limits": limits,
        "no_repeat_ngram_size": decoding.no_repeat_ngram_size,
    }
    if beams == 1:
        return greedy_search(step, **start)
    return beam_search(
        step,
        beam_size=beams,
        length_penalty=decoding.length_penalty,
        n_best=decoding.n_best,
        **start,
    )


def length_limits(source_lengths: tf.Tensor, decoding: Decoding) -> tf.Tensor:
    """Returns the most ids that the translations may have, as `Decoding` says: int32 [B]."""
    longest = min(decoding.max_decoding_length, tf.int32.max)
    ratio = min(decoding.max_length_ratio, float(longest))  # a greater one changes nothing
    scaled = tf.math.ceil(tf.cast(source_lengths, tf.float32) * ratio)
    # The minimum of floats: as int32, the product may be negative.
    limits = tf.cast(scaled, tf.float64) + decoding.max_extra_tokens
    return tf.cast(tf.minimum(limits, float(longest)), tf.int32)
