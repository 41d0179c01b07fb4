"""Errors, warnings and notices as single lines on stderr."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any, TextIO

import typer

from tt.cli.flags_of_fields import FIELD, spell
from tt.model.errors import UserError
from tt.pipelines.runners.failures import explain

_LONGEST = 2_000  # characters of a message, which may contain a value of any length
_LAST = 400  # characters that remain at the end of a longer message, because the fix is there

_DIFFERENCE = re.compile(r"`(\w+)`(?= was )")

# Whether the log messages of libraries are shown.
SHOWS_NOTICES = ContextVar("shows_notices", default=False)

# The running commands, innermost last. There are several if `tt demo` runs other commands.
_running: list[typer.Context] = []


@contextlib.contextmanager
def user_errors(context: typer.Context) -> Iterator[None]:
    """Turn a `UserError` into one line on stderr, and exit with its exit code.

    Library errors about permissions, networks and services are reported in the same way.
    """
    _running.append(context)
    try:
        yield
    except Exception as error:
        found = error if isinstance(error, UserError) else explain(error)
        if found is None:
            raise
        if SHOWS_NOTICES.get() and found.__cause__ is not None:
            traceback.print_exception(found.__cause__)
        say(f"tt: error: {' '.join(str(found).split())}")
        raise typer.Exit(found.exit_code) from None
    finally:
        _running.pop()


def say(message: str) -> None:
    """Print a line on stderr, with fields written as flags; stdout is for results."""
    line = with_flags(message, _running[-1]) if _running else message
    if len(line) > _LONGEST:
        line = f"{line[: _LONGEST - _LAST]} ... {line[-_LAST:]}"
    typer.echo(line, err=True)


def spelled(report: Callable[[str], object]) -> Callable[[str], object]:
    """Return a function that writes fields as flags in each line before it reports the line."""
    return lambda line: report(with_flags(line, _running[-1]) if _running else line)


def with_flags(message: str, context: typer.Context) -> str:
    """Replace the fields in backticks in a message by flags of the command, or of other commands.

    `field=value` becomes the flag with this value. A name that is not an option of any command
    remains unchanged, except in a phrase about a difference, which loses its backticks.
    """
    own = _flags_of(context.command)

    def words(found: re.Match[str]) -> str:
        flag = own.get(found[1]) or _flags_of_others(context.find_root()).get(found[1])
        return spell(flag, found[2] if flag.startswith("-") else None) if flag else found[0]

    return _DIFFERENCE.sub(lambda found: found[1].replace("_", " "), FIELD.sub(words, message))


def _flags_of(command: Any) -> dict[str, str]:
    """Return the spelling of each option of a command, by its field and its parameter."""
    fields: dict[str, str] = getattr(command.callback, "option_fields", {})
    flags = {
        each.name: each.metavar or each.name.upper()
        if each.param_type_name == "argument"
        else "/".join([each.opts[0], *each.secondary_opts[:1]])
        for each in command.params
    }
    names = {field.rpartition(".")[2]: name for field, name in fields.items()} | fields
    return flags | {field: flags[name] for field, name in names.items() if name in flags}


@functools.cache
def _flags_of_others(root: Any) -> dict[str, str]:
    """Return the spellings of the options of all commands; commands that occur first win."""
    names = reversed(getattr(root.command, "commands", {}))
    commands = [root.command.resolve_command(root, [name])[1] for name in names]
    return {name: flag for each in commands for name, flag in _flags_of(each).items()}


def announce_terminal_input(stream: TextIO) -> None:
    """Tell the user that the command waits for lines, if the stream is a terminal."""
    if stream.isatty():
        say("tt: reading lines from the terminal; press Ctrl-D to finish")


class _Warnings(logging.Handler):
    """Prints the warnings that `tt` logs like the warnings of a command."""

    def emit(self, record: logging.LogRecord) -> None:
        say(f"tt: warning: {record.getMessage()}")


_WARNINGS = _Warnings(logging.WARNING)


@contextlib.contextmanager
def library_notices(*, are_shown: bool) -> Iterator[None]:
    """Hide the log messages of libraries, or show them on stderr. Warnings of `tt` are shown.

    With `tt demo --verbose`, the commands that it runs also show the messages.
    """
    are_shown = are_shown or SHOWS_NOTICES.get()
    token = SHOWS_NOTICES.set(are_shown)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    if are_shown:
        os.environ["TF_CPP_MIN_LOG_LEVEL"] = "0"
        logging.getLogger().addHandler(handler)
    else:
        logging.getLogger("tt").addHandler(_WARNINGS)
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
    for name in ("apache_beam", "absl", "tensorflow"):
        logging.getLogger(name).setLevel(logging.INFO if are_shown else logging.WARNING)
    # Beam would log a message for each type hint in this project.
    logging.getLogger("apache_beam.typehints").setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)
        if not _running:  # otherwise, this command runs within another command
            logging.getLogger("tt").removeHandler(_WARNINGS)
        SHOWS_NOTICES.reset(token)
