"""The failure of a job, and how it reaches the user."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
from collections.abc import Callable, Iterator
from typing import TextIO

from model.errors import UserError
from model.folders.access import explain_denied, no_access
from pipelines.runners.foreign_errors import chain

_RUNNING = re.compile(r" \[while running '[^\n]*")  # what Beam puts behind a message
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


def is_interrupt(error: BaseException) -> bool:
    """Says whether an exception wraps a KeyboardInterrupt, of which Beam makes a RuntimeError."""
    return any(isinstance(link, KeyboardInterrupt) for link in chain(error))


class WithoutUserErrors(io.TextIOBase):
    """A stream that leaves out a worker's traceback of a UserError, which Beam prints as one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left_out = False

    def write(self, text: str) -> int:
        """Writes a text, unless it is such a traceback."""
        is_end_of_line = self._left_out and text == "\n"
        self._left_out = text.startswith("Traceback") and _USER_ERROR.search(text) is not None
        if not (self._left_out or is_end_of_line):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Flushes the stream."""
        self._stream.flush()

    def isatty(self) -> bool:
        """Says whether the stream is a terminal."""
        return self._stream.isatty()


@contextlib.contextmanager
def user_errors_unlogged() -> Iterator[None]:
    """Keep user errors and interrupts out of the logs of Beam's workers inside the block."""
    # A new object for each job: another job of this process may end before this one.
    is_logged = functools.partial(_is_no_user_error)
    loggers = [logging.getLogger(name) for name in _WORKER_LOGGERS]
    for logger in loggers:
        logger.addFilter(is_logged)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_logged)


def _is_no_user_error(record: logging.LogRecord) -> bool:
    """Return whether a log record is about neither a user error nor an interrupt."""
    error = (record.exc_info[1] if record.exc_info else None) or Exception(record.getMessage())
    return find_user_error(error) is None and not is_interrupt(error)
