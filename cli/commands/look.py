"""`tt show`, `tt report`, `tt attention` and `tt evaluate`: inspect folders and translations."""

from __future__ import annotations

import json
import shlex
import sys
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import announce_terminal_input, say
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import import_tensorflow
from tt.model.errors import require
from tt.pipelines.reports.requests import STDIN, AttentionRequest, EvaluateRequest, ReportRequest
from tt.pipelines.runners.status_line import TimeLine

_TFDS = "tfds:"
_DATASET = "dataset"  # a kind of folder
_EXAMPLES = 3  # of each kind
_TWO_SCREENS = 48  # lines
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
            help="Show this folder, or list TFDS corpora: tfds:, tfds:NAME or tfds:NAME/SUBSET.",
            show_default=False,
        ),
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
    show_all: Annotated[
        bool, typer.Option("--all", help="Show all about a dataset, not only two screens.")
    ] = False,
    examples: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Show N examples of each kind, such as rejected pairs.  [default: 3]",
            show_default=False,
        ),
    ] = None,
    data_dir: Annotated[
        str | None,
        typer.Option(
            metavar="PATH",
            help="Look for prepared TFDS corpora in this folder.  [default: TFDS's own folder]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show the contents of a folder, or list TFDS corpora.

    `tt` recognizes a dataset, run, model or translation by its files. WHAT can also be a model of
    Hugging Face, such as hf:ORG/NAME.

    Example: tt show dataset
    """
    require(examples is None or examples >= 1, "`examples` must be at least 1", examples)
    is_tfds = what.startswith(_TFDS)
    require(data_dir is None or is_tfds, "`data_dir` needs a tfds: name", what)
    if is_tfds:
        import_tensorflow()
        from tt.pipelines.reports.tfds_names import tfds_section

        kind = "tfds"
        sections = [tfds_section(what.removeprefix(_TFDS), data_dir=data_dir)]
    else:
        from tt.model.imports.fetching import fetch_model, is_huggingface
        from tt.pipelines.reports.folders import RUN, kind_of_folder

        folder = fetch_model(what, report=say) if is_huggingface(what) else what
        kind = kind_of_folder(folder)
        if kind == RUN:
            import_tensorflow()
        from tt.pipelines.reports.sections import folder_sections

        with TimeLine(f"reading {what}", stream=sys.stderr):
            sections = folder_sections(kind, folder, examples=examples or _EXAMPLES)
    is_short = kind == _DATASET and not show_all and examples is None
    from tt.cli.commands.blocks import print_blocks
    from tt.model.inspection.blocks import as_json as to_json

    if as_json:
        content = {"kind": kind, "sections": to_json(sections)}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    elif is_short:
        from tt.model.inspection.dataset import most_important

        print_blocks(most_important(sections), most=_TWO_SCREENS - 3)
        typer.echo(f"\nShow everything, with examples: tt show {shlex.quote(what)} --all")
    else:
        print_blocks(sections)


@command()
def report_command(request: Annotated[ReportRequest, _REPORT]) -> None:
    """Write an HTML report on a dataset, run, model or translation.

    A browser can open the report offline. A report on several runs compares them.

    Example: tt report run --output run.html
    """
    from tt.pipelines.reports.folders import check_report

    check_report(request)
    import_tensorflow()
    from tt.pipelines.reports.report import write_report

    with TimeLine("writing the report", stream=sys.stderr):
        write_report(request)
    say(f"Report: {request.output}")


@command()
def attention_command(request: Annotated[AttentionRequest, _ATTENTION]) -> None:
    """Draw the attention weights for one sentence.

    The drawing shows the attention of the encoder, of the decoder, and from the decoder to the
    encoder, for each layer and head.

    Example: tt attention "A dog runs." --output attention.html
    """
    from tt.pipelines.reports.folders import check_attention

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
            f"tt: warning: no installed font contains {''.join(missing[:10])}, so the picture "
            "numbers the tokens. Install a font such as fonts-noto-cjk, or choose an .html "
            "file as `output`"
        )
    say(f"Attention: {request.output}")


@command()
def evaluate_command(
    request: Annotated[EvaluateRequest, _EVALUATE],
    fail_below: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Exit with code 1 if BLEU is below this number.",
            show_default=False,
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all results as JSON.")] = False,
) -> None:
    """Score translations against references with BLEU and chrF.

    sacreBLEU computes the scores, and the output contains its signatures.

    Example: tt evaluate translated.de --reference test.de
    """
    if fail_below is not None:
        require(0 <= fail_below <= 100, "`fail_below` must be from 0 to 100", fail_below)
        has_references = bool(request.references or request.reference_columns)
        require(has_references, "`fail_below` needs references. Choose `references`")
    from tt.cli.commands.blocks import print_blocks
    from tt.pipelines.reports.evaluate import evaluate

    inputs = (request.translations, request.against, request.source, *request.references)
    if sys.stdin and STDIN in inputs:
        announce_terminal_input(sys.stdin)
    with TimeLine("scoring", stream=sys.stderr):
        evaluation = evaluate(request)
    for notice in evaluation.notices:
        say(f"tt: {notice}")
    if as_json:
        content = evaluation.as_json()
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        for score in evaluation.scores:
            typer.echo(score.line)
        print_blocks(evaluation.blocks())
    if fail_below is not None and (bleu := evaluation.scores[0].value) < fail_below:
        say(f"tt: BLEU is {bleu:.4f}, which is below `fail_below={fail_below:g}`")
        raise typer.Exit(1)
