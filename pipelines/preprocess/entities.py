"""Decode the HTML entities that an export left in the texts of a corpus."""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.pipelines.texts.markup.entities import ENTITY, unescape

# Web texts are often escaped twice, once by the author's program and once by the export.
_ROUNDS = 2
_INVALID = "\N{REPLACEMENT CHARACTER}"  # the result for a number that is not a character
_WHITESPACE = "\t\n\r"


def decode_entities(texts: Any) -> tuple[Any, npt.NDArray[np.bool_]]:
    """Decode the entities of texts that were escaped once or twice.

    Names must be known, and numbers must be characters. "AT&T", "&c" and "&nothing;" do not change.

    Args:
      texts: An Arrow array of large strings without nulls, chunked or not.

    Returns:
      The array, and whether each text changed.

    >>> texts = pa.array(["Tom &amp; Jerry", "&amp;quot;", "AT&T;", "&#0;"], pa.large_string())
    >>> decoded, is_changed = decode_entities(texts)
    >>> decoded.to_pylist(), is_changed.tolist()
    (['Tom & Jerry', '"', 'AT&T;', '&#0;'], [True, True, False, False])
    """
    # Most texts have no entity, and Arrow finds the others quickly.
    is_changed = np.asarray(pc.match_substring_regex(texts, ENTITY.pattern)).astype(np.bool_)
    if not is_changed.any():
        return texts, is_changed
    whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    found = whole.filter(pa.array(is_changed)).to_pylist()
    decoded = [_decode(text) for text in found]
    is_changed[is_changed] = [text != new for text, new in zip(found, decoded, strict=True)]
    changed = [new for text, new in zip(found, decoded, strict=True) if text != new]
    replaced = pc.replace_with_mask(whole, pa.array(is_changed), pa.array(changed, whole.type))
    return replaced, is_changed


def _decode(text: str) -> str:
    for _ in range(_ROUNDS):
        text = ENTITY.sub(_character, text)
    return text


def _character(entity: re.Match[str]) -> str:
    """Return the character of an entity, or the entity itself if it stands for no text."""
    found = unescape(entity[0])
    is_control = entity[0][1] == "#" and any(
        unicodedata.category(each) == "Cc" and each not in _WHITESPACE for each in found
    )
    return entity[0] if not found or found == _INVALID or is_control else found
