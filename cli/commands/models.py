"""`tt average`, `tt export` and `tt import`: model folders from runs and from other programs."""

from __future__ import annotations

import dataclasses
import sys
from typing import Annotated

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.flags_of_fields import options_of
from tt.cli.libraries import import_tensorflow
from tt.cli.shared_options import DEFAULT_RUN, local_path
from tt.model.formats.importing import ImportRequest
from tt.model.training.exporting import AverageRequest, ExportRequest
from tt.model.transformer.search_options import Decoding
from tt.pipelines.runners.status_line import TimeLine

# Options of a search that are no part of a graph, or that only other commands have.
_CHOSEN_LATER = tuple(
    f"search.{field.name}"
    for field in dataclasses.fields(Decoding)
    if field.name not in ("beam_size", "length_penalty")
)
_AVERAGE = options_of(AverageRequest, defaults={"run": str(DEFAULT_RUN), "output": "averaged"})
_EXPORT = options_of(
    ExportRequest,
    panels={"Search of a saved-model": ("search",)},
    flags={"model": "RUN_OR_MODEL"},
    leave_out=_CHOSEN_LATER,
)
_IMPORT = options_of(
    ImportRequest,
    panels={
        "Tokens": (
            "source_vocabulary", "target_vocabulary", "vocab", "source_prefix", "source_suffix",
            "target_prefix",
        ),
        "Languages": ("source_language", "target_language"),
    },
    flags={"format": "FORMAT", "model": "MODEL"},
)  # fmt: skip


@command()
def average_command(request: Annotated[AverageRequest, _AVERAGE]) -> None:
    """Average checkpoints of a run into a model folder.

    Example: tt average --run run --of last --count 3 --output averaged
    """
    folder = local_path(request.output)
    request.check()
    import_tensorflow()
    with TimeLine("averaging", stream=sys.stderr):
        names = request.write()
    say(f"Model: {folder}, the mean of {', '.join(names)}")


@command()
def export_command(request: Annotated[ExportRequest, _EXPORT]) -> None:
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


@command()
def import_command(request: Annotated[ImportRequest, _IMPORT]) -> None:
    """Make a model folder from a model of another program.

    A CTranslate2 model must be imported only if its folder does not tell its own layout: the
    translating commands take an OPUS-MT, NLLB, M2M or Argos folder as it is.

    Example: tt import ctranslate2 opus-mt-en-es --output model
    """
    folder = local_path(request.output)
    local_path(request.model)
    with TimeLine("importing", stream=sys.stderr):
        request.write(prepare=import_tensorflow)
    say(f"Model: {folder}")
