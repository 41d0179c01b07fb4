"""`tt show`, `tt report`, `tt attention` and `tt evaluate`: folders, models and translations."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say, say_what_is_awaited
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import import_tensorflow
from tt.cli.shared_options import Text, local_path
from tt.model.errors import require
from tt.pipelines.reports.requests import STDIN, AttentionRequest, EvaluateRequest, ReportRequest
from tt.pipelines.runners.status_line import TimeLine

_TFDS = "tfds:"
_REPORT = options_of(ReportRequest, flags={"folders": "FOLDERS", "sentences": "--sentence"})
_ATTENTION = options_of(AttentionRequest, flags={"sentence": "SENTENCE"})
_EVALUATE = options_of(
    EvaluateRequest,
    flags={
        "translations": "TRANSLATIONS",
        "references": "--reference",
        "reference_columns": "--reference-column",
    },
)


@command()
def show_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Folder of a dataset, run, model or translation, or tfds: (which lists datasets), "
            "tfds:NAME or tfds:NAME/SUBSET.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON, for programs.")
    ] = False,
    examples: Annotated[
        int, typer.Option(help="Examples of each kind: of pairs, reasons, flags, outliers.")
    ] = 3,
    data_dir: Annotated[
        Text,
        typer.Option(
            help="Folder of datasets that TFDS has prepared.  [default: TFDS's own]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the content of a folder, or the datasets of a tfds: name.

    `tt` recognizes datasets, runs, models and translations by their files.

    Example: tt show dataset
    """
    require(examples >= 1, "`examples` must be at least 1", examples)
    is_tfds = what.startswith(_TFDS)
    require(data_dir is None or is_tfds, "`data_dir` is for tfds: names. Leave it out", what)
    if is_tfds:
        import_tensorflow()
        from tt.pipelines.reports.tfds_names import tfds_section

        kind = "tfds"
        sections = [tfds_section(what.removeprefix(_TFDS), data_dir=data_dir)]
    else:
        from tt.pipelines.reports.folders import kind_of_folder

        folder = local_path(what)
        kind = kind_of_folder(folder)
        import_tensorflow()
        from tt.pipelines.reports.report import folder_sections

        with TimeLine(f"looking at {what}", stream=sys.stderr):
            sections = folder_sections(kind, folder, examples=examples)
    from tt.cli.commands.blocks import make_console, print_sections
    from tt.model.inspection.blocks import as_json as to_json

    if as_json:
        content = {"kind": kind, "sections": to_json(sections)}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        print_sections(make_console(), sections)


@command()
def report_command(request: Annotated[ReportRequest, _REPORT]) -> None:
    """Write a report that a browser opens offline.

    Of a dataset, a model, a run, several runs side by side, or a translated folder.

    Example: tt report run --output run.html
    """
    from tt.pipelines.reports.folders import check_report

    for folder in request.folders:
        local_path(folder)
    check_report(request)
    import_tensorflow()
    from tt.pipelines.reports.report import write_report

    with TimeLine("writing the report", stream=sys.stderr):
        write_report(request)
    say(f"Report: {request.output}")


@command()
def attention_command(request: Annotated[AttentionRequest, _ATTENTION]) -> None:
    """Draw what a model looks at as it translates.

    The attention of the encoder, of the decoder and between them, for each layer and head.

    Example: tt attention "A dog runs." --output attention.html
    """
    from tt.pipelines.reports.folders import check_attention

    local_path(request.model)
    check_attention(request)
    import_tensorflow()
    from tt.model.transformer.attention_figures import undrawable
    from tt.pipelines.reports.report import write_attention

    with TimeLine("drawing the attention", stream=sys.stderr):
        found = write_attention(request)
    typer.echo(found.target)
    if found.doubt:
        say(f"tt: warning: this attention means little, because {found.doubt}")
    drawn = found.maps[request.kind]
    missing = undrawable([*drawn.rows, *drawn.columns])
    if missing and not request.output.endswith(".html"):
        say(
            f"tt: warning: no font here has {''.join(missing[:10])}, so that tokens are "
            "numbered: install one, such as fonts-noto-cjk, or write .html"
        )
    say(f"Attention: {request.output}")


@command()
def evaluate_command(request: Annotated[EvaluateRequest, _EVALUATE]) -> None:
    """Score translations against references by BLEU and chrF.

    Both are sacreBLEU's, with their signatures.

    Example: tt evaluate translated.de --reference test.de
    """
    from tt.pipelines.reports.evaluate import evaluate

    if sys.stdin and STDIN in (request.translations, *request.references):
        say_what_is_awaited(sys.stdin)
    with TimeLine("scoring", stream=sys.stderr):
        evaluation = evaluate(request)
    for notice in evaluation.notices:
        say(f"tt: {notice}")
    for line in evaluation.scores:
        typer.echo(line)
