"""`tt back-translate`: make a corpus from monolingual texts and a model of the other direction."""

from __future__ import annotations

from typing import Annotated

import typer

from tt.cli.commands.translate_batch import run_request
from tt.cli.decorators import command
from tt.cli.flags_of_fields import options_of
from tt.cli.shared_options import DEFAULT_BACK_TRANSLATED, Detach, DryRun, ModelCopies, ModelFolder
from tt.model.engines.translator import Engine
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.translate.options import DEFAULT_TAG, TranslateOptions

_PANELS = {
    "Output": ("output", "corpus", "overwrite"),
    "Rows": ("text_columns", "where", "limit", "unit_rows"),
    "Changes": ("changed", "removed"),
    "Input": ("read",),
    "Failures": ("max_failed", "retry_failed", "on_bad_file"),
    "Texts": ("memory", "deduplicate", "texts"),
}

_COMMON = (
    "--output", "--model", "--tag", "--text-column", "--where", "--limit", "--dry-run", "--engine",
    "--overwrite", "--max-failed", "--retry-failed", "--source-language", "--target-language",
    "--flags", "--memory", "--beam-size", "--batch-tokens", "--runner",
)  # fmt: skip


@command(is_resumable=True, takes_beam=True, common=_COMMON)
def back_translate_command(
    context: typer.Context,
    options: Annotated[
        TranslateOptions,
        options_of(
            TranslateOptions,
            panels=_PANELS,
            flags={"input": "INPUT", "text_columns": "--text-column"},
            defaults={"output": str(DEFAULT_BACK_TRANSLATED), "corpus.tag": DEFAULT_TAG},
            leave_out=(
                "format",
                "compression",
                "output_column",
                "keep_columns",
                "drop_columns",
                "key",
                "source_language_column",
                "target_language_column",
                "texts.detect_language",
                "texts.on_flag",
            ),
        ),
    ],
    engine: Annotated[Engine, options_of(Engine, panel="Model", flags={"name": "--engine"})],
    decoding: Annotated[
        Decoding,
        options_of(
            Decoding,
            panel="Search",
            panels={"Model": ("batch_tokens",)},
            leave_out=("n_best",),
        ),
    ],
    runner: Annotated[RunnerOptions, options_of(RunnerOptions, panel="Runner")],
    model: ModelFolder,
    copies: ModelCopies = None,
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Translate monolingual texts back into a corpus for training.

    To train a model from English to German, translate German texts with a model from German to
    English. The output folder is a corpus for `tt preprocess`: the column source has the
    translations, and the column target has the texts. Each source begins with a tag, so that the
    model can tell such pairs from others. The corpus has only rows with the status ok or
    from_memory, and without flags.

    The texts are lines of .txt files, or a column of a table. Arguments after `--` are Beam's own
    options. A configuration file lists these options under the key beam.

    Example: tt back-translate german.txt --model runs/de-en --output bt
    """
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
    run_request(request, is_dry_run=dry_run, detach=detach)
