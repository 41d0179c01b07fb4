"""User errors, and functions that check values and write messages.

The command line turns a `UserError` into one line on stderr and an exit code.
"""

from __future__ import annotations

import dataclasses
import difflib
import errno
import functools
import inspect
import os
import re
import reprlib
import types
import typing
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

_C = typing.TypeVar("_C", bound=Callable[..., Any])

_LARGEST = 2**63

# Descriptions of types in errors.
_KINDS = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    types.NoneType: "None",
    tuple[str, ...]: "a string or a list of strings",
}

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


def checked(called: _C) -> _C:
    """Check the names and types of the arguments of a dataclass or a function in each call.

    A string or list also fits a tuple of strings, because `for name in options.names` would iterate
    over the letters of a string. A path also fits a string.

    >>> @checked
    ... @dataclasses.dataclass(frozen=True)
    ... class Options:
    ...     names: tuple[str, ...] = ()
    ...     count: int | None = None
    >>> Options(names="body"), Options(names=["title", Path("body")])
    (Options(names=('body',), count=None), Options(names=('title', 'body'), count=None))
    >>> Options(count="5")
    Traceback (most recent call last):
    tt.model.errors.UserError: `count` must be a whole number or None. Received: '5'
    >>> Options(name="body")
    Traceback (most recent call last):
    tt.model.errors.UserError: Options has no argument `name`. Did you mean `names`?
    """
    function: Any = called.__init__ if isinstance(called, type) else called  # type: ignore[misc]
    signature = inspect.signature(function)
    # The hints may name classes that their modules define later.
    hinted = called if dataclasses.is_dataclass(called) else function
    hints = functools.cache(lambda: typing.get_type_hints(hinted))

    @functools.wraps(function)
    def call(*values: Any, **named: Any) -> Any:
        _check_names(named, signature.parameters, called.__name__)
        try:
            bound = signature.bind(*values, **named)
        except TypeError as error:
            raise UserError(f"{called.__name__}: {error}. See help({called.__name__})") from error
        for name in bound.arguments.keys() & hints().keys():
            bound.arguments[name] = _fit(name, bound.arguments[name], hints()[name])
        return function(*bound.args, **bound.kwargs)

    if isinstance(called, type):
        called.__init__ = call  # type: ignore[misc]
        return called
    return typing.cast(_C, call)


def check_fields(kind: type, values: Mapping[str, Any]) -> None:
    """Check the names and types of some fields of a dataclass.

    Raises:
      UserError: A field is unknown, or a value does not fit its type.
    """
    hints = typing.get_type_hints(kind)
    _check_names(values, hints, kind.__name__)
    for name, value in values.items():
        _fit(name, value, hints[name])


def _check_names(given: Iterable[str], known: Collection[str], owner: str) -> None:
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(str(name), known, n=1)
            advice = f"Did you mean `{near[0]}`?" if near else f"See help({owner})"
            raise UserError(f"{owner} has no argument `{name}`. {advice}")


def _fit(name: str, value: Any, hint: Any) -> Any:
    if hint == tuple[str, ...] and isinstance(value, str | os.PathLike | list):
        values = value if isinstance(value, list) else [value]
        value = tuple(os.fspath(v) if isinstance(v, os.PathLike) else v for v in values)
    if isinstance(value, os.PathLike) and not _has_type(value, hint):
        value = os.fspath(value)
    if not _has_type(value, hint):
        is_choice = typing.get_origin(hint) is typing.Literal and isinstance(value, str)
        received = value if is_choice else reprlib.repr(value)
        raise UserError(f"`{name}` must be {_describe(hint)}. Received: {received}")
    if isinstance(value, int) and abs(value) > _LARGEST:
        raise UserError(f"`{name}` must fit into 64 bits. Received: {reprlib.repr(value)}")
    return value


def _has_type(value: Any, hint: Any) -> bool:
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return any(_has_type(value, each) for each in inner)
    if origin is typing.Literal:
        return value in inner
    if origin in (tuple, Sequence):
        is_text = isinstance(value, str | bytes)
        is_list = isinstance(value, origin) and not is_text
        if is_list and all(isinstance(kind, type) for kind in typing.get_args(inner[0])):
            value = {type(each): each for each in value}.values()  # one of each type is enough
        return is_list and all(_has_type(each, inner[0]) for each in value)
    if hint in (int, float):
        return isinstance(value, int | hint) and not isinstance(value, bool)
    return hint is Any or isinstance(value, origin or hint)


def _describe(hint: Any) -> str:
    """Return a type in the words of an error.

    >>> _describe(float | None), _describe(tuple[str, ...])
    ('a number or None', 'a string or a list of strings')
    """
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return " or ".join(map(_describe, typing.get_args(hint)))
    if typing.get_origin(hint) is typing.Literal:
        return f"one of {', '.join(typing.get_args(hint))}"
    return _KINDS.get(hint) or str(getattr(hint, "__name__", hint))


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
_TENSORFLOW = "tensorflow.python.framework.errors_impl"
# Lines in TensorFlow's messages that are headings or locations in source code.
_CONTEXT = re.compile(r':\s*$|^\s*File "|\[\[|^\s*Detected at node|root error\(s\) found')
_NOISE = re.compile(r"\{\{.*?\}\}|\[Op:\w+\]|^\s*\(\d+\) [A-Z_]+:", re.MULTILINE)


def is_of_tensorflow(error: BaseException) -> bool:
    """Return whether TensorFlow raised an error; comparing names avoids an import of TensorFlow."""
    return any(
        (kind.__module__, kind.__name__) == (_TENSORFLOW, "OpError") for kind in type(error).mro()
    )


def plain_reason(error: BaseException) -> str:
    """Return the most informative line of an error from TensorFlow or Python, without internals.

    >>> plain_reason(ValueError("{{function_node SaveV2}} a.tmp; No space left [Op:SaveV2]"))
    'a.tmp; No space left'
    """
    message = error.message if is_of_tensorflow(error) else None  # type: ignore[attr-defined]
    if isinstance(error, OSError):
        message = error.strerror
    text = _NOISE.sub("", str(message or error))
    lines = [line for line in text.splitlines() if line.strip() and not _CONTEXT.search(line)]
    return first_line("\n".join(lines) if lines else (text if text.strip() else error))


def explain_denied(error: BaseException) -> NoAccessError | None:
    """Return the error to show to a user without permission, or None for any other error."""
    if isinstance(error, OSError) and error.errno in _DENIED:
        path = error.filename if error.filename2 is None else error.filename2
        return no_access(str(path or "a file"), reason=error.strerror or str(error))
    if is_of_tensorflow(error) and type(error).__name__ == "PermissionDeniedError":
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
