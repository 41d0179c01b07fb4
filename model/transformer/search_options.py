"""How translations are searched for."""

from __future__ import annotations

import dataclasses
import math

from tt.model.errors import require

# Padded source positions of a batch times the beam size. On a GPU they are eight times those of
# a CPU: with beams of 4, 512 sources of 32 tokens. The caches of such a batch, in `base` 24 KB a
# position of a beam, grow to some 2 GB and are copied once; where that is too much, batches are
# halved. This is reckoned: no GPU has been measured.
BATCH_TOKENS, GPU_BATCH_TOKENS = 8192, 65_536

# Tokens of a source that is translated, BOS and EOS counted: the 256 that `tt preprocess`
# lets into training by default, and those two.
MAX_SOURCE_TOKENS = 258


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decoding:
    """How translations are searched for.

    A translation has at most min(max_decoding_length, ceil(max_length_ratio * source) +
    max_extra_tokens) tokens, EOS counted, where the source counts with BOS and EOS; there it is
    made to end. By default that is the paper's source + 50 (section 6.1). A job tries what was
    cut off there once more, with twice the room, unless much of it is repetition.

    Attributes:
      beam_size: Hypotheses kept for each sentence; 1 is greedy search.
      length_penalty: alpha, 0 to 10: hypotheses rank by log p / ((5 + length) / 6)^alpha.

        It is equation 14 of Wu et al. 2016 (GNMT), where EOS counts as a token; 0 ranks by log p.
        10 is the most since 2,048^10 is within float32.
      n_best: Hypotheses returned for each source, best first; at most `beam_size`.
      max_length_ratio: Tokens a translation may have for each token of its source, beside
        `max_extra_tokens`.
      max_extra_tokens: Tokens a translation may have beside `max_length_ratio` times its source.
      max_decoding_length: Tokens a translation may have, whatever its source.
      no_repeat_ngram_size: Let no n-gram of tokens of this size occur twice in a translation; 0
        lets all.
      batch_tokens: Padded source tokens of a batch times `beam_size`, at most; a batch is halved
        where memory runs out. By default 8192, on a GPU 65536, with ctranslate2 4096.
    """

    beam_size: int = 4
    length_penalty: float = 0.6
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
        for name in ("max_length_ratio", "max_extra_tokens"):
            value = getattr(self, name)
            require(0 <= value < math.inf, f"`{name}` must be finite and not negative", value)
        require(
            self.max_length_ratio > 0 or self.max_extra_tokens > 0,
            "`max_length_ratio` and `max_extra_tokens` must not both be 0: no translation fits",
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
        """Return the most tokens of a translation, EOS counted.

        Args:
          source_tokens: Tokens of the source, BOS and EOS counted.

        >>> Decoding(max_length_ratio=1.5, max_extra_tokens=2).length_limit(10)
        17
        """
        import numpy as np  # here, so that the help of a command needs none

        ratio = min(self.max_length_ratio, float(self.max_decoding_length))
        scaled = math.ceil(np.float32(source_tokens) * np.float32(ratio))
        return min(scaled + self.max_extra_tokens, self.max_decoding_length)
