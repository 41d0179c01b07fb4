"""The run of a Beam job."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence

import apache_beam as beam
from apache_beam.options.pipeline_options import (
    DirectOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    SetupOptions,
)
from apache_beam.runners.portability.fn_api_runner import worker_handlers
from apache_beam.runners.runner import PipelineResult, PipelineState

from model.errors import UserError, counted
from pipelines.runners import beam_options, failures, job_states, remote_jobs
from pipelines.runners.beam_options import LOCAL_RUNNER, LOCAL_RUNNERS, LOOPBACK
from pipelines.runners.failures import find_user_error
from pipelines.runners.flink_server import job_server
from pipelines.runners.foreign_errors import explain_failure
from pipelines.runners.job_file import JobFile, JobNote

# Beam's workers that are threads send once per second what an element's coder has written so far.
# While another thread has the interpreter's lock, this is a part of an element, and the reader
# takes the rest for a length: memory without end. Other workers send whole elements.
worker_handlers.DATA_BUFFER_TIME_LIMIT_MS = 0


def make_pipeline(beam_arguments: Sequence[str], *, detach: bool = False) -> beam.Pipeline:
    """Makes a pipeline from Beam's own flags; without `--runner` it runs on this machine.

    Raises:
      UserError: Beam does not know the runner, or cannot read a flag. Or the job is to be left to
        its runner (`detach`), and would end with this process.
    """
    arguments = list(beam_arguments)
    is_local = not any(a == "--runner" or a.startswith("--runner=") for a in arguments)
    if is_local:
        arguments.append(f"--runner={LOCAL_RUNNER}")
    options = beam_options.parse_arguments(arguments)
    _choose_job_service(options, arguments)
    if is_local:  # other runners have options that Beam here does not know
        beam_options.check_flags(arguments)
    try:
        pipeline = beam.Pipeline(options=options)
    except ValueError as error:
        raise beam_options.refused(beam_arguments, error) from error
    if detach:
        _check_goes_on(pipeline)
    return pipeline


def describe_runner(beam_arguments: Sequence[str]) -> str:
    """Names the runner that a job would have with these flags of Beam, and its workers.

    Raises:
      UserError: Beam cannot take its flags.
    """
    if beam_options.is_dataflow(beam_arguments):
        return "DataflowRunner"  # of which making a pipeline asks for buckets
    pipeline = make_pipeline(beam_options.with_local_defaults(beam_arguments))
    name = type(pipeline.runner).__name__
    direct = pipeline.options.view_as(DirectOptions)
    if name != LOCAL_RUNNER:
        return name
    workers = counted(direct.direct_num_workers, "worker")
    return f"{name}, {workers}, {direct.direct_running_mode}"


def _choose_job_service(options: PipelineOptions, arguments: Sequence[str]) -> None:
    """Gives PortableRunner a job service of this process, where workers of this process are asked.

    Raises:
      UserError: It has no job service, and none of this process would do.
    """
    portable = options.view_as(PortableOptions)
    if portable.job_endpoint or beam_options.find_runner_name(arguments) != "portablerunner":
        return
    if (portable.environment_type or "").upper() != LOOPBACK:
        raise UserError(
            "PortableRunner needs --job_endpoint=HOST:PORT of a job service, or "
            f"--environment_type={LOOPBACK} to work in this process: give one behind --"
        )
    portable.job_endpoint = "embed"


def _check_goes_on(pipeline: beam.Pipeline) -> None:
    runner = type(pipeline.runner).__name__
    environment = str(pipeline.options.view_as(PortableOptions).environment_type or "").upper()
    is_here = environment == LOOPBACK and runner != "DataflowRunner"
    if is_here or job_states.new_job(pipeline.options, runner=runner) is None:
        what = f"{runner} has its workers" if is_here else f"{runner} works"
        raise UserError(
            f"`detach` needs a job that goes on by itself, and {what} in this process: leave it "
            "out, or name a --runner of other machines"
        )
    setup = pipeline.options.view_as(SetupOptions)
    has_packages = setup.setup_file or setup.extra_packages or setup.requirements_file
    server = pipeline.options.view_as(JobServerOptions)
    if runner == "FlinkRunner" and has_packages and not server.artifacts_dir:
        raise UserError(
            "`detach` leaves no one to keep the packages that the workers of FlinkRunner install: "
            "name a folder that task managers can read, behind -- with --artifacts_dir, or leave "
            "out one of them"
        )


def run_pipeline(
    pipeline: beam.Pipeline,
    report: Callable[[str], object] = lambda line: None,
    *,
    job_file: JobFile | None = None,
    detach: bool = False,
) -> PipelineResult:
    """Runs a pipeline to its end; a worker's UserError is raised here and not logged there.

    Args:
      pipeline: The pipeline.
      report: Takes the line that says what the runner calls the job and where it shows it, as
        soon as it has taken it, and one if the job is to be cancelled.
      job_file: Names the job while it may run, so that no second one is started.
      detach: Whether to leave the job to the runner as soon as it has taken it.

    Raises:
      UserError: A worker raised one; the runner's wrapping is taken off.
      KeyboardInterrupt: The user wants the end: the job is cancelled (see `remote_jobs.cancel`).
      JobHandedOver: The runner has the job, or wrote it down for another program to start.
      RuntimeError: The pipeline ended in another state than done.
    """
    runner = type(pipeline.runner).__name__
    note = JobNote(job_states.new_job(pipeline.options, runner=runner), file=job_file)
    result: PipelineResult | None = None
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(failures.user_errors_unlogged())
            stack.enter_context(contextlib.redirect_stderr(failures.WithoutUserErrors(sys.stderr)))
            if runner == "FlinkRunner":
                stack.enter_context(job_server(pipeline.options))
            stack.enter_context(note)
            result = pipeline.run()
            remote_jobs.check_is_started(result, runner=runner)
            note.set_id(remote_jobs.job_id(result))
            if line := remote_jobs.describe_job(result, runner=runner, options=pipeline.options):
                report(line)
            if detach:
                note.leave(result)
            remote_jobs.wait(result)
            state = result.state  # while there is a job server to ask
        except (Exception, KeyboardInterrupt) as error:
            if failures.is_interrupt(error):
                whole = note.job.check(result) if note.job and result else result
                raise remote_jobs.cancel(whole, report=report) from None
            found = find_user_error(error)
            if found is None and runner.lower() not in LOCAL_RUNNERS:
                found = explain_failure(error, runner=runner, is_taken=result is not None)
            if found is None:
                raise
            raise found from error
    if state != PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended in the state {state}")
    return result
