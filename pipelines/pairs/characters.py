"""Unicode scripts: which characters belong to one; `model.text.languages` says which a language has.

The classes of characters come from RE2's tables of Unicode, which Arrow brings; they are looked
up once a process, in about half a second.
"""

from __future__ import annotations

import functools
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from model.errors import UserError

CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)  # in no class: they are not characters

# Writing systems that use several scripts, in the names of ISO 15924.
_COMPOSED = {
    "Japanese": ("Hiragana", "Katakana", "Han"),
    "Korean": ("Hangul", "Han"),
}


def check_script(name: str) -> None:
    """Raises unless a name is one of a script.

    Raises:
      UserError: It is no script of Unicode, in its long name, nor "Japanese" or "Korean".
    """
    if name in _COMPOSED:
        return
    # RE2 takes \p{Lu} and \p{Any} too: those are no scripts, and Yi is the only short name.
    is_name = re.fullmatch("[A-Z][A-Za-z_]{2,}|Yi", name)
    if is_name and name not in ("Any", "Common", "Inherited"):
        try:
            pc.match_substring_regex(pa.array([""]), rf"\p{{{name}}}")
        except pa.ArrowInvalid:
            pass
        else:
            return
    raise UserError(
        'script must be a long name of Unicode, such as "Latin", "Cyrillic", "Arabic", "Greek", '
        f'"Devanagari" or "Han", or "Japanese" or "Korean". Received: {name!r}'
    )


@functools.cache
def letters() -> npt.NDArray[np.bool_]:
    r"""Says of each code point whether it is a letter or a mark that letters bear: \p{L}, \p{M}."""
    return _members(r"[\p{L}\p{M}]")


@functools.cache
def white_space() -> npt.NDArray[np.bool_]:
    """Says of each code point whether `str.isspace` takes it for white space."""
    return _members(r"[\p{Z}\x09-\x0d\x1c-\x1f\x85]")


def in_script(script: str) -> npt.NDArray[np.bool_]:
    """Says of each code point whether it is in a script, or in none alone.

    Those in none alone, Unicode's "Common" and "Inherited", are digits, punctuation, accents as
    characters of their own, the Japanese mark of length and the like.
    """
    names = (*_COMPOSED.get(script, (script,)), "Common", "Inherited")
    return _members("[" + "".join(rf"\p{{{name}}}" for name in names) + "]")


def _members(pattern: str) -> npt.NDArray[np.bool_]:
    members = np.zeros(CODE_POINTS, np.bool_)
    matches = pc.match_substring_regex(_characters(), pattern).to_numpy(zero_copy_only=False)
    members[: _SURROGATES.start] = matches[: _SURROGATES.start]
    members[_SURROGATES.stop :] = matches[_SURROGATES.start :]
    return members


@functools.lru_cache(maxsize=1)
def _characters() -> pa.Array:
    return pa.array(map(chr, [*range(_SURROGATES.start), *range(_SURROGATES.stop, CODE_POINTS)]))
