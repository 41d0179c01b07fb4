"""The filters: which pairs are left out of the records, each with its reason code.

A filter never changes a text (that is `model.vocabulary.TextNormalization`'s part, which
translation shares): it only says why a pair is rejected.
"""

from __future__ import annotations

EMPTY_SOURCE = "empty_source"
EMPTY_TARGET = "empty_target"
TOO_SHORT = "too_short"
TOO_LONG = "too_long"
DUPLICATE_PAIR = "duplicate_pair"  # found by the merge: the same texts on both sides
IN_VALIDATION = "in_validation"  # found by the merge: the source stands in the held-out files


def text_reason(source: str, target: str) -> str | None:
    """Says why a pair of normalised texts is rejected, or None.

    >>> text_reason("", "Hund"), text_reason("dog", ""), text_reason("dog", "Hund")
    ('empty_source', 'empty_target', None)
    """
    if not source:
        return EMPTY_SOURCE
    if not target:
        return EMPTY_TARGET
    return None


def length_reason(
    source_tokens: int, target_tokens: int, *, min_tokens: int, max_tokens: int
) -> str | None:
    """Says why a pair of these lengths, BOS and EOS not counted, is rejected, or None.

    >>> length_reason(3, 300, min_tokens=1, max_tokens=256)
    'too_long'
    """
    if source_tokens > max_tokens or target_tokens > max_tokens:
        return TOO_LONG
    if source_tokens < min_tokens or target_tokens < min_tokens:
        return TOO_SHORT
    return None
