"""User errors, and functions that check values and write messages.

The command line turns a `UserError` into one line on stderr and an exit code.
"""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHOICES = "choices"  # key in the metadata of a dataclass field


class UserError(Exception):
    """A mistake that the user can fix: a wrong path, option or input.

    The message is one line with the problem, the value received and the fix. A problem that the
    user cannot fix raises another exception, with its traceback.
    """

    exit_code = 2


class BadFileError(UserError):
    """A file exists, but it cannot be read or lacks the expected content."""

    remedy = "Fetch the file again, or write it again with another program"


class ColumnsError(UserError):
    """The columns of a file do not match the options."""


class NotFiniteError(UserError):
    """The model computes infinity or NaN, so no translation has a probability."""


class UnfinishedError(UserError):
    """The command stopped although its input and options are valid.

    Finished work is kept, and the same command resumes it.
    """


class DiskFullError(UnfinishedError):
    """The disk has no free space."""


class NoAccessError(UnfinishedError):
    """The user has no permission to read or write a file or folder."""


class ServiceError(UnfinishedError):
    """A network service does not answer, or rejects a request."""


class GoneError(ServiceError):
    """A topic or subscription was deleted while a stream was using it."""

    exit_code = 1


def first_line(problem: BaseException | str) -> str:
    r"""Return the first line of a message that is not blank; without one, the type of the error.

    >>> first_line(ValueError("\nbad shape\nat line 1")), first_line(KeyError()), first_line("")
    ('bad shape', 'KeyError', 'no reason given')
    """
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if lines:
        return lines[0]
    return "no reason given" if isinstance(problem, str) else type(problem).__name__


def require(condition: bool, rule: str, received: object = None) -> None:
    """Raise a UserError unless a condition holds.

    Args:
      condition: The condition.
      rule: The rule that the condition checks, as a sentence with fields in backticks.
      received: The value that broke the rule; None if the message should not show it.

    >>> require(0 >= 1, "`beam_size` must be at least 1", 0)
    Traceback (most recent call last):
    tt.model.errors.UserError: `beam_size` must be at least 1. Received: 0
    """
    if not condition:
        raise UserError(rule if received is None else f"{rule}. Received: {received}")


def require_one_of(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raise a UserError unless a value is one of the choices."""
    require(value in choices, f"{name} must be one of {', '.join(choices)}", str(value))


def one_of(choices: Sequence[str], **default: Any) -> Any:
    """Return a dataclass field whose metadata lists the allowed values, for the help of commands.

    >>> @dataclasses.dataclass
    ... class Options:
    ...     kind: str = one_of(("cross", "encoder"), default="cross")
    >>> Options(), dataclasses.fields(Options)[0].metadata[CHOICES]
    (Options(kind='cross'), ('cross', 'encoder'))
    """
    return dataclasses.field(metadata={CHOICES: tuple(choices)}, **default)


def accept_one_string(options: Any) -> None:
    """Convert strings and lists to tuples, in all dataclass fields that are tuples of strings.

    Without the conversion, `for name in options.names` iterates over the letters of a string.

    >>> @dataclasses.dataclass(frozen=True)
    ... class Options:
    ...     names: tuple[str, ...] = ()
    ...     def __post_init__(self):
    ...         accept_one_string(self)
    >>> Options(names="body"), Options(names=["title", "body"])
    (Options(names=('body',)), Options(names=('title', 'body')))
    """
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if field.type == "tuple[str, ...]" and isinstance(value, str | list):
            values = (value,) if isinstance(value, str) else tuple(value)
            object.__setattr__(options, field.name, values)


def require_text(name: str, text: str) -> None:
    r"""Raise a UserError unless a text can be encoded as UTF-8.

    Python decodes invalid bytes in command-line arguments to surrogates, which cannot be encoded.

    >>> require_text("`sentence`", "caf\udce9")
    Traceback (most recent call last):
    tt.model.errors.UserError: `sentence` must be UTF-8. Received: caf\xe9
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        received = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
        raise UserError(f"{name} must be UTF-8. Received: {received}") from None


def counted(count: int, noun: str) -> str:
    """Return a number with its noun in the singular or plural.

    >>> counted(1, "row"), counted(12_000, "row")
    ('1 row', '12,000 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_TENSORFLOW = "tensorflow.python.framework.errors_impl.PermissionDeniedError"


def explain_denied(error: BaseException) -> NoAccessError | None:
    """Return the error to show to a user without permission, or None for any other error."""
    if isinstance(error, OSError) and error.errno in _DENIED:
        path = error.filename if error.filename2 is None else error.filename2
        return no_access(str(path or "a file"), reason=error.strerror or str(error))
    # Comparing names avoids an import of TensorFlow.
    if f"{type(error).__module__}.{type(error).__name__}" == _TENSORFLOW:
        path, _, reason = str(getattr(error, "message", error)).partition("; ")
        return no_access(path, reason=reason or "permission denied")
    return None


def no_access(path: str | Path, *, reason: str) -> NoAccessError:
    """Return the error for a file or folder without permission.

    >>> str(no_access("run/model", reason="Permission denied"))
    'no access to run/model (permission denied). Change its permissions, or choose another path'
    """
    reason = first_line(reason.strip() or "permission denied")
    reason = f"{reason[:1].lower()}{reason[1:]}"
    return NoAccessError(
        f"no access to {path} ({reason}). Change its permissions, or choose another path"
    )


def check_readable(path: Path) -> None:
    """Check that the user has permission to read a file.

    Libraries may report a file without read permission as damaged.

    Raises:
      NoAccessError: The user has no permission.
    """
    try:
        with path.open("rb"):
            pass
    except PermissionError as error:
        raise no_access(path, reason=error.strerror or str(error)) from error
