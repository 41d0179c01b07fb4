"""Make and run the pipeline of a Beam job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from typing import TextIO, cast

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
)
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.runner import PipelineResult, PipelineState

from tt.model.errors import UserError, counted
from tt.pipelines.runners import beam_options, failures, remote_jobs
from tt.pipelines.runners.beam_options import LOCAL_RUNNER, LOCAL_RUNNERS, LOOPBACK
from tt.pipelines.runners.dataflow import has_packages
from tt.pipelines.runners.flink_server import job_server
from tt.pipelines.runners.job_file import JobFile, JobNote, new_job

# Beam's workers that are threads send their buffers once per second, even if a coder has written
# only a part of an element. The reader would then interpret the rest of the element as a length,
# and allocate memory without limit. With 0, workers send only complete elements.
worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


def make_pipeline(beam_arguments: Sequence[str], *, detach: bool = False) -> beam.Pipeline:
    """Create a pipeline from Beam's own flags; without `--runner`, it runs on this machine.

    Raises:
      UserError: Beam does not know the runner or cannot read a flag, or PortableRunner has no job
        service. Or `detach` is set, but the job would end with this process or lose its packages.
    """
    arguments = list(beam_arguments)
    is_local = not any(a == "--runner" or a.startswith("--runner=") for a in arguments)
    if is_local:
        arguments.append(f"--runner={LOCAL_RUNNER}")
    beam_options.parse_arguments(arguments)  # checks the values
    options = PipelineOptions(arguments)
    portable = options.view_as(PortableOptions)
    is_loopback = (portable.environment_type or "").upper() == LOOPBACK
    if beam_options.find_runner_name(arguments) == "portablerunner" and not portable.job_endpoint:
        if not is_loopback:
            raise UserError(
                "PortableRunner needs a job service, or must work in this process. Set "
                f"--job_endpoint=HOST:PORT or --environment_type={LOOPBACK} after --"
            )
        portable.job_endpoint = "embed"
    if is_local:  # other runners may have options that this Beam does not know
        beam_options.check_flags(arguments)
    try:
        pipeline = beam.Pipeline(options=options)
    except ValueError as error:
        raise beam_options.refused(beam_arguments, error) from error
    runner = type(pipeline.runner).__name__
    is_here = is_loopback and runner != "DataflowRunner"
    if detach and (is_here or new_job(options, runner=runner) is None):
        raise UserError(
            f"`detach` needs a job that does not depend on this process, but {runner} works in "
            "it. Remove `detach`, or choose a `runner` on other machines"
        )
    has_folder = options.view_as(JobServerOptions).artifacts_dir
    if detach and runner == "FlinkRunner" and has_packages(options) and not has_folder:
        raise UserError(
            "`detach` deletes the packages that workers of FlinkRunner install. Set "
            "--artifacts_dir=FOLDER after --, to a folder that task managers can read, or remove "
            "`detach` or the packages"
        )
    return pipeline


def describe_runner(beam_arguments: Sequence[str]) -> str:
    """Describe the runner of a job with these flags, and its workers.

    Raises:
      UserError: Beam does not accept a flag.
    """
    if beam_options.is_dataflow(beam_arguments):
        return "DataflowRunner"  # A pipeline for Dataflow would request its buckets.
    pipeline = make_pipeline(beam_options.with_local_defaults(beam_arguments))
    name = type(pipeline.runner).__name__
    direct = pipeline.options.view_as(DirectOptions)
    if name != LOCAL_RUNNER:
        return name
    workers = counted(direct.direct_num_workers, "worker")
    return f"{name}, {workers}, {direct.direct_running_mode}"


def run_pipeline(
    pipeline: beam.Pipeline,
    report: Callable[[str], object] = lambda line: None,
    *,
    job_file: JobFile | None = None,
    detach: bool = False,
) -> PipelineResult:
    """Run a pipeline to its end.

    If a worker raises a UserError, this function raises it, and the worker does not log it.

    Args:
      pipeline: The pipeline.
      report: Prints a line with the job's ID and page as soon as the runner has accepted the job,
        and a line before the job is canceled.
      job_file: Stores the job while it may run, so that no second job starts.
      detach: Whether to leave the job to the runner as soon as the runner has accepted it.

    Raises:
      UserError: A worker raised it, or the runner refused or ended the job.
      KeyboardInterrupt: The user wants to stop; the job is canceled (see `remote_jobs.cancel`).
      JobHandedOver: The runner continues the job, or wrote a template that another program starts.
      RuntimeError: The pipeline did not end in the state DONE.
    """
    runner = type(pipeline.runner).__name__
    note = JobNote(new_job(pipeline.options, runner=runner), file=job_file)
    result: PipelineResult | None = None
    stderr = cast("TextIO", failures.WithoutUserErrors(sys.stderr))
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(failures.user_errors_unlogged())
            stack.enter_context(contextlib.redirect_stderr(stderr))
            if runner == "FlinkRunner":
                stack.enter_context(job_server(pipeline.options))
            stack.enter_context(note)
            result = pipeline.run()
            if not getattr(result, "has_job", True):  # Dataflow reports at once that it is done
                raise remote_jobs.JobHandedOver(
                    f"{runner} wrote the job's template and does not start the job. The launcher "
                    "of the template starts it"
                )
            note.set_id(remote_jobs.job_id(result))
            if line := remote_jobs.describe_job(result, runner=runner, options=pipeline.options):
                report(line)
            if detach:
                note.leave(result)
            remote_jobs.wait(result)
            state = result.state  # read while the job server still runs
        except (Exception, KeyboardInterrupt) as error:
            if failures.is_interrupt(error):
                whole = note.job.check(result) if note.job and result else result
                raise remote_jobs.cancel(whole, report=report) from None
            found = failures.find_user_error(error)
            if found is None and runner.lower() not in LOCAL_RUNNERS:
                found = failures.explain_failure(error, runner=runner, is_taken=result is not None)
            if found is None:
                raise
            raise found from error
    if state != PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended in the state {state}")
    return result
