"""Errors of Beam and of service clients, in one line.

An error is recognized by the name of its type, so no package is imported for it. Other errors count
as bugs and keep their traceback.
"""

from __future__ import annotations

import errno
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


def explain_failure(error: BaseException, *, runner: str, is_taken: bool) -> UserError | None:
    """Return what to tell the user if another runner refused a job or ended it; None for a bug.

    Args:
      error: The error that Beam raised.
      runner: The runner, such as "FlinkRunner".
      is_taken: Whether the runner had taken the job.
    """
    for link in chain(error):
        if found := explain(link) or _explain_service(link, _JOB_SERVICES):
            return found
    refusals = () if is_taken else (ValueError,)  # of options that Beam checks before it submits
    if not isinstance(error, (RuntimeError, OSError, *refusals)):
        return None
    if is_taken:
        return ServiceError(
            f"the job failed on {runner} or was ended there ({_reason(error)}). Run the same "
            "command with -v to see more"
        )
    return UserError(
        f"{runner} does not take the job ({_reason(error)}). Run the same command with -v to see "
        "more"
    )


def _reason(error: BaseException) -> str:
    """Return the last line of an error's message."""
    details = getattr(error, "details", None)  # of grpc
    found = details() if callable(details) else None
    # Beam's client of S3 raises a text and a status, which would be shown as a tuple.
    is_several = len(error.args) > 1 and isinstance(error.args[0], str)
    text = str(found or (error.args[0] if is_several else error))
    line = text.strip().rpartition("\n")[2].strip() or type(error).__name__
    return line if len(line) <= _LONGEST_REASON else f"{line[:_LONGEST_REASON]}..."
