"""`tt translate`: translate stdin to stdout, line by line."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from tt.cli.decorators import command
from tt.cli.errors import announce_terminal_input, say
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import prepare_engine
from tt.cli.shared_options import DEFAULT_RUN, ModelFolder
from tt.model.engines.translator import Engine
from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.formatting import format_seconds
from tt.pipelines.runners.status_line import StatusLine
from tt.pipelines.texts.options import TextOptions

if TYPE_CHECKING:  # The command imports this module later, because the help does not need it.
    from tt.pipelines.inference.lines import LineReport

BROKEN_PIPE = 128 + 13  # exit code of a program that SIGPIPE ended


_COMMON = (
    "--model", "--with-scores", "--engine", "--compute-type", "--device", "--batch-tokens",
    "--source-language", "--target-language", "--split", "--max-source-tokens", "--glossary",
    "--placeholders", "--flags", "--on-flag", "--beam-size", "--n-best", "--length-penalty",
)  # fmt: skip


@command(common=_COMMON)
def translate_command(
    engine: Annotated[Engine, options_of(Engine, panel="Model", flags={"name": "--engine"})],
    texts: Annotated[
        TextOptions, options_of(TextOptions, panel="Texts", leave_out=("detect_language",))
    ],
    decoding: Annotated[
        Decoding, options_of(Decoding, panel="Search", panels={"Model": ("batch_tokens",)})
    ],
    model: ModelFolder = str(DEFAULT_RUN),
    with_scores: Annotated[
        bool, typer.Option("--with-scores", help="Print each translation as SCORE ||| TEXT.")
    ] = False,
    is_explained: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Print how tt translates each line, and the evidence for its flags.",
        ),
    ] = False,
) -> None:
    """Translate stdin to stdout, line by line.

    With --n-best N, the output has N lines per input line. If a line fails, its translation is
    empty, and the exit code is 1 at the end.

    Example: tt translate --model run < test.en > translated.de
    """
    if sys.stdin is None or sys.stdout is None:
        raise UserError("stdin or stdout is closed. Redirect both, such as < test.en > test.de")
    if is_explained and with_scores:
        raise UserError("`--explain` already prints all scores. Remove `--with-scores`")
    from tt.model.storage.stores import check_buckets
    from tt.pipelines.inference.model_loading import ModelRequest, find_model

    check_buckets([texts.glossary or ""])
    request = ModelRequest(model=model, decoding=decoding, engine=engine)
    found = find_model(request, report=say)
    from tt.model.engines.loading import load_translator
    from tt.model.engines.translator import count_used_gpus
    from tt.pipelines.inference.lines import (
        CHUNK,
        LineReport,
        OutputError,
        explain_lines,
        translate_lines,
    )
    from tt.pipelines.inference.side_by_side import use_all_devices
    from tt.pipelines.inference.text_model import NamedGlossary, TextModel

    engine, folder, data = found.chosen_engine, found.folder, found.data
    assert folder is not None  # only a loader has no folder
    for line in found.check(texts):
        say(f"tt: warning: {line}")
    glossary = NamedGlossary.of(texts.glossary)
    prepare_engine(folder, engine)
    translator = load_translator(str(folder), decoding=decoding, engine=engine)
    gpus = count_used_gpus(translator)
    if gpus > 1:
        translator = use_all_devices(translator)
    announce_terminal_input(sys.stdin)
    text_model = TextModel.of(translator, about=found.about, options=texts, glossary=glossary)
    report = LineReport()
    try:
        if is_explained:
            explain_lines(sys.stdin.buffer, sys.stdout.buffer, model=text_model)
            return
        with watch(report, source=sys.stdin, output=sys.stdout, stream=sys.stderr):
            translate_lines(
                sys.stdin.buffer,
                sys.stdout.buffer,
                model=text_model,
                report=report,
                chunk=CHUNK * max(1, gpus),
                scored=decoding.n_best if decoding.n_best > 1 or with_scores else 0,
                data=data,
                warn=lambda line: say(f"tt: warning: {line}"),
            )
    except (BrokenPipeError, OutputError) as error:
        # Python writes the rest of the buffer when it closes stdout, which would fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, OutputError):
            raise
        raise typer.Exit(BROKEN_PIPE) from None  # The reader has stopped, such as `| head`.
    for line in report.lines():
        say(f"tt: {line}")
    if report.failed:
        raise typer.Exit(1)


def watch(report: LineReport, *, source: TextIO, output: TextIO, stream: TextIO) -> StatusLine:
    """Return a context that shows the number of translated lines.

    A terminal does not show the number if it also shows the source lines or the translations.
    """
    from tt.model.engines.batching import rows_in_progress

    start = time.monotonic()
    return StatusLine(
        lambda: (
            f"translating: {report.done + rows_in_progress():,} lines, "
            f"{format_seconds(time.monotonic() - start)}"
        ),
        stream=stream,
        is_shown_on_terminals=not (source.isatty() or output.isatty()),
    )
