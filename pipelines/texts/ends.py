"""Ends of sentences that are missing."""

from __future__ import annotations

from collections.abc import Sequence

END = frozenset(".!?。！？｡।؟۔")
_INSIDE = frozenset(",;:-–—(，、；：،")
_CLOSERS = "\"'”’“»«)]』」 "


def find_lost_ends(sources: Sequence[str], targets: Sequence[str]) -> list[bool]:
    """Says of pairs of sentences whether the target has lost its end; for many of them, quickly.

    >>> find_lost_ends(["A dog.", "A dog"], ["Ein Hund", "Ein Hund"])
    [True, False]
    """
    return [
        target[-1:] not in END and has_lost_end(target, source=source)
        for source, target in zip(sources, targets, strict=True)
    ]


def has_lost_end(text: str, *, source: str) -> bool:
    """Says whether the source ends with a full stop or the like, and the translation does not.

    That is, it ends in a word, or a mark that stands inside of sentences; what closes quotations
    and brackets is no end.

    >>> has_lost_end("Ein Mann mit", source="A man with a dog.")
    True
    """
    last = text.rstrip(_CLOSERS)[-1:]
    if last.isalnum() or last in _INSIDE:
        source = source.rstrip(_CLOSERS)
        return source[-1:] in END and not source.endswith("..")
    return False
