"""What Beam and the clients of other services raise, told in one line.

An error is known by its type's name, so that no package is imported for it, or by its text. One
that is not known here counts as a bug and keeps its traceback.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator, Mapping

from model.errors import ServiceError, UserError
from model.folders.access import explain_denied

_AMAZON = (
    "Amazon S3 refused the request: check the bucket and your rights there, and run the same "
    "command again"
)
# What to do, by the type that is raised; the first that fits holds.
_SERVICES = {
    "google.auth.exceptions.TransportError": "Google Cloud cannot be reached: check the network, "
    "and run the same command again",
    "google.auth.exceptions.GoogleAuthError": "Google Cloud wants to know who you are: run `gcloud "
    "auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
    "google.api_core.exceptions.GoogleAPIError": "Google Cloud refused the request: check "
    "project, bucket and your rights there, and run the same command again",
    "apache_beam.io.aws.clients.s3.messages.S3ClientError": _AMAZON,
    "botocore.exceptions.ClientError": _AMAZON,
    "botocore.exceptions.BotoCoreError": "Amazon S3 cannot be used: check keys and network, and "
    "run the same command again",
    "requests.exceptions.ConnectionError": "a server cannot be reached: check the network, and run "
    "the same command again",
}

_JOB_SERVICES = {
    "grpc.FutureTimeoutError": "no job service answers at --job_endpoint: start it, or name where "
    "it listens",
    "grpc.RpcError": "the job service failed: see that the one at --job_endpoint runs, and "
    "what it has logged",
}

_LONGEST_REASON = 300  # characters
_SHOWN_NAME = 40  # characters of one that is too long

_NO_JAR = re.compile(
    r"Unable to fetch remote job server jar at (?P<url>\S+): (?P<reason>.*?)\. (?:Also|If no) .*"
    r"stage the jar at (?P<path>\S+)",
    re.DOTALL,
)

_NO_TT = re.compile(r"ModuleNotFoundError: No module named '(?:pipelines|model|cli)\b")
_OTHER_VERSIONS = re.compile(
    r"Submission environment: \S*python(?P<ours>[\d.]+)_sdk:(?P<our_beam>\S+)\. "
    r"Runtime environment: \S*python(?P<theirs>[\d.]+)_sdk:(?P<their_beam>\S+?)\.?(?:\s|$)"
)
_NO_SUCH_JAR = re.compile(r'Unable to parse jar URL "(?P<path>.*?)"')
_NO_STAGING = re.compile(r"Could not upload to GCS path (?P<path>\S+): (?P<reason>.*?)\. Please ")
_ENDED_THERE = re.compile(
    r"(?:failed in state |pipeline failed\. State: )(?P<state>CANCELLED|DRAINED|UPDATED)\b"
    r"|failed in state FAILED: \S+\.JobCancellationException: "  # so says the server for Flink
)
_SERVER_ENDED = re.compile(r"Service failed to start up with error (?P<code>-?\d+)")


def chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those behind it."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def explain(error: BaseException) -> UserError | None:
    """Returns what to tell the user of rights, long names, networks and services, or None."""
    if denied := explain_denied(error):
        return denied
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        name = str(error.filename or "a name")
        shown = name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}..."
        return UserError(f"{shown} is too long a name for a file system: choose a shorter one")
    return _explain_service(error, _SERVICES)


def _explain_service(error: BaseException, services: Mapping[str, str]) -> UserError | None:
    names = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
    for name, remedy in services.items():
        if name in names:
            what, _, do = remedy.partition(": ")
            return ServiceError(f"{what} ({_reason(error)}): {do}")
    return None


def explain_submission(error: BaseException, *, runner: str, java: str) -> UserError | None:
    """Returns what to tell the user of a job that a runner of Beam's does not take.

    The runner is named as in "FlinkRunner"; `java` is the program that starts its job server.
    """
    for link in chain(error):
        found = (
            _explain_job_server(link, runner=runner, java=java)
            or explain(link)
            or _explain_service(link, _JOB_SERVICES)
        )
        if found:
            return found
    if isinstance(error, NotImplementedError):
        return UserError(
            f"{runner} cannot take the job ({_reason(error)}): choose another --runner"
        )
    return None


def _explain_job_server(error: BaseException, *, runner: str, java: str) -> UserError | None:
    text = str(error)
    if _NO_TT.search(text):
        return UserError(
            f"the workers of {runner} have no tt: build the image of deploy/Dockerfile from this "
            "version, push it to a registry, and name it with `worker_image`"
        )
    if found := _NO_STAGING.search(text):
        return UserError(
            f"{found['path']} cannot be written ({found['reason']}): see that the bucket is there, "
            "and that you may write to it, or choose another `staging`"
        )
    if found := _OTHER_VERSIONS.search(text):
        return UserError(
            f"the workers of {runner} have Python {found['theirs']} and Beam "
            f"{found['their_beam']}, and the job was submitted by Python {found['ours']} and Beam "
            f"{found['our_beam']}: give them the same, as by an image of deploy/Dockerfile"
        )
    option = f"--{runner.removesuffix('Runner').lower()}_job_server_jar"
    if found := _NO_JAR.search(text):
        return UserError(
            f"{runner} needs a jar of Beam's, which could not be fetched from {found['url']} "
            f"({found['reason']}): put it at {found['path']}, or name it behind -- with {option}"
        )
    if found := _NO_SUCH_JAR.search(text):
        return UserError(
            f"there is no jar at {found['path']}: name that of Beam's job server with {option}, or "
            "leave that out, and Beam fetches its own"
        )
    if found := _ENDED_THERE.search(text):
        state = found["state"] or "CANCELLED"
        return UserError(
            f"the job was ended at {runner} ({state}): run the same command again to go on"
        )
    if found := _SERVER_ENDED.search(text):
        return UserError(
            f"the job server of {runner} ended at once, with exit code {found['code']}: see that "
            f"{java} is a Java that runs it, and {option} its jar"
        )
    if isinstance(error, FileNotFoundError) and error.filename == java:
        return UserError(
            f"{runner} needs Java, and there is no program {java}: install it, or name it behind "
            "-- with --job_server_java_launcher"
        )
    return None


def _reason(error: BaseException) -> str:
    details = getattr(error, "details", None)  # of grpc, whose text has many lines
    found = details() if callable(details) else None
    # Beam's client of S3 raises a text and a status; that would be shown as a tuple.
    is_several = len(error.args) > 1 and isinstance(error.args[0], str)
    told = found or (error.args[0] if is_several else error)
    line = " ".join(str(told).split()) or type(error).__name__
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."
