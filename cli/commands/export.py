"""`tt export`: a trained model to a folder that other programs load."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import local_path
from model.training.exporting import ExportRequest
from model.transformer.search_options import Decoding
from pipelines.runners.status_line import TimeLine

# Options of a search that are no part of a graph, or that only other commands have.
_CHOSEN_LATER = tuple(
    f"search.{field.name}"
    for field in dataclasses.fields(Decoding)
    if field.name not in ("beam_size", "length_penalty")
)
_OPTIONS = options_of(
    ExportRequest,
    panels={"Search of a saved-model": ("search",)},
    flags={"model": "RUN_OR_MODEL", "overwrite": "--overwrite"},
    leave_out=_CHOSEN_LATER,
)


@command()
def export_command(request: Annotated[ExportRequest, _OPTIONS]) -> None:
    """Write a trained model to a folder for other programs.

    Example: tt export run --format saved-model --output saved
    """
    folder = local_path(request.output)
    if request.checkpoint is None:
        local_path(request.model)
    request.check()
    import_tensorflow()
    with TimeLine("exporting", stream=sys.stderr):
        request.write()
    say(f"Exported: {folder}")
