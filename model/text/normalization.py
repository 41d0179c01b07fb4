"""The normalization of a text before any model sees it."""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import TYPE_CHECKING, Any, Literal, get_args

from tt.model.errors import require_one_of

if TYPE_CHECKING:  # the help of a command needs none
    import pyarrow as pa

# SentencePiece writes spaces so; where a text has it, it cannot be told from a space.
WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"
UnicodeForm = Literal["NFC", "NFKC", "none"]

# What str.split() does not take for white space and no reader sees: C0 and C1 controls, soft
# hyphen, zero-width space, marks of direction, word joiner and other invisible operators, byte
# order mark, annotation marks. ZWNJ and ZWJ stay: Persian and the scripts of India spell with them.
_INVISIBLE = [
    *range(0x00, 0x09), *range(0x0E, 0x1C), *range(0x7F, 0x85), *range(0x86, 0xA0), 0xAD, 0x61C,
    0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
    *range(0xFFF9, 0xFFFC),
]  # fmt: skip
_CLEAN = {**dict.fromkeys(_INVISIBLE), ord(WORD_BOUNDARY): " "}

# Texts in which this RE2 pattern finds nothing are already clean; testing all of them in Arrow
# and mending the few that are not is several times cheaper than rewriting all.
_UNCLEAN = (
    r"  |^ | $"
    r"|[\x00-\x1f\x7f-\xa0\xad\x{61c}\x{1680}\x{180e}\x{2000}-\x{200b}\x{200e}\x{200f}"
    r"\x{2028}-\x{202f}\x{205f}-\x{206f}\x{2581}\x{3000}\x{feff}\x{fff9}-\x{fffb}]"
)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextNormalization:
    """What is done to a text before it is split into pieces, in training and in translation.

    U+2581 always becomes a space: SentencePiece writes spaces so.

    Attributes:
      unicode_form: The Unicode normal form, or "none".
      clean_whitespace: Delete control and invisible characters, turn every run of white space
        (line separators and no-break spaces too) into one space, and strip the ends. Without it
        only a text of white space alone becomes empty.
      lowercase: Bring all letters to lower case, as Python's `str.lower` does: German ß stays.
    """

    unicode_form: UnicodeForm = "NFC"
    clean_whitespace: bool = True
    lowercase: bool = False

    def __post_init__(self) -> None:
        require_one_of("`unicode_form`", self.unicode_form, get_args(UnicodeForm))

    def __call__(self, texts: list[str]) -> list[str]:
        r"""Normalises texts.

        >>> TextNormalization()(["  a\u00a0 b\u200b ", "c"])
        ['a b', 'c']
        """
        import pyarrow as pa

        return self.column(pa.array(texts, pa.large_string()))

    def column(self, texts: pa.Array | pa.ChunkedArray) -> list[str]:
        """Normalises a column of strings without nulls."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        form = self.unicode_form
        normalized: list[str] = texts.to_pylist()
        if form != "none":
            for i in np.flatnonzero(np.asarray(pc.invert(pc.string_is_ascii(texts)))):
                normalized[i] = unicodedata.normalize(form, normalized[i])
        if self.clean_whitespace and normalized:
            # NFC makes no clean text unclean, but NFKC does.
            tested = pa.array(normalized, pa.large_string()) if form == "NFKC" else texts
            unclean = pc.match_substring_regex(tested, _UNCLEAN)
            if pc.any(unclean).as_py():
                for i in np.flatnonzero(np.asarray(unclean)):
                    text = " ".join(normalized[i].translate(_CLEAN).split())
                    # Characters that meet now may be one in the normal form.
                    normalized[i] = text if form == "none" else unicodedata.normalize(form, text)
        elif not self.clean_whitespace:
            normalized = [text.replace(WORD_BOUNDARY, " ") for text in normalized]
            normalized = ["" if text.isspace() else text for text in normalized]
        return self.lower(normalized) if self.lowercase else normalized

    def lower(self, texts: list[str]) -> list[str]:
        r"""Lower-cases texts that are normalised but for their case, into the same normal form.

        Not Arrow's `utf8_lower`: that turns İ into i and knows no Greek final sigma.

        >>> TextNormalization().lower(["Straße", "ΟΔΟΣ"])
        ['straße', 'οδος']
        """
        form = self.unicode_form
        lowered = [text.lower() for text in texts]
        if form == "none":
            return lowered
        # Letters in lower case may make one character with a mark that those in upper case do not.
        return [text if text.isascii() else unicodedata.normalize(form, text) for text in lowered]

    def as_json(self) -> dict[str, Any]:
        """Returns the options as they are saved.

        One that came later is left out where it does nothing: what was made before it existed has
        the same files and fingerprint as what is made without it.
        """
        values = dataclasses.asdict(self)
        if not self.lowercase:
            del values["lowercase"]
        return values
