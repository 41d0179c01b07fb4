"""Explain the failure of a job to the user in one line.

The module of an error's type shows which service client raised it, so this module need not import
the clients. Other errors count as bugs and keep their traceback.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import re
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from tt.model.errors import ServiceError, UserError, explain_denied, no_access

_LONGEST_REASON = 300  # characters
_SHOWN_NAME = 40  # characters of a file name that is too long
_SERVICES = {
    "google.api_core": "Google Cloud",
    "google.auth": "Google Cloud",
    "requests": "a server",
    "grpc": "the job service",
}

_RUNNING = re.compile(r" \[while running '[^\n]*")  # Beam appends this to messages
_DENIED = re.compile(r"\[Errno \d+\] (?P<reason>[^:]*)(?:: (?:'.*' -> )?'(?P<path>.*)')?")


def _denied(message: str) -> UserError:
    found = _DENIED.fullmatch(message)
    if found is None:
        return no_access("a file", reason=message)
    return no_access(found["path"] or "a file", reason=found["reason"])


def _kinds(error: type[UserError]) -> Iterator[type[UserError]]:
    yield error
    for kind in error.__subclasses__():
        yield from _kinds(kind)


# Matches the last line of a worker's traceback, which the runner passes on as text.
_LAST_LINE = re.compile(rf"^(?:\w+\.)*([A-Za-z_]\w*): (.*?)(?:{_RUNNING.pattern})?$", re.MULTILINE)


def _user_errors_in(text: str) -> list[UserError]:
    """Return the user errors in a text, also those of modules that were imported later."""
    errors: dict[str, Callable[[str], UserError]] = {
        **{kind.__name__: kind for kind in _kinds(UserError)},
        PermissionError.__name__: _denied,
    }
    return [errors[name](message) for name, message in _LAST_LINE.findall(text) if name in errors]


# Beam logs a worker's exception with its traceback here before the runner raises it.
_WORKER_LOGGERS = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and its causes."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def find_user_error(error: BaseException) -> UserError | None:
    r"""Find the UserError that an exception contains, as an object or as text.

    >>> find_user_error(RuntimeError("Traceback ...\nmodel.errors.UserError: no model"))
    UserError('no model')
    """
    for link in _chain(error):
        if isinstance(link, UserError):
            return type(link)(_RUNNING.sub("", str(link)))
        if denied := explain_denied(link):
            return denied
        if found := _user_errors_in(str(link)):
            return found[-1]
    return None


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception contains a KeyboardInterrupt, as Beam's RuntimeError may."""
    return any(isinstance(link, KeyboardInterrupt) for link in _chain(error))


def explain(error: BaseException) -> UserError | None:
    """Return the error for missing rights, long file names or failed services; None for a bug."""
    if denied := explain_denied(error):
        return denied
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        shown = str(error.filename)[:_SHOWN_NAME]
        return UserError(
            f"the file name {shown}... is too long for a file system. Choose a shorter name"
        )
    for module in (kind.__module__ for kind in type(error).__mro__):
        for prefix, service in _SERVICES.items():
            if module == prefix or module.startswith(f"{prefix}."):
                found = ServiceError(
                    f"{service} cannot be used ({_reason(error)}). Check the address, the network, "
                    "your credentials and your permissions, and run the same command again"
                )
                found.__cause__ = error  # `-v` shows the traceback
                return found
    return None


def explain_failure(error: BaseException, *, runner: str, is_taken: bool) -> UserError | None:
    """Return the error to raise if a runner refused or ended a job; None for a bug.

    Args:
      error: The error that Beam raised.
      runner: The runner, such as "FlinkRunner".
      is_taken: Whether the runner had accepted the job.
    """
    for link in _chain(error):
        if found := explain(link):
            return found
    # Beam raises a ValueError for wrong options, which it checks before it submits a job.
    about_options = () if is_taken else (ValueError,)
    if not isinstance(error, (RuntimeError, OSError, *about_options)):
        return None
    more = "Run the same command with -v for details"
    if is_taken:
        return ServiceError(
            f"the job failed on {runner} or was stopped there ({_reason(error)}). {more}"
        )
    return UserError(f"{runner} did not accept the job ({_reason(error)}). {more}")


def _reason(error: BaseException) -> str:
    """Return the last line of an error's message."""
    details = getattr(error, "details", None)  # of gRPC errors, whose text has many lines
    text = str(details() if callable(details) else error)
    return text.strip().rpartition("\n")[2].strip()[:_LONGEST_REASON] or type(error).__name__


class WithoutUserErrors:
    """A stream that omits the tracebacks of UserErrors, which Beam's workers print."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left_out = False

    def write(self, text: str) -> int:
        """Write a text, unless it is the traceback of a UserError."""
        is_end_of_line = self._left_out and text == "\n"
        self._left_out = text.startswith("Traceback") and bool(_user_errors_in(text))
        if not (self._left_out or is_end_of_line):
            self._stream.write(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextlib.contextmanager
def user_errors_unlogged() -> Iterator[None]:
    """Keep user errors and interrupts out of the logs of Beam's workers inside the block."""

    # Each job needs its own filter, because another job of this process may end earlier.
    def is_logged(record: logging.LogRecord) -> bool:
        error = (record.exc_info[1] if record.exc_info else None) or Exception(record.getMessage())
        return find_user_error(error) is None and not is_interrupt(error)

    loggers = [logging.getLogger(name) for name in _WORKER_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_logged)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_logged)
