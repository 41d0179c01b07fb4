"""`tt translate-batch`: Parquet files with translations beside their rows."""

from __future__ import annotations

import dataclasses
from typing import Annotated

import typer

from cli.options import (
    DEFAULT_RUN,
    DEFAULT_TRANSLATED,
    BeamSize,
    LengthPenalty,
    MaxSourceTokens,
    ModelFolder,
    command,
    import_tensorflow,
    local_path,
    say,
)
from model.config import MAX_SOURCE_TOKENS, Decoding

_DECODING = Decoding()


@command
def translate_batch_command(
    context: typer.Context,
    input: Annotated[  # noqa: A002 -- the name that the usage line shows
        list[str], typer.Argument(help="Parquet files, globs, or folders of them.")
    ],
    output: Annotated[
        str, typer.Option(help="Folder to write; the same command again resumes it.")
    ] = str(DEFAULT_TRANSLATED),
    model: ModelFolder = str(DEFAULT_RUN),
    text_column: Annotated[
        str | None, typer.Option(help="Column to translate; a single string column is found.")
    ] = None,
    unit_rows: Annotated[
        int, typer.Option(help="Most consecutive rows of one file that are one unit of work.")
    ] = 8192,
    compression: Annotated[str, typer.Option(help="Of the Parquet output.")] = "zstd",
    max_source_tokens: MaxSourceTokens = MAX_SOURCE_TOKENS,
    beam_size: BeamSize = _DECODING.beam_size,
    length_penalty: LengthPenalty = _DECODING.length_penalty,
) -> None:
    """Translate a text column of Parquet files in bulk; all rows and columns are kept.

    Adds the columns translation, translation_score and translation_status.
    Beam's own options go after `--`: tt translate-batch in.parquet -- --direct_num_workers=2
    """
    from pipelines.translate import ModelLoader, TranslateOptions, translate_parquet

    decoding = Decoding(beam_size=beam_size, length_penalty=length_penalty)
    options = TranslateOptions(
        input=tuple(input),
        output=output,
        text_column=text_column,
        unit_rows=unit_rows,
        max_source_tokens=max_source_tokens,
        compression=compression,
    )
    import_tensorflow()
    from model.translator import find_model_folder, model_fingerprint

    folder = find_model_folder(local_path(model))
    summary = translate_parquet(
        options=options,
        load_translator=ModelLoader(str(folder), decoding),
        model_fingerprint=model_fingerprint(folder),
        decoding=dataclasses.asdict(decoding),
        beam_arguments=context.obj or (),
    )
    if summary.already_finished:
        say("Finished already; nothing to do.")
    elif summary.reused_units:
        say(f"{summary.reused_units:,} of {summary.units:,} units were there from an earlier run.")
    statuses = ", ".join(f"{n:,} {status}" for status, n in summary.rows_by_status.items() if n)
    say(
        f"{summary.rows:,} rows of {summary.files:,} file(s) in {summary.units:,} unit(s)"
        + (f": {statuses}" if statuses else "")
    )
    say(f"Translated: {output}")
