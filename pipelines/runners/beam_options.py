"""Parse and check Beam's own flags, and add the defaults of a local run."""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
from collections.abc import Sequence

from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions, StandardOptions

from tt.model.engines.machine import cores
from tt.model.errors import UserError

# Beam's DirectRunner tries to download another runner, so jobs would vary between machines.
LOCAL_RUNNER = "FnApiRunner"

# Runners on this machine, by their own names and by the names that Beam gives them.
_DIRECT_RUNNERS = ("fnapirunner", "directrunner", "switchingdirectrunner")
LOCAL_RUNNERS = (*_DIRECT_RUNNERS, "bundlebaseddirectrunner", "prismrunner")
_KNOWN_RUNNERS = frozenset(name.lower() for name in StandardOptions.KNOWN_RUNNER_NAMES)
# Matches a flag whose value is a secret, and the value. "\0" separates the arguments.
_SECRET = re.compile(
    r"(--[^=\0]*(?:secret|password|token|key|connection_string)[^=\0]*)"
    r"(?:=[^\0]*|\0(?!--)[^\0]*)?",
    re.IGNORECASE,
)
# Flags of Beam's own file systems.
_UNUSED_FLAGS = ("--s3_", "--hdfs_", "--azure_connection_string", "--blob_service_endpoint")
LOOPBACK = "LOOPBACK"  # an environment: workers run in the process that submits the job


def parse_arguments(arguments: Sequence[str]) -> PipelineOptions:
    """Parse Beam's flags. The result is shared, so callers must not change it.

    Raises:
      UserError: Beam does not accept a value, or the flags ask for help.
    """
    return _parse(tuple(arguments))


@functools.lru_cache
def _parse(arguments: tuple[str, ...]) -> PipelineOptions:
    # A job asks for its options about 20 times, and Beam's parser takes milliseconds.
    if unused := [flag for flag in arguments if flag.startswith(_UNUSED_FLAGS)]:
        name = unused[0].partition("=")[0]
        raise UserError(
            f"tt reads and writes files without Beam, so the flag {name} has no effect. Set "
            "variables instead, such as AWS_ENDPOINT_URL and AWS_REGION"
        )
    usage = io.StringIO()  # collects the output of Beam's parser, which lists all options
    try:
        with contextlib.redirect_stderr(usage), contextlib.redirect_stdout(usage):
            options = PipelineOptions(list(arguments))
            options.get_all_options()
            return options
    except SystemExit as error:
        _, _, reason = usage.getvalue().rstrip().rpartition("error: ")
        raise refused(arguments, reason if error.code else "remove --help") from error


def refused(arguments: Sequence[str], reason: object) -> UserError:
    """Return the error for flags that Beam does not accept, without their secrets."""
    shown = describe_arguments(arguments)
    return UserError(f"Beam does not accept the options {shown!r}: {reason}")


def describe_arguments(arguments: Sequence[str]) -> str:
    """Format Beam's flags as one line, without keys and passwords.

    >>> describe_arguments(["--region=r", "--s3_secret_access_key", "x", "--s3_region_name=y"])
    '--region=r --s3_secret_access_key=*** --s3_region_name=y'
    """
    return _SECRET.sub(r"\1=***", "\0".join(arguments)).replace("\0", " ") or "none"


def check_flags(arguments: Sequence[str]) -> None:
    """Check that Beam knows all flags.

    Raises:
      UserError: Beam does not know a flag.
    """
    given = PipelineOptions(arguments).get_all_options(retain_unknown_options=True)
    unknown = given.keys() - PipelineOptions([]).get_all_options().keys()
    # Beam accepts a flag with a dash instead of an underscore, but then ignores it.
    given_flags = [argument for argument in arguments if argument.startswith("--")]
    dashed = [a for a in given_flags if "-" in a.partition("=")[0].removeprefix("--")]
    unknown -= {a.partition("=")[0].removeprefix("--").replace("-", "_") for a in dashed}
    stray = [
        argument
        for before, argument in itertools.pairwise(["", *arguments])
        if not argument.startswith("--") and (not before.startswith("--") or "=" in before)
    ]
    flags = [f"--{name}" for name in sorted(unknown)]
    flags += [describe_arguments([argument]) for argument in [*dashed, *stray]]
    if flags:
        raise UserError(
            f"Beam has no option {', '.join(dict.fromkeys(flags))}. Put only Beam's own flags "
            "after --, or under beam: in a config file"
        )


def find_runner_name(arguments: Sequence[str]) -> str:
    """Return the name of the runner in lower case, without its module.

    A short name is completed: "flink" becomes "flinkrunner".

    Raises:
      UserError: Beam cannot read a flag.
    """
    runner = parse_arguments(arguments).view_as(StandardOptions).runner or LOCAL_RUNNER
    name = str(runner).rpartition(".")[2].lower()
    whole = f"{name}runner"  # Beam also completes short names
    return whole if whole in _KNOWN_RUNNERS else name


def check_runner(arguments: Sequence[str]) -> None:
    """Check that Beam has the runner, unless the runner's name includes its module.

    Raises:
      UserError: Beam does not have the runner, or cannot read a flag.
    """
    runner = parse_arguments(arguments).view_as(StandardOptions).runner
    if runner is None or "." in runner or find_runner_name(arguments) in _KNOWN_RUNNERS:
        return
    raise UserError(
        f"there is no runner {runner}. Set `runner` to dataflow, flink, another Beam runner such "
        "as portable, or MODULE.CLASS, or remove it to run the job on this machine"
    )


def is_dataflow(arguments: Sequence[str]) -> bool:
    """Return whether Beam's flags choose Dataflow's runner.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return "dataflow" in find_runner_name(arguments)


def has_direct_workers(arguments: Sequence[str]) -> bool:
    """Return whether the job runs on this machine, with the workers of the `--direct_` options.

    Raises:
      UserError: Beam cannot read a flag.
    """
    return find_runner_name(arguments) in _DIRECT_RUNNERS


def with_local_defaults(arguments: Sequence[str], *, workers: int | None = None) -> list[str]:
    """Add flags that run a local job on threads, unless the flags already choose workers.

    Args:
      arguments: Beam's own flags.
      workers: Number of threads; by default, one per core.

    Raises:
      UserError: Beam cannot read a flag.
    """
    if not has_direct_workers(arguments):
        return list(arguments)
    found = local_workers(arguments)
    added = [] if found else [f"--direct_num_workers={workers or cores()}"]
    has_mode = any(a.partition("=")[0] == "--direct_running_mode" for a in arguments)
    if not has_mode and (found or workers) != 1:
        # Threads are enough, because SentencePiece releases the interpreter's lock.
        added.append("--direct_running_mode=multi_threading")
    return [*arguments, *added]


def local_workers(arguments: Sequence[str]) -> int | None:
    """Return the number of workers on this machine, or None if the flags do not choose it.

    Raises:
      UserError: Beam cannot read a flag.
    """
    names = {argument.partition("=")[0] for argument in arguments}
    if not names & {"--direct_num_workers", "--direct_running_mode"}:
        return None
    workers: int = parse_arguments(arguments).view_as(DirectOptions).direct_num_workers
    return workers or cores()  # for Beam, 0 means all cores
