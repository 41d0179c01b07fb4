"""`tt translate-batch`: Parquet files with translations beside their rows."""

from __future__ import annotations

import dataclasses
import functools
import sys
import time
from typing import Annotated

import typer

from cli.options import (
    DEFAULT_RUN,
    DEFAULT_TRANSLATED,
    BatchTokens,
    BeamSize,
    ComputeType,
    Count,
    EngineName,
    LengthPenalty,
    MaxDecodingLength,
    MaxLengthRatio,
    MaxSourceTokens,
    ModelCopies,
    ModelFolder,
    NBest,
    NoRepeatNgramSize,
    Number,
    OnTooLong,
    TextLanguage,
    Texts,
    prepare_engine,
    resumable_command,
    say,
    warn_of_language,
    warn_of_missing_digests,
)
from model.errors import UserError
from model.transformer.config import MAX_SOURCE_TOKENS, Decoding, Engine

_DECODING = Decoding()
_ENGINE = Engine()

_rows = functools.partial(typer.Option, rich_help_panel="Rows")
_failures = functools.partial(typer.Option, rich_help_panel="What fails")
_output = functools.partial(typer.Option, rich_help_panel="Output")


@resumable_command
def translate_batch_command(
    context: typer.Context,
    input: Annotated[  # noqa: A002 -- the name that the usage line shows
        list[str],
        typer.Argument(help="Parquet files, globs, or folders of them, on any file system."),
    ],
    output: Annotated[
        str,
        _output(
            help="Folder to write; the same command again resumes it. What is finished is known by "
            "its size and footer."
        ),
    ] = str(DEFAULT_TRANSLATED),
    overwrite: Annotated[
        bool,
        _output(
            "--overwrite",
            help="Delete what another or a finished job left in --output; with other files in it "
            "that is refused.",
        ),
    ] = False,
    compression: Annotated[
        str, _output(help="Of its files: zstd, snappy, gzip, brotli, lz4 or none.")
    ] = "zstd",
    price_per_hour: Annotated[
        Number,
        _output(
            help="Of the machines: the end says what a million rows and a million source "
            "characters cost by this run's time.",
            show_default=False,
        ),
    ] = None,
    text_column: Annotated[
        Texts,
        _rows(
            help="Column to translate; repeatable. A single column of strings is found.",
            show_default=False,
        ),
    ] = None,
    limit: Annotated[
        Count, _rows(help="Only so many rows, the first of all: to try.", show_default=False)
    ] = None,
    unit_rows: Annotated[
        int, _rows(help="Most consecutive rows of one file that are one unit of work.")
    ] = 8192,
    max_failed: Annotated[
        float,
        _failures(help="Share of rows that may fail or be skipped; with more the exit code is 1."),
    ] = 0.001,
    retry_failed: Annotated[
        bool,
        _failures("--retry-failed", help="Translate the failed rows of a finished --output again."),
    ] = False,
    on_bad_file: Annotated[
        str,
        _failures(
            help="Of a file that is damaged, no Parquet or without the column: fail, or skip it."
        ),
    ] = "fail",
    model: ModelFolder = str(DEFAULT_RUN),
    engine_name: EngineName = _ENGINE.name,
    compute_type: ComputeType = _ENGINE.compute_type,
    model_copies: ModelCopies = None,
    max_source_tokens: MaxSourceTokens = MAX_SOURCE_TOKENS,
    on_too_long: OnTooLong = "split",
    source_language: TextLanguage = "",
    batch_tokens: BatchTokens = None,
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
    n_best: NBest = _DECODING.n_best,
    max_length_ratio: MaxLengthRatio = _DECODING.max_length_ratio,
    max_decoding_length: MaxDecodingLength = _DECODING.max_decoding_length,
    no_repeat_ngram_size: NoRepeatNgramSize = _DECODING.no_repeat_ngram_size,
) -> None:
    """Translate text columns of Parquet files in bulk.

    All rows and columns are kept. Adds the columns translation, translation_score,
    translation_status and translation_error (no --with-scores is needed), and with --n-best
    translation_n_best; of several text columns with <column>_ before the name.
    Beam's own options go after `--`: tt translate-batch in.parquet -- --direct_num_workers=2
    """
    start = time.monotonic()  # before imports that take seconds
    from model.engines.gpus import count_gpus
    from model.engines.loading import check_engine
    from model.formats.model_folder import load_about, model_fingerprint
    from pipelines.runners.runner import check_places, set_file_system_options
    from pipelines.runners.staging import default_cache, stage_model
    from pipelines.storage.files import is_local
    from pipelines.texts.model import ModelLoader, plan_copies
    from pipelines.texts.model_languages import (
        SAMPLE,
        choose_source_language,
        describe_other_language,
        describe_other_script,
    )
    from pipelines.texts.translating import CellOptions
    from pipelines.translate.inputs import first_texts
    from pipelines.translate.manifest import describe_failure, describe_summary
    from pipelines.translate.progress import ProgressLine
    from pipelines.translate.transforms import TranslateOptions, plan_translation, run_translation

    if price_per_hour is not None and not price_per_hour >= 0:
        raise UserError(f"--price-per-hour must not be negative. Received: {price_per_hour}")
    decoding = Decoding(
        beam_size=beam_size,
        length_penalty=length_penalty,
        n_best=n_best,
        max_length_ratio=max_length_ratio,
        max_decoding_length=max_decoding_length,
        no_repeat_ngram_size=no_repeat_ngram_size,
        batch_tokens=batch_tokens,
    )
    options = TranslateOptions(
        input=tuple(input),
        output=output,
        text_columns=tuple(text_column or ()),
        unit_rows=unit_rows,
        limit=limit,
        compression=compression,
        cells=CellOptions(
            max_source_tokens=max_source_tokens,
            on_too_long=on_too_long,
            source_language=source_language,
        ),
        on_bad_file=on_bad_file,
        max_failed=max_failed,
        overwrite=overwrite,
        retry_failed=retry_failed,
    )
    engine = Engine(name=engine_name, compute_type=compute_type)
    warn_of_language(source_language)
    beam_arguments = context.obj or ()
    copies = plan_copies(model_copies, beam_arguments=beam_arguments)
    if warning := check_places(beam_arguments, paths=(*input, output, model)):
        say(f"tt: warning: {warning}")
    set_file_system_options(beam_arguments)
    if remote := [path for path in (model, *input, output) if not is_local(path)]:
        say(f"Looking at {', '.join(remote)}")  # minutes where there is no network
    folder = stage_model(model, cache=default_cache(), report=say)
    fingerprint = model_fingerprint(folder)
    data = load_about(folder).data
    cells = dataclasses.replace(
        options.cells, source_language=choose_source_language(source_language, data=data)
    )
    options = dataclasses.replace(options, cells=cells)
    job = plan_translation(
        options=options,
        model_fingerprint=fingerprint,
        decoding=decoding,
        engine=dataclasses.asdict(engine),
        beam_arguments=beam_arguments,
        languages={"source": data.source_language, "target": data.target_language},
    )
    for notice in job.notices:
        say(f"tt: warning: {notice}")
    if not job.is_finished:
        check_engine(folder, decoding=decoding, engine=engine, max_source_tokens=max_source_tokens)
        warn_of_missing_digests(folder, name=model)
        for line in (
            *describe_other_language(source_language, data=data),
            *describe_other_script(first_texts(job.found, count=SAMPLE), data=data),
        ):
            say(f"tt: warning: {line}")
        prepare_engine(folder, engine)
        if engine.name == "tensorflow":  # which only knows when it is imported
            copies = plan_copies(model_copies, beam_arguments=beam_arguments, gpus=count_gpus())
        say(copies.describe())
    load_translator = ModelLoader(
        # Workers make copies of their own, and may have another working folder.
        folder=str(folder.absolute()) if is_local(model) else model,
        decoding=decoding,
        engine=engine,
        threads=copies.threads,
        fingerprint=fingerprint,
    )
    with ProgressLine(
        output=job.output,
        rows=job.rows,
        run_id=job.run_id,
        is_done=job.is_done,
        is_retry=retry_failed,
        stream=sys.stderr,
    ):
        summary = run_translation(
            job, load_translator=load_translator, workers=copies.copies or 1, start=start
        )
    for line in describe_summary(summary, price_per_hour=price_per_hour):
        say(line)
    say(f"Translated: {output}")
    if summary.has_failed:
        say(f"tt: error: {describe_failure(summary)}")
        raise typer.Exit(1)
