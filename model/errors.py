"""The one exception that the command line turns into a message and exit code 2."""

from __future__ import annotations

import dataclasses
import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CHOICES = "choices"  # in the metadata of a dataclass's field


class UserError(Exception):
    """A mistake that the user can mend: a wrong path, option or input.

    Its one line says what is wrong, what was received and what to do next. What is not the user's
    to mend is raised as another exception, with its traceback.
    """

    exit_code = 2


class BadFileError(UserError):
    """A file that is there cannot be read, or does not hold what is asked for."""

    remedy = "Fetch the file again, or write it again with another program"


class ColumnsError(UserError):
    """The columns of a file do not fit the options."""


class NotFiniteError(UserError):
    """A model's numbers overflow or are not numbers: no translation has a probability."""


class UnfinishedError(UserError):
    """Input and options are right; what is finished is kept, and the same command continues."""


class DiskFullError(UnfinishedError):
    """There is no room to write to."""


class NoAccessError(UnfinishedError):
    """A file or folder may not be read or written by this user."""


class ServiceError(UnfinishedError):
    """A service over the network does not answer, or refuses."""


class GoneError(ServiceError):
    """A topic or subscription was deleted while a stream used it."""

    exit_code = 1


def first_line(problem: BaseException | str) -> str:
    r"""Return the first line with text of a message, or the type of an error without a message.

    >>> first_line(ValueError("\nbad shape\nat line 1")), first_line(KeyError()), first_line("")
    ('bad shape', 'KeyError', 'no reason given')
    """
    lines = [line.strip() for line in str(problem).splitlines() if line.strip()]
    if lines:
        return lines[0]
    return "no reason given" if isinstance(problem, str) else type(problem).__name__


def require(condition: bool, rule: str, received: object = None) -> None:
    """Raises a UserError unless the condition holds.

    `rule` is what must hold, with fields in backticks; `received` is left out where it is None.

    >>> require(0 >= 1, "`beam_size` must be at least 1", 0)
    Traceback (most recent call last):
    tt.model.errors.UserError: `beam_size` must be at least 1. Received: 0
    """
    if not condition:
        raise UserError(rule if received is None else f"{rule}. Received: {received}")


def require_one_of(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raises a UserError unless the value is one of the choices."""
    require(value in choices, f"{name} must be one of {', '.join(choices)}", str(value))


def one_of(choices: Sequence[str], **default: Any) -> Any:
    """Returns a field of a dataclass that takes one of the choices, for command lines to offer.

    >>> @dataclasses.dataclass
    ... class Options:
    ...     kind: str = one_of(("cross", "encoder"), default="cross")
    >>> Options(), dataclasses.fields(Options)[0].metadata[CHOICES]
    (Options(kind='cross'), ('cross', 'encoder'))
    """
    return dataclasses.field(metadata={CHOICES: tuple(choices)}, **default)


def accept_one_string(options: Any) -> None:
    """Replace a string by a tuple with it, in each field of a dataclass that is a tuple of strings.

    Without this, `for name in options.names` loops over the letters. Lists become tuples, too.

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
    r"""Raises a UserError unless a text is Unicode: of other bytes of a command, Python makes none.

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
    """Returns a number of things in words.

    >>> counted(1, "row"), counted(12_000, "row")
    ('1 row', '12,000 rows')
    """
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_TENSORFLOW = "tensorflow.python.framework.errors_impl.PermissionDeniedError"


def explain_denied(error: BaseException) -> NoAccessError | None:
    """Returns what to tell the user where rights are missing; None of any other error."""
    if isinstance(error, OSError) and error.errno in _DENIED:
        path = error.filename if error.filename2 is None else error.filename2
        return no_access(str(path or "a file"), reason=error.strerror or str(error))
    # By its name, so that TensorFlow need not be imported.
    if f"{type(error).__module__}.{type(error).__name__}" == _TENSORFLOW:
        path, _, reason = str(getattr(error, "message", error)).partition("; ")
        return no_access(path, reason=reason or "permission denied")
    return None


def no_access(path: str | Path, *, reason: str) -> NoAccessError:
    """Returns the error of a file or folder that may not be used.

    >>> str(no_access("run/model", reason="Permission denied"))
    'no access to run/model (permission denied): get the rights to it, or name another'
    """
    reason = first_line(reason.strip() or "permission denied")
    reason = f"{reason[:1].lower()}{reason[1:]}"
    return NoAccessError(f"no access to {path} ({reason}): get the rights to it, or name another")


def check_readable(path: Path) -> None:
    """Checks that a file may be read: where it may not, libraries can speak of damage.

    Raises:
      NoAccessError: It may not be.
    """
    try:
        with path.open("rb"):
            pass
    except PermissionError as error:
        raise no_access(path, reason=error.strerror or str(error)) from error
