"""Draw the pictures of the documentation that show commands, packages and the model.

    .venv/bin/python tests/support/architecture_pictures.py docs/images

The picture of the packages takes their layers from the contracts of import-linter, and the purpose
of each package from the docstring of the package that contains it.
"""

from __future__ import annotations

import ast
import sys
import textwrap
import tomllib
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

ROOT = Path(__file__).parents[2]
PACKAGES = ("cli", "pipelines", "model")
INK, LINE = "#1d2129", "#5b6472"
COLORS = {"cli": "#fde8d7", "pipelines": "#dcebfb", "model": "#def3e4", "data": "#f3f0fb"}
_DPI = 110


_CLI_LAYERS = [
    ["main"],
    ["commands"],
    ["decorators", "libraries"],
    ["config_file"],
    ["errors"],
    ["flags_of_fields", "shared_options"],
]


def layers_of(package: str) -> list[list[str]]:
    """Return the parts of a package by layers, from the top down.

    Parts of one layer do not import each other.
    """
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    for contract in contracts["contracts"]:
        if contract.get("containers") == [f"tt.{package}"]:
            return [layer.split(" | ") for layer in contract["layers"]]
    return _CLI_LAYERS


def purposes_of(package: str) -> dict[str, str]:
    """Return the purpose of each part of a package, by the name of the part."""
    doc = ast.get_docstring(ast.parse((ROOT / package / "__init__.py").read_text("utf-8")))
    lines = [line.split(maxsplit=1) for line in doc.splitlines()[2:] if line]
    return dict(lines)


class Drawing:
    """A figure whose units are inches."""

    def __init__(self, width: float, height: float) -> None:
        self.figure = Figure(figsize=(width, height), dpi=_DPI, facecolor="white")
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set_xlim(0, width)
        self.axes.set_ylim(0, height)
        self.axes.axis("off")

    def box(
        self, x: float, y: float, width: float, height: float, text: str = "", note: str = "",
        *, color: str = "white", size: float = 9, line: str = LINE,
    ) -> None:  # fmt: skip
        """Draw a box from its lower left corner, with a name and a smaller note in its middle."""
        style = "round,pad=0,rounding_size=0.07"
        patch = FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle=style,
            facecolor=color,
            edgecolor=line,
            linewidth=0.9,
            zorder=1 if text else 0,
        )
        self.axes.add_patch(patch)
        middle, lines = y + height / 2, note.count("\n") + 1
        high, low = ((0.1 * lines + 0.04) / 2, 0.075) if note else (0.0, 0.0)  # inches
        self.text(x + width / 2, middle + high, text, size=size, weight="bold")
        self.text(x + width / 2, middle - low, note, size=size - 2.2)

    def text(self, x: float, y: float, text: str, *, size: float = 8, **style: object) -> None:
        """Write a text around a point."""
        given = {"ha": "center", "va": "center", "color": INK, **style}
        self.axes.text(x, y, text, fontsize=size, parse_math=False, **given)

    def arrow(
        self, start: tuple[float, float], end: tuple[float, float], *, bend: float = 0.0
    ) -> None:
        """Draw an arrow."""
        patch = FancyArrowPatch(
            start, end, arrowstyle="-|>", mutation_scale=9, color=LINE, linewidth=1.1,
            connectionstyle=f"arc3,rad={bend}", shrinkA=0, shrinkB=0,
        )  # fmt: skip
        self.axes.add_patch(patch)

    def save(self, path: Path) -> None:
        """Write a PNG whose bytes are the same every time."""
        self.figure.savefig(path, metadata={"Software": None})


def draw_commands() -> Drawing:
    """Draw the commands with the folders that they read and write."""
    drawing = Drawing(11, 3.5)
    drawing.axes.set_ylim(7.0, 10.5)
    flow = [
        ("corpus", "text, TSV, Parquet,\nTFDS", None),
        ("tt preprocess", "Beam", "cli"),
        ("dataset/", "TFRecords,\nvocabulary", None),
        ("tt train", "tf.distribute", "cli"),
        ("run/model/", "weights, vocabulary,\nchecksums", None),
    ]
    x, places = 0.3, {}
    for name, note, kind in flow:
        width = 1.9 if kind is None else 1.5
        places[name] = (x, width)
        low, high = (9.35, 0.9) if kind is None else (9.5, 0.6)
        drawing.box(x, low, width, high, color=COLORS[kind or "data"])
        shift = 0.2 if "\n" in note else 0.11
        drawing.text(x + width / 2, 9.8 + shift, name, size=9, weight="bold")
        drawing.text(x + width / 2, 9.8 - shift + (0.06 if "\n" in note else 0), note, size=6.8)
        if x > 0.3:
            drawing.arrow((x - 0.32, 9.8), (x - 0.02, 9.8))
        x += width + 0.34
    jobs = [
        ("tables", "tt translate-batch", "translated/"),
        ("Kafka, Pub/Sub, a folder", "tt translate-stream", "messages, tables"),
        ("stdin", "tt translate", "stdout"),
    ]
    model_x = places["run/model/"][0] + places["run/model/"][1] / 2
    for number, (source, command, output) in enumerate(jobs):
        y = 8.35 - 0.52 * number
        drawing.box(0.3, y, 2.3, 0.4, source, color=COLORS["data"], size=8)
        drawing.box(3.9, y, 2.3, 0.4, command, color=COLORS["cli"], size=8)
        drawing.box(7.1, y, 1.7, 0.4, output, color=COLORS["data"], size=8)
        drawing.arrow((2.62, y + 0.2), (3.88, y + 0.2))
        drawing.arrow((6.22, y + 0.2), (7.08, y + 0.2))
    drawing.box(3.8, 7.22, 2.5, 1.62, color="none", line="#9aa3af")
    drawing.arrow((model_x - 0.6, 9.33), (6.32, 8.82))
    drawing.text(
        9.05, 8.0, "tt show and tt report\ndescribe these folders,\n"
        "tt evaluate scores\ntranslations", size=7.5, ha="left",
    )  # fmt: skip
    return drawing


def draw_packages() -> Drawing:
    """Draw the packages of the code by layers."""
    drawing = Drawing(11, 7.1)
    drawing.text(
        0.3, 6.8, "Each part imports only from parts below it in its column, and from columns to "
        "its right", size=11, ha="left", weight="bold",
    )  # fmt: skip
    x = 0.3
    for package, width in zip(PACKAGES, (2.5, 4.2, 3.1), strict=True):
        rows, purposes = layers_of(package), purposes_of(package)
        drawing.box(x, 0.25, width, 6.3, color="white", line="#c3c9d1")
        drawing.text(x + width / 2, 6.38, f"{package}/", size=10, weight="bold")
        high = 5.9 / len(rows)
        for row, names in enumerate(rows):
            each = (width - 0.2) / len(names)
            for column, name in enumerate(names):
                drawing.box(
                    x + 0.1 + column * each + 0.03, 6.2 - (row + 1) * high + 0.04,
                    each - 0.06, high - 0.08,
                    name, wrapped(purposes.get(name, ""), width=each), color=COLORS[package],
                    size=7.6 if len(name) > 14 else 8.2,
                )  # fmt: skip
        x += width + 0.3
    return drawing


def wrapped(text: str, *, width: float) -> str:
    """Return a note in lines that fit into a width in inches."""
    return textwrap.fill(text.replace("`", ""), width=round((width - 0.12) / 0.052))


def draw_model() -> Drawing:
    """Draw the Transformer that model/transformer/ builds, with the file of each part."""
    drawing = Drawing(8.6, 7.4)
    drawing.text(0.3, 7.15, "The model: model/transformer/", size=11, ha="left", weight="bold")
    sides = {
        "encoder": (0.5, ["self-attention", "feed-forward"]),
        "decoder": (4.5, ["self-attention", "cross-attention", "feed-forward"]),
    }
    notes = {
        "self-attention": "attention.py: SelfAttention",
        "cross-attention": "attention.py: CrossAttention",
        "feed-forward": "layers.py: FeedForward",
    }
    masks = {
        ("encoder", "self-attention"): "padding mask",
        ("decoder", "self-attention"): "look-ahead mask",
        ("decoder", "cross-attention"): "padding mask of the source",
    }
    inputs = {"encoder": "source ids  [B, S]", "decoder": "target ids  [B, T]"}
    tops = {}
    for side, (x, parts) in sides.items():
        drawing.box(x, 0.3, 3.0, 0.4, inputs[side], color=COLORS["data"], size=8.5)
        drawing.arrow((x + 1.5, 0.7), (x + 1.5, 0.93))
        drawing.box(
            x, 0.95, 3.0, 0.55, "embedding + position", "times √D, sines and cosines, dropout",
            color=COLORS["model"],
        )  # fmt: skip
        drawing.arrow((x + 1.5, 1.5), (x + 1.5, 1.93))
        height = 0.35 + 0.98 * len(parts)
        drawing.box(x - 0.2, 1.7, 3.4, height, color="white", line="#9aa3af")
        caption = f"{side} layer\n× --{side}-layers"
        drawing.text(x - 0.08, 1.7 + height - 0.19, caption, size=6.6, ha="left", weight="bold")
        y = 1.95
        for part in parts:
            drawing.box(x, y, 3.0, 0.5, part, notes[part], color=COLORS["pipelines"])
            drawing.text(x + 1.62, y + 0.63, "+ residual, LayerNorm", size=6.8, ha="left")
            if (side, part) in masks:
                drawing.text(x + 1.38, y + 0.63, masks[side, part], size=6.8, ha="right",
                             style="italic")  # fmt: skip
            is_last = part == parts[-1]
            drawing.arrow((x + 1.5, y + 0.5), (x + 1.5, y + (1.3 if is_last else 0.96)))
            y += 0.98
        tops[side] = y
    top = tops["decoder"]
    drawing.box(4.5, top + 0.34, 3.0, 0.5, "logits", "output embedding, tied by default",
                color=COLORS["model"])  # fmt: skip
    drawing.arrow((6.0, top + 0.84), (6.0, top + 1.11))
    drawing.box(
        4.5, top + 1.13, 3.0, 0.55, "next id", "greedy or beam search (search.py)",
        color=COLORS["cli"],
    )  # fmt: skip
    drawing.text(2.0, tops["encoder"] + 0.44, "memory  [B, S, D]", size=8)
    drawing.arrow((2.62, tops["encoder"] + 0.42), (4.48, 3.2), bend=-0.25)
    drawing.text(0.5, 5.9, "B sentences, S source and T target\ntokens, D width (--d-model).\n"
                 "--norm pre puts each LayerNorm before\nits sub-layer, and one at the end.",
                 size=7.5, ha="left")  # fmt: skip
    return drawing


PICTURES = {
    "commands.png": draw_commands,
    "architecture.png": draw_packages,
    "transformer.png": draw_model,
}


if __name__ == "__main__":
    for name, draw in PICTURES.items():
        draw().save(Path(sys.argv[1]) / name)
