"""`tt report`: a page on a dataset, a model, runs or a translated folder."""

from __future__ import annotations

import sys
from typing import Annotated

from cli.decorators import command
from cli.errors import say
from cli.flags_of_fields import options_of
from cli.libraries import import_tensorflow
from cli.shared_options import local_path
from pipelines.reports.requests import ReportRequest
from pipelines.runners.status_line import TimeLine

_OPTIONS = options_of(
    ReportRequest,
    flags={"folders": "FOLDERS", "sentences": "--sentence", "overwrite": "--overwrite"},
)


@command()
def report_command(request: Annotated[ReportRequest, _OPTIONS]) -> None:
    """Write a report that a browser opens offline.

    Of a dataset, a model, a run, several runs side by side, or a translated folder.

    Example: tt report run --output run.html
    """
    from pipelines.reports.folders import check_report

    for folder in request.folders:
        local_path(folder)
    check_report(request)
    import_tensorflow()
    from pipelines.reports.report import write_report

    with TimeLine("writing the report", stream=sys.stderr):
        write_report(request)
    say(f"Report: {request.output}")
