"""Validate a model during training: the loss and the translation quality on the held-out split."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tt.model.dataset.batches import Position, read_target_texts
from tt.model.dataset.manifest import VALIDATION
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.engines.translator import Input
from tt.model.formats.model_card import score_quantiles
from tt.model.long_work import long_work
from tt.model.text import scores
from tt.model.text.vocabulary import PAD_ID
from tt.model.training.loss import TokenSums
from tt.model.training.reports import Validation
from tt.model.training.splits import TrainingDataset
from tt.model.training.state import perplexity
from tt.model.training.step import TrainingStep
from tt.model.training.stops import StopRequest
from tt.model.training.strategies import Workers
from tt.model.transformer.attention_figures import sample_attention
from tt.model.transformer.search_options import Decoding
from tt.model.transformer.transformer import Transformer

_SAMPLES = 3  # sentences whose attention and translations are reported
_SENTENCES_AT_ONCE = 256  # sentences per device between two checks for a stop request


class Validator:
    """Computes the validation reports of a training.

    All workers validate together; each replica translates a part of the sentences. All workers
    check for stop requests at the same points.

    Args:
      model: The model that is trained.
      step: The compiled functions of the training.
      data: The dataset.
      workers: The processes that train together.
      stop: A request object through which the caller can stop the validation.
    """

    def __init__(
        self,
        model: Transformer,
        *,
        step: TrainingStep,
        data: TrainingDataset,
        workers: Workers,
        stop: StopRequest,
    ) -> None:
        self._model, self._step = model, step
        self._workers, self._stop = workers, stop
        self._batches = data.batches(VALIDATION)
        self._vocabularies = data.vocabularies
        self._language = data.manifest.target_language
        self._training = data.training
        decoding = Decoding(beam_size=1)
        self._translators = [
            TensorFlowTranslator(
                model, data.vocabularies, decoding, device=device, strategy=workers.strategy
            )
            for device in workers.devices
        ]

    def check(self) -> None:
        """Read the whole split, to find damaged records before the training starts.

        Raises:
          UserError: A record or a shard is damaged; see `TokenBatches.epoch`.
        """
        _ = self._references

    def validate(self, step: int) -> Validation:
        """Return the loss, nll, perplexity and accuracy on the whole split.

        Args:
          step: Number of updates so far.

        Raises:
          Terminated: A worker requested a stop.
        """
        totals = np.zeros(len(TokenSums._fields))
        pairs = self._batches.records or 0
        with long_work("validating", total=pairs, unit="pairs") as work:
            for batch in self._batches.epoch(Position()):
                self._stop.check(self._workers)
                totals += self._step.sums(batch.source, batch.target)
                work.add(len(batch.records))
        sums = TokenSums(*totals.tolist())
        return Validation(
            step=step,
            loss=sums.loss / sums.tokens,
            nll=sums.cross_entropy / sums.tokens,
            perplexity=perplexity(sums.cross_entropy / sums.tokens),
            accuracy=sums.correct / sums.tokens,
        )

    def with_scores(self, validation: Validation) -> Validation:
        """Return a validation with BLEU, chrF, token scores and samples added.

        Raises:
          Terminated: A worker requested a stop.
        """
        bleu, chrf, token_scores, translations = self.score()
        sources = [source for _, source, _ in self._pairs[: len(translations)]]
        samples = zip(
            self._vocabularies.source.decode(sources),
            self._references[: len(translations)],
            translations,
            strict=True,
        )
        # Round to float32, the precision of the scores in earlier checkpoints, so that new scores
        # compare exactly with those.
        return dataclasses.replace(
            validation,
            bleu=float(np.float32(bleu.value)),
            chrf=float(np.float32(chrf.value)),
            bleu_signature=bleu.signature,
            chrf_signature=chrf.signature,
            token_scores=token_scores,
            samples=[
                dict(zip(("source", "reference", "translation"), texts, strict=True))
                for texts in samples
            ],
        )

    def score(self) -> tuple[scores.Score, scores.Score, dict[str, float], list[str]]:
        """Translate the first `score_sentences` sentences greedily and score the translations.

        The references are the normalized target texts, not the decoded target ids. Unknown
        characters therefore lower the score.

        Returns:
          BLEU, chrF, quantiles of the translations' mean log-probabilities per token, and the first
          translations.

        Raises:
          Terminated: A worker requested a stop.
        """
        sources = [source for _, source, _ in self._pairs[: self._training.score_sentences]]
        # Sort by length, because a batch takes as long as its longest translation.
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        hypotheses = [""] * len(sources)
        token_scores = np.zeros(len(sources), np.float32)
        parts = [
            order[first : first + _SENTENCES_AT_ONCE]
            for first in range(0, len(order), _SENTENCES_AT_ONCE)
        ]

        def translate(translator: TensorFlowTranslator, rows: list[int]) -> None:
            ids = [sources[i] for i in rows]
            found, _ = translator.translate([Input("", len(i) - 2, encoded=i) for i in ids])
            for i, translation in zip(rows, found, strict=True):
                hypotheses[i] = translation.text
                token_scores[i] = translation.score / translation.hypotheses[0].tokens
            work.add(self._workers.count * len(rows))

        here = len(self._translators)
        with (
            ThreadPoolExecutor(here) as threads,
            long_work("translating", total=len(sources), unit="validation sentences") as work,
        ):
            for first in range(0, len(parts), self._workers.count * here):
                self._stop.check(self._workers)
                own = first + self._workers.number * here
                # The parts do not depend on the number of workers, so the translations do not
                # either.
                list(threads.map(translate, self._translators, parts[own : own + here]))
        if self._workers.count > 1:
            self._stop.check(self._workers)
            hypotheses = self._gather(hypotheses)
            token_scores = np.asarray(self._workers.sum(token_scores), np.float32)
        return (
            scores.bleu(hypotheses, self._references, language=self._language),
            scores.chrf(hypotheses, self._references),
            score_quantiles(token_scores),
            hypotheses[:_SAMPLES],
        )

    def _gather(self, texts: list[str]) -> list[str]:
        """Return the texts of all workers, given this worker's texts and "" for the others."""
        encoded = [text.encode() for text in texts]
        lengths = self._workers.sum(np.array([len(text) for text in encoded]))
        ends = np.cumsum(lengths, dtype=np.int64).tolist()
        starts = [0, *ends[:-1]]
        # Workers can exchange only numbers, so send the UTF-8 bytes.
        values = np.zeros(max(1, ends[-1]), np.float32)
        for start, text in zip(starts, encoded, strict=True):
            values[start : start + len(text)] = np.frombuffer(text, np.uint8)
        found = self._workers.sum(values).astype(np.uint8).tobytes()
        return [found[start:end].decode() for start, end in zip(starts, ends, strict=True)]

    def attention(self) -> Iterator[list[np.ndarray]]:
        """Yield pictures of the cross-attention for a few pairs; see `sample_attention`."""
        for _, source, target in self._pairs[:_SAMPLES]:
            yield sample_attention(
                self._model, self._vocabularies, source_ids=source, target_ids=target
            )

    @functools.cached_property
    def _references(self) -> list[str]:
        """The target texts of the pairs that `score` translates, in the order of the pairs."""
        records = [record for record, _, _ in self._pairs[: self._training.score_sentences]]
        texts = read_target_texts(self._batches.files, set(records))
        return [texts[record] for record in records]

    @functools.cached_property
    def _pairs(self) -> list[tuple[tuple[str, int], list[int], list[int]]]:
        """The record, source ids and target ids of the first pairs, in the order of the records."""
        found = [
            (record, source[source != PAD_ID].tolist(), target[target != PAD_ID].tolist())
            for batch in self._batches.epoch(Position())
            # The last rows may contain only padding, and padding has no record.
            for record, source, target in zip(
                batch.records, batch.source, batch.target, strict=False
            )
        ]
        found.sort(key=lambda pair: pair[0])
        return found[: max(self._training.score_sentences, _SAMPLES)]
