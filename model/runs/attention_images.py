"""Heat maps of the cross-attention of sample sentences, to be looked at in TensorBoard.

Axes: H heads, T target tokens (rows), S source tokens (columns). A picture shows one decoder layer,
a panel for each head: white is a weight of 0 and dark blue 1, in pictures of all steps.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from model.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary, VocabularyPair
from model.transformer.transformer import Transformer

MAX_TOKENS = 40  # of a side; what comes after them is left out and the title says so
MAX_LABEL = 12  # characters
_PANEL_COLUMNS = 4
_DPI = 100
# Inches.
_CELL = 0.16
_LABELS = 1.3
_TITLE = 0.5
_GAP = 0.3

# In this order; the first comes with Matplotlib.
_FONT_FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip
_WORD_START = "▁"  # SentencePiece's mark, U+2581
_SPECIAL = {PAD_ID: "<pad>", UNK_ID: "<unk>", BOS_ID: "<bos>", EOS_ID: "<eos>"}


def attention_figure(
    weights: npt.NDArray[np.floating], *, source: list[str], target: list[str], title: str = ""
) -> Figure:
    """Draws the cross-attention of one layer for one sentence, a panel for each head.

    `weights` are float [H, T, S] in [0, 1]; `source` has the labels of the S columns, `target` of
    the T rows. A token that no font of the machine can draw is labelled with its position, "#7";
    positions and heads count from 0. Tokens after the first `MAX_TOKENS` of a side are left out.

    Raises:
      ValueError: The weights have another shape, or one of them is not in [0, 1].
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
        if len(labels) > MAX_TOKENS:
            title += f" (first {MAX_TOKENS} of {len(labels)} {side} tokens)"
    heads, rows, columns = weights[:, :MAX_TOKENS, :MAX_TOKENS].shape

    # The sizes are chosen, not found by a layout engine: that would draw everything twice.
    across, down = min(heads, _PANEL_COLUMNS), -(-heads // _PANEL_COLUMNS)
    panel_width, panel_height = columns * _CELL, rows * _CELL
    width = max(_LABELS + across * (panel_width + _GAP), 0.08 * len(title))
    height = _TITLE + down * (panel_height + _GAP) + _LABELS
    figure = Figure(figsize=(width, height), dpi=_DPI)
    text: dict[str, Any] = {"fontsize": 7, "fontfamily": list(_font_paths()), "parse_math": False}
    figure.text(0.1 / width, 1 - 0.1 / height, title, va="top", **text)
    for head in range(heads):
        row, column = divmod(head, _PANEL_COLUMNS)
        left = _LABELS + column * (panel_width + _GAP)
        top = _TITLE + row * (panel_height + _GAP)
        panel = figure.add_axes(
            (
                left / width,
                1 - (top + panel_height) / height,
                panel_width / width,
                panel_height / height,
            )
        )
        panel.imshow(weights[head, :rows, :columns], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"head {head}", pad=3, **text)
        # Labels of all panels alike stand at the outer ones alone.
        panel.xaxis.set_major_locator(NullLocator())
        panel.yaxis.set_major_locator(NullLocator())
        if column == 0:
            panel.set_yticks(range(rows), _drawable(target[:rows]), **text)
        if head + _PANEL_COLUMNS >= heads:
            panel.set_xticks(range(columns), _drawable(source[:columns]), rotation=90, **text)
    return figure


def sample_attention(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> list[npt.NDArray[np.uint8]]:
    """Draws what each decoder layer looks at in the source while it predicts a given target.

    Both have ids from BOS to EOS; a row is labelled with the token that is predicted there. Returns
    a picture for each decoder layer, uint8 RGB [height, width, 3].
    """
    _, attention = model.decode_with_attention(
        tf.constant([source_ids], tf.int32), target=tf.constant([target_ids[:-1]], tf.int32)
    )
    return [
        render(
            attention_figure(
                tf.cast(weights[0], tf.float32).numpy(),  # [1, H, T, S] -> [H, T, S]
                source=token_labels(vocabularies.source, source_ids),
                target=token_labels(vocabularies.target, target_ids[1:]),
                title=f"{layer.name}: attention of predicted target (rows) to source (columns)",
            )
        )
        for layer, weights in zip(model.decoder_layers, attention.cross, strict=True)
    ]


def render(figure: Figure) -> npt.NDArray[np.uint8]:
    """Returns a figure's pixels, uint8 RGB [height, width, 3]."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


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


def _drawable(labels: list[str]) -> list[str]:
    """Shortens long labels, and numbers those with a character that is in no font."""
    fonts = [font_manager.get_font(path) for path in _font_paths().values()]
    drawable = []
    for position, label in enumerate(labels):
        if any(all(font.get_char_index(ord(c)) == 0 for font in fonts) for c in label):
            label = f"#{position}"
        drawable.append(label if len(label) <= MAX_LABEL else label[: MAX_LABEL - 1] + "…")
    return drawable


@functools.cache
def _font_paths() -> dict[str, str]:
    """Returns the files of those families that the machine has."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return {name: font_manager.findfont(name) for name in _FONT_FAMILIES if name in known}
