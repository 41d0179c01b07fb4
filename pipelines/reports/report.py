"""Describe folders in sections and pages, and show the attention for a sentence."""

from __future__ import annotations

import base64
import dataclasses
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.errors import UserError
from tt.model.inspection.blocks import Facts, Note, Section
from tt.model.inspection.run import RunSummary, curve_sections, run_sections, runs_sections
from tt.model.storage.files import local_copy
from tt.model.text.vocabulary import BOS_ID, is_empty
from tt.model.transformer.attention_figures import (
    AXES,
    LEGEND,
    AttentionMap,
    attention_figure,
    attention_maps,
)
from tt.model.transformer.search_options import Decoding
from tt.pipelines.reports.folders import (
    RUN,
    check_attention,
    check_report,
    write_whole_file,
)
from tt.pipelines.reports.page import Html, element, join, page, render, script_data
from tt.pipelines.reports.requests import AttentionRequest, ReportRequest
from tt.pipelines.reports.sections import folder_sections

MAX_TOKENS = 256  # per side; the number of weights grows with the square
_TITLES = {
    "cross": "cross-attention",
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
}


def write_report(request: ReportRequest) -> None:
    """Write a report about folders as an HTML page.

    >>> write_report(ReportRequest(folders=("run",), output="report.html"))  # doctest: +SKIP

    Raises:
      UserError: A check failed (see `check_report`), or a part of a folder is damaged.
    """
    kind = check_report(request)
    names = ", ".join(os.path.basename(os.path.abspath(name)) for name in request.folders)  # noqa: PTH100, PTH119
    text = page(
        title=f"{kind.capitalize()}{'s' if len(request.folders) > 1 else ''}: {names}",
        lead="Made by tt report.",
        sections=_sections(request, kind),
    )
    content = text.encode(errors="backslashreplace")  # folder names may not be Unicode
    write_whole_file(Path(request.output), content)


def _sections(request: ReportRequest, kind: str) -> list[Section]:
    if kind != RUN:
        return folder_sections(kind, request.folders[0])
    runs = [RunSummary(folder) for folder in request.folders]
    if len(runs) > 1:
        return runs_sections(runs)
    [run] = runs
    minutes = curve_sections(runs, over="minutes")
    return [*run_sections(run), *minutes, _attention(request, run)]


def _attention(request: ReportRequest, run: RunSummary) -> Section:
    """Return the attention for the chosen sentences, or for samples in the log."""
    sentences = request.sentences or [source for source, _ in run.samples()][:2]
    blocks = []
    if run.is_finished:
        with local_copy(f"{run.folder}/model") as model:
            translator = TensorFlowTranslator.load(Path(model), decoding=Decoding())
        heads = range(translator.model.config.heads)
        for number, sentence in enumerate(sentences):
            found = sentence_attention(translator, sentence)
            blocks.append(attention_html(found, name=f"attention-{number}", heads=heads))
    elif request.sentences:
        raise UserError(
            f"{run.folder} has no exported model and therefore no attention. Remove "
            "`sentences`, or let `tt train` finish"
        )
    missing = Note(
        "This report shows no attention, because the run has no exported model or no sample yet."
    )
    return Section("attention", "Attention", blocks or [missing])


@dataclasses.dataclass(frozen=True)
class SentenceAttention:
    """A sentence, its translation, and their attention."""

    source: str
    target: str
    is_own: bool  # whether the model made the translation
    maps: dict[str, AttentionMap]  # by kind
    # A warning if the model does not know more than half of the sentence, otherwise "".
    doubt: str = ""

    def data(self, kind: str, *, layer: int | None, heads: Sequence[int]) -> dict[str, Any]:
        """Return the data for the page's script, with weights in steps of 1/255.

        If `layer` is None, the data has all layers. Otherwise, it has only this layer, and omits
        kinds with fewer layers. The script first shows `kind`, its last layer, and the mean of the
        heads.
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

    The sentence is normalized, but it is not truncated, and its spans are not protected.

    Raises:
      UserError: A side is empty, or has more than `MAX_TOKENS` tokens.
    """
    vocabularies = translator.vocabularies
    [source] = translator.prepare([sentence])
    source_ids: list[int] = source.encoded
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
    doubt = source.describe_unknown() or ""
    return SentenceAttention(sentence, target, reference is None, maps, doubt)


def _check(name: str, ids: list[int]) -> None:
    if is_empty(ids):
        raise UserError(f"`{name}` is empty. Choose a text with words")
    if len(ids) > MAX_TOKENS:
        raise UserError(
            f"`{name}` must have at most {MAX_TOKENS} tokens. Received: {len(ids)}. Choose a "
            "shorter text"
        )


def write_attention(request: AttentionRequest) -> SentenceAttention:
    """Write the attention for a sentence to a file, and return it.

    >>> request = AttentionRequest(sentence="A dog runs.", model="run", output="a.html")
    >>> write_attention(request)  # doctest: +SKIP

    Raises:
      UserError: A check failed (see `check_attention`), or the sentence is empty or too long.
    """
    model = check_attention(request)
    decoding = Decoding(beam_size=request.beam_size)
    translator = TensorFlowTranslator.load(model, decoding=decoding)
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
        drawn = found.maps[kind]
        layers = range(len(drawn.weights)) if layer is None else [layer]
        title = f"{found.source} → {found.target}"
        figure = attention_figure(drawn, layers=layers, heads=heads, title=title)
        written = io.BytesIO()
        figure.savefig(written, format=output.suffix[1:])
        content = written.getvalue()
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
    """Return a sentence, its translation and their attention as HTML; `name` must be unique."""
    data = found.data(kind, layer=layer, heads=heads)
    label = "translation (the model's own)" if found.is_own else "translation (given)"
    blocks = [Facts([("sentence", found.source), (label, found.target)])]
    doubt = [Note(f"This attention means little: {found.doubt}.")] if found.doubt else []
    script = element("noscript", "Allow scripts, because a script draws the attention.")
    ramp = element("span", class_="ramp")
    return join(
        [
            render([*blocks, *doubt]),
            script_data(name, data),
            element("div", script, class_="attention", data_from=name),
            element("p", "Weight 0 ", ramp, f" 1. {data['legend']}", class_="note"),
        ]
    )
