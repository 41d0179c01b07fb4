"""`tt average`: the mean of several checkpoints' weights, as an exported model."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import DEFAULT_RUN, local_path
from model.training.exporting import AverageRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(AverageRequest, defaults={"run": str(DEFAULT_RUN), "output": "averaged"})


@command()
def average_command(request: Annotated[AverageRequest, _OPTIONS]) -> None:
    """Average checkpoints of a run into a model folder.

    Example: tt average --run run --of last --count 3 --output averaged
    """
    folder = local_path(request.output)
    request.check()
    import_tensorflow()
    with TimeLine("averaging", stream=sys.stderr):
        names = request.write()
    say(f"Model: {folder}, the mean of {', '.join(names)}")
