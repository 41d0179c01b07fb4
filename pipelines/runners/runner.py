"""Where a Beam job runs, and how its failure reaches the user."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TextIO

import apache_beam as beam
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import (
    DirectOptions,
    JobServerOptions,
    PipelineOptions,
    PortableOptions,
    StandardOptions,
)
from apache_beam.runners.runner import PipelineResult, PipelineState

from model.engines.loading import cores
from model.errors import UserError
from model.folders.access import explain_denied, no_access
from pipelines.runners.foreign_errors import chain, explain_submission
from pipelines.storage.files import is_local

# Beam's plain DirectRunner tries to download another runner first, so machines would differ.
LOCAL_RUNNER = "FnApiRunner"

# Runners of this machine by the name that they have or that Beam gives them.
_DIRECT_RUNNERS = ("fnapirunner", "directrunner", "switchingdirectrunner")
_LOCAL_RUNNERS = (*_DIRECT_RUNNERS, "bundlebaseddirectrunner", "prismrunner")
_LOOPBACK = "LOOPBACK"  # an environment: the workers are the process that submits the job

_RUNNING = re.compile(r" \[while running '[^\n]*")  # what Beam puts behind a message
_DENIED = re.compile(r"\[Errno \d+\] (?P<reason>[^:]*)(?:: (?:'.*' -> )?'(?P<path>.*)')?")


def _denied(message: str) -> UserError:
    """Returns what to tell the user of the text of a PermissionError."""
    found = _DENIED.fullmatch(message)
    if found is None:
        return no_access("a file", reason=message)
    return no_access(found["path"] or "a file", reason=found["reason"])


def _kinds(error: type[UserError]) -> Iterator[type[UserError]]:
    """Yields a class of errors and all below it."""
    yield error
    for kind in error.__subclasses__():
        yield from _kinds(kind)


_ERRORS: dict[str, Callable[[str], UserError]] = {
    **{error.__name__: error for error in _kinds(UserError)},
    PermissionError.__name__: _denied,
}

# How a worker's traceback, which the runner hands on as text, ends.
_USER_ERROR = re.compile(
    rf"^(?:\w+\.)*({'|'.join(_ERRORS)}): (.*?)(?:{_RUNNING.pattern})?$", re.MULTILINE
)

# Where Beam logs a worker's exception with its traceback before the runner raises it.
_WORKER_LOGGERS = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")


def make_pipeline(beam_arguments: Sequence[str]) -> beam.Pipeline:
    """Makes a pipeline from Beam's own flags; without `--runner` it runs on this machine.

    Raises:
      UserError: Beam does not know the runner, or cannot read a flag.
    """
    arguments = list(beam_arguments)
    is_local = not any(a == "--runner" or a.startswith("--runner=") for a in arguments)
    if is_local:
        arguments.append(f"--runner={LOCAL_RUNNER}")
    options = _parse(arguments)
    _choose_job_service(options, arguments)
    if is_local:  # other runners have options that Beam here does not know
        _check_is_known(arguments)
    try:
        return beam.Pipeline(options=options)
    except ValueError as error:
        shown = " ".join(beam_arguments)
        raise UserError(f"Beam cannot take the options {shown!r}: {error}") from error


def _choose_job_service(options: PipelineOptions, arguments: Sequence[str]) -> None:
    """Gives PortableRunner a job service of this process, where workers of this process are asked.

    Raises:
      UserError: It has no job service, and none of this process would do.
    """
    portable = options.view_as(PortableOptions)
    if portable.job_endpoint or _runner_name(arguments) != "portablerunner":
        return
    if (portable.environment_type or "").upper() != _LOOPBACK:
        raise UserError(
            "PortableRunner needs --job_endpoint=HOST:PORT of a job service, or "
            f"--environment_type={_LOOPBACK} to work in this process: give one behind --"
        )
    portable.job_endpoint = "embed"


def _parse(arguments: Sequence[str]) -> PipelineOptions:
    usage = io.StringIO()  # which is what Beam's parser prints of all its options
    try:
        with contextlib.redirect_stderr(usage):
            options = PipelineOptions(list(arguments))
            options.get_all_options()
            return options
    except SystemExit as error:
        reason = usage.getvalue().strip().splitlines()[-1].partition("error: ")[2]
        shown = " ".join(arguments)
        raise UserError(f"Beam cannot take the options {shown!r}: {reason}") from error


def _check_is_known(arguments: Sequence[str]) -> None:
    given = PipelineOptions(arguments).get_all_options(retain_unknown_options=True)
    unknown = given.keys() - PipelineOptions([]).get_all_options().keys()
    # Beam takes a flag with a dash for one with an underscore, and then for none.
    dashed = [a for a in arguments if "-" in a.partition("=")[0].removeprefix("--")]
    said = {a.partition("=")[0].removeprefix("--").replace("-", "_") for a in dashed}
    flags = [*(f"--{name}" for name in sorted(unknown - said)), *dashed]
    takes_value = False  # whether the argument before this one may
    for argument in arguments:
        is_flag = argument.startswith("--")
        if not is_flag and not takes_value:
            flags.append(argument)
        takes_value = is_flag and "=" not in argument
    if flags:
        raise UserError(
            f"Beam has no option {', '.join(flags)}: what stands after -- (or under beam: in a "
            "config file) is for Beam"
        )


def _runner_name(arguments: Sequence[str]) -> str:
    """Returns the runner in lower case, without its module, as Beam takes it."""
    runner = _parse(arguments).view_as(StandardOptions).runner or LOCAL_RUNNER
    return str(runner).rpartition(".")[2].lower()


def has_direct_workers(arguments: Sequence[str]) -> bool:
    """Says whether the job runs here, with as many workers as the `--direct_` options say.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return _runner_name(arguments) in _DIRECT_RUNNERS


def check_places(arguments: Sequence[str], *, paths: Sequence[str]) -> str | None:
    """Checks that the workers of a job can reach its files.

    Args:
      arguments: Beam's own flags.
      paths: What the user named, to read or to write.

    Returns:
      A warning where another runner may have no such local path, else None.

    Raises:
      UserError: A path is local and the job runs on Dataflow, or Beam cannot read a flag.
    """
    runner = _runner_name(arguments)
    environment = _parse(arguments).view_as(PortableOptions).environment_type or ""
    local = next((path for path in paths if is_local(path)), None)
    if local is None or runner in _LOCAL_RUNNERS:
        return None
    if "dataflow" in runner:
        raise UserError(
            f"{local} is of this machine, and the workers of Dataflow are others: name a path of "
            "gs://"
        )
    if environment.upper() == _LOOPBACK:  # the workers are this process
        return None
    return (
        f"{local} is of this machine: the workers of this --runner must have the same file under "
        "the same path, else name one of another file system"
    )


def with_local_defaults(arguments: Sequence[str]) -> list[str]:
    """Uses all cores, as threads, where no argument says how a job of this machine is to run."""
    names = {argument.partition("=")[0] for argument in arguments}
    if "--direct_running_mode" in names or not has_direct_workers(arguments):
        return list(arguments)
    # Threads are enough: SentencePiece releases the interpreter's lock.
    threads = "--direct_running_mode=multi_threading"
    if "--direct_num_workers" in names:
        workers = _parse(arguments).view_as(DirectOptions).direct_num_workers
        return list(arguments) if workers == 1 else [*arguments, threads]
    return [*arguments, f"--direct_num_workers={cores()}", threads]


def local_workers(arguments: Sequence[str]) -> int | None:
    """Returns how many workers the arguments ask for on this machine, if they say it.

    Raises:
      UserError: Beam cannot read a flag.
    """
    names = {argument.partition("=")[0] for argument in arguments}
    if not names & {"--direct_num_workers", "--direct_running_mode"}:
        return None
    workers: int = _parse(arguments).view_as(DirectOptions).direct_num_workers
    return workers or cores()  # Beam takes 0 for all cores


def has_worker_processes(arguments: Sequence[str]) -> bool:
    """Says whether the workers of this machine are asked to be processes, not threads.

    Raises:
      UserError: Beam cannot read a flag.
    """
    mode = _parse(arguments).view_as(DirectOptions).direct_running_mode
    return bool(mode == "multi_processing")


def set_file_system_options(beam_arguments: Sequence[str]) -> None:
    """Lets file systems that want options of their own (s3://) be used before a pipeline runs."""
    FileSystems.set_options(_parse(beam_arguments))


def run_pipeline(pipeline: beam.Pipeline) -> PipelineResult:
    """Runs a pipeline to its end; a worker's UserError is raised here and not logged there.

    Raises:
      UserError: A worker raised one; the runner's wrapping is taken off.
      KeyboardInterrupt: It met a worker of this thread; the same is taken off.
      RuntimeError: The pipeline ended in another state than done.
    """
    for name in _WORKER_LOGGERS:
        logging.getLogger(name).addFilter(_is_no_user_error)
    try:
        with contextlib.redirect_stderr(_WithoutUserErrors(sys.stderr)):
            result = pipeline.run()
            result.wait_until_finish()
    except Exception as error:
        if _is_interrupt(error):
            raise KeyboardInterrupt from None
        found = find_user_error(error) or _explain_runner(error, pipeline)
        if found is None:
            raise
        raise found from error
    if result.state != PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended in the state {result.state}")
    return result


def _explain_runner(error: Exception, pipeline: beam.Pipeline) -> UserError | None:
    """Returns what to tell the user where another runner did not take the job; else None."""
    runner = type(pipeline.runner).__name__
    if runner.lower() in _LOCAL_RUNNERS:
        return None
    java = pipeline.options.view_as(JobServerOptions).job_server_java_launcher
    return explain_submission(error, runner=runner, java=java)


def find_user_error(error: BaseException) -> UserError | None:
    r"""Finds the UserError that an exception wraps, as object or as text.

    >>> find_user_error(RuntimeError("Traceback ...\nmodel.errors.UserError: no model"))
    UserError('no model')
    """
    for link in chain(error):
        if isinstance(link, UserError):
            return type(link)(_RUNNING.sub("", str(link)))
        if denied := explain_denied(link):
            return denied
        if found := _USER_ERROR.findall(str(link)):
            name, message = found[-1]
            return _ERRORS[name](message)
    return None


def _is_interrupt(error: BaseException) -> bool:
    """Says whether an exception wraps a KeyboardInterrupt, of which Beam makes a RuntimeError."""
    return any(isinstance(link, KeyboardInterrupt) for link in chain(error))


class _WithoutUserErrors(io.TextIOBase):
    """A stream that leaves out a worker's traceback of a UserError, which Beam prints as one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left_out = False

    def write(self, text: str) -> int:
        is_end_of_line = self._left_out and text == "\n"
        self._left_out = text.startswith("Traceback") and _USER_ERROR.search(text) is not None
        if not (self._left_out or is_end_of_line):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _is_no_user_error(record: logging.LogRecord) -> bool:
    error = (record.exc_info[1] if record.exc_info else None) or Exception(record.getMessage())
    return find_user_error(error) is None and not _is_interrupt(error)
