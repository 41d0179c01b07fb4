"""The attention weights of a model, and heat maps of them for TensorBoard, PNG and SVG.

Axes: L layers, H heads. A map has one row per token that attends, and one column per token that it
attends to.

All pictures use the same colors: white is a weight of 0, and dark blue is a weight of 1. A scale
below the maps shows them.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf
from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from tt.model.text.normalization import WORD_BOUNDARY
from tt.model.text.vocabulary import Vocabulary, VocabularyPair
from tt.model.transformer.transformer import Transformer

# The tokens in the rows and in the columns of a map, by the kind of attention.
AXES = {
    "cross": ("predicted target", "source"),
    "encoder": ("source", "source"),
    "decoder": ("predicted target", "target so far"),
}
LEGEND = '"_" marks the start of a word; <bos> and <eos> are the start and the end of a sentence.'
MAX_TOKENS = 40  # per side; the title of a picture says if later tokens are missing
_MAX_LABEL = 12  # characters
_PANEL_COLUMNS = 4
_DPI = 100
_COLORS = "Blues"
# Inches.
_CELL = 0.16
_TITLE = 0.5
_GAP = 0.3
_SPACE = 0.12  # around labels and texts
_SCALE = 1.2  # width of the scale
_FOOT = 0.65  # height of the scale and the legend

# Font families in order of preference; Matplotlib includes the first one.
_FONT_FAMILIES = (
    "DejaVu Sans", "Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Source Han Sans SC",
    "WenQuanYi Zen Hei", "WenQuanYi Micro Hei", "Droid Sans Fallback", "Arial Unicode MS",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class AttentionMap:
    """The weights of one kind of attention, in all layers and heads."""

    kind: str  # a key of `AXES`
    weights: npt.NDArray[np.float32]  # [L, H, rows, columns]; each row sums to 1
    rows: list[str]  # labels of the tokens that attend
    columns: list[str]  # labels of the tokens that they attend to


def attention_maps(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> dict[str, AttentionMap]:
    """Return the attention of all layers and heads while the model predicts a given target.

    The rows of "cross" and "decoder" are the predicted tokens. The columns of "decoder" are the
    tokens that the decoder reads, starting with BOS.

    Args:
      model: The model.
      vocabularies: Vocabularies of the model.
      source_ids: Ids of the source, including BOS and EOS.
      target_ids: Ids of the target, including BOS and EOS.

    Returns:
      The maps by the kind of attention, a key of `AXES`.
    """
    _, found = model.decode_with_attention(
        tf.constant([source_ids], tf.int32), target=tf.constant([target_ids[:-1]], tf.int32)
    )
    seen = source_ids if model.config.source_bos else source_ids[1:]
    source = token_labels(vocabularies.source, seen)
    target = token_labels(vocabularies.target, target_ids)
    labels = {
        "cross": (found.cross, target[1:], source),
        "encoder": (found.encoder, source, source),
        "decoder": (found.decoder, target[1:], target[:-1]),
    }
    return {
        kind: AttentionMap(
            kind,
            np.stack([tf.cast(layer[0], tf.float32).numpy() for layer in layers]),
            rows,
            columns,
        )
        for kind, (layers, rows, columns) in labels.items()
    }


def token_labels(vocabulary: Vocabulary, ids: list[int]) -> list[str]:
    """Return the pieces of ids, with "_" instead of U+2581, a character that few fonts have."""
    return [name.replace(WORD_BOUNDARY, "_") for name in vocabulary.names(ids)]


def attention_figure(
    found: AttentionMap, *, layers: Sequence[int], heads: Sequence[int], title: str
) -> Figure:
    """Draw some layers and heads of an attention map, with one row of panels per layer.

    The heads of a single layer may take several rows. The title gets a second line that names the
    axes. If no font of this machine has a character of a label, the figure shows the position of
    the label instead, for example "#7".

    Args:
      found: The map.
      layers: Indices of the layers.
      heads: Indices of the heads.
      title: First line of the title.
    """
    panels = [
        (f"layer {layer}, head {head}", found.weights[layer, head])
        for layer, head in itertools.product(layers, heads)
    ]
    title += "\n{} attention of {} (rows) to {} (columns)".format(found.kind, *AXES[found.kind])
    if max(len(found.rows), len(found.columns)) > MAX_TOKENS:
        title += f", the first {MAX_TOKENS} tokens of each side"
    across = len(heads) if len(layers) > 1 else _PANEL_COLUMNS
    row_labels, column_labels = (
        _drawable(labels[:MAX_TOKENS]) for labels in (found.rows, found.columns)
    )
    text: dict[str, Any] = {"fontsize": 7, "fontfamily": list(_font_paths()), "parse_math": False}
    # Compute the sizes here, because a layout engine would draw everything twice.
    labels_width = _longest(row_labels, text) + 2 * _SPACE
    below = _longest(column_labels, text) + _SPACE
    columns_used, down = min(len(panels), across), -(-len(panels) // across)
    panel_width, panel_height = len(column_labels) * _CELL, len(row_labels) * _CELL
    step = max(panel_width, _longest([name for name, _ in panels], text)) + _GAP
    width = max(
        labels_width + columns_used * step,
        2 * _SPACE + _longest([*title.split("\n"), LEGEND], text),
    )
    height = _TITLE + down * (panel_height + below + _GAP) - _GAP / 2 + _FOOT
    figure = Figure(figsize=(width, height), dpi=_DPI)
    figure.text(_SPACE / width, 1 - 0.1 / height, title, va="top", **text)

    def add_axes(left: float, top: float, axes_width: float, axes_height: float) -> Any:
        bottom = height - top - axes_height
        place = (left / width, bottom / height, axes_width / width, axes_height / height)
        return figure.add_axes(place)

    for number, (name, weights) in enumerate(panels):
        row, column = divmod(number, across)
        panel = add_axes(
            labels_width + column * step,
            _TITLE + row * (panel_height + below + _GAP),
            panel_width,
            panel_height,
        )
        shown = weights[:MAX_TOKENS, :MAX_TOKENS]
        panel.imshow(shown, cmap=_COLORS, vmin=0, vmax=1, aspect="auto")
        panel.set_title(name, pad=3, **text)
        panel.xaxis.set_major_locator(NullLocator())
        panel.yaxis.set_major_locator(NullLocator())
        if column == 0:  # all panels of a row have the same labels
            panel.set_yticks(range(len(row_labels)), row_labels, **text)
        panel.set_xticks(range(len(column_labels)), column_labels, rotation=90, **text)
    scale = add_axes(labels_width, height - _FOOT, _SCALE, 0.12)
    scale.imshow([np.linspace(0, 1, 256)], cmap=_COLORS, aspect="auto", extent=(0, 1, 0, 1))
    scale.yaxis.set_major_locator(NullLocator())
    scale.set_xticks([0, 0.5, 1], ["0", "0.5", "weight 1"], **text)
    figure.text(_SPACE / width, _SPACE / height, LEGEND, **text)
    return figure


def _longest(labels: Sequence[str], text: dict[str, Any]) -> float:
    """Return the width of the longest label in inches."""
    canvas = FigureCanvasAgg(Figure(dpi=_DPI))
    written = canvas.figure.text(0, 0, "", **text)
    widths: list[float] = []
    for label in labels:
        written.set_text(label)
        widths.append(written.get_window_extent(canvas.get_renderer()).width / _DPI)
    return max(widths)


def sample_attention(
    model: Transformer,
    vocabularies: VocabularyPair,
    *,
    source_ids: list[int],
    target_ids: list[int],
) -> list[npt.NDArray[np.uint8]]:
    """Draw the cross-attention of each decoder layer while the model predicts a given target.

    Args:
      model: The model.
      vocabularies: Vocabularies of the model.
      source_ids: Ids of the source, including BOS and EOS.
      target_ids: Ids of the target, including BOS and EOS.

    Returns:
      One picture per decoder layer, uint8 RGB [height, width, 3].
    """
    maps = attention_maps(model, vocabularies, source_ids=source_ids, target_ids=target_ids)
    cross = maps["cross"]
    heads = range(cross.weights.shape[1])
    return [
        render(attention_figure(cross, layers=[number], heads=heads, title=layer.name))
        for number, layer in enumerate(model.decoder_layers)
    ]


def render(figure: Figure) -> npt.NDArray[np.uint8]:
    """Return the pixels of a figure, uint8 RGB [height, width, 3]."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


def _drawable(labels: list[str]) -> list[str]:
    """Return labels that can be drawn: short, without missing characters, punctuation in quotes.

    Without quotes, a reader could not recognize a rotated full stop.
    """
    missing = set(undrawable(labels))
    drawn = []
    for position, label in enumerate(labels):
        if missing & set(label):
            label = f"#{position}"
        elif not any(character.isalnum() for character in label):
            label = f'"{label}"'
        drawn.append(label if len(label) <= _MAX_LABEL else label[: _MAX_LABEL - 1] + "…")
    return drawn


def undrawable(labels: Iterable[str]) -> list[str]:
    """Return the distinct characters of labels that no font has, in the order of the labels."""
    fonts = [font_manager.get_font(path) for path in _font_paths().values()]
    return [
        character
        for character in dict.fromkeys("".join(labels))
        if all(font.get_char_index(ord(character)) == 0 for font in fonts)
    ]


@functools.cache
def _font_paths() -> dict[str, str]:
    """Return the paths of this machine's font files by family, in order of preference."""
    known = {font.name for font in font_manager.fontManager.ttflist}
    return {name: font_manager.findfont(name) for name in _FONT_FAMILIES if name in known}
