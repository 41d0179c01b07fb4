"""Ends of sentences that are missing."""

from __future__ import annotations

END = frozenset(".!?。！？｡।؟۔")
_INSIDE = frozenset(",;:-–—(，、；：،")
_CLOSERS = "\"'”’“»«)]』」 "


def has_lost_end(text: str, *, source: str) -> bool:
    """Says whether the source ends with a full stop or the like, and the translation does not.

    That is, it ends in a word, or a mark that stands inside of sentences.

    >>> has_lost_end("Ein Mann mit", source="A man with a dog.")
    True
    """
    if text[-1:].isalnum() or text[-1:] in _INSIDE:
        source = source.rstrip(_CLOSERS)
        return source[-1:] in END and not source.endswith("..")
    return False
