"""Attention of a sentence, whose kind, layer and head the reader chooses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from model.views.attention import AXES, KINDS, SentenceAttention
from model.views.labels import LEGEND
from pipelines.report.charts import as_base64
from pipelines.report.page import Html, element, facts, join, script_data

_DOUBT = "What is seen here means little: "
_TITLES = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
}


def attention_part(
    found: SentenceAttention,
    *,
    name: str,
    heads: Sequence[int],
    layer: int | None = None,
    kind: str = "cross",
) -> Html:
    """Returns a sentence, its translation, and their attention; `name` is unique in the page.

    Chosen `heads` are there, of one `layer` of each kind that has so many, or of all (None). The
    last layer's mean is shown first. Weights have steps of 1/255.
    """
    layers = {each: list(range(len(found.maps[each].weights))) for each in KINDS}
    if layer is not None:
        layers = {each: [layer] for each in KINDS if layer in layers[each]}
    data = {
        "kind": kind,
        "heads": list(heads),
        "head": "mean" if len(heads) > 1 else heads[0],
        "maps": {
            each: {
                "layers": layers[each],
                "title": _TITLES[each],
                "axes": "{} (rows) to {} (columns)".format(*AXES[each]),
                "rows": found.maps[each].rows,
                "columns": found.maps[each].columns,
                "bytes": as_base64(
                    np.rint(
                        255 * np.clip(found.maps[each].weights[np.ix_(layers[each], heads)], 0, 1)
                    ).astype(np.uint8)
                ),
            }
            for each in layers
        },
    }
    said = "translation (the model's own)" if found.is_own else "translation (given)"
    return join(
        [
            facts([("sentence", found.source), (said, found.target)]),
            *([element("p", _DOUBT, found.doubt, ".", class_="note")] if found.doubt else []),
            script_data(name, data),
            element(
                "div",
                element("noscript", "Attention is drawn by a script of this page: allow it."),
                class_="attention",
                data_from=name,
            ),
            element(
                "p", "Weight 0 ", element("span", class_="ramp"), f" 1. {LEGEND}", class_="note"
            ),
        ]
    )
