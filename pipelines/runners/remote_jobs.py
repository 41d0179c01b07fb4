"""A job that a runner has taken: what it is called, where to look at it, and its end by Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # Beam takes seconds, and the command line needs but the exceptions
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult

CANCEL_SECONDS = 60.0  # that a runner has to cancel a job
_POLL_SECONDS = 0.5


class JobCancelled(KeyboardInterrupt):
    """An interrupt after which the runner was told to cancel its job; the text says if it did."""


class JobHandedOver(Exception):  # noqa: N818 -- not an error: another program starts the job
    """The runner has written the job down for another program to start: there is no result yet."""


def job_id(result: PipelineResult) -> str | None:
    """Returns the runner's name of a job, or None where it gives none."""
    method = getattr(result, "job_id", None)  # of Dataflow
    found = method() if callable(method) else getattr(result, "_job_id", None)  # of job services
    return str(found) if found else None


def check_is_started(result: PipelineResult, *, runner: str) -> None:
    """Checks that a job was started.

    Raises:
      JobHandedOver: Only its template was written, as where a Flex Template is launched: Dataflow
        then says at once that the job is done.
    """
    if not getattr(result, "has_job", True):
        raise JobHandedOver(
            f"{runner} wrote the job's template and does not start it here: what launches the "
            "template does"
        )


def describe_job(result: PipelineResult, *, runner: str, options: PipelineOptions) -> str | None:
    """Says in a line what a job is called and where to look at it; None if it has no name."""
    name = job_id(result)
    if name is None:
        return None
    url = _job_url(name, runner=runner, options=options)
    return f"Job {name} runs on {runner}" + (f": {url}" if url else "")


def _job_url(name: str, *, runner: str, options: PipelineOptions) -> str | None:
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, GoogleCloudOptions

    if runner == "DataflowRunner":
        google = options.view_as(GoogleCloudOptions)
        return (
            f"https://console.cloud.google.com/dataflow/jobs/{google.region}/{name}"
            f"?project={google.project}"
        )
    master = str(options.view_as(FlinkRunnerOptions).flink_master)
    if runner == "FlinkRunner" and not master.startswith("["):  # [local] and [auto] have no page
        return master if "://" in master else f"http://{master}"
    return None


def wait(result: PipelineResult) -> None:
    """Waits for the end of a job; raises what the runner raises of it.

    The wait has a thread of its own: a Ctrl-C that met it would close what workers in this process
    need, and a job fails of that before it can be cancelled.
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


def cancel(
    result: PipelineResult | None,
    *,
    report: Callable[[str], object],
    seconds: float | None = None,
) -> KeyboardInterrupt:
    """Cancels the job of a result, and waits until the runner says so.

    Another Ctrl-C ends the wait once the runner has been told: one that comes at once, as from
    programs that signal a process and its group, does not leave the job running.

    Args:
      result: What the runner returned when it took the job; None if it did not come to that.
      report: Takes a line before the wait.
      seconds: The longest wait; by default `CANCEL_SECONDS`.

    Returns:
      The interrupt to raise, which says what became of the job.
    """
    if result is None:
        return KeyboardInterrupt()
    seconds = CANCEL_SECONDS if seconds is None else seconds
    states: list[str] = []
    errors: list[Exception] = []

    told = threading.Event()
    name = f"the job {job_id(result)}" if job_id(result) else "the job"

    def run() -> None:
        try:
            report(f"Cancelling {name}, for at most {seconds:g} s")
            _cancel(result, states, told)
        except Exception as error:
            errors.append(error)

    # A runner that does not answer must not hold the user.
    thread = threading.Thread(target=run, name="cancel", daemon=True)
    with contextlib.suppress(KeyboardInterrupt):
        thread.start()
    end = time.monotonic() + seconds
    while thread.is_alive() and (left := end - time.monotonic()) > 0:
        try:
            thread.join(left)
        except KeyboardInterrupt:
            if told.is_set():
                return JobCancelled(f"{name} was told to end, and may still run")
    if errors:
        reason = " ".join(str(errors[0]).split()) or type(errors[0]).__name__
        return JobCancelled(f"{name} may still run, as it cannot be cancelled ({reason})")
    if not told.is_set():
        return JobCancelled(f"{name} may still run, as the runner does not answer")
    if not states:
        return JobCancelled(f"{name} was told to end, and may still run after {seconds:g} s")
    if states[0] == "CANCELLED":
        return JobCancelled(f"{name} is cancelled")
    return JobCancelled(f"{name} had ended as {states[0]}")


def _cancel(result: PipelineResult, states: list[str], told: threading.Event) -> None:
    """Cancels a job, says when the runner is told, and adds the state that the job ended in."""
    from apache_beam.runners.runner import PipelineState

    if not PipelineState.is_terminal(result.state):
        result.cancel()
    told.set()
    while not PipelineState.is_terminal(state := result.state):
        time.sleep(_POLL_SECONDS)
    states.append(str(state))
