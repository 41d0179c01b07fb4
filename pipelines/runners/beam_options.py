"""Beam's own flags: parsed, checked, and with the defaults of a local run."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from model.engines.machine import cores
from model.errors import UserError

# Beam's plain DirectRunner tries to download another runner first, so machines would differ.
LOCAL_RUNNER = "FnApiRunner"

# Runners of this machine by the name that they have or that Beam gives them.
_DIRECT_RUNNERS = ("fnapirunner", "directrunner", "switchingdirectrunner")
LOCAL_RUNNERS = (*_DIRECT_RUNNERS, "bundlebaseddirectrunner", "prismrunner")
_KNOWN_RUNNERS = frozenset(name.lower() for name in StandardOptions.KNOWN_RUNNER_NAMES)
_SECRET_WORDS = ("secret", "password", "token", "key", "connection_string")
LOOPBACK = "LOOPBACK"  # an environment: the workers are the process that submits the job


def parse_arguments(arguments: Sequence[str]) -> PipelineOptions:
    """Parse Beam's flags.

    Raises:
      UserError: Beam cannot take a value, for the reason that the error repeats; or it is asked for
        help.
    """
    usage = io.StringIO()  # which is what Beam's parser prints of all its options
    try:
        with contextlib.redirect_stderr(usage), contextlib.redirect_stdout(usage):
            options = PipelineOptions(list(arguments))
            options.get_all_options()
            return options
    except SystemExit as error:
        _, _, reason = usage.getvalue().rstrip().rpartition("error: ")
        if not error.code:
            reason = "it does not list its options that way. Leave out --help"
        raise refused(arguments, reason) from error


def refused(arguments: Sequence[str], reason: object) -> UserError:
    """Returns the error of flags that Beam cannot take, without their secrets."""
    return UserError(f"Beam cannot take the options {describe_arguments(arguments)!r}: {reason}")


def describe_arguments(arguments: Sequence[str]) -> str:
    """Writes Beam's flags in a line, without what they say of keys and passwords.

    >>> describe_arguments(["--region=r", "--s3_secret_access_key", "x", "--s3_region_name=y"])
    '--region=r --s3_secret_access_key=*** --s3_region_name=y'
    """
    shown: list[str] = []
    is_hidden = False  # whether the next one is what a flag before it says
    for argument in arguments:
        name, has_value, _ = argument.partition("=")
        if not name.startswith("--"):
            if not is_hidden:
                shown.append(argument)
            is_hidden = False
            continue
        is_hidden = any(word in name.lower() for word in _SECRET_WORDS)
        shown.append(f"{name}=***" if is_hidden else argument)
        is_hidden = is_hidden and not has_value
    return " ".join(shown) or "none"


def check_flags(arguments: Sequence[str]) -> None:
    """Raises a UserError for a flag that Beam does not know."""
    given = PipelineOptions(arguments).get_all_options(retain_unknown_options=True)
    unknown = given.keys() - PipelineOptions([]).get_all_options().keys()
    # Beam takes a flag with a dash for one with an underscore, and then for none.
    dashed = [a for a in arguments if "-" in a.partition("=")[0].removeprefix("--")]
    said = {a.partition("=")[0].removeprefix("--").replace("-", "_") for a in dashed}
    flags = [f"--{name}" for name in sorted(unknown - said)]
    flags += [describe_arguments([argument]) for argument in dashed]
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


def find_runner_name(arguments: Sequence[str]) -> str:
    """Returns the runner in lower case, without its module: "flinkrunner" of "flink", too.

    Raises:
      UserError: Beam cannot read a flag.
    """
    runner = parse_arguments(arguments).view_as(StandardOptions).runner or LOCAL_RUNNER
    name = str(runner).rpartition(".")[2].lower()
    whole = f"{name}runner"  # as Beam takes it for
    return whole if whole in _KNOWN_RUNNERS else name


def check_runner(arguments: Sequence[str], *, is_own_flag: bool = False) -> None:
    """Checks that Beam has the runner, or that it is named with its module.

    `is_own_flag` says that tt's own flag named it, and not Beam's.

    Raises:
      UserError: It is not so, or Beam cannot read a flag.
    """
    runner = parse_arguments(arguments).view_as(StandardOptions).runner
    if runner is None or "." in runner:
        return
    if find_runner_name(arguments) not in _KNOWN_RUNNERS:
        choices = (
            "for `runner` choose dataflow, flink, another of Beam's runners such as portable"
            if is_own_flag
            else "after -- --runner= name one of Beam's, such as DataflowRunner, FlinkRunner or "
            "PortableRunner"
        )
        raise UserError(
            f"there is no runner {runner}: {choices}, or MODULE.CLASS; without one the job runs on "
            "this machine"
        )


def is_dataflow(arguments: Sequence[str]) -> bool:
    """Says whether Beam's flags name Dataflow's runner.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return "dataflow" in find_runner_name(arguments)


def has_direct_workers(arguments: Sequence[str]) -> bool:
    """Says whether the job runs here, with as many workers as the `--direct_` options say.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return find_runner_name(arguments) in _DIRECT_RUNNERS


def with_local_defaults(arguments: Sequence[str]) -> list[str]:
    """Uses all cores, as threads, where no argument says how a job of this machine is to run."""
    names = {argument.partition("=")[0] for argument in arguments}
    if "--direct_running_mode" in names or not has_direct_workers(arguments):
        return list(arguments)
    # Threads are enough: SentencePiece releases the interpreter's lock.
    threads = "--direct_running_mode=multi_threading"
    if "--direct_num_workers" in names:
        workers = parse_arguments(arguments).view_as(DirectOptions).direct_num_workers
        return list(arguments) if workers == 1 else [*arguments, threads]
    return [*arguments, f"--direct_num_workers={cores()}", threads]


def with_workers(arguments: Sequence[str], workers: int) -> list[str]:
    """Gives a job that runs here so many threads, if no argument says how many.

    Raises:
      UserError: Beam cannot read a flag.
    """
    if has_direct_workers(arguments) and local_workers(arguments) is None:
        arguments = [*arguments, f"--direct_num_workers={workers}"]
    return with_local_defaults(arguments)


def local_workers(arguments: Sequence[str]) -> int | None:
    """Returns how many workers the arguments ask for on this machine, if they say it.

    Raises:
      UserError: Beam cannot read a flag.
    """
    names = {argument.partition("=")[0] for argument in arguments}
    if not names & {"--direct_num_workers", "--direct_running_mode"}:
        return None
    workers: int = parse_arguments(arguments).view_as(DirectOptions).direct_num_workers
    return workers or cores()  # Beam takes 0 for all cores


def has_worker_processes(arguments: Sequence[str]) -> bool:
    """Says whether the workers of this machine are asked to be processes, not threads.

    Raises:
      UserError: Beam cannot read a flag.
    """
    mode = parse_arguments(arguments).view_as(DirectOptions).direct_running_mode
    return bool(mode == "multi_processing")


def set_file_system_options(beam_arguments: Sequence[str]) -> None:
    """Lets file systems that want options of their own (s3://) be used before a pipeline runs."""
    FileSystems.set_options(parse_arguments(beam_arguments))
