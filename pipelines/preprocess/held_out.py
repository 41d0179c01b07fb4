"""Digests of texts and pairs, and the rules that hold pairs and texts out of training by them.

Digests decide the split, the global shuffle and the duplicates as well.
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
DIGEST_BYTES = 16  # among 10^9 texts two share a digest with a probability below 10^-20

HELD_OUT_PAIR = "held_out_pair"  # the pair is one of the held-out corpus
HELD_OUT_SOURCE = "held_out_source"  # the source is a held-out text
HELD_OUT_TARGET = "held_out_target"

# A side of at most so many tokens may be trained on although it is held out: any two corpora share
# texts such as "Yes." and "Thank you.". Of TED's English texts of 3 or 4 tokens 20 % are in Tatoeba
# as well, of 5 tokens 6 %, of 6 to 8 tokens 1.5 %, and of 9,600 longer ones none.
SHORT_TOKENS = 4

# Before there is a vocabulary, a sign or 4 characters of a word count as a token. Of the texts of
# Tatoeba and TED, 0.2 to 1.7 % seem short by this and have more than 4 tokens of a vocabulary of
# 8,000; at most 0.2 % have more than 6, and none has more than 10.
_TOKEN_WIDTH = 4
_WIDE = 3  # characters of Han, kana or Hangul make as many letters
_ODD = np.uint64(0x9E3779B97F4A7C15)
_NONE: UInt64s = np.empty(0, np.uint64)


def digest_texts(texts: Iterable[str]) -> list[bytes]:
    """Returns the digest of each text; that of a source decides the split, whatever the seed."""
    return digest_each(map(str.encode, texts))


def digest_pairs(
    source_digests: Iterable[bytes], targets: Iterable[str], *, salt: bytes
) -> list[bytes]:
    """Returns the digest of each pair: equal for duplicates, in a random order under each seed."""
    pairs = zip(source_digests, targets, strict=True)
    return digest_each((source + target.encode() for source, target in pairs), salt=salt)


def digest_each(contents: Iterable[bytes], *, salt: bytes = b"") -> list[bytes]:
    """Return the digest of each content; with a salt, the digests of another hash."""
    start = hashlib.blake2b(digest_size=DIGEST_BYTES, salt=salt)
    digests = []
    for content in contents:
        digest = start.copy()  # a third faster than to make each with its options
        digest.update(content)
        digests.append(digest.digest())
    return digests


def digest_halves(digests: Sequence[bytes]) -> tuple[UInt64s, UInt64s]:
    """Returns the first and the last 8 bytes of digests, as numbers."""
    halves = np.frombuffer(b"".join(digests), "<u8").reshape(-1, 2)
    return halves[:, 0], halves[:, 1]


@dataclasses.dataclass(frozen=True, kw_only=True)
class HeldOut:
    """Hashes of what training must not see, sorted by `unite`."""

    pairs: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    # Hashes of texts that no pair may have for its source.
    sources: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    # Hashes of texts that no pair may have on a side that is not short.
    texts: UInt64s = dataclasses.field(default_factory=_NONE.copy)
    excluded: int = 0  # texts of files, each as often as it stands there
    # The greatest hash of a source that the split by hash puts into validation; None without it.
    validation_up_to: int | None = None
    # What the validation pairs of the split by hash keep out of the training pairs.
    of_split: HeldOut | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing is held out."""
        is_empty = self.of_split is None or self.of_split.is_empty
        return is_empty and not (self.pairs.size or self.sources.size or self.texts.size)

    def is_validation(self, source_hashes: UInt64s) -> npt.NDArray[np.bool_]:
        """Return which sources the split by hash puts into validation."""
        if self.validation_up_to is None:
            return np.zeros(len(source_hashes), np.bool_)
        return source_hashes <= np.uint64(self.validation_up_to)


def unite(parts: Sequence[HeldOut]) -> HeldOut:
    """Merge parts into one, with a single sort.

    Every part with a `validation_up_to` holds out its sources up to that hash. The least of these
    limits is valid for the whole corpus: a part has a greater one if none of its own sources is
    below the wanted limit.
    """
    limits = [part.validation_up_to for part in parts if part.validation_up_to is not None]
    limit = min(limits, default=None)
    of_split = [part.of_split for part in parts if part.of_split and part.validation_up_to == limit]
    return HeldOut(
        validation_up_to=limit,
        of_split=unite(of_split) if of_split else None,
        pairs=_unite(part.pairs for part in parts),
        sources=_unite(part.sources for part in parts),
        texts=_unite(part.texts for part in parts),
        excluded=sum(part.excluded for part in parts),
    )


def _unite(hashes: Iterable[UInt64s]) -> UInt64s:
    return np.unique(np.concatenate([_NONE, *hashes]))


def short_tokens(by: str) -> int:
    """Returns the most tokens of a side that is too short to be held out by itself."""
    return 0 if by == SIDE else SHORT_TOKENS


def seem_short(texts: Sequence[str], *, tokens: int) -> npt.NDArray[np.bool_]:
    """Estimates which normalised texts are of so many tokens at most, before there is a vocabulary.

    With 0 tokens, no text is short.

    >>> seem_short(["Thank you.", "Thank you so much.", "谢谢你", "谢谢你们的帮助"], tokens=4)
    array([ True, False,  True, False])
    """
    most = tokens * (_TOKEN_WIDTH + 1)  # with a space behind each
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
    """Hash what training must not see of normalized pairs by a rule of `filters.HELD_OUT_BY`."""
    source_hashes, target_hashes = hash_each(sources), hash_each(targets)
    return HeldOut(
        pairs=_pair_hashes(source_hashes, target_hashes),
        sources=source_hashes.copy() if by == "source" else _NONE,
        texts=np.concatenate([source_hashes, target_hashes]) if by in (LONG_SIDE, SIDE) else _NONE,
    )


def hash_texts(columns: Iterable[pa.Array], *, normalization: TextNormalization) -> HeldOut:
    """Hashes texts that are held out on either side."""
    found = []
    for column in columns:
        texts = [text for text in normalization.column(column.fill_null("")) if text]
        hashes = hash_each(texts).copy()  # not its other halves
        found.append(HeldOut(texts=hashes, excluded=len(texts)))
    return unite(found)


def held_out_reasons(
    source_hashes: UInt64s,
    target_hashes: UInt64s,
    held_out: HeldOut,
    *,
    is_short: tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]] | None = None,
) -> dict[int, str]:
    """Return the reason codes of the pairs that are held out, by their position from 0.

    Each is held out by the first of its pair, its source and its target. `is_short` flags the
    sources and the targets that are short; None holds out any length. `of_split` is not applied.
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
    hashes: UInt64s = sources * _ODD + targets  # modulo 2^64
    return hashes


def _is_among(hashes: UInt64s, wanted: UInt64s) -> npt.NDArray[np.bool_]:
    if not wanted.size:
        return np.zeros(len(hashes), np.bool_)
    places = np.minimum(np.searchsorted(wanted, hashes), len(wanted) - 1)
    return np.equal(wanted[places], hashes)
