"""`tt import`: a model of another program to a model folder."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import local_path
from model.formats.importing import ImportRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(
    ImportRequest,
    panels={
        "Tokens": (
            "source_vocabulary", "target_vocabulary", "vocab", "source_prefix", "source_suffix",
            "target_prefix",
        ),
        "Languages": ("source_language", "target_language"),
    },
    flags={"format": "FORMAT", "model": "MODEL", "overwrite": "--overwrite"},
)  # fmt: skip


@command()
def import_model_command(request: Annotated[ImportRequest, _OPTIONS]) -> None:
    """Make a model folder from a model of another program.

    What CTranslate2 loads is imported only where its folder does not tell its own layout: the
    translating commands take an OPUS-MT, NLLB, M2M or Argos folder as it is.

    Example: tt import ctranslate2 opus-mt-en-es --output model
    """
    folder = local_path(request.output)
    local_path(request.model)
    with TimeLine("importing", stream=sys.stderr):
        request.write(prepare=import_tensorflow)
    say(f"Model: {folder}")
