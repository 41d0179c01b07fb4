"""Digests of texts and pairs: they decide the split, the global shuffle and the duplicates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

UInt64s = npt.NDArray[np.uint64]
DIGEST_BYTES = 16  # among 10^9 texts two share a digest with a probability below 10^-20


def digest_texts(texts: Iterable[str]) -> list[bytes]:
    """Returns the digest of each text; that of a source decides the split, whatever the seed."""
    return _digest_each(map(str.encode, texts))


def seed_salt(seed: int) -> bytes:
    """Returns what makes another hash of `digest_pairs` for each seed."""
    return seed.to_bytes(8, "little", signed=True)


def digest_pairs(
    source_digests: Iterable[bytes], targets: Iterable[str], *, salt: bytes
) -> list[bytes]:
    """Returns the digest of each pair: equal for duplicates, in a random order under each seed."""
    pairs = zip(source_digests, targets, strict=True)
    return _digest_each((source + target.encode() for source, target in pairs), salt=salt)


def digest_sides(digests: Iterable[bytes], *, salt: bytes) -> list[bytes]:
    """Returns the digests of one side of pairs under a seed, from those of the texts."""
    return _digest_each(digests, salt=salt)


def _digest_each(contents: Iterable[bytes], *, salt: bytes = b"") -> list[bytes]:
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
