"""Translation with CTranslate2, for converted model folders and foreign models.

This module does not import TensorFlow. The search works like `tt.model.transformer.search`, with
these differences:

- CTranslate2's search stops when `beam_size` hypotheses have ended. Our search also stops when no
  unfinished hypothesis can become one of the `n_best` results.
- At the length limit, CTranslate2 ends only the best `beam_size` hypotheses.
- Scores are log-probabilities among the ids that the search may choose (see `export_ctranslate2`),
  so they are slightly higher than ours. With a foreign model, the search may choose all tokens.
"""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import ctranslate2

from tt.model.engines.batching import (
    MOST_PADDING,
    TokenBudget,
    count_work,
    find_ends,
    translate_in_batches,
)
from tt.model.engines.machine import calls_at_once, has_nvidia_gpu, preload_cublas
from tt.model.engines.tokens import EncodedSource, ExportTokens, ForeignTokens
from tt.model.engines.translator import (
    AUTO,
    Engine,
    Hypothesis,
    Input,
    Languages,
    ScoredText,
    Translation,
    Work,
    check_scores,
)
from tt.model.errors import NotFiniteError, UserError, counted, first_line, require
from tt.model.extras import install_extra
from tt.model.formats.foreign import (
    POSITIONS,
    is_foreign,
    open_foreign,
    read_sizes,
    weights_folder,
)
from tt.model.transformer.search_options import GPU_BATCH_TOKENS, Decoding

_LOGGER = logging.getLogger(__name__)

# The number of padded positions above which larger batches are not faster: source positions of all
# beams in a search, and target positions in scoring.
_FAST_BATCH, _FAST_SCORING = 4096, 256

# Without a length penalty, CTranslate2 would stop when the first hypothesis ends.
_LEAST_PENALTY = 1e-9

# CTranslate2 gives scores below this value to unused hypotheses of a beam.
_LEAST_SCORE = -1e9

# CTranslate2's errors for devices that cannot compute, and for faulty models.
_FAULTS = (OSError, ValueError, RuntimeError, IndexError, MemoryError)

# Parts of the messages of CUDA and cuBLAS.
_OUT_OF_MEMORY = ("out of memory", "CUBLAS_STATUS_ALLOC_FAILED")


class _Found(NamedTuple):
    """A hypothesis."""

    tokens: list[str]  # with EOS, unless the search reached the length limit
    score: float  # log-probability of the tokens


class CTranslate2Translator:
    """Translates with an exported or foreign model in CTranslate2; threads may share it.

    On the CPU, each translation uses `threads` threads, and as many translations run at once as the
    cores allow. Each GPU computes one translation at a time. With the device "auto", the CPU
    translates if a GPU cannot compute.

    Args:
      folder: The folder of the model.
      decoding: Options of the search.
      engine: The device and the compute type.
      threads: CPU threads per translation.

    Raises:
      UserError: CTranslate2 cannot load the model, or cannot compute on the GPU.
    """

    def __init__(self, folder: Path, *, decoding: Decoding, engine: Engine, threads: int) -> None:
        weights = weights_folder(folder) or folder
        self.decoding = decoding
        self.tokens: ExportTokens | ForeignTokens = (
            ForeignTokens(open_foreign(folder)) if is_foreign(folder) else ExportTokens(folder)
        )
        self._positions = read_sizes(weights).positions if is_foreign(folder) else POSITIONS
        self._translator = _load(weights, engine=engine, threads=threads, token=self.tokens.end)
        is_on_gpus = self._translator.device == "cuda"
        self.gpus = self._translator.num_translators if is_on_gpus else 0
        tokens = decoding.batch_tokens or (GPU_BATCH_TOKENS if self.gpus else _FAST_BATCH)
        self._budget = TokenBudget(tokens, beam_size=decoding.beam_size)
        # Sources of the same length have the same length limit. A greedy search with one limit per
        # batch needs no second scoring of hypotheses that were cut. On GPUs, large batches save
        # more time.
        has_one_length = decoding.beam_size == 1 and not self.gpus
        self._most_padding = 0.0 if has_one_length else MOST_PADDING

    def prepare(
        self, texts: list[str], *, languages: Languages = ("", ""), most_tokens: int | None = None
    ) -> list[Input]:
        """Normalize and encode texts; see `Translator.prepare`.

        Raises:
          UserError: The model needs language tokens, and has none for these languages.
        """
        return self.tokens.prepare(texts, languages=languages, most_tokens=most_tokens)

    def translate(self, inputs: list[Input]) -> tuple[list[Translation], Work]:
        """Translate inputs, and return the translations in the same order.

        Raises:
          ValueError: A source has more tokens than the model has positions.
        """
        rows: list[EncodedSource] = [each.encoded for each in inputs]
        for row in rows:
            room = self._positions - (len(row.tokens) + 2 - row.size)
            if row.size > room:
                raise ValueError(
                    f"a source has {row.size:,} ids, but the model has {room:,} positions"
                )
        return translate_in_batches(
            rows,
            budget=self._budget,
            translate_batch=self._translate_batch,
            is_memory_error=_is_memory_error,
            most_padding=self._most_padding,
        )

    def is_input_error(self, error: Exception) -> bool:
        """Return whether a source, and not the machine, can have caused an error."""
        return isinstance(error, (ValueError, TypeError, NotFiniteError))

    def _translate_batch(self, rows: list[EncodedSource]) -> tuple[list[Translation], Work]:
        limits = [self.decoding.length_limit(len(row)) for row in rows]
        found = self._search(rows, limit=max(limits))
        # CTranslate2 has one length limit per call, and each source has a separate limit. A beam
        # search that exceeds its source's limit must run again. A greedy search need not, because
        # its steps up to the limit are the same.
        if self.decoding.beam_size > 1:
            self._search_again(rows, found, limits)
        self._end(rows, found, limits)
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
        self, sources: list[EncodedSource], found: list[list[_Found]], limits: list[int]
    ) -> None:
        """Repeat the search for sources with hypotheses beyond their limits, once per limit."""
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

    def _search(self, sources: list[EncodedSource], *, limit: int) -> list[list[_Found]]:
        """Return the final hypotheses of each source; some of them lack EOS."""
        decoding = self.decoding
        penalty = max(decoding.length_penalty, _LEAST_PENALTY)
        if limit == 1:  # there is room only for EOS
            return [[_Found([], 0.0)] for _ in sources]
        counted = self.tokens.counted_prefix
        prefixes = [[*source.target_prefix] for source in sources]
        results = self._translator.translate_batch(
            [source.tokens for source in sources],
            target_prefix=prefixes if any(prefixes) else None,
            beam_size=decoding.beam_size,
            num_hypotheses=decoding.beam_size,
            length_penalty=penalty,
            patience=decoding.patience,
            no_repeat_ngram_size=decoding.no_repeat_ngram_size,
            max_input_length=0,
            min_decoding_length=0,
            # `limit` includes the EOS that `_end` appends. CTranslate2's limit includes the prefix.
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

    def _end(
        self, sources: list[EncodedSource], found: list[list[_Found]], limits: list[int]
    ) -> None:
        """End all hypotheses at their limits with EOS, and correct scores where necessary.

        An EOS that is appended at the limit counts in the score of a beam search, but not in the
        score of a greedy search. These hypotheses are scored again:

        - In a beam search, hypotheses without EOS.
        - In a greedy search, hypotheses at or beyond the limit, and the empty hypothesis that
          CTranslate2 returns for an empty source.
        - With `no_repeat_ngram_size`, all hypotheses, because CTranslate2 adds the probability of
          the forbidden tokens to the other tokens.
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

    def score(self, pairs: list[tuple[Input, str]]) -> list[ScoredText]:
        """Score a given translation of each input."""
        texts = [text for _, text in pairs]
        targets = self.tokens.encode_targets(texts)
        scores = self._score(
            [source.encoded for source, _ in pairs],
            [_Found([*tokens, self.tokens.end], 0.0) for tokens in targets],
        )
        ends = {
            text: find_ends(self.tokens.decode([row[: k + 1] for k in range(len(row))]), text)
            for text, row in dict(zip(texts, targets, strict=True)).items()
        }
        return [
            ScoredText(ends[text], row[: len(tokens)])
            for text, tokens, row in zip(texts, targets, scores, strict=True)
        ]

    def _score(self, sources: list[EncodedSource], hypotheses: list[_Found]) -> list[list[float]]:
        """Return the log-probabilities of each hypothesis's tokens, including EOS."""
        if not sources:
            return []
        counted = self.tokens.counted_prefix
        scored = self._translator.score_batch(
            [source.tokens for source in sources],
            [
                [*source.target_prefix, *hypothesis.tokens[:-1]]
                for source, hypothesis in zip(sources, hypotheses, strict=True)
            ],
            max_batch_size=_FAST_SCORING,
            batch_type="tokens",
            max_input_length=0,
        )
        return [result.log_probs[counted:] for result in scored]

    def _rank(self, hypotheses: list[_Found]) -> list[_Found]:
        """Rank hypotheses by our length penalty; return the `n_best` best, and at least one."""
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


def count_gpus(engine: Engine) -> int:
    """Return the number of GPUs that the driver lists, unless the engine's device is the CPU."""
    return 0 if engine.device == "cpu" else int(ctranslate2.get_cuda_device_count())


def find_device(engine: Engine) -> str:
    """Return the device that CTranslate2 will use, "cpu" or "cuda".

    Raises:
      UserError: CTranslate2 finds no GPU, or the device lacks the compute type.
    """
    gpus = count_gpus(engine)
    require(
        gpus > 0 or engine.device != "cuda",
        "`device=cuda` needs an NVIDIA GPU, but CTranslate2 finds none. Remove the option",
    )
    device = "cuda" if gpus else "cpu"
    known = sorted(ctranslate2.get_supported_compute_types(device))
    require(
        engine.compute_type in known,
        f"`compute_type` for CTranslate2 on this {device} must be one of {', '.join(known)}",
        engine.compute_type,
    )
    return device


def _load(weights: Path, *, engine: Engine, threads: int, token: str) -> ctranslate2.Translator:
    """Load a model on all GPUs that can compute, or on the CPU if none can or is allowed.

    Args:
      weights: Folder of the weights.
      engine: The device and the compute type.
      threads: CPU threads per translation.
      token: A token of the source vocabulary.

    Raises:
      UserError: CTranslate2 cannot load the model, or a GPU of the device "cuda" cannot compute.
    """
    on_cpu = dataclasses.replace(engine, device="cpu")
    device = find_device(engine)
    if device == "cpu":
        if engine.device == AUTO and has_nvidia_gpu():
            _LOGGER.warning(
                "this machine has an NVIDIA GPU, but CTranslate2 finds none, and uses the CPU. "
                "Update NVIDIA's driver to version 525 or later, or set `device=cpu`"
            )
        return _load_on_cpu(weights, engine=on_cpu, threads=threads)
    gpus = [*range(count_gpus(engine))]
    load = functools.partial(_load_on_gpus, weights, engine=engine, token=token)
    try:
        return load(gpus)
    except _FAULTS as error:
        error.with_traceback(None)  # its frames would keep the model in the memory of the GPUs
        usable = [gpu for gpu in gpus if _can_load(load, gpu)]
        names = counted(len(gpus), "GPU")
        if are_some_usable := 0 < len(usable) < len(gpus):
            names = f"GPU {', '.join(str(gpu) for gpu in gpus if gpu not in usable)}"
        problem = f"CTranslate2 cannot compute on {names} ({first_line(error)})"
        fix = "Check the driver and the free memory with `nvidia-smi`"
        if "libcu" in str(error):
            fix = f"Install the GPU libraries with {install_extra('gpu')}"
        if are_some_usable and engine.device == AUTO:
            others = counted(len(usable), "GPU")
            _LOGGER.warning("%s, and uses the other %s. %s", problem, others, fix)
            return load(usable)
        # If the CPU cannot load the model either, the model is faulty, and not the GPUs. Only GPUs
        # have some other types.
        float32 = dataclasses.replace(on_cpu, compute_type="float32")
        loaded = _load_on_cpu(weights, engine=float32, threads=threads)
        if engine.device != AUTO:
            raise UserError(f"{problem}. {fix}, or remove `device=cuda`") from error
        _LOGGER.warning("%s, and uses the CPU. %s, or set `device=cpu`", problem, fix)
    if engine.compute_type == "float32":
        return loaded
    return _load_on_cpu(weights, engine=on_cpu, threads=threads)


def _load_on_gpus(
    weights: Path, gpus: list[int], *, engine: Engine, token: str
) -> ctranslate2.Translator:
    """Load a model on GPUs, which translate a token, because the first batch opens the libraries.

    Raises:
      Exception: A GPU cannot compute, or the model is faulty; see `_FAULTS`.
    """
    preload_cublas()
    loaded = ctranslate2.Translator(
        str(weights),
        device="cuda",
        device_index=gpus,
        compute_type=engine.compute_type,
    )
    loaded.translate_batch([[token]] * len(gpus), max_batch_size=1, max_decoding_length=1)
    return loaded


def _can_load(load: Callable[[list[int]], object], gpu: int) -> bool:
    try:
        load([gpu])
    except _FAULTS:
        return False
    return True


def _load_on_cpu(weights: Path, *, engine: Engine, threads: int) -> ctranslate2.Translator:
    """Load a model on the CPU, for as many calls at once as the cores allow.

    Raises:
      UserError: CTranslate2 cannot load the model.
    """
    find_device(engine)  # a GPU may have more compute types
    try:
        return ctranslate2.Translator(
            str(weights),
            device="cpu",
            compute_type=engine.compute_type,
            inter_threads=calls_at_once(threads),
            intra_threads=threads,
        )
    except _FAULTS as error:
        raise UserError(
            f"CTranslate2 cannot load {weights} as {engine.compute_type} ({first_line(error)}). "
            "Choose another `compute_type`, or copy or convert the model again"
        ) from error


def _is_memory_error(error: Exception) -> bool:
    return isinstance(error, MemoryError) or any(each in str(error) for each in _OUT_OF_MEMORY)
