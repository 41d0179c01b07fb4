"""Name a job that a runner has taken, wait for it, and cancel it on Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tt.model.errors import first_line

if TYPE_CHECKING:  # importing Beam takes seconds, and the command line only needs the exceptions
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult

CANCEL_SECONDS = 60.0  # that a runner has to cancel a job
_POLL_SECONDS = 0.5


class JobCancelled(KeyboardInterrupt):
    """An interrupt after which the runner was asked to cancel its job; the text says if it did."""


class JobHandedOver(Exception):  # noqa: N818 -- not an error: another program starts the job
    """The runner has the job, or has written it down for another program: there is no result."""


def job_id(result: PipelineResult) -> str | None:
    """Return the runner's ID of a job, or None."""
    method = getattr(result, "job_id", None)  # of Dataflow
    found = method() if callable(method) else getattr(result, "_job_id", None)  # of job services
    return str(found) if found else None


def check_is_started(result: PipelineResult, *, runner: str) -> None:
    """Check that a job was started.

    Raises:
      JobHandedOver: The launcher of a Flex Template only wanted the template: Dataflow then says
        at once that the job is done.
    """
    if not getattr(result, "has_job", True):
        raise JobHandedOver(
            f"{runner} wrote the job's template and does not start it here: what launches the "
            "template does"
        )


def describe_job(result: PipelineResult, *, runner: str, options: PipelineOptions) -> str | None:
    """Return a line with the ID and the page of a job; None if it has no ID."""
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, GoogleCloudOptions

    name = job_id(result)
    if name is None:
        return None
    line = f"Job {name} runs on {runner}"
    if runner == "DataflowRunner":
        google = options.view_as(GoogleCloudOptions)
        page = "https://console.cloud.google.com/dataflow/jobs"
        return f"{line}: {page}/{google.region}/{name}?project={google.project}"
    master = str(options.view_as(FlinkRunnerOptions).flink_master)
    if runner == "FlinkRunner" and not master.startswith("["):  # [local] and [auto] have no page
        return f"{line}: {master if '://' in master else f'http://{master}'}"
    return line


def wait(result: PipelineResult) -> None:
    """Wait for the end of a job, and raise the runner's errors.

    The wait has a thread of its own: Ctrl-C during the wait would close resources that workers in
    this process need, and the job would fail before it can be cancelled.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            result.wait_until_finish()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="wait for the job", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def cancel(result: PipelineResult | None, *, report: Callable[[str], object]) -> KeyboardInterrupt:
    """Cancel a job, and wait until the runner has done so.

    Another Ctrl-C ends the wait once the runner has been asked: a Ctrl-C that comes at once, as
    from programs that signal a process and its group, does not leave the job running.

    Args:
      result: The runner's result; None if the runner did not take the job.
      report: Takes a line before the wait.

    Returns:
      The interrupt to raise, which says what happened to the job.
    """
    from apache_beam.runners.runner import PipelineState

    if result is None:
        return KeyboardInterrupt()
    name = f"the job {job_id(result)}" if job_id(result) else "the job"
    said: list[str] = []
    is_asked = threading.Event()

    def run() -> None:
        try:
            report(f"Cancelling {name}, for at most {CANCEL_SECONDS:g} s")
            if not PipelineState.is_terminal(result.state):
                result.cancel()
            is_asked.set()
            while not PipelineState.is_terminal(state := result.state):
                time.sleep(_POLL_SECONDS)
            is_cancelled = state == PipelineState.CANCELLED
            said.append("is cancelled" if is_cancelled else f"had ended as {state}")
        except Exception as error:
            said.append(f"may still run, as it cannot be cancelled ({first_line(error)})")

    # A runner that does not answer must not hold the user.
    thread = threading.Thread(target=run, name="cancel", daemon=True)
    with contextlib.suppress(KeyboardInterrupt):
        thread.start()
    end = time.monotonic() + CANCEL_SECONDS
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        try:
            thread.join(left)
        except KeyboardInterrupt:
            if is_asked.is_set():
                break
    if not said:
        asked = "was told to end, and may still run"
        said.append(asked if is_asked.is_set() else "may still run: the runner does not answer")
    return JobCancelled(f"{name} {said[0]}")
