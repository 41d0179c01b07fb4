"""The validation split under the weights of the moment: loss, and real translations scored."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from tt.model.dataset.batches import Position, read_target_texts
from tt.model.dataset.manifest import VALIDATION
from tt.model.engines.tensorflow_engine import TensorFlowTranslator
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

_SAMPLES = 3  # sentences whose attention is shown, and whose translations are kept
_SENTENCES_AT_ONCE = 256  # between two looks at whether the run is to stop


class Validator:
    """Validates a model that is trained on a dataset.

    All workers validate together; each replica translates a part of the sentences. `stop` is asked
    now and then, by all workers equally often, whether to end the validation.
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
            TensorFlowTranslator(model, data.vocabularies, decoding, device=device)
            for device in workers.devices
        ]

    def check(self) -> None:
        """Read the split once, to find its faults before training.

        Raises:
          UserError: See `TokenBatches.epoch`.
        """
        _ = self._references

    def validate(self, step: int) -> Validation:
        """Returns loss, nll, perplexity and accuracy on the whole split."""
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
        """Adds BLEU and chrF, which all workers find together."""
        bleu, chrf, token_scores, translations = self.score()
        sources = [source for _, source, _ in self._pairs[: len(translations)]]
        samples = zip(
            self._vocabularies.source.decode(sources),
            self._references[: len(translations)],
            translations,
            strict=True,
        )
        # Scores are kept as float32, so that the best of a run compare with those saved before.
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
        """Translates greedily; returns BLEU and chrF against the split's target texts.

        And quantiles of the log-probability of a token, a number for each translation; and the
        first translations.

        Those are normalised, but as they were before the vocabulary: what that changes or does not
        know is a difference to them.
        """
        sources = [source for _, source, _ in self._pairs[: self._training.score_sentences]]
        # Like lengths together: a batch goes on until its longest translation has ended.
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        hypotheses = [""] * len(sources)
        token_scores = np.zeros(len(sources), np.float32)
        parts = [
            order[first : first + _SENTENCES_AT_ONCE]
            for first in range(0, len(order), _SENTENCES_AT_ONCE)
        ]

        def translate(translator: TensorFlowTranslator, rows: list[int]) -> None:
            found, _ = translator.translate_ids([sources[i] for i in rows])
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
                # The parts do not depend on the number of workers, nor do the translations.
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
        """Returns the texts of all workers; each gives "" for those of others."""
        encoded = [text.encode() for text in texts]
        lengths = self._workers.sum(np.array([len(text) for text in encoded]))
        ends = np.cumsum(lengths, dtype=np.int64).tolist()
        starts = [0, *ends[:-1]]
        # Only numbers travel between workers: these are bytes.
        values = np.zeros(max(1, ends[-1]), np.float32)
        for start, text in zip(starts, encoded, strict=True):
            values[start : start + len(text)] = np.frombuffer(text, np.uint8)
        found = self._workers.sum(values).astype(np.uint8).tobytes()
        return [found[start:end].decode() for start, end in zip(starts, ends, strict=True)]

    def attention(self) -> Iterator[list[np.ndarray]]:
        """Yields what the decoder looks at in each of a few pairs; see `sample_attention`."""
        for _, source, target in self._pairs[:_SAMPLES]:
            yield sample_attention(
                self._model, self._vocabularies, source_ids=source, target_ids=target
            )

    @functools.cached_property
    def _references(self) -> list[str]:
        """The target texts of the pairs that `score` translates."""
        records = [record for record, _, _ in self._pairs[: self._training.score_sentences]]
        texts = read_target_texts(self._batches.files, set(records))
        return [texts[record] for record in records]

    @functools.cached_property
    def _pairs(self) -> list[tuple[tuple[str, int], list[int], list[int]]]:
        """The record and the ids of the first pairs of the split, in the order of its records."""
        found = [
            (record, source[source != PAD_ID].tolist(), target[target != PAD_ID].tolist())
            for batch in self._batches.epoch(Position())
            # The last rows may be padding alone.
            for record, source, target in zip(
                batch.records, batch.source, batch.target, strict=False
            )
        ]
        found.sort(key=lambda pair: pair[0])
        return found[: max(self._training.score_sentences, _SAMPLES)]
