"""The characters of texts: their scripts, and how many of each class there are."""

from __future__ import annotations

import dataclasses
import functools
import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tt.model.dataset.tfrecords import cut_bytes
from tt.model.errors import UserError

CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)  # in no class: they are not characters

# Writing systems that use several scripts, in the names of ISO 15924.
_COMPOSED = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}


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
    """Says of each code point whether it is in a script, or in none alone ("Common", "Inherited").

    In none alone are digits, punctuation, combining accents, the Japanese mark of length and more.
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
    """Makes an array of all characters, in order: as bytes, a million Python objects apart."""
    points = np.delete(np.arange(CODE_POINTS, dtype="<u4"), _SURROGATES)
    utf8 = points.tobytes().decode("utf-32-le").encode()
    sizes = np.searchsorted([0x80, 0x800, 0x10000], points, side="right") + 1
    return cut_bytes(utf8, sizes).cast(pa.large_string())


_COUNTER_BITS = 16  # of each count: texts have at most as many characters, see `Filters`
_COUNTER_MASK = np.uint64((1 << _COUNTER_BITS) - 1)
_COUNTED_AT_ONCE = 512  # texts: their code points and counters fit into the processor's cache

# The bytes 0x80 to 0xBF, which follow the first one of a character in UTF-8, read as Windows-1252.
# 0x81, 0x8D, 0x8F, 0x90, 0x9D and in Latin-1 all up to 0x9F are controls, 0xA0 is a space and 0xAD
# a soft hyphen: normalisation has deleted those by now.
_REST = "[€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ¡-¿]"

# What UTF-8 looks like when read as Windows-1252 or Latin-1, in RE2's syntax. Capitals before
# quotation marks, dashes or an ellipsis (MANHÃ…, »SMÅ«) are words and pass.
_MOJIBAKE = "|".join([
    r"\x{fffd}",  # the decoder's own mark
    r"[ÂÃ][¡-©¬¯-¶¸-º¼-¿€‚ƒ„†‡ˆ‰ŠŒŽ˜šœžŸ]",  # Â© £, Ã¤ Ã±: signs and letters of Western Europe
    r"(?:^|[^0-9])[ÄÅ][¡-¨¯¸¼-¾‚ƒ„†‡ˆ‰˜]",  # Å¡ Å¾ Ä‡: of Central Europe (5 Å² is an area)
    rf"[a-z](?:Ã|[ÂÄ](?: |$)|[ÂÄÅÎ-ÑØÙ]{_REST})",  # a capital in a word of small letters
    r"(?:^| )Ã ",  # à
    rf"[ÎÏÐÑØÙ]{_REST}[ÎÏÐÑØÙ]{_REST}|×{_REST}?×",  # Greek, Cyrillic, Hebrew
    rf"[ÙÚÛ]{_REST}?[ØÙ]|Ø{_REST}?Ù|Ø{_REST}Ø",  # Arabic
    rf"(?:[àáã-í]{_REST}{_REST}?){{2}}",  # the other scripts of Asia, Ethiopic
    r"â(?:[€¢¬†ˆ]|„¢|‚¬)|ï(?:»¿|¿½|¼[Œˆ‰])|ðŸ",  # quotation marks and dashes, ™ €, →, emoji
])  # fmt: skip

_IN_ALL_MOJIBAKE = "\ufffdÂÃÄÅÎÏÐÑ×ØÙÚÛàáâãäåæçèéêëìíïð"  # every match has one of them


@dataclasses.dataclass(frozen=True)
class _Counts:
    """How many characters of each of B texts are in each class; all of shape [B]."""

    visible: npt.NDArray[np.uint64]  # not white space
    letters: npt.NDArray[np.uint64]
    foreign: npt.NDArray[np.uint64]  # letters of other scripts than the expected one
    suspects: npt.NDArray[np.uint64]  # without one a text is no mojibake

    @property
    def letter_share(self) -> npt.NDArray[np.float64]:
        """The share of letters among the visible characters; 0 where there are none."""
        return self.letters / np.maximum(self.visible, 1)

    @property
    def script_share(self) -> npt.NDArray[np.float64]:
        """The share of letters that are not foreign; 1 where there are no letters."""
        return np.where(
            self.letters == 0, 1.0, (self.letters - self.foreign) / np.maximum(self.letters, 1)
        )


def count_characters(texts: list[str], *, script: str) -> _Counts:
    """Counts the characters of texts, none of more than 65,535, by class.

    All code points of many texts are looked up at once in a table that packs the classes into
    the four 16-bit fields of a 64-bit number, whose sums over each text are the counters.
    """
    table = _class_table(script)
    sums = np.zeros(len(texts), np.uint64)
    for first in range(0, len(texts), _COUNTED_AT_ONCE):
        some = texts[first : first + _COUNTED_AT_ONCE]
        # A line end behind each: it is in no class, and no part to sum is empty, for which
        # reduceat would give a neighbour's value.
        joined = "\n".join([*some, ""]).encode("utf-32-le")
        points = np.frombuffer(joined, "<u4")
        lengths = np.fromiter(map(len, some), np.int64, len(some)) + 1
        starts = np.cumsum(lengths) - lengths
        sums[first : first + len(some)] = np.add.reduceat(table.take(points), starts)
    fields = [(sums >> np.uint64(_COUNTER_BITS * i)) & _COUNTER_MASK for i in range(4)]
    return _Counts(*fields)


@functools.cache
def _class_table(script: str) -> npt.NDArray[np.uint64]:
    """Returns the classes of every code point, packed in the order of the fields of `_Counts`."""
    visible = ~white_space()
    foreign = letters() & ~in_script(script) if script else np.zeros_like(visible)
    suspects = np.zeros_like(visible)
    suspects[[ord(character) for character in _IN_ALL_MOJIBAKE]] = True
    table = np.zeros(len(visible), np.uint64)
    for i, members in enumerate((visible, letters(), foreign, suspects)):
        table |= members.astype(np.uint64) << np.uint64(_COUNTER_BITS * i)
    return table


def find_mojibake(texts: list[str]) -> list[int]:
    """Returns the positions of the texts that are mojibake."""
    if not texts:
        return []
    matches = pc.match_substring_regex(pa.array(texts, pa.large_string()), _MOJIBAKE)
    positions: list[int] = np.flatnonzero(matches.to_numpy(zero_copy_only=False)).tolist()
    return positions
