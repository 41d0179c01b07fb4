"""Options of greedy search and beam search."""

from __future__ import annotations

import dataclasses
import math

from tt.model.errors import checked, require

# Padded source tokens per batch times the beam size. The value for GPUs allows 512 sources of 32
# tokens with 4 beams. The caches of `base` need 24 KB per position and beam, so they grow to about
# 2 GB for this batch, and are copied once. If memory runs out, the batch is halved. These figures
# are estimates; no GPU has been measured.
BATCH_TOKENS, GPU_BATCH_TOKENS = 8192, 65_536

# Tokens of a source: the 256 that `tt preprocess` allows by default, plus BOS and EOS.
MAX_SOURCE_TOKENS = 258


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """Options of the search.

    For a source of S tokens, including BOS and EOS, a translation has at most

        min(max_decoding_length, ceil(max_length_ratio * S) + max_extra_tokens)

    tokens, including EOS. The search ends each hypothesis at this limit. By default, the limit is
    S + 50, as in the paper (section 6.1), but at most 512.

    Attributes:
      beam_size: Keep N hypotheses per sentence; 1 is greedy search.
      length_penalty: Set the exponent of the length penalty, 0 to 10; 0 turns the penalty off.

        Hypotheses rank by log p / ((5 + length) / 6)^alpha, where alpha is the exponent and EOS
        counts as a token (Wu et al. 2016, equation 14). With alpha at most 10, float32 can
        represent 2,048^alpha.
      patience: End a search when N times `beam_size` hypotheses have ended, at least 1.

        With 1, a search can end before the best hypothesis does, so 2 is sometimes better, but
        slower (Kasai et al. 2022, "A Call for Clarified Beam Search"). 2 gives about the results
        of Transformers. The TensorFlow engine continues while an unfinished one ranks first.
      n_best: Return the N best hypotheses per source, at most `beam_size`.
      max_length_ratio: Allow this many target tokens per source token, plus `max_extra_tokens`.
      max_extra_tokens: Allow N target tokens more than `max_length_ratio` times the source tokens.
      max_decoding_length: Allow at most N tokens per translation, however long the source is.
      no_repeat_ngram_size: Forbid repeated n-grams of N tokens in a translation; 0 allows them.
      batch_tokens: Put at most N / `beam_size` source tokens, including padding, into a batch. By
        default, depends on the device.

        The default is 8192 on a CPU, 65536 on a GPU, and 4096 with CTranslate2. If memory runs out,
        a batch is halved.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
    patience: float = 1.0
    n_best: int = 1
    max_length_ratio: float = 1.0
    max_extra_tokens: int = 50
    max_decoding_length: int = 512
    no_repeat_ngram_size: int = 0
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        for name in ("beam_size", "n_best", "max_decoding_length", "batch_tokens"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"`{name}` must be at least 1", value)
        penalty = self.length_penalty
        require(0 <= penalty <= 10, "`length_penalty` must be 0 to 10", penalty)  # not NaN
        require(1 <= self.patience <= 100, "`patience` must be 1 to 100", self.patience)
        for name in ("max_length_ratio", "max_extra_tokens"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"`{name}` must be finite and not negative", value)
        require(
            self.max_length_ratio > 0 or self.max_extra_tokens > 0,
            "`max_length_ratio` and `max_extra_tokens` must not both be 0. Raise either option",
        )
        require(
            self.n_best <= self.beam_size,
            f"`n_best` must be at most `beam_size`, {self.beam_size}",
            self.n_best,
        )
        require(
            self.no_repeat_ngram_size >= 0,
            "`no_repeat_ngram_size` must be 0 (off) or the size of an n-gram",
            self.no_repeat_ngram_size,
        )

    def length_limit(self, source_tokens: int) -> int:
        """Return the maximum number of tokens in a translation, including EOS.

        Args:
          source_tokens: Number of source tokens, including BOS and EOS.

        >>> Decoding(max_length_ratio=1.5, max_extra_tokens=2).length_limit(10)
        17
        """
        import numpy as np  # imported here because it would slow down the help of commands

        ratio = min(self.max_length_ratio, float(self.max_decoding_length))
        scaled = math.ceil(np.float32(source_tokens) * np.float32(ratio))
        return min(scaled + self.max_extra_tokens, self.max_decoding_length)
