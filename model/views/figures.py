"""Heat maps of attention: pictures for TensorBoard, PNG and SVG.

Axes: H heads, T target tokens (rows), S source tokens (columns). In pictures of all steps and
layers white is a weight of 0 and dark blue 1, as the scale below the maps says.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from model.text.vocabulary import VocabularyPair
from model.transformer.transformer import Transformer
from model.views.attention import AXES, AttentionMap, attention_of_ids
from model.views.labels import LEGEND, drawable, font_families

MAX_TOKENS = 40  # of a side; what comes after them is left out and the title says so
_PANEL_COLUMNS = 4
_DPI = 100
_COLOURS = "Blues"
# Inches.
_CELL = 0.16
_TITLE = 0.5
_GAP = 0.3
_SPACE = 0.12  # around labels and texts
_SCALE = 1.2  # width of the scale
_FOOT = 0.65  # height of the scale and the legend


class Panel(NamedTuple):
    """A head."""

    title: str
    weights: npt.NDArray[np.floating]  # [T, S]


def attention_figure(
    weights: npt.NDArray[np.floating], *, source: list[str], target: list[str], title: str = ""
) -> Figure:
    """Draws the attention of one layer for one sentence, a panel for each head.

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
    panels = [Panel(f"head {head}", each) for head, each in enumerate(weights)]
    for side, labels in (("source", source), ("target", target)):
        if len(labels) > MAX_TOKENS:
            title += f" (first {MAX_TOKENS} of {len(labels)} {side} tokens)"
    return _draw(panels, rows=target, columns=source, title=title, across=_PANEL_COLUMNS)


def map_figure(
    found: AttentionMap, *, layers: Sequence[int], heads: Sequence[int], title: str
) -> Figure:
    """Draws chosen layers and heads of an attention map; a row of panels is a layer.

    One layer alone takes several rows. The title gets a second line that names the axes.
    """
    panels = [
        Panel(f"layer {layer}, head {head}", found.weights[layer, head])
        for layer, head in itertools.product(layers, heads)
    ]
    rows, columns = AXES[found.kind]
    names = f"{found.kind} attention of {rows} (rows) to {columns} (columns)"
    if max(len(found.rows), len(found.columns)) > MAX_TOKENS:
        names += f", the first {MAX_TOKENS} tokens of each side"
    return _draw(
        panels,
        rows=found.rows,
        columns=found.columns,
        title=f"{title}\n{names}",
        across=len(heads) if len(layers) > 1 else _PANEL_COLUMNS,
    )


def _draw(
    panels: Sequence[Panel], *, rows: list[str], columns: list[str], title: str, across: int
) -> Figure:
    names_of_rows, names_of_columns = drawable(rows[:MAX_TOKENS]), drawable(columns[:MAX_TOKENS])
    text: dict[str, Any] = {"fontsize": 7, "fontfamily": font_families(), "parse_math": False}
    # The sizes are chosen, not found by a layout engine: that would draw everything twice.
    beside = _longest(names_of_rows, text) + 2 * _SPACE
    below = _longest(names_of_columns, text) + _SPACE
    columns_used, down = min(len(panels), across), -(-len(panels) // across)
    panel_width, panel_height = len(names_of_columns) * _CELL, len(names_of_rows) * _CELL
    width = max(
        beside + columns_used * (panel_width + _GAP),
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
            beside + column * (panel_width + _GAP),
            _TITLE + row * (panel_height + below + _GAP),
            panel_width,
            panel_height,
        )
        shown = weights[:MAX_TOKENS, :MAX_TOKENS]
        panel.imshow(shown, cmap=_COLOURS, vmin=0, vmax=1, aspect="auto")
        panel.set_title(name, pad=3, **text)
        panel.xaxis.set_major_locator(NullLocator())
        panel.yaxis.set_major_locator(NullLocator())
        # Rows have their labels at the left panels alone, since all are alike.
        if column == 0:
            panel.set_yticks(range(len(names_of_rows)), names_of_rows, **text)
        panel.set_xticks(range(len(names_of_columns)), names_of_columns, rotation=90, **text)
    scale = add_axes(beside, height - _FOOT, _SCALE, 0.12)
    scale.imshow([np.linspace(0, 1, 256)], cmap=_COLOURS, aspect="auto", extent=(0, 1, 0, 1))
    scale.yaxis.set_major_locator(NullLocator())
    scale.set_xticks([0, 0.5, 1], ["0", "0.5", "weight 1"], **text)
    figure.text(_SPACE / width, _SPACE / height, LEGEND, **text)
    return figure


def _longest(labels: Sequence[str], text: dict[str, Any]) -> float:
    """Returns the width of the longest label, inches."""
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
    """Draws what each decoder layer looks at in the source while it predicts a given target.

    Both have ids from BOS to EOS; a row is labelled with the token that is predicted there. Returns
    a picture for each decoder layer, uint8 RGB [height, width, 3].
    """
    found = attention_of_ids(model, vocabularies, source_ids=source_ids, target_ids=target_ids)
    cross = found["cross"]
    return [
        render(
            attention_figure(
                weights,  # [H, T, S]
                source=cross.columns,
                target=cross.rows,
                title=f"{layer.name}: attention of predicted target (rows) to source (columns)",
            )
        )
        for layer, weights in zip(model.decoder_layers, cross.weights, strict=True)
    ]


def render(figure: Figure) -> npt.NDArray[np.uint8]:
    """Returns a figure's pixels, uint8 RGB [height, width, 3]."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]
