"""Digests of texts and pairs, and the rules that keep held-out pairs and texts out of training.

The digests also decide the split, the global shuffle and the duplicates.
"""

from __future__ import annotations

import dataclasses
import hashlib
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tt.model.text.normalization import TextNormalization
from tt.pipelines.preprocess.filters import LONG_SIDE, SIDE

UInt64s = npt.NDArray[np.uint64]
DIGEST_BYTES = 16  # Two of 10^9 texts share a digest with a probability below 10^-20.

HELD_OUT_PAIR = "held_out_pair"  # the held-out corpus contains the pair
HELD_OUT_SOURCE = "held_out_source"  # the source is a held-out text
HELD_OUT_TARGET = "held_out_target"

# Training may use a held-out text with at most this many tokens, because any two corpora share
# texts such as "Yes." and "Thank you.". Tatoeba contains 20 % of TED's English texts
# with 3 or 4 tokens, 6 % with 5 tokens, 1.5 % with 6 to 8 tokens, and none of 9,600 longer texts.
SHORT_TOKENS = 4

# Before a vocabulary exists, each punctuation mark or symbol counts as a token, and every 4
# characters of a word count as a token. In Tatoeba and TED, 0.2 to 1.7 % of the texts seem short by
# this estimate, but have more than 4 tokens of a vocabulary of 8,000. At most 0.2 % of the texts
# seem short but have more than 6 tokens, and none has more than 10.
_TOKEN_WIDTH = 4
_WIDE = 3  # A character of Han, kana or Hangul counts as much as this many letters.
_PAIR_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # odd: different hashes stay different
_NONE: UInt64s = np.empty(0, np.uint64)


def digest_texts(texts: Iterable[str]) -> list[bytes]:
    """Return the digest of each text. With any seed, the digests of sources decide the split."""
    return digest_each(map(str.encode, texts))


def digest_pairs(
    source_digests: Iterable[bytes], targets: Iterable[str], *, salt: bytes
) -> list[bytes]:
    """Return the digest of each pair, which is equal for duplicates.

    The salt encodes the seed, so that each seed gives the pairs a different random order.
    """
    pairs = zip(source_digests, targets, strict=True)
    return digest_each((source + target.encode() for source, target in pairs), salt=salt)


def digest_each(contents: Iterable[bytes], *, salt: bytes = b"") -> list[bytes]:
    """Return the digest of each content; different salts give independent digests."""
    start = hashlib.blake2b(digest_size=DIGEST_BYTES, salt=salt)
    digests = []
    for content in contents:
        digest = start.copy()  # A copy takes two thirds of the time of a new object.
        digest.update(content)
        digests.append(digest.digest())
    return digests


def digest_halves(digests: Sequence[bytes]) -> tuple[UInt64s, UInt64s]:
    """Return the first and the last 8 bytes of digests, as numbers."""
    halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Hashes of the pairs and texts that training must not see; `unite` sorts them."""

    pairs: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    # Hashes of texts that must not be the source of a pair.
    sources: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    # Hashes of texts that must not be a side of a pair, unless the side is short.
    texts: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    excluded: int = 0  # number of texts in the files of `exclude`, counting repetitions
    # The largest source hash that the split by hash puts into validation; None if there is no such
    # split.
    validation_up_to: int | None = None
    # Hashes that keep the validation pairs of the split by hash out of the training pairs.
    of_split: HeldOut | None = None
    # Hashes that keep the test pairs of the split by hash out of the training pairs.
    of_test: HeldOut | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held out."""
        return not (self.pairs.size or self.sources.size or self.texts.size) and all(
            part is None or part.is_empty for part in (self.of_split, self.of_test)
        )

    def is_validation(self, source_hashes: UInt64s) -> npt.NDArray[np.bool_]:
        """Return which sources the split by hash puts into validation."""
        if self.validation_up_to is None:
            return np.zeros(len(source_hashes), np.bool_)
        return source_hashes <= np.uint64(self.validation_up_to)


def unite(parts: Sequence[HeldOut]) -> HeldOut:
    """Merge the hashes of all parts, with a single sort.

    The smallest `validation_up_to` of the parts is the limit of the split. Parts with a larger
    limit add no validation pairs, because all their source hashes are above the smallest limit.
    """
    limits = [part.validation_up_to for part in parts if part.validation_up_to is not None]
    limit = min(limits, default=None)
    of_split = [part.of_split for part in parts if part.of_split and part.validation_up_to == limit]
    of_test = [part.of_test for part in parts if part.of_test]
    return HeldOut(
        validation_up_to=limit,
        of_split=unite(of_split) if of_split else None,
        of_test=unite(of_test) if of_test else None,
        pairs=_unite(part.pairs for part in parts),
        sources=_unite(part.sources for part in parts),
        texts=_unite(part.texts for part in parts),
        excluded=sum(part.excluded for part in parts),
    )


def _unite(hashes: Iterable[UInt64s]) -> UInt64s:
    return np.unique(np.concatenate([_NONE, *hashes]))


def short_tokens(by: str) -> int:
    """Return the largest number of tokens of a side that a rule does not hold out on its own."""
    return 0 if by == SIDE else SHORT_TOKENS


def seem_short(texts: Sequence[str], *, tokens: int) -> npt.NDArray[np.bool_]:
    """Estimate which normalized texts have at most this many tokens, before a vocabulary exists.

    If `tokens` is 0, no text is short.

    >>> seem_short(["Thank you.", "Thank you so much.", "谢谢你", "谢谢你们的帮助"], tokens=4)
    array([ True, False,  True, False])
    """
    most = tokens * (_TOKEN_WIDTH + 1)  # each token with a space
    return np.fromiter(
        (len(text) < most and _likely_tokens(text) <= tokens for text in texts),
        np.bool_,
        len(texts),
    )


def _likely_tokens(text: str) -> int:
    tokens = width = 0
    for character in f"{text} ":
        is_sign = unicodedata.category(character)[0] in "PS"
        if is_sign or character.isspace():
            tokens += -(-width // _TOKEN_WIDTH) + is_sign
            width = 0
        else:
            width += _WIDE if unicodedata.east_asian_width(character) in "WF" else 1
    return tokens


def hold_out(sources: Sequence[str], targets: Sequence[str], *, by: str) -> HeldOut:
    """Hash held-out pairs, and their sides as a rule of `filters.HELD_OUT_BY` requires."""
    source_hashes, target_hashes = hash_each(sources), hash_each(targets)
    return HeldOut(
        pairs=_pair_hashes(source_hashes, target_hashes),
        sources=source_hashes.copy() if by == "source" else _NONE,
        texts=np.concatenate([source_hashes, target_hashes]) if by in (LONG_SIDE, SIDE) else _NONE,
    )


def hash_texts(columns: Iterable[pa.Array], *, normalization: TextNormalization) -> HeldOut:
    """Hash texts that must not be on either side of a pair."""
    found = []
    for column in columns:
        texts = [text for text in normalization.column(column.fill_null("")) if text]
        hashes = hash_each(texts).copy()  # A view would keep all halves in memory.
        found.append(HeldOut(texts=hashes, excluded=len(texts)))
    return unite(found)


def held_out_reasons(
    source_hashes: UInt64s,
    target_hashes: UInt64s,
    held_out: HeldOut,
    *,
    is_short: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None,
) -> dict[int, str]:
    """Return the reason codes of the held-out pairs, by position from 0.

    If several reasons apply to a pair, HELD_OUT_PAIR takes precedence, then HELD_OUT_SOURCE.
    `is_short` flags the short sources and the short targets; with None, no text counts as short.
    The function ignores `held_out.of_split` and `held_out.of_test`.
    """
    source_counts, target_counts = (~short for short in is_short) if is_short else (True, True)
    by = {
        HELD_OUT_PAIR: _is_among(_pair_hashes(source_hashes, target_hashes), held_out.pairs),
        HELD_OUT_SOURCE: _is_among(source_hashes, held_out.sources)
        | (_is_among(source_hashes, held_out.texts) & source_counts),
        HELD_OUT_TARGET: _is_among(target_hashes, held_out.texts) & target_counts,
    }
    reasons: dict[int, str] = {}
    for reason, is_held_out in by.items():
        for place in np.flatnonzero(is_held_out).tolist():
            reasons.setdefault(place, reason)
    return reasons


def hash_each(texts: Sequence[str]) -> UInt64s:
    """Return the hash of each normalized text."""
    return digest_halves(digest_texts(texts))[0]


def _pair_hashes(sources: UInt64s, targets: UInt64s) -> UInt64s:
    hashes: UInt64s = sources * _PAIR_MULTIPLIER + targets  # modulo 2^64
    return hashes


def _is_among(hashes: UInt64s, wanted: UInt64s) -> npt.NDArray[np.bool_]:
    if not wanted.size:
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    return np.equal(wanted[places], hashes)
