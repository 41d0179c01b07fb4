"""`tt preprocess`: make a dataset folder from corpora."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path
from typing import Annotated

import typer

from tt.cli.decorators import command
from tt.cli.errors import say, spelled
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import freeze_loaded_objects, import_tensorflow
from tt.cli.shared_options import DEFAULT_DATASET, DEFAULT_INPUT, Detach, DryRun
from tt.model.errors import UserError
from tt.pipelines.preprocess.request import PreprocessRequest
from tt.pipelines.runners.options import RunnerOptions
from tt.pipelines.runners.status_line import StatusLine

_OPTIONS = options_of(
    PreprocessRequest,
    panels={
        "Corpora": (
            "source", "target", "weights", "options.source_column", "options.target_column",
            "options.input_format", "options.delimiter", "options.encoding",
            "options.source_language", "options.target_language",
        ),
        "TensorFlow Datasets (TFDS)": (
            "options.split", "options.validation_split", "options.data_dir", "options.download",
            "options.language_pair", "options.subsets",
        ),
        "Held-out texts": (
            "validation", "options.validation_fraction", "options.test_fraction",
            "options.exclude", "options.held_out_by",
        ),
        "Text normalization": ("options.normalization", "options.decode_entities"),
        "Placeholders": (
            "options.protect", "options.protect_regex", "options.placeholder_share",
        ),
        "Filters": (
            "options.filters", "source_script", "target_script", "options.deduplicate",
        ),
        "Vocabulary": (
            "options.vocabulary", "vocab_of", "options.vocabulary_size", "options.vocabulary_type",
            "options.shared_vocabulary", "options.vocabulary_sample",
            "options.character_coverage", "options.byte_fallback", "options.user_symbols",
            "options.sentencepiece_rule",
        ),
    },
    flags={
        "corpora": "CORPORA",
        "weights": "--weight",
        "options.subsets": "--subset",
        "options.vocabulary": "--vocab",
        "options.shared_vocabulary": "--shared-vocabulary/--separate-vocabularies",
        "options.user_symbols": "--user-symbol",
        "options.decode_entities": "--decode-entities/--keep-entities",
        "options.normalization.clean_whitespace": "--clean-whitespace/--keep-whitespace",
        "options.normalization.lowercase": "--lowercase/--keep-case",
        "options.filters.reject_identical": "--reject-identical/--keep-identical",
        "options.filters.reject_mojibake": "--reject-mojibake/--keep-mojibake",
        "options.language_filter": "--language-filter/--no-language-filter",
    },
    defaults={"options.output": str(DEFAULT_DATASET)},
    shown={
        "source_script": "auto, the script of --source-language",
        "target_script": "auto, the script of --target-language",
    },
    leave_out=(
        "beam_arguments", "options.filters.source_script", "options.filters.target_script",
    ),
)  # fmt: skip


_COMMON = (
    "--output", "--dry-run", "--source", "--target", "--source-column", "--target-column",
    "--source-language", "--target-language", "--encoding", "--validation",
    "--validation-fraction", "--exclude", "--vocab", "--vocab-of",
    "--vocabulary-size", "--vocabulary-type", "--shared-vocabulary", "--max-tokens",
    "--max-length-ratio", "--deduplicate", "--runner",
)  # fmt: skip


@command(is_resumable=True, takes_beam=True, common=_COMMON)
def preprocess_command(
    context: typer.Context,
    request: Annotated[PreprocessRequest, _OPTIONS],
    runner: Annotated[
        RunnerOptions,
        options_of(RunnerOptions, panel="Runner", leave_out=("accelerator",)),
    ],
    dry_run: DryRun = False,
    detach: Detach = False,
) -> None:
    """Make a dataset folder from parallel corpora.

    The command cleans, filters, tokenizes and shuffles the pairs, and writes them to TFRecord
    shards. Arguments after `--` are Beam's own options. A configuration file lists these options
    under the key beam.

    Example: tt preprocess --source train.en --target train.de
    """
    if dry_run and request.options.download:
        raise UserError("--dry-run cannot be combined with --download. Remove either option")
    if any("tfds:" in name for name in (*request.corpora, *request.validation)):
        import_tensorflow()
    beam = runner.arguments(context.obj or ())
    job = dataclasses.replace(request, beam_arguments=beam).plan()
    is_finished = job.is_finished
    for notice in job.plan.notices:
        say(f"tt: warning: {notice}")
    if request.is_embedded:
        say("No corpus given: using the embedded English-Spanish corpus")
    # These modules import Arrow, which the help does not need.
    from tt.cli.commands.blocks import print_blocks
    from tt.pipelines.preprocess.description import (
        dataset_blocks,
        describe_doubts,
        describe_first_pairs,
    )

    if dry_run:
        print_blocks(job.describe())
        for text in describe_first_pairs(job.plan):
            typer.echo(text)
        return
    output = request.options.output
    if is_finished:
        say(f"{output} is already finished; nothing to do")
    else:
        for text in describe_first_pairs(job.plan):
            typer.echo(text, err=True)  # not `say`, because texts may contain backticks
    freeze_loaded_objects()
    with StatusLine(stream=sys.stderr) as line:
        manifest = job.run(
            lambda found: line.show(found.describe()), report=spelled(line.say), detach=detach
        )
    print_blocks(dataset_blocks(manifest), sys.stderr)
    for doubt in describe_doubts(manifest):
        say(f"tt: warning: {doubt}")
    say(f"Dataset: {output}")
    if request.is_embedded:
        _leave_held_out_input(DEFAULT_INPUT)


def _leave_held_out_input(path: Path) -> None:
    """Write the held-out English sentences of the embedded corpus, unless the file exists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from tt.pipelines.preprocess.ready_made import held_out_pairs
    from tt.pipelines.reports.folders import write_whole_file

    if path.exists():
        say(f"{path} already exists and remains unchanged")
        return
    sentences = [pair.source for pair in held_out_pairs()]
    table = pa.table({"id": pa.array(range(len(sentences)), pa.int64()), "english": sentences})
    content = io.BytesIO()
    pq.write_table(table, content)
    write_whole_file(path, content.getvalue())
    say(f"Held-out sentences to translate: {path} ({len(sentences)} rows)")
