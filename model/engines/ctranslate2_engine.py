"""CTranslate2 as an engine: a model folder, converted once, or a foreign model; no TensorFlow.

It searches as `tt.model.transformer.search` does, with these differences:

- Hypotheses are ranked by our length penalty, but among those that CTranslate2's search ends
  with. That stops when `beam_size` have ended, ours also when nothing can outrank the best.
- At the length limit, only the best `beam_size` hypotheses are made to end.
- Scores are log-probabilities among the ids that may be chosen (see `export_ctranslate2`), so
  they are a little higher than ours. Of a foreign model, all of its tokens may be chosen.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import NamedTuple

import ctranslate2

from tt.model.engines.batching import MOST_PADDING, TokenBudget, count_work, translate_in_batches
from tt.model.engines.machine import calls_at_once
from tt.model.engines.tokens import ExportTokens, ForeignTokens
from tt.model.engines.translator import Engine, Hypothesis, Translation, Work, check_scores
from tt.model.errors import NotFiniteError, UserError, first_line, require
from tt.model.formats.foreign import (
    POSITIONS,
    is_foreign,
    open_foreign,
    read_sizes,
    weights_folder,
)
from tt.model.text.vocabulary import UnknownParts
from tt.model.transformer.search_options import GPU_BATCH_TOKENS, Decoding

# Padded positions beyond which batches are no faster: of sources over all beams, and of targets
# that are scored.
_FAST_BATCH, _FAST_SCORING = 4096, 256

# Without any length penalty CTranslate2 would stop at the first hypothesis that ends.
_LEAST_PENALTY = 1e-9

# CTranslate2 scores empty places of a beam below this.
_LEAST_SCORE = -1e9


class _Found(NamedTuple):
    """A hypothesis."""

    tokens: list[str]  # EOS included, unless the search was cut short
    score: float  # the log-probability of these tokens


class CTranslate2Translator:
    """A model for CTranslate2, exported or foreign: ids in, translations out, in order.

    Threads may share a translator. On the CPU, each translation uses `threads` threads, and as many
    translations run at once as the cores allow. Each GPU computes one translation at a time.

    Raises:
      UserError: CTranslate2 cannot load the model.
    """

    def __init__(self, folder: Path, *, decoding: Decoding, engine: Engine, threads: int) -> None:
        weights = weights_folder(folder) or folder
        self.decoding = decoding
        self.tokens: ExportTokens | ForeignTokens = (
            ForeignTokens(open_foreign(folder)) if is_foreign(folder) else ExportTokens(folder)
        )
        self._positions = read_sizes(weights).positions if is_foreign(folder) else POSITIONS
        device = find_device(engine)
        self.is_on_gpus = device == "cuda"
        tokens = decoding.batch_tokens or (GPU_BATCH_TOKENS if self.is_on_gpus else _FAST_BATCH)
        self._budget = TokenBudget(tokens // decoding.beam_size)
        # With one limit for a batch, CTranslate2 scores what it cuts; GPUs need large ones more.
        has_one_length = decoding.beam_size == 1 and not self.is_on_gpus
        self._most_padding = 0.0 if has_one_length else MOST_PADDING
        gpus = list(range(ctranslate2.get_cuda_device_count())) if device == "cuda" else [0]
        try:
            self._translator = ctranslate2.Translator(
                str(weights),
                device=device,
                device_index=gpus,
                compute_type=engine.compute_type,
                inter_threads=calls_at_once(threads) if device == "cpu" else 1,
                intra_threads=threads,
            )
        except (ValueError, RuntimeError, IndexError, MemoryError) as error:
            raise UserError(
                f"CTranslate2 cannot load {folder} as {engine.compute_type}: {first_line(error)}"
            ) from error

    def between(self, *, source: str, target: str) -> CTranslate2Translator:
        """Return a translator between two languages by their codes, with the same model.

        Raises:
          UserError: The model is told the languages, and has not these.
        """
        other = copy.copy(self)
        other.tokens = self.tokens.between(source=source, target=target)
        return other

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalize texts and encode them as the training data was, BOS and EOS added."""
        return self.tokens.encode(texts)

    def count_unknown(self, text: str) -> UnknownParts:
        """Count the unknown parts of a text."""
        return self.tokens.count_unknown(text)

    def translate_ids(self, source_ids: list[list[int]]) -> tuple[list[Translation], Work]:
        """Translate encoded texts in batches of like length; return them in their order.

        Raises:
          ValueError: A source is longer than the positions of the model.
        """
        room = self._positions - len(self.tokens.name([]))
        if (longest := max(map(len, source_ids), default=0)) > room:
            raise ValueError(f"a source has {longest:,} ids; the model has {room:,} positions")
        return translate_in_batches(
            source_ids,
            budget=self._budget,
            translate_batch=self._translate_batch,
            is_memory_error=_is_memory_error,
            most_padding=self._most_padding,
        )

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""
        return isinstance(error, (ValueError, TypeError, NotFiniteError))

    def _translate_batch(self, rows: list[list[int]]) -> tuple[list[Translation], Work]:
        limits = [self.decoding.length_limit(len(row)) for row in rows]
        sources = [self.tokens.name(row) for row in rows]
        found = self._search(sources, limit=max(limits))
        # CTranslate2 has one limit per call. A search whose longest hypothesis is shorter than its
        # own limit ended before it; a greedy search takes the same steps up to its limit.
        if self.decoding.beam_size > 1:
            self._search_again(sources, found, limits)
        self._end(sources, found, limits)
        best = [self._rank(hypotheses) for hypotheses in found]
        texts = iter(self.tokens.decode([h.tokens for row in best for h in row]))
        translations = [
            Translation(
                tuple(
                    Hypothesis(next(texts), h.score, len(h.tokens) < limit, len(h.tokens))
                    for h in row
                )
            )
            for row, limit in zip(best, limits, strict=True)
        ]
        check_scores(translations)
        return translations, count_work(rows, target_tokens=sum(len(row[0].tokens) for row in best))

    def _search_again(
        self, sources: list[list[str]], found: list[list[_Found]], limits: list[int]
    ) -> None:
        """Search again for sources whose hypotheses exceed their own limit, limit by limit."""
        late = [
            i
            for i, limit in enumerate(limits)
            if limit < max(limits) and max(len(h.tokens) for h in found[i]) >= limit - 1
        ]
        for limit in sorted({limits[i] for i in late}):
            places = [i for i in late if limits[i] == limit]
            again = self._search([sources[i] for i in places], limit=limit)
            for i, hypotheses in zip(places, again, strict=True):
                found[i] = hypotheses

    def _search(self, sources: list[list[str]], *, limit: int) -> list[list[_Found]]:
        """Returns the hypotheses that each source's search ended with; some are without EOS."""
        decoding = self.decoding
        penalty = max(decoding.length_penalty, _LEAST_PENALTY)
        if limit == 1:  # there is room for EOS alone
            return [[_Found([], 0.0)] for _ in sources]
        prefix, counted = self.tokens.target_prefix, self.tokens.counted_prefix
        results = self._translator.translate_batch(
            sources,
            target_prefix=[prefix] * len(sources) if prefix else None,
            beam_size=decoding.beam_size,
            num_hypotheses=decoding.beam_size,
            length_penalty=penalty,
            no_repeat_ngram_size=decoding.no_repeat_ngram_size,
            max_input_length=0,
            min_decoding_length=0,
            # The last token is the EOS that `_end` appends; those of the prefix count.
            max_decoding_length=limit - 1 + counted,
            return_end_token=True,
            return_scores=True,
        )
        return [
            [
                _Found(tokens[counted:], score * len(tokens) ** penalty)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _end(self, sources: list[list[str]], found: list[list[_Found]], limits: list[int]) -> None:
        """End all hypotheses at their limits with an EOS, and score those that CTranslate2 did not.

        The EOS at the limit counts in the score of a beam's hypothesis, but not in that of a greedy
        one. A greedy hypothesis is scored again if it is longer, or ended at the limit by itself,
        and so is the empty one that CTranslate2 returns for an empty source. With
        `no_repeat_ngram_size`, all are scored again, because CTranslate2 gives the share of the
        forbidden tokens to the others.
        """
        end, is_greedy = self.tokens.end, self.decoding.beam_size == 1
        scores_all = self.decoding.no_repeat_ngram_size > 0
        places = []
        for i, (row, limit) in enumerate(zip(found, limits, strict=True)):
            for j, hypothesis in enumerate(row):
                is_scored = hypothesis.tokens[-1:] == [end]
                if is_greedy:
                    is_scored = min(1, limit - 1) <= len(hypothesis.tokens) < limit
                if scores_all or not is_scored:
                    places.append((i, j))
                if hypothesis.tokens[-1:] != [end] or len(hypothesis.tokens) > limit:
                    row[j] = hypothesis._replace(tokens=[*hypothesis.tokens[: limit - 1], end])
        scored = self._score([sources[i] for i, _ in places], [found[i][j] for i, j in places])
        for (i, j), log_probabilities in zip(places, scored, strict=True):
            tokens = found[i][j].tokens
            counted = len(tokens) - (is_greedy and len(tokens) == limits[i])
            found[i][j] = _Found(tokens, sum(log_probabilities[:counted]))

    def _score(self, sources: list[list[str]], hypotheses: list[_Found]) -> list[list[float]]:
        """Returns the log-probabilities of each hypothesis's tokens, EOS included."""
        if not sources:
            return []
        prefix, counted = self.tokens.target_prefix, self.tokens.counted_prefix
        scored = self._translator.score_batch(
            sources,
            [[*prefix, *hypothesis.tokens[:-1]] for hypothesis in hypotheses],
            max_batch_size=_FAST_SCORING,
            batch_type="tokens",
            max_input_length=0,
        )
        return [result.log_probs[counted:] for result in scored]

    def _rank(self, hypotheses: list[_Found]) -> list[_Found]:
        """Returns the best hypotheses by our length penalty, at least one."""
        alpha = self.decoding.length_penalty
        chosen = [
            h
            for h in hypotheses
            if h.score > _LEAST_SCORE and self.tokens.hidden.isdisjoint(h.tokens)
        ]
        ranked = sorted(
            chosen or hypotheses[:1], key=lambda h: -h.score / ((5 + len(h.tokens)) / 6) ** alpha
        )
        return ranked[: self.decoding.n_best]


def find_device(engine: Engine) -> str:
    """Return the device of an engine, "cpu" or "cuda".

    Raises:
      UserError: CTranslate2 finds no GPU, or the device lacks the compute type.
    """
    has_gpu = ctranslate2.get_cuda_device_count() > 0
    require(
        has_gpu or engine.device != "cuda",
        "`device=cuda` needs a GPU of NVIDIA, and CTranslate2 finds none: leave it out",
    )
    device = "cuda" if has_gpu and engine.device != "cpu" else "cpu"
    known = sorted(ctranslate2.get_supported_compute_types(device))
    require(
        engine.compute_type in known,
        f"`compute_type` of CTranslate2 on this {device} must be one of {', '.join(known)}",
        engine.compute_type,
    )
    return device


def _is_memory_error(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error)
