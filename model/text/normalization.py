"""Normalization of texts before they are split into pieces."""

from __future__ import annotations

import dataclasses
import unicodedata
from typing import TYPE_CHECKING, Any, Literal, get_args

from tt.model.errors import checked, require_one_of

if TYPE_CHECKING:  # not at run time, so that `tt COMMAND --help` stays fast
    import pyarrow as pa

# SentencePiece replaces spaces by this character, so a text must not contain it.
WORD_BOUNDARY = "\N{LOWER ONE EIGHTH BLOCK}"
MAX_TEXT_BYTES = 64 << 20  # a longer text is not a text that somebody wants to translate
UnicodeForm = Literal["NFC", "NFKC", "none"]

# Invisible characters that str.split() does not treat as white space: C0 and C1 controls, soft
# hyphen, zero-width space, direction marks, word joiner and other invisible operators, byte order
# mark, annotation marks. ZWNJ and ZWJ are kept, because Persian and Indic scripts need them.
_INVISIBLE = [
    *range(0x00, 0x09), *range(0x0E, 0x1C), *range(0x7F, 0x85), *range(0x86, 0xA0), 0xAD, 0x61C,
    0x180E, 0x200B, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2060, 0x2070), 0xFEFF,
    *range(0xFFF9, 0xFFFC),
]  # fmt: skip
_CLEAN = {**dict.fromkeys(_INVISIBLE), ord(WORD_BOUNDARY): " "}

# A text is clean if this RE2 pattern does not match it. Testing all texts in Arrow and rewriting
# only the few unclean ones is several times cheaper than rewriting all texts.
_UNCLEAN = (
    r"  |^ | $"
    r"|[\x00-\x1f\x7f-\xa0\xad\x{61c}\x{1680}\x{180e}\x{2000}-\x{200b}\x{200e}\x{200f}"
    r"\x{2028}-\x{202f}\x{205f}-\x{206f}\x{2581}\x{3000}\x{feff}\x{fff9}-\x{fffb}]"
)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class TextNormalization:
    """Normalizes texts before they are split into pieces, in training and in translation.

    U+2581 always becomes a space, because SentencePiece uses it for spaces.

    Attributes:
      unicode_form: Convert texts to this Unicode normal form; "none" keeps them unchanged.
      clean_whitespace: Delete invisible characters, and replace white space with single spaces.

        Each run of white space, including line separators and no-break spaces, becomes one space,
        and control characters and white space at both ends are deleted. If the option is off, texts
        that consist of white space still become empty.
      lowercase: Convert all letters to lower case.

        The conversion is Python's `str.lower`, which keeps the German ß.
    """

    unicode_form: UnicodeForm = "NFC"
    clean_whitespace: bool = True
    lowercase: bool = False

    def __post_init__(self) -> None:
        require_one_of("`unicode_form`", self.unicode_form, get_args(UnicodeForm))

    def __call__(self, texts: list[str]) -> list[str]:
        r"""Normalize texts.

        >>> TextNormalization()(["  a\u00a0 b\u200b ", "c"])
        ['a b', 'c']
        """
        import pyarrow as pa

        return self.column(pa.array(texts, pa.large_string()))

    def column(self, texts: pa.Array | pa.ChunkedArray) -> list[str]:
        """Normalize a column of strings without nulls."""
        import numpy as np
        import pyarrow as pa
        import pyarrow.compute as pc

        form = self.unicode_form
        normalized: list[str] = texts.to_pylist()
        if form != "none":
            for i in np.flatnonzero(np.asarray(pc.invert(pc.string_is_ascii(texts)))):
                normalized[i] = unicodedata.normalize(form, normalized[i])
        if self.clean_whitespace and normalized:
            # NFKC can make a clean text unclean; NFC cannot.
            tested = pa.array(normalized, pa.large_string()) if form == "NFKC" else texts
            unclean = pc.match_substring_regex(tested, _UNCLEAN)
            if pc.any(unclean).as_py():
                for i in np.flatnonzero(np.asarray(unclean)):
                    text = " ".join(normalized[i].translate(_CLEAN).split())
                    # Characters that have become adjacent may combine in the normal form.
                    normalized[i] = text if form == "none" else unicodedata.normalize(form, text)
        elif not self.clean_whitespace:
            normalized = [text.replace(WORD_BOUNDARY, " ") for text in normalized]
            normalized = ["" if text.isspace() else text for text in normalized]
        return self.lower(normalized) if self.lowercase else normalized

    def lower(self, texts: list[str]) -> list[str]:
        r"""Convert normalized texts to lower case, and keep them in their normal form.

        Arrow's `utf8_lower` is no alternative: it turns İ into i and lacks the Greek final sigma.

        >>> TextNormalization().lower(["Straße", "ΟΔΟΣ"])
        ['straße', 'οδος']
        """
        form = self.unicode_form
        lowered = [text.lower() for text in texts]
        if form == "none":
            return lowered
        # A letter in lower case may combine with a mark although its capital does not.
        return [text if text.isascii() else unicodedata.normalize(form, text) for text in lowered]

    def as_json(self) -> dict[str, Any]:
        """Return the options as JSON values.

        `lowercase` is omitted if it is off, so that the files and the fingerprints of datasets and
        models equal those of older versions, which did not have `lowercase`.
        """
        values = dataclasses.asdict(self)
        if not self.lowercase:
            del values["lowercase"]
        return values
