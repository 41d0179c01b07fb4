"""The lines of a dry run that both jobs print."""

from __future__ import annotations

from collections.abc import Sequence

from pipelines.runners.beam_options import describe_arguments
from pipelines.runners.runner import describe_runner


def describe_run(
    *, steps: Sequence[str], arguments: Sequence[str], output: str, begun: str, is_finished: bool
) -> list[str]:
    """Return lines with the steps, the runner, Beam's options and the output folder of a run.

    Args:
      steps: Names of the job's steps.
      arguments: Beam's own flags, with those that the job adds.
      output: The output folder.
      begun: The finished parts of an earlier run, such as "3 units"; "" if there are none.
      is_finished: Whether the folder is finished, so that a run does nothing.

    Raises:
      UserError: Beam cannot take its flags.
    """
    state = f", begun already: {begun} would stay" if begun else ""
    if is_finished:
        state = ", finished already: it would stay as it is"
    return [
        f"steps: {', '.join(steps)}",
        f"runner: {describe_runner(arguments)}",
        f"Beam options: {describe_arguments(arguments)}",
        f"output: {output}{state}",
    ]
