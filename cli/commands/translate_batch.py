"""`tt translate-batch`: translate columns of tables."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import freeze_loaded_objects, import_tensorflow, prepare_engine
from tt.cli.shared_options import (
    BEGUN,
    DEFAULT_RUN,
    DEFAULT_TRANSLATED,
    Detach,
    DryRun,
    ModelFolder,
)
from tt.model.engines.translator import Engine
from tt.model.errors import require
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.runners.status_line import StatusLine, TimeLine
from tt.pipelines.translate.options import TranslateOptions

_PANELS = {
    "Output": ("output", "format", "compression", "overwrite"),
    "Rows": ("text_columns", "target_language_column", "limit", "unit_rows"),
    "Failures": ("max_failed", "retry_failed", "on_bad_file"),
    "Texts": ("memory", "texts"),
}


_COMMON = (
    "--output", "--text-column", "--limit", "--dry-run", "--model", "--engine", "--compute-type",
    "--model-copies", "--overwrite", "--format", "--max-failed", "--retry-failed",
    "--source-language", "--target-language", "--split", "--glossary", "--memory", "--flags",
    "--on-flag", "--beam-size", "--runner",
)  # fmt: skip


@command(is_resumable=True, takes_beam=True, common=_COMMON)
def translate_batch_command(
    context: typer.Context,
    options: Annotated[
        TranslateOptions,
        options_of(
            TranslateOptions,
            panels=_PANELS,
            flags={"input": "INPUT", "text_columns": "--text-column"},
            defaults={"output": str(DEFAULT_TRANSLATED)},
        ),
    ],
    engine: Annotated[Engine, options_of(Engine, panel="Model", flags={"name": "--engine"})],
    decoding: Annotated[
        Decoding, options_of(Decoding, panel="Search", panels={"Model": ("batch_tokens",)})
    ],
    runner: Annotated[RunnerOptions, options_of(RunnerOptions, panel="Runner")],
    model: ModelFolder = str(DEFAULT_RUN),
    copies: Annotated[
        int | None,
        typer.Option(
            "--model-copies",
            metavar="N",
            help="Compute N translations at once on this machine, at most one per core.  "
            "[default: one per core or GPU]",
            show_default=False,
            rich_help_panel="Model",
        ),
    ] = None,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            metavar="NUMBER",
            help="Estimate the price of a million rows from this hourly price of the machines.",
            show_default=False,
            rich_help_panel="Output",
        ),
    ] = None,
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Translate text columns of tables in bulk.

    The tables are Parquet, CSV, TSV, JSONL or Arrow files. The output keeps all rows and columns,
    and adds the columns translation, translation_score, translation_status, translation_error and
    translation_flags. With --n-best, it also has translation_n_best. If you translate several
    columns, the names of the added columns begin with <column>_.

    Arguments after `--` are Beam's own options. A configuration file lists these options under the
    key beam.

    Example: tt translate-batch articles.parquet --text-column body
    """
    is_price = price_per_hour is None or price_per_hour >= 0
    require(is_price, "`price_per_hour` must not be negative", price_per_hour)
    from tt.cli.commands.blocks import print_blocks
    from tt.pipelines.runners.workers import are_elsewhere
    from tt.pipelines.translate.job import TranslateRequest
    from tt.pipelines.translate.manifest import describe_failure, summary_blocks

    request = TranslateRequest(
        options=options,
        model=model,
        decoding=decoding,
        engine=engine,
        copies=copies,
        beam=runner.arguments(context.obj or ()),
        accelerator=runner.accelerator,
    )
    with TimeLine("preparing", stream=sys.stderr) as preparing:
        job = request.plan(preparing.say)
    for notice in job.notices:
        say(f"tt: warning: {notice}")
    if dry_run:
        if job.request.engine.name == "tensorflow":
            import_tensorflow()  # The plan lists the GPUs that TensorFlow finds.
        print_blocks(job.describe())
        return
    # Workers on other machines import TensorFlow themselves, but need the model that this process
    # converts for CTranslate2.
    is_prepared_here = job.request.engine.name == "ctranslate2" or not are_elsewhere(request.beam)
    if is_prepared_here and job.model.folder is not None and not job.is_finished:
        prepare_engine(job.model.folder, job.request.engine)
    if not job.is_finished:
        say(job.copies.describe())
    freeze_loaded_objects()
    with StatusLine(stream=sys.stderr) as status_line:
        summary = job.run(
            lambda found: status_line.show(found.describe()),
            start=BEGUN.get(),
            report=status_line.say,
            detach=detach,
        )
    if summary.already_finished:
        say("Already finished; nothing to do")
    print_blocks(summary_blocks(summary, price_per_hour=price_per_hour), sys.stderr)
    say(f"Translated: {options.output}")
    if summary.has_failed:
        say(f"tt: error: {describe_failure(summary)}")
        raise typer.Exit(1)
