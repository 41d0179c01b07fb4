"""CTranslate2 as an engine: a model folder, converted once, to translations; no TensorFlow.

It searches as `model.decoding.search` does, with these differences:

- Hypotheses are ranked by our length penalty, but among those that CTranslate2's search ends
  with. That stops when `beam_size` have ended, ours also when nothing can outrank the best.
- At the length limit, only the best `beam_size` hypotheses are made to end.
- Scores are log-probabilities among the ids that may be chosen (see `export_ctranslate2`), so
  they are a little higher than ours.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any, NamedTuple

from model.decoding.options import Decoding
from model.engines.batching import TokenBudget, count_work, translate_in_batches
from model.engines.machine import calls_at_once
from model.engines.translator import Hypothesis, Translation, Work, check_scores
from model.errors import NotFiniteError, UserError, require
from model.extras import install_extra
from model.folders.access import check_readable
from model.formats.model_folder import (
    CTRANSLATE2_FILE,
    POSITIONS,
    check_vocabulary_sizes,
    load_tokens,
)
from model.text.unknown import UnknownParts
from model.text.vocabulary import EOS_ID, load_vocabularies

# Padded positions beyond which batches are no faster: of sources over all beams, and of targets
# that are scored.
_FAST_BATCH, _FAST_SCORING = 4096, 256

# Without any length penalty CTranslate2 would stop at the first hypothesis that ends.
_LEAST_PENALTY = 1e-9

# CTranslate2 scores empty places of a beam below this.
_LEAST_SCORE = -1e9


class _Found(NamedTuple):
    """A hypothesis."""

    ids: list[int]  # EOS included, unless the search was cut short
    score: float  # its log-probability; of no meaning without EOS


class CTranslate2Translator:
    """An exported model for CTranslate2: ids in, translations out, in order.

    Threads may share one. It computes in float32 or int8, each translation by so many threads; as
    many translations run at once as the cores allow.

    Raises:
      UserError: CTranslate2 is not installed, or cannot load the model.
    """

    def __init__(
        self, folder: Path, *, decoding: Decoding, compute_type: str, threads: int
    ) -> None:
        check_length("max_decoding_length", decoding.max_decoding_length)
        check_readable(folder / CTRANSLATE2_FILE)
        self.decoding = decoding
        self.vocabularies = load_vocabularies(folder)
        self._source_tokens = load_tokens(folder, "source")
        self._target_tokens = load_tokens(folder, "target")
        sizes = (len(self._source_tokens), len(self._target_tokens))
        check_vocabulary_sizes(folder, self.vocabularies, sizes=sizes)
        self._target_ids = {token: i for i, token in enumerate(self._target_tokens)}
        self._set_budget()
        try:
            self._translator = import_ctranslate2().Translator(
                str(folder),
                device="cpu",
                compute_type=compute_type,
                inter_threads=calls_at_once(threads),
                intra_threads=threads,
            )
        except (ValueError, RuntimeError) as error:
            raise UserError(
                f"CTranslate2 cannot load {folder} as {compute_type}: {str(error).splitlines()[0]}"
            ) from error

    def _set_budget(self) -> None:
        tokens = self.decoding.batch_tokens or _FAST_BATCH
        self._budget = TokenBudget(tokens // self.decoding.beam_size)

    def _with(self, decoding: Decoding) -> CTranslate2Translator:
        """Returns one that searches otherwise, with the same model."""
        check_length("max_decoding_length", decoding.max_decoding_length)
        other = copy.copy(self)
        other.decoding = decoding
        other._set_budget()
        return other

    def encode(self, texts: list[str]) -> list[list[int]]:
        """Normalises texts and encodes them as the training data was, BOS and EOS added."""
        return self.vocabularies.source.encode(texts)

    def count_unknown(self, text: str) -> UnknownParts:
        """Counts what of a text is unknown."""
        return self.vocabularies.source.count_unknown(text)

    def translate_ids(
        self, source_ids: list[list[int]], *, growth: int = 1, decoding: Decoding | None = None
    ) -> tuple[list[Translation], Work]:
        """Translates encoded texts: batches of like length, put back into order.

        Raises:
          ValueError: A source is longer than the positions of the model.
        """
        if decoding is not None:
            return self._with(decoding).translate_ids(source_ids, growth=growth)
        longest = max(map(len, source_ids), default=0)
        if longest > POSITIONS:
            raise ValueError(
                f"a source has {longest:,} ids; the engine ctranslate2 has {POSITIONS:,} positions"
            )
        return translate_in_batches(
            source_ids,
            budget=self._budget,
            translate_batch=functools.partial(self._translate_batch, growth=growth),
            is_memory_error=_is_memory_error,
        )

    def is_input_error(self, error: Exception) -> bool:
        """Tells whether a source can have caused an error; else it was the machine."""
        return isinstance(error, (ValueError, TypeError, NotFiniteError))

    def _translate_batch(
        self, rows: list[list[int]], *, growth: int
    ) -> tuple[list[Translation], Work]:
        limits = [self.decoding.length_limit(len(row), growth=growth) for row in rows]
        tokens = self._source_tokens
        sources = [[tokens[i] for i in row[1:-1]] for row in rows]  # CTranslate2 adds BOS and EOS
        found = self._search(sources, limit=max(limits))
        # CTranslate2 has one limit a call. A search whose longest hypothesis is shorter than its
        # own limit was over before; a greedy one went the same way up to its limit.
        if self.decoding.beam_size == 1:
            found = [
                [_cut(hypothesis, limit) for hypothesis in row]
                for row, limit in zip(found, limits, strict=True)
            ]
        else:
            self._search_again(sources, found, limits)
        best = [self._rank(hypotheses) for hypotheses in self._end(sources, found)]
        texts = iter(self.vocabularies.target.decode([h.ids for row in best for h in row]))
        translations = [
            Translation(
                tuple(Hypothesis(next(texts), h.score, len(h.ids) < limit, len(h.ids)) for h in row)
            )
            for row, limit in zip(best, limits, strict=True)
        ]
        check_scores(translations)
        return translations, count_work(rows, target_tokens=sum(len(row[0].ids) for row in best))

    def _search_again(
        self, sources: list[list[str]], found: list[list[_Found]], limits: list[int]
    ) -> None:
        """Replaces what was found beyond a source's own limit; the sources of a limit together."""
        late = [
            i
            for i, limit in enumerate(limits)
            if limit < max(limits) and max(len(h.ids) for h in found[i]) >= limit - 1
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
        results = self._translator.translate_batch(
            sources,
            beam_size=decoding.beam_size,
            num_hypotheses=decoding.beam_size,
            length_penalty=penalty,
            no_repeat_ngram_size=decoding.no_repeat_ngram_size,
            max_input_length=0,
            min_decoding_length=0,
            max_decoding_length=limit - 1,  # the last id is the EOS that `_end` appends
            return_end_token=True,
            return_scores=True,
        )
        ids = self._target_ids
        return [
            [
                _Found([ids[token] for token in tokens], score * len(tokens) ** penalty)
                for tokens, score in zip(result.hypotheses, result.scores, strict=True)
            ]
            for result in results
        ]

    def _end(self, sources: list[list[str]], found: list[list[_Found]]) -> list[list[_Found]]:
        """Appends EOS to what was cut at the limit, and scores that.

        Ids that were forbidden because of `no_repeat_ngram_size` keep their share of the
        probability: with it, all hypotheses are scored again.
        """
        scores_all = self.decoding.no_repeat_ngram_size > 0
        places = [
            (i, j)
            for i, row in enumerate(found)
            for j, hypothesis in enumerate(row)
            if scores_all or hypothesis.ids[-1:] != [EOS_ID]
        ]
        if not places:
            return found
        inner = [[k for k in found[i][j].ids if k != EOS_ID] for i, j in places]
        scored = self._translator.score_batch(
            [sources[i] for i, _ in places],
            [[self._target_tokens[k] for k in ids] for ids in inner],
            max_batch_size=_FAST_SCORING,
            batch_type="tokens",
            max_input_length=0,
        )
        for (i, j), ids, result in zip(places, inner, scored, strict=True):
            found[i][j] = _Found([*ids, EOS_ID], sum(result.log_probs))
        return found

    def _rank(self, hypotheses: list[_Found]) -> list[_Found]:
        """Returns the best hypotheses by our length penalty, at least one."""
        target, alpha = self.vocabularies.target, self.decoding.length_penalty
        # Ids that are never chosen stand only where the vocabulary has fewer others.
        chosen = [
            h
            for h in hypotheses
            if h.score > _LEAST_SCORE and all(EOS_ID <= i < target.piece_count for i in h.ids)
        ]
        ranked = sorted(
            chosen or hypotheses[:1], key=lambda h: -h.score / ((5 + len(h.ids)) / 6) ** alpha
        )
        return ranked[: self.decoding.n_best]


def import_ctranslate2() -> Any:
    """Imports the package.

    Raises:
      UserError: It is not installed.
    """
    try:
        import ctranslate2
    except ImportError as error:
        raise UserError(
            f"the engine ctranslate2 needs the package of that name ({error}): "
            f"{install_extra('ctranslate2')}"
        ) from error
    return ctranslate2


def check_length(field: str, length: int) -> None:
    """Raises a UserError that names a field whose length is beyond the positions."""
    require(
        length <= POSITIONS,
        f"the engine ctranslate2 has {POSITIONS:,} positions: `{field}` must not be greater",
        f"{length:,}",
    )


def _cut(hypothesis: _Found, limit: int) -> _Found:
    """Returns as much of a hypothesis as leaves room for EOS.

    >>> _cut(_Found([7, 8, 9], -1.0), limit=3).ids
    [7, 8]
    """
    length = len(hypothesis.ids) - (hypothesis.ids[-1:] == [EOS_ID])
    return hypothesis if length < limit else _Found(hypothesis.ids[: limit - 1], 0.0)


def _is_memory_error(error: Exception) -> bool:
    return isinstance(error, MemoryError) or "out of memory" in str(error)
