"""A page on folders that opens offline."""

from __future__ import annotations

import os
from pathlib import Path

from model.engines.tensorflow_engine import TensorFlowTranslator
from model.errors import UserError
from model.inspection.attention import sentence_attention
from model.inspection.blocks import Note, Section
from model.inspection.run import (
    RunSummary,
    curve_sections,
    position_section,
    runs_sections,
    summarize_run,
)
from model.transformer.search_options import Decoding
from pipelines.reports.attention import attention_html
from pipelines.reports.folders import RUN, check_report
from pipelines.reports.output import check_output, write_whole_file
from pipelines.reports.page import page
from pipelines.reports.requests import ReportRequest
from pipelines.reports.summaries import summarize_folder


def write_report(request: ReportRequest) -> None:
    """Write a report.

    >>> write_report(ReportRequest(folders=("run",), output="report.html"))  # doctest: +SKIP

    Raises:
      UserError: See `check_report`; or a part of a folder is damaged.
    """
    kind = check_report(request)
    names = ", ".join(os.path.basename(os.path.abspath(name)) for name in request.folders)  # noqa: PTH100, PTH119
    text = page(
        title=f"{kind.capitalize()}{'s' if len(request.folders) > 1 else ''}: {names}",
        lead="Made by tt report.",
        sections=_sections(request, kind),
    )
    content = text.encode(errors="backslashreplace")  # names of folders may not be Unicode
    write_whole_file(check_output(request.output, overwrite=request.overwrite), content)


def _sections(request: ReportRequest, kind: str) -> list[Section]:
    if len(request.folders) > 1:
        return runs_sections([summarize_run(folder) for folder in request.folders])
    run, sections = summarize_folder(kind, request.folders[0])
    if kind == RUN:
        minutes = curve_sections([run], over="minutes")
        sections += [*minutes, _attention(request, run), position_section(run)]
    return sections


def _attention(request: ReportRequest, run: RunSummary) -> Section:
    """Return the attention of the chosen sentences, or of samples in the log."""
    sentences = request.sentences or [each["source"] for each in run.log.samples[:2]]
    blocks = []
    if run.is_finished:
        translator = TensorFlowTranslator.load(Path(run.folder), decoding=Decoding())
        heads = range(translator.model.config.heads)
        for number, sentence in enumerate(sentences):
            found = sentence_attention(translator, sentence)
            blocks.append(attention_html(found, name=f"attention-{number}", heads=heads))
    elif request.sentences:
        raise UserError(
            f"{run.folder} has no exported model yet, and therefore no attention: leave "
            "`sentences` out, or let its `tt train` finish"
        )
    missing = Note("There is none: the run has no exported model or no sentence yet.")
    return Section("attention", "Attention", blocks or [missing])
