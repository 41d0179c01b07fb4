"""`tt translate-batch`: translate columns of tables."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say, spelled
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import freeze_loaded_objects, import_tensorflow, prepare_engine
from tt.cli.shared_options import (
    BEGUN,
    DEFAULT_RUN,
    DEFAULT_TRANSLATED,
    Detach,
    DryRun,
    ModelCopies,
    ModelFolder,
)
from tt.cli.signals import draining_on_signals
from tt.model.engines.translator import Engine
from tt.model.errors import require
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.runners.status_line import StatusLine, TimeLine
from tt.pipelines.translate.options import TranslateOptions, WatchOptions

if TYPE_CHECKING:
    from tt.pipelines.translate.job import TranslateRequest

_PANELS = {
    "Output": ("output", "format", "compression", "overwrite"),
    "Rows": (
        "text_columns", "source_language_column", "target_language_column", "where", "limit",
        "unit_rows",
    ),
    "Columns": ("output_column", "keep_columns", "drop_columns"),
    "Changes": ("key", "changed", "removed"),
    "Input": ("read",),
    "Failures": ("max_failed", "retry_failed", "on_bad_file"),
    "Texts": ("memory", "deduplicate", "texts"),
}  # fmt: skip


_COMMON = (
    "--output", "--text-column", "--where", "--key", "--limit", "--dry-run", "--model", "--engine",
    "--overwrite", "--format", "--max-failed", "--retry-failed", "--source-language",
    "--target-language", "--glossary", "--memory", "--watch", "--flags", "--beam-size", "--n-best",
    "--runner",
)  # fmt: skip


@command(is_resumable=True, takes_beam=True, common=_COMMON)
def translate_batch_command(
    context: typer.Context,
    options: Annotated[
        TranslateOptions,
        options_of(
            TranslateOptions,
            panels=_PANELS,
            leave_out=("corpus",),
            flags={"input": "INPUT", "text_columns": "--text-column"},
            defaults={"output": str(DEFAULT_TRANSLATED)},
        ),
    ],
    engine: Annotated[Engine, options_of(Engine, panel="Model", flags={"name": "--engine"})],
    decoding: Annotated[
        Decoding, options_of(Decoding, panel="Search", panels={"Model": ("batch_tokens",)})
    ],
    runner: Annotated[RunnerOptions, options_of(RunnerOptions, panel="Runner")],
    watch: Annotated[WatchOptions, options_of(WatchOptions, panel="Watch")],
    model: ModelFolder = str(DEFAULT_RUN),
    copies: ModelCopies = None,
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

    The tables are Parquet, CSV, TSV, JSONL, Arrow or text files. The output keeps all rows and
    columns, and adds the columns translation, translation_score, translation_status,
    translation_error and translation_flags. --n-best adds translation_n_best, and --detect-language
    adds translation_source_language. If you translate several columns, the names of the added
    columns begin with <column>_. --output-column replaces "translation" in these names.

    Arguments after `--` are Beam's own options. A configuration file lists these options under the
    key beam.

    Example: tt translate-batch articles.parquet --text-column body
    """
    is_price = price_per_hour is None or price_per_hour >= 0
    require(is_price, "`price_per_hour` must not be negative", price_per_hour)
    from tt.pipelines.translate.job import TranslateRequest

    request = TranslateRequest(
        options=options,
        model=model,
        decoding=decoding,
        engine=engine,
        copies=copies,
        beam=runner.arguments(context.obj or ()),
        accelerator=runner.accelerator,
    )
    if watch.watch is not None:
        require(not (dry_run or detach), "`watch` cannot be combined with `dry_run` or `detach`")
        rule = "`price_per_hour` has no effect with `watch`. Remove `price_per_hour`"
        require(price_per_hour is None, rule)
        _watch(request, watch)
        return
    run_request(request, is_dry_run=dry_run, detach=detach, price_per_hour=price_per_hour)


def run_request(
    request: TranslateRequest,
    *,
    is_dry_run: bool,
    detach: bool,
    price_per_hour: float | None = None,
) -> None:
    """Plan a job, and run the job unless the command is a dry run.

    `tt back-translate` also calls this function.

    Raises:
      typer.Exit: Too many rows failed or were skipped.
    """
    from tt.cli.commands.blocks import print_blocks
    from tt.pipelines.runners.workers import are_elsewhere
    from tt.pipelines.translate.manifest import describe_failure, summary_blocks

    with TimeLine("preparing", stream=sys.stderr) as preparing:
        job = request.plan(spelled(preparing.say))
    for notice in job.notices:
        say(f"tt: warning: {notice}")
    if is_dry_run:
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
            report=spelled(status_line.say),
            detach=detach,
        )
    if summary.already_finished:
        say("Already finished; nothing to do")
    print_blocks(summary_blocks(summary, price_per_hour=price_per_hour), sys.stderr)
    done = "Translated" if request.options.corpus is None else "Corpus"
    say(f"{done}: {request.options.output}")
    if summary.has_failed:
        say(f"tt: error: {describe_failure(summary)}")
        raise typer.Exit(1)


def _watch(request: TranslateRequest, options: WatchOptions) -> None:
    """Repeat a job until a signal arrives."""
    from tt.pipelines.streams.metrics import describe_end
    from tt.pipelines.translate.watching import Watch

    watch = Watch(request=request, options=options)
    watch.check(say)
    say(f"Watching {', '.join(request.options.input)} every {options.watch}")
    freeze_loaded_objects()
    try:
        with (
            draining_on_signals(watch.stop.set),
            StatusLine(watch.describe, stream=sys.stderr) as status_line,
        ):
            done = watch.run(spelled(status_line.say))
    except KeyboardInterrupt:
        say("tt: stopped at once; run the same command again to resume")
        os._exit(130)  # The interpreter would wait for the threads that translate.
    say(describe_end(done, what="row"))
