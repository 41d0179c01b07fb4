"""Translation with TensorFlow."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

import numpy as np
import tensorflow as tf

from tt.model.engines.batching import (
    TokenBudget,
    count_work,
    cut_batches,
    find_ends,
    pad,
    translate_in_batches,
)
from tt.model.engines.tokens import prepare_texts
from tt.model.engines.translator import (
    Hypothesis,
    Input,
    Languages,
    ScoredText,
    Translation,
    Work,
    check_scores,
)
from tt.model.errors import NotFiniteError
from tt.model.formats.weights import load_model, on_device
from tt.model.text.vocabulary import PAD_ID, VocabularyPair
from tt.model.transformer.decode import hidden_ids, search_batch
from tt.model.transformer.loop import SearchResult
from tt.model.transformer.search_options import BATCH_TOKENS, GPU_BATCH_TOKENS, Decoding
from tt.model.transformer.transformer import Transformer

_MOST_LOGITS = 2**26  # logits of a batch of given translations, 256 MB
# Errors that a source can cause.
_INPUT_ERRORS = (ValueError, TypeError, tf.errors.InvalidArgumentError, NotFiniteError)


class TensorFlowTranslator:
    """Translates with a loaded model in TensorFlow; threads may share it.

    Args:
      model: The model.
      vocabularies: Its vocabularies.
      decoding: Options of the search.
      device: Device for the computation, such as "GPU:1"; None lets TensorFlow choose.
      strategy: The strategy in whose scope the model was made. Without its scope, all devices would
        read the weights of the first replica.
    """

    def __init__(
        self,
        model: Transformer,
        vocabularies: VocabularyPair,
        decoding: Decoding,
        *,
        device: str | None = None,
        strategy: tf.distribute.Strategy | None = None,
    ) -> None:
        self.vocabularies = vocabularies
        self.decoding = decoding
        self.model = model
        is_gpu = device is not None and "GPU" in device.upper()
        tokens = decoding.batch_tokens or (GPU_BATCH_TOKENS if is_gpu else BATCH_TOKENS)
        # A training has a `batch_tokens` of its own, and none for its validations.
        self._budget = TokenBudget(tokens, beam_size=decoding.beam_size, is_option=not strategy)
        hidden = hidden_ids(model.config, vocabularies)
        scope = strategy.scope if strategy else contextlib.nullcontext

        def search(source: tf.Tensor) -> SearchResult:
            with scope(), on_device(device):
                return search_batch(model, source, decoding=decoding, hidden_ids=hidden)

        # A signature without fixed lengths avoids tracing the function again for each shape.
        signature = [tf.TensorSpec([None, None], tf.int32)]
        self._search = tf.function(search, input_signature=signature, autograph=False)

        def score(source: tf.Tensor, target: tf.Tensor) -> tf.Tensor:
            """Return the log-probability of each target id but the first, [B, T - 1]."""
            with scope(), on_device(device):
                output = model(source, target=target[:, :-1])
                logits = tf.cast(model.logits(output), tf.float32)  # [B, T - 1, V]
                return tf.gather(tf.nn.log_softmax(logits), target[:, 1:], batch_dims=2)

        self._score = tf.function(score, input_signature=signature * 2, autograph=False)

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        decoding: Decoding | None = None,
        compute_type: str = "float32",
        device: str | None = None,
        is_checked: bool = False,
    ) -> TensorFlowTranslator:
        """Load an exported model.

        Args:
          folder: Model folder or run folder.
          decoding: Options of the search; None uses the default beam search.
          compute_type: Type of the matrix products and weights, as in `load_model`.
          device: Device for the weights and the computation; None lets TensorFlow choose.
          is_checked: Whether the files have already been compared with their digests.

        Raises:
          UserError: There is no finished model, or a file is damaged.
        """
        loaded = load_model(folder, compute_type=compute_type, device=device, is_checked=is_checked)
        return cls(loaded.model, loaded.vocabularies, decoding or Decoding(), device=device)

    def prepare(
        self, texts: list[str], *, languages: Languages = ("", ""), most_tokens: int | None = None
    ) -> list[Input]:
        """Normalize and encode texts like the training data; the model has only two languages.

        The encodings of texts are ids with BOS and EOS; see `Translator.prepare`.
        """
        return prepare_texts(texts, vocabulary=self.vocabularies.source, most_tokens=most_tokens)

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Translate inputs, and return the translations in the same order.

        >>> translator = TensorFlowTranslator.load("run/model")  # doctest: +SKIP
        >>> translations, _ = translator.translate(
        ...     translator.prepare(["A dog runs."]))  # doctest: +SKIP
        >>> translations[0].text  # doctest: +SKIP
        'Ein Hund läuft.'
        """
        return translate_in_batches(
            [each.encoded for each in inputs],
            budget=self._budget,
            translate_batch=self._translate_batch,
            is_memory_error=lambda error: isinstance(error, tf.errors.ResourceExhaustedError),
        )

    def score(self, pairs: list[tuple[Input, str]]) -> list[ScoredText]:
        """Score a given translation of each input."""
        vocabulary = self.vocabularies.target
        sources: list[list[int]] = [source.encoded for source, _ in pairs]
        texts = [text for _, text in pairs]
        targets = vocabulary.encode(texts)
        sizes = [max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)]
        ends = {
            text: find_ends(
                vocabulary.decode([ids[1 : k + 1] for k in range(1, len(ids) - 1)]), text
            )
            for text, ids in dict(zip(texts, targets, strict=True)).items()
        }
        found: dict[int, ScoredText] = {}
        most = max(1, min(self._budget.tokens, _MOST_LOGITS // vocabulary.size))
        for batch in cut_batches(sizes, most=most):
            scores = self._score(
                tf.constant(pad([sources[i] for i in batch])),
                tf.constant(pad([targets[i] for i in batch])),
            ).numpy()
            for i, row in zip(batch, scores.tolist(), strict=True):
                found[i] = ScoredText(ends[texts[i]], row[: len(targets[i]) - 2])
        return [found[i] for i in range(len(texts))]

    def search_ids(self, source_ids: list[int]) -> list[int]:
        """Return the ids of the best translation of one encoded text, without BOS and with EOS."""
        result = self._search(tf.constant([source_ids], tf.int32))
        return [i for i in result.ids.numpy()[0, 0].tolist() if i != PAD_ID]

    def _translate_batch(self, rows: list[list[int]]) -> tuple[list[Translation], Work]:
        n_best = self.decoding.n_best
        result = self._search(tf.constant(pad(rows)))
        ids, scores = result.ids.numpy()[:, :n_best], result.scores.numpy()[:, :n_best]
        texts = self.vocabularies.target.decode([row for found in ids.tolist() for row in found])
        limits = [self.decoding.length_limit(len(row)) for row in rows]
        tokens = np.count_nonzero(ids != PAD_ID, 2)  # [B, N]
        is_complete = tokens < np.array(limits)[:, None]  # [B, N]
        columns = (each.ravel().tolist() for each in (scores, is_complete, tokens))
        found = zip(texts, *columns, strict=True)
        hypotheses = [Hypothesis(*each) for each in found]
        translations = [
            Translation(tuple(h for h in hypotheses[first : first + n_best] if h.score > -math.inf))
            for first in range(0, len(hypotheses), n_best)
        ]
        check_scores(translations)
        target_tokens = int(np.count_nonzero(ids[:, 0] != PAD_ID))
        return translations, count_work(rows, target_tokens=target_tokens)

    def is_input_error(self, error: Exception) -> bool:
        """Return whether a source, and not the machine, can have caused an error."""
        return isinstance(error, _INPUT_ERRORS)
