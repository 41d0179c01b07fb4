"""`tt export`: a trained model to a folder that other programs load."""

from __future__ import annotations

import dataclasses
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say
from cli.libraries import import_tensorflow
from cli.option_fields import Given, options_of
from cli.options import local_path
from model.decoding.options import Decoding
from model.errors import require, require_one_of
from model.formats.model_folder import find_model_folder
from model.runs.averaging import check_is_run
from pipelines.runners.status_line import TimeLine

# Options of a search that are no part of a graph, or that only other commands have.
_CHOSEN_LATER = tuple(
    field.name
    for field in dataclasses.fields(Decoding)
    if field.name not in ("beam_size", "length_penalty")
)

FORMATS = ("model", "saved-model", "ctranslate2")


@command()
def export_command(
    model: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_MODEL", help="Run folder, or an exported model folder."),
    ],
    output: Annotated[str, typer.Option(help="Folder to write.")],
    given: Annotated[
        Given,
        options_of(Decoding, panel="Search of a saved-model", leave_out=_CHOSEN_LATER),
    ],
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
            help="Checkpoint of a run folder: last, best, or the step of one that is kept. "
            " [default: the run's exported model]",
            show_default=False,
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace an earlier export.")
    ] = False,
) -> None:
    """Write a trained model to a folder for other programs."""
    require_one_of("`format`", format, FORMATS)
    require(
        format == "saved-model" or not given,
        f"`{next(iter(given), '')}` belongs to `format=saved-model`: of other formats, the search "
        "is chosen when they translate",
    )
    decoding = Decoding(**given)
    folder = local_path(output)
    if checkpoint is not None:
        check_is_run(model)
    else:
        find_model_folder(local_path(model))
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
    from model.formats.saved_model import export_saved_model
    from model.formats.to_ctranslate2 import export_ctranslate2
    from model.formats.weights import copy_model

    if format == "saved-model":
        export_saved_model(source, folder, decoding=decoding, overwrite=overwrite)
    elif format == "ctranslate2":
        export_ctranslate2(source, folder, overwrite=overwrite)
    else:
        copy_model(source, folder, overwrite=overwrite)
