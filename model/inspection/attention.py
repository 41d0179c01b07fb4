"""The attention of a model while it predicts a target: its own translation, or a given one."""

from __future__ import annotations

import base64
import dataclasses
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.errors import UserError
from model.text.vocabulary import BOS_ID, is_empty
from model.transformer.attention_figures import (
    AXES,
    LEGEND,
    AttentionMap,
    attention_figure,
    attention_maps,
)

MAX_TOKENS = 256  # per side; the number of weights grows with its square
_TITLES = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
}


@dataclasses.dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and the attention of both."""

    source: str
    target: str
    is_own: bool  # whether the model made the translation
    maps: dict[str, AttentionMap]  # by kind
    # Why the model cannot translate the sentence, of which it does not know more than half; or "".
    doubt: str = ""

    def picture(
        self, kind: str, *, layer: int | None, heads: Sequence[int], file_format: str
    ) -> bytes:
        """Return a PNG or SVG of one layer or all layers (None) of a kind."""
        drawn = self.maps[kind]
        layers = range(len(drawn.weights)) if layer is None else [layer]
        title = f"{self.source} → {self.target}"
        written = io.BytesIO()
        attention_figure(drawn, layers=layers, heads=heads, title=title).savefig(
            written, format=file_format
        )
        return written.getvalue()

    def data(self, kind: str, *, layer: int | None, heads: Sequence[int]) -> dict[str, Any]:
        """Return the data for the script of a page, with weights in steps of 1/255.

        It includes one layer of each kind that has so many, or all layers (None). The script shows
        `kind` and the mean of the last layer first.
        """
        maps = {}
        for each, drawn in self.maps.items():
            layers = list(range(len(drawn.weights)))
            if layer is not None and layer not in layers:
                continue
            layers = layers if layer is None else [layer]
            weights = np.rint(255 * np.clip(drawn.weights[np.ix_(layers, heads)], 0, 1))
            maps[each] = {
                "layers": layers,
                "title": _TITLES[each],
                "axes": "{} (rows) to {} (columns)".format(*AXES[each]),
                "rows": drawn.rows,
                "columns": drawn.columns,
                "bytes": base64.b64encode(weights.astype(np.uint8).tobytes()).decode(),
            }
        head = "mean" if len(heads) > 1 else heads[0]
        return {"kind": kind, "heads": list(heads), "head": head, "maps": maps, "legend": LEGEND}


def sentence_attention(
    translator: TensorFlowTranslator, sentence: str, *, reference: str | None = None
) -> SentenceAttention:
    """Translate a sentence, unless there is a `reference`, and return the attention.

    The sentence is normalized, but neither cut nor protected.

    Raises:
      UserError: A side is empty, or has more than `MAX_TOKENS`.
    """
    vocabularies = translator.vocabularies
    [source_ids] = translator.encode([sentence])
    _check("sentence", source_ids)
    if reference is None:
        target_ids = [BOS_ID, *translator.search_ids(source_ids)]
        [target] = vocabularies.target.decode([target_ids])
    else:
        target = reference
        [target_ids] = vocabularies.target.encode([reference])
        _check("reference", target_ids)
    maps = attention_maps(
        translator.model, vocabularies, source_ids=source_ids, target_ids=target_ids
    )
    doubt = translator.count_unknown(sentence).describe() or ""
    return SentenceAttention(sentence, target, reference is None, maps, doubt)


def _check(name: str, ids: list[int]) -> None:
    if is_empty(ids):
        raise UserError(f"`{name}` is empty: name a text with words")
    if len(ids) > MAX_TOKENS:
        raise UserError(
            f"`{name}` must have at most {MAX_TOKENS} tokens. Received: {len(ids)}; name a "
            "shorter text"
        )
