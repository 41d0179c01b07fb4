"""Heat maps of the cross-attention of sample sentences, to be looked at in TensorBoard.

Axes: H heads, T target pieces (rows), S source pieces (columns). A picture shows one decoder
layer: a panel for each head, light where the weight is 0 and dark where it is 1, always on the
same scale, so that pictures of different steps can be compared.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from PIL import Image, ImageDraw, ImageFont

from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair
from model.transformer.transformer import Transformer

MAX_PIECES = 40  # of a side; what comes after them is left out and the title says so

PANEL_COLUMNS = 4

# Pixels. A cell's last row and column are the line that parts it from the next one.
CELL = 16

TITLE_HEIGHT = 32

HEADER_HEIGHT = 20

LABEL_LENGTH = 92

MARGIN = 14

FONT_SIZE = 13

_BACKGROUND, _LINE, _INK = (255, 255, 255), (222, 222, 222), (0, 0, 0)

# Matplotlib's "magma" (CC0) reversed, whose lightness falls evenly; white instead of its cream.
_ANCHORS = np.array(
    [
        (255, 255, 255), (254, 194, 135), (251, 135, 97), (229, 80, 100), (181, 54, 122),
        (129, 37, 129), (79, 18, 123), (28, 16, 68), (0, 0, 4),
    ]
)  # fmt: skip

# Looked for in the system's font folders, in this order. Pillow's own font, the last resort, is
# always there but draws little more than ASCII.
_FONT_FILES = (
    "DejaVuSans.ttf",
    "NotoSans-Regular.ttf",
    "NotoSansCJK-Regular.ttc",
    "DroidSansFallbackFull.ttf",
    "Arial Unicode.ttf",
)

_MISSING = "\U0010ffff"  # no character: what a font draws for it stands for all that it lacks

_WORD_START = "▁"  # SentencePiece's mark, U+2581

_SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<bos>", EOS_ID: "<eos>"}

_Font = ImageFont.FreeTypeFont | ImageFont.ImageFont


def attention_image(
    weights: npt.NDArray[np.floating], *, source: list[str], target: list[str], title: str = ""
) -> npt.NDArray[np.uint8]:
    """Draws the cross-attention of one layer for one sentence, all heads in one picture.

    A piece that no font of the machine can draw is labelled with its position, "#7"; positions
    and heads count from 0. Pieces after the first `MAX_PIECES` of a side are left out.

    Args:
      weights: float [H, T, S] in [0, 1].
      source: The labels of the S columns.
      target: The labels of the T rows.
      title: Stands above the panels.

    Returns:
      uint8 RGB [height, width, 3].

    Raises:
      ValueError: The weights have another shape, or one of them is not in [0, 1].

    >>> attention_image(np.full([8, 2, 3], 1 / 3), source=["a", "b", "c"], target=["x", "y"]).shape
    (348, 616, 3)
    """
    weights = np.asarray(weights, np.float32)
    if weights.shape[1:] != (len(target), len(source)) or weights.size == 0:
        raise ValueError(
            f"weights must have the shape [heads, {len(target)}, {len(source)}] of the labels, "
            f"none of them 0. Received: {list(weights.shape)}"
        )
    # Half precision and approximate softmax kernels may end a little above 1.
    if not np.all((weights >= 0) & (weights <= 1.01)):
        raise ValueError(
            "weights must be in [0, 1], after the softmax. "
            f"Received: {weights.min()} to {weights.max()}"
        )
    for side, labels in (("source", source), ("target", target)):
        if len(labels) > MAX_PIECES:
            title += f" (first {MAX_PIECES} of {len(labels)} {side} pieces)"
    source, target = source[:MAX_PIECES], target[:MAX_PIECES]
    weights = weights[:, : len(target), : len(source)]

    sizes = {"targets": len(target), "sources": len(source)}
    row_labels = _label_strip(target, anchor="rm")
    column_labels = _label_strip(source, anchor="lm").transpose(Image.Transpose.ROTATE_90)
    title, title_font = _drawable(title, title.encode("ascii", "replace").decode())
    title_left = 2 * MARGIN + 128
    columns, rows = min(len(weights), PANEL_COLUMNS), -(-len(weights) // PANEL_COLUMNS)
    panels_right, panels_bottom = cell_corner(head=0, row=len(target), column=len(source), **sizes)
    width = columns * (panels_right + MARGIN)
    height = TITLE_HEIGHT + rows * (panels_bottom + MARGIN - TITLE_HEIGHT)
    width = max(width, title_left + round(title_font.getlength(title)) + MARGIN)

    image = Image.new("RGB", (width, height), _BACKGROUND)
    draw = ImageDraw.Draw(image)
    middle = TITLE_HEIGHT // 2
    _, font = _drawable("head 0123456789", "")
    scale = np.broadcast_to(colours(np.linspace(0, 1, 96)), [CELL, 96, 3])
    draw.text((MARGIN, middle), "0", _INK, font, anchor="lm")
    image.paste(Image.fromarray(scale.copy()), (MARGIN + 14, middle - CELL // 2))
    draw.text((MARGIN + 14 + 96 + 6, middle), "1", _INK, font, anchor="lm")
    draw.text((title_left, middle), title, _INK, title_font, anchor="lm")
    for head, head_weights in enumerate(weights):
        left, top = cell_corner(head=head, row=0, column=0, **sizes)
        cells = colours(head_weights).repeat(CELL, axis=0).repeat(CELL, axis=1)
        cells[CELL - 1 :: CELL] = cells[:, CELL - 1 :: CELL] = _LINE
        image.paste(Image.fromarray(cells), (left, top))
        image.paste(row_labels, (left - LABEL_LENGTH, top))
        image.paste(column_labels, (left, top - LABEL_LENGTH))
        header = (left, top - LABEL_LENGTH - HEADER_HEIGHT // 2)
        draw.text(header, f"head {head}", _INK, font, anchor="lm")
    return np.array(image)


def sample_attention(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> list[npt.NDArray[np.uint8]]:
    """Draws what each decoder layer looks at in the source while it predicts a given target.

    Args:
      model: Runs once, without dropout.
      vocabularies: Give the labels.
      source_ids: BOS to EOS.
      target_ids: BOS to EOS; a row is labelled with the piece that is predicted there.

    Returns:
      For each decoder layer a picture, uint8 RGB [height, width, 3].
    """
    _, attention = model.decode_with_attention(
        tf.constant([source_ids], tf.int32), target=tf.constant([target_ids[:-1]], tf.int32)
    )
    return [
        attention_image(
            tf.cast(weights[0], tf.float32).numpy(),  # [1, H, T, S] -> [H, T, S]
            source=piece_labels(vocabularies.source, source_ids),
            target=piece_labels(vocabularies.target, target_ids[1:]),
            title=f"{layer.name}: cross-attention of predicted target (rows) to source (columns)",
        )
        for layer, weights in zip(model.decoder_layers, attention.cross, strict=True)
    ]


def piece_labels(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
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


def colours(weights: npt.NDArray[np.floating]) -> npt.NDArray[np.uint8]:
    """Maps weights [...] in [0, 1] to RGB [..., 3], from light to dark."""
    places = np.linspace(0, 1, len(_ANCHORS))
    channels = [np.interp(weights, places, channel) for channel in _ANCHORS.T]
    return np.stack(channels, axis=-1).round().astype(np.uint8)


def cell_corner(*, head: int, row: int, column: int, targets: int, sources: int) -> tuple[int, int]:
    """Returns the x and y of a cell's first pixel; the colour fills CELL - 1 pixels each way.

    Args:
      head: Counts from 0, as `row` and `column` do.
      row: Of a target piece.
      column: Of a source piece.
      targets: T, at most `MAX_PIECES`.
      sources: S, at most `MAX_PIECES`.
    """
    panel_row, panel_column = divmod(head, PANEL_COLUMNS)
    panel_width = LABEL_LENGTH + sources * CELL + MARGIN
    panel_height = HEADER_HEIGHT + LABEL_LENGTH + targets * CELL + MARGIN
    left = panel_column * panel_width + LABEL_LENGTH
    top = TITLE_HEIGHT + panel_row * panel_height + HEADER_HEIGHT + LABEL_LENGTH
    return left + column * CELL, top + row * CELL


def _label_strip(labels: list[str], *, anchor: str) -> Image.Image:
    """Draws labels below each other, a cell high each, at the left ("lm") or right ("rm")."""
    strip = Image.new("RGB", (LABEL_LENGTH, CELL * len(labels)), _BACKGROUND)
    draw = ImageDraw.Draw(strip)
    gap = 4
    for position, label in enumerate(labels):
        text, font = _drawable(label, f"#{position}")
        if font.getlength(text) > LABEL_LENGTH - 2 * gap:
            while font.getlength(text + "…") > LABEL_LENGTH - 2 * gap:
                text = text[:-1]
            text += "…"
        x = gap if anchor == "lm" else LABEL_LENGTH - gap
        draw.text((x, CELL * position + CELL // 2), text, _INK, font, anchor=anchor)
    return strip


def _drawable(text: str, fallback: str) -> tuple[str, _Font]:
    """Returns the text and the first font that has all of it, or the ASCII fallback and a font."""
    for font, probe in _fonts():
        missing = _glyph(probe, _MISSING)
        if all(_glyph(probe, character) != missing for character in text):
            return text, font
    return fallback, _fonts()[-1][0]


def _glyph(font: _Font, character: str) -> tuple[tuple[int, int], bytes]:
    mask = font.getmask(character)
    return mask.size, bytes(mask)


@functools.cache
def _fonts() -> list[tuple[_Font, _Font]]:
    """Loads each font of the machine twice, to draw with and to ask whether it has a character."""
    fonts: list[tuple[_Font, _Font]] = []
    for name in _FONT_FILES:
        try:
            # Shaping dresses up a lone mark that the font lacks: asked without it.
            probe = ImageFont.truetype(name, FONT_SIZE, layout_engine=ImageFont.Layout.BASIC)
            fonts.append((ImageFont.truetype(name, FONT_SIZE), probe))
        except OSError:
            continue
    own = ImageFont.load_default(FONT_SIZE)
    return [*fonts, (own, own)]
