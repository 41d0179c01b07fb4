"""What can be known of a job of other machines before anything is written or sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model.errors import require_text
from pipelines.runners import dataflow, wheel
from pipelines.runners.workers import check_places, check_workers


def check_job(arguments: Sequence[str], *, places: Mapping[str, Sequence[str]]) -> list[str]:
    """Checks that a job's workers reach its files and get tt, and that its runner knows enough.

    Args:
      arguments: Beam's own flags.
      places: Paths by what they are; see `check_places`.

    Returns:
      Warnings.

    Raises:
      UserError: They do not, it does not, Beam cannot read a flag, or a path is not UTF-8.
    """
    for what, paths in places.items():
        for path in paths:
            require_text(what, path)
    warning = check_places(arguments, places=places)
    check_workers(arguments)
    dataflow.check_options(arguments)
    wheel.check_wheel(arguments)
    return [*([warning] if warning else []), *wheel.describe_wheel(arguments)]
