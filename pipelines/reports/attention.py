"""The attention of a sentence as a picture, or as a page with a choice of layers and heads."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.inspection.attention import SentenceAttention, sentence_attention
from model.inspection.blocks import Facts, Note, Section
from model.transformer.search_options import Decoding
from pipelines.reports.folders import check_attention
from pipelines.reports.html import Html, element, join, script_data
from pipelines.reports.output import write_whole_file
from pipelines.reports.page import page, render
from pipelines.reports.requests import AttentionRequest


def write_attention(request: AttentionRequest) -> SentenceAttention:
    """Write the file, and return the attention in it.

    >>> request = AttentionRequest(sentence="A dog runs.", model="run", output="a.html")
    >>> write_attention(request)  # doctest: +SKIP

    Raises:
      UserError: See `check_attention`; or the sentence is empty or too long.
    """
    check_attention(request)
    decoding = Decoding(beam_size=request.beam_size)
    translator = TensorFlowTranslator.load(request.model, decoding=decoding)
    found = sentence_attention(translator, request.sentence, reference=request.reference)
    all_heads = list(range(translator.model.config.heads))
    heads = all_heads if request.head is None else [request.head]
    kind, layer, output = request.kind, request.layer, Path(request.output)
    if output.suffix == ".html":
        body = attention_html(found, name="sentence", layer=layer, heads=heads, kind=kind)
        sections = [Section("attention", "Layers and heads", [body])]
        text = page(title="Attention", lead=f"Model: {request.model}", sections=sections)
        content = text.encode()
    else:
        content = found.picture(kind, layer=layer, heads=heads, file_format=output.suffix[1:])
    write_whole_file(output, content)
    return found


def attention_html(
    found: SentenceAttention,
    *,
    name: str,
    heads: Sequence[int],
    layer: int | None = None,
    kind: str = "cross",
) -> Html:
    """Return a sentence, its translation, and their attention; `name` is unique in the page."""
    data = found.data(kind, layer=layer, heads=heads)
    label = "translation (the model's own)" if found.is_own else "translation (given)"
    blocks = [Facts([("sentence", found.source), (label, found.target)])]
    doubt = [Note(f"This attention means little: {found.doubt}.")] if found.doubt else []
    script = element("noscript", "A script of this page draws the attention: allow it.")
    ramp = element("span", class_="ramp")
    return join(
        [
            render([*blocks, *doubt]),
            script_data(name, data),
            element("div", script, class_="attention", data_from=name),
            element("p", "Weight 0 ", ramp, f" 1. {data['legend']}", class_="note"),
        ]
    )
