"""The scripts of characters, counts of characters by class, and mojibake."""

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
_SURROGATES = range(0xD800, 0xE000)  # These are not characters, so no class contains them.

# Writing systems that combine several scripts, by their ISO 15924 names.
_COMPOSITE_SCRIPTS = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}


def check_script(name: str) -> None:
    """Raise an error unless `name` is the name of a script.

    Raises:
      UserError: The name is neither the long Unicode name of a script nor "Japanese" or "Korean".
    """
    if name in _COMPOSITE_SCRIPTS:
        return
    # RE2 also accepts \p{Lu} and \p{Any}, which are not scripts. Yi is the only short script name.
    is_name = re.fullmatch("[A-Z][A-Za-z_]{2,}|Yi", name)
    if is_name and name not in ("Any", "Common", "Inherited"):
        try:
            pc.match_substring_regex(pa.array([""]), rf"\p{{{name}}}")
        except pa.ArrowInvalid:
            pass
        else:
            return
    raise UserError(
        'a script must be a long Unicode name, such as "Latin", "Cyrillic", "Arabic", "Greek", '
        f'"Devanagari" or "Han", or "Japanese" or "Korean". Received: {name!r}'
    )


@functools.cache
def letters() -> npt.NDArray[np.bool_]:
    r"""Return which code points are letters (\p{L}) or combining marks (\p{M})."""
    return _members(r"[\p{L}\p{M}]")


@functools.cache
def white_space() -> npt.NDArray[np.bool_]:
    """Return which code points `str.isspace` counts as white space."""
    return _members(r"[\p{Z}\x09-\x0d\x1c-\x1f\x85]")


def in_script(script: str) -> npt.NDArray[np.bool_]:
    """Return which code points are in a script, or in "Common" or "Inherited".

    Digits, punctuation, combining accents and the Japanese length mark are in "Common" or
    "Inherited", because several scripts use them.
    """
    names = (*_COMPOSITE_SCRIPTS.get(script, (script,)), "Common", "Inherited")
    return _members("[" + "".join(rf"\p{{{name}}}" for name in names) + "]")


def _members(pattern: str) -> npt.NDArray[np.bool_]:
    matches = np.asarray(pc.match_substring_regex(_characters(), pattern))
    return np.insert(matches, np.full(len(_SURROGATES), _SURROGATES.start), False)


@functools.lru_cache(maxsize=1)
def _characters() -> pa.Array:
    """Return all characters in order, without creating a million Python strings."""
    points = np.delete(np.arange(CODE_POINTS, dtype="<u4"), _SURROGATES)
    utf8 = points.tobytes().decode("utf-32-le").encode()
    sizes = np.searchsorted([0x80, 0x800, 0x10000], points, side="right") + 1
    return cut_bytes(utf8, sizes).cast(pa.large_string())


_COUNTER_BITS = 16  # Each count fits, because `Filters` limits texts to 65,535 characters.
_COUNTER_MASK = np.uint64((1 << _COUNTER_BITS) - 1)
_COUNTED_AT_ONCE = 512  # The data of this many texts fits into the CPU's cache.

# The trail bytes of UTF-8, 0x80 to 0xBF, decoded as Windows-1252. Some bytes are missing, because
# normalization has removed or replaced their characters: 0x81, 0x8D, 0x8F, 0x90 and 0x9D (and in
# Latin-1 all bytes up to 0x9F) are control characters, 0xA0 is a space, and 0xAD a soft hyphen.
_TRAIL = "[€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ¡-¿]"

# UTF-8 that was decoded as Windows-1252 or Latin-1, in RE2's syntax. Capitals before quotation
# marks, dashes or an ellipsis (MANHÃ…, »SMÅ«) do not match, because they occur in real words.
_MOJIBAKE = "|".join([
    r"\x{fffd}",  # the replacement character of decoders
    r"[ÂÃ][¡-©¬¯-¶¸-º¼-¿€‚ƒ„†‡ˆ‰ŠŒŽ˜šœžŸ]",  # Â© £, Ã¤ Ã±: Western European signs and letters
    r"(?:^|[^0-9])[ÄÅ][¡-¨¯¸¼-¾‚ƒ„†‡ˆ‰˜]",  # Å¡ Å¾ Ä‡: Central European letters (5 Å² is an area)
    rf"[a-z](?:Ã|[ÂÄ](?: |$)|[ÂÄÅÎ-ÑØÙ]{_TRAIL})",  # a capital after a lower-case letter
    r"(?:^| )Ã ",  # the word "à"
    rf"[ÎÏÐÑØÙ]{_TRAIL}[ÎÏÐÑØÙ]{_TRAIL}|×{_TRAIL}?×",  # Greek, Cyrillic, Hebrew
    rf"[ÙÚÛ]{_TRAIL}?[ØÙ]|Ø{_TRAIL}?Ù|Ø{_TRAIL}Ø",  # Arabic
    rf"(?:[àáã-í]{_TRAIL}{_TRAIL}?){{2}}",  # the other Asian scripts, and Ethiopic
    r"â(?:[€¢¬†ˆ]|„¢|‚¬)|ï(?:»¿|¿½|¼[Œˆ‰])|ðŸ",  # quotation marks and dashes, ™ €, →, emoji
])  # fmt: skip

_SUSPECT_CHARACTERS = "\ufffdÂÃÄÅÎÏÐÑ×ØÙÚÛàáâãäåæçèéêëìíïð"  # Every mojibake contains one of these.


@dataclasses.dataclass(frozen=True)
class _Counts:
    """The number of characters in each class, for each of B texts; all arrays are of shape [B]."""

    visible: npt.NDArray[np.uint64]  # characters other than white space
    letters: npt.NDArray[np.uint64]
    foreign: npt.NDArray[np.uint64]  # letters of scripts other than the expected script
    # Characters of `_SUSPECT_CHARACTERS`: a text without any of them is not mojibake.
    suspects: npt.NDArray[np.uint64]

    @property
    def letter_share(self) -> npt.NDArray[np.float64]:
        """The share of letters among the visible characters; 0 if there are none."""
        return self.letters / np.maximum(self.visible, 1)

    @property
    def script_share(self) -> npt.NDArray[np.float64]:
        """The share of letters that are not foreign; 1 if there are no letters."""
        return np.where(
            self.letters == 0, 1.0, (self.letters - self.foreign) / np.maximum(self.letters, 1)
        )


def count_characters(texts: list[str], *, script: str) -> _Counts:
    """Count the characters of each text by class.

    The function looks up the code points of many texts at once, in a table that packs the four
    classes into 16-bit fields of a 64-bit number. The sum over a text contains its four counts.

    Args:
      texts: B texts of at most 65,535 characters each.
      script: The script of letters that are not foreign; "" means that no letter is foreign.
    """
    table = _class_table(script)
    sums = np.zeros(len(texts), np.uint64)
    for first in range(0, len(texts), _COUNTED_AT_ONCE):
        some = texts[first : first + _COUNTED_AT_ONCE]
        # Each text gets a line end, which is in no class. Otherwise, an empty text would be an
        # empty segment, for which `reduceat` returns the value of the next text.
        joined = "\n".join([*some, ""]).encode("utf-32-le")
        points = np.frombuffer(joined, "<u4")
        lengths = np.fromiter(map(len, some), np.int64, len(some)) + 1
        starts = np.cumsum(lengths) - lengths
        sums[first : first + len(some)] = np.add.reduceat(table.take(points), starts)
    fields = [(sums >> np.uint64(_COUNTER_BITS * i)) & _COUNTER_MASK for i in range(4)]
    return _Counts(*fields)


@functools.cache
def _class_table(script: str) -> npt.NDArray[np.uint64]:
    """Return the classes of each code point, packed in the order of the fields of `_Counts`."""
    visible = ~white_space()
    foreign = letters() & ~in_script(script) if script else np.zeros_like(visible)
    suspects = np.zeros_like(visible)
    suspects[[ord(character) for character in _SUSPECT_CHARACTERS]] = True
    table = np.zeros(len(visible), np.uint64)
    for i, members in enumerate((visible, letters(), foreign, suspects)):
        table |= members.astype(np.uint64) << np.uint64(_COUNTER_BITS * i)
    return table


def find_mojibake(texts: list[str]) -> npt.NDArray[np.bool_]:
    """Return which texts are mojibake."""
    return np.asarray(pc.match_substring_regex(pa.array(texts, pa.large_string()), _MOJIBAKE))
