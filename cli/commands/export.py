"""`tt export`: a trained model to a folder that other programs load."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cli.options import command, import_tensorflow, local_path, say
from model.errors import UserError
from model.transformer.config import Decoding
from pipelines.runners.status_line import TimeLine

_DECODING = Decoding()
FORMATS = ("model", "saved-model", "ctranslate2")


@command
def export_command(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_MODEL", help="Run folder, or an exported model folder."),
    ],
    output: Annotated[str, typer.Option(help="Folder to write.")],
    format: Annotated[  # noqa: A002 -- the name of the option
        str,
        typer.Option(
            help="model (what tt itself loads), saved-model (TensorFlow, search included) or "
            "ctranslate2."
        ),
    ] = "model",
    checkpoint: Annotated[
        str | None,
        typer.Option(
            help="Of a run folder: last, best, or the step of a checkpoint that is kept. "
            "[default: the run's exported model]",
            show_default=False,
        ),
    ] = None,
    beam_size: Annotated[
        int | None,
        typer.Option(
            help="Of saved-model: hypotheses kept a sentence; 1 is greedy search. "
            f"[default: {_DECODING.beam_size}]",
            show_default=False,
        ),
    ] = None,
    length_penalty: Annotated[
        float | None,
        typer.Option(
            help="Of saved-model: alpha, 0 to 10: hypotheses rank by "
            f"log p / ((5 + length) / 6)^alpha. [default: {_DECODING.length_penalty}]",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export.")
    ] = False,
) -> None:
    """Write a trained model to a folder for other programs."""
    if format not in FORMATS:
        raise UserError(f"--format must be one of {', '.join(FORMATS)}. Received: {format}")
    if format != "saved-model" and (beam_size is not None or length_penalty is not None):
        raise UserError(
            "--beam-size and --length-penalty belong to --format saved-model: of other formats, "
            "the search is chosen when they translate"
        )
    decoding = Decoding(
        beam_size=_DECODING.beam_size if beam_size is None else beam_size,
        length_penalty=_DECODING.length_penalty if length_penalty is None else length_penalty,
    )
    folder = local_path(output)
    import_tensorflow()
    from model.runs.averaging import export_checkpoint

    with tempfile.TemporaryDirectory() as scratch, TimeLine("exporting", stream=sys.stderr):
        if checkpoint is None:
            source = local_path(model)
        else:
            source = Path(scratch) / "model"
            export_checkpoint(model, source, name=checkpoint)
        _export(source, folder, format=format, decoding=decoding, overwrite=overwrite)
    say(f"Exported: {folder}")


def _export(
    source: Path,
    folder: Path,
    *,
    format: str,  # noqa: A002
    decoding: Decoding,
    overwrite: bool,
) -> None:
    from model.formats.to_ctranslate2 import copy_model, export_ctranslate2, export_saved_model

    if format == "saved-model":
        export_saved_model(source, folder, decoding=decoding, overwrite=overwrite)
    elif format == "ctranslate2":
        export_ctranslate2(source, folder, overwrite=overwrite)
    else:
        copy_model(source, folder, overwrite=overwrite)
