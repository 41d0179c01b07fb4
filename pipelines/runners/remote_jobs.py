"""Describe a job that a runner has accepted, wait for it, and cancel it on Ctrl-C."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tt.model.errors import first_line
from tt.model.long_work import call_in_thread

if TYPE_CHECKING:  # importing Beam takes seconds, and the command line only needs the exceptions
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.runners.runner import PipelineResult

CANCEL_SECONDS = 60.0  # for a runner to cancel a job
_POLL_SECONDS = 0.5


class JobCancelled(KeyboardInterrupt):
    """Raised after a request to the runner to cancel its job; the message has the outcome."""


class JobHandedOver(Exception):  # noqa: N818 -- not an error: another program starts the job
    """Raised if the runner continues the job, or another program starts it; there is no result."""


def job_id(result: PipelineResult) -> str | None:
    """Return the runner's ID of a job, or None."""
    method = getattr(result, "job_id", None)  # Dataflow's results have a method
    found = method() if callable(method) else getattr(result, "_job_id", None)  # job services
    return str(found) if found else None


def describe_job(result: PipelineResult, *, runner: str, options: PipelineOptions) -> str | None:
    """Return a line with the ID and the page of a job, or None if it has no ID."""
    from apache_beam.options.pipeline_options import FlinkRunnerOptions, GoogleCloudOptions

    from tt.pipelines.runners.flink import cluster_at

    name = job_id(result)
    if name is None:
        return None
    line = f"Job {name} runs on {runner}"
    if runner == "DataflowRunner":
        google = options.view_as(GoogleCloudOptions)
        page = "https://console.cloud.google.com/dataflow/jobs"
        return f"{line}: {page}/{google.region}/{name}?project={google.project}"
    cluster = cluster_at(options.view_as(FlinkRunnerOptions).flink_master)
    return f"{line}: {cluster.url}" if runner == "FlinkRunner" and cluster else line


def wait(result: PipelineResult) -> None:
    """Wait for the end of a job, and raise the runner's errors.

    The wait needs its own thread. Ctrl-C during a wait in the main thread would close resources
    that workers in this process need, and the job would fail before it can be canceled.
    """
    call_in_thread(result.wait_until_finish, name="wait for the job").result()


def cancel(result: PipelineResult | None, *, report: Callable[[str], object]) -> KeyboardInterrupt:
    """Cancel a job, and wait until the runner has canceled it.

    Another Ctrl-C ends the wait, but never the request to cancel: some programs send a signal to a
    process and then to its group, and the second signal must not leave the job running.

    Args:
      result: The runner's result, or None if the runner did not accept the job.
      report: Prints a line before the wait.

    Returns:
      The interrupt to raise; its text describes the outcome.
    """
    from apache_beam.runners.runner import PipelineState

    if result is None:
        return KeyboardInterrupt()
    name = f"the job {job_id(result)}" if job_id(result) else "the job"
    said: list[str] = []
    is_asked = threading.Event()

    def run() -> None:
        try:
            report(f"Canceling {name}, for at most {CANCEL_SECONDS:g} s")
            if not PipelineState.is_terminal(result.state):
                result.cancel()
            is_asked.set()
            while not PipelineState.is_terminal(state := result.state):
                time.sleep(_POLL_SECONDS)
            is_cancelled = state == PipelineState.CANCELLED
            said.append("is canceled" if is_cancelled else f"had already ended as {state}")
        except Exception as error:
            said.append(f"may still run, because it cannot be canceled ({first_line(error)})")

    # In a thread, because a runner that does not answer must not block the user.
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
        asked = "has not ended yet, and may still run"
        no_answer = "may still run, because the runner does not answer"
        said.append(asked if is_asked.is_set() else no_answer)
    return JobCancelled(f"{name} {said[0]}")
