"""`tt report`: a page on a dataset, on runs or on a translated folder."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import local_path
from pipelines.report.request import ReportRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(
    ReportRequest,
    flags={"folders": "FOLDERS", "sentences": "--sentence", "overwrite": "--overwrite"},
)


@command()
def report_command(request: Annotated[ReportRequest, _OPTIONS]) -> None:
    """Write a report that a browser opens offline.

    Of a dataset, a run, several runs side by side, or a translated folder.

    Example: tt report run --output run.html
    """
    for folder in request.folders:
        local_path(folder)
    request.check()
    import_tensorflow()
    with TimeLine("writing the report", stream=sys.stderr):
        request.write()
    say(f"Report: {request.output}")
