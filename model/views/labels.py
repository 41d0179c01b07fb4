"""Names of tokens for pictures, and fonts that can draw them."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from matplotlib import font_manager

from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary

MAX_LABEL = 12  # characters

# In this order; the first comes with Matplotlib.
_FONT_FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip
_WORD_START = "▁"  # SentencePiece's mark, U+2581
LEGEND = '"_" marks the start of a word; <bos> and <eos> are the start and the end of a sentence.'
_SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<bos>", EOS_ID: "<eos>"}


def token_labels(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """Names ids by their pieces: "_" starts a word; special ids and those without a piece are <…>.

    SentencePiece's own mark of a word start, U+2581, is in few fonts.
    """
    return [
        _SPECIAL.get(i)
        or (
            vocabulary.piece(i).replace(_WORD_START, "_")
            if i < vocabulary.piece_count
            else f"<id {i}>"
        )
        for i in ids
    ]


def drawable(labels: list[str]) -> list[str]:
    """Shortens long labels, numbers those with a character that is in no font, and quotes marks.

    A full stop alone, turned by 90 degrees, would look like a stain.
    """
    missing = set(undrawable(labels))
    drawn = []
    for position, label in enumerate(labels):
        if missing & set(label):
            label = f"#{position}"
        elif not any(character.isalnum() for character in label):
            label = f'"{label}"'
        drawn.append(label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…")
    return drawn


def undrawable(labels: Iterable[str]) -> list[str]:
    """Returns the characters of labels that no font has, each once, in their order."""
    fonts = [font_manager.get_font(path) for path in _font_paths().values()]
    return [
        character
        for character in dict.fromkeys("".join(labels))
        if all(font.get_char_index(ord(character)) == 0 for font in fonts)
    ]


def font_families() -> list[str]:
    """Returns the families that texts are drawn with, the first choice first."""
    return list(_font_paths())


@functools.cache
def _font_paths() -> dict[str, str]:
    """Returns the files of those families that the machine has."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return {name: font_manager.findfont(name) for name in _FONT_FAMILIES if name in known}
