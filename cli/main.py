"""The entry point of `tt`, which finds the command and splits off the options for Beam."""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import importlib.metadata
import os
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from tt.cli.errors import say
from tt.cli.shared_options import BEGUN, COMMAND, COMMANDS, GROUPS, GroupedCommand

_MODULES = {  # module of each command that shares a module with others
    **dict.fromkeys(("average", "export", "import"), "models"),
    **dict.fromkeys(("show", "report", "attention", "evaluate"), "look"),
}
# Descriptions of types in errors, by Pydantic's names.
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}

_TAKE_BEAM = ("preprocess", "translate-batch", "back-translate", "translate-stream")
_INTERRUPTED = 130
_WIDEST_HELP = 120  # columns; on a narrower terminal, the help has the terminal's width
_STDERR = 2  # file descriptor

_UsageError: Any = typer.BadParameter.__base__  # the base class of Typer's errors about flags

_Typer = functools.partial(
    typer.Typer,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # so that brackets in help texts are not markup
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST_HELP},
)


class _Commands(TyperGroup):
    """All commands. Each is imported when it is called, because its libraries take seconds."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, group by group."""
        width = max(map(len, COMMANDS))  # equal in all groups
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), line) for name, line in group.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name of a command, the command, and its arguments."""
        name, _, rest = super().resolve_command(ctx, args)
        return name, load_command(str(name)), rest


def load_command(name: str) -> TyperCommand:
    """Import a command."""
    function_name = name.replace("-", "_")
    module_name = _MODULES.get(name, function_name)
    module = importlib.import_module(f"tt.cli.commands.{module_name}")
    alone = _Typer()
    function = getattr(module, f"{function_name}_command")
    alone.command(name, cls=GroupedCommand)(function)
    command = typer.main.get_command(alone)
    assert isinstance(command, GroupedCommand)
    command.common = getattr(function, "common_flags", ())
    return command


app = _Typer(name="tt", cls=_Commands, no_args_is_help=True, add_completion=True)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tt {importlib.metadata.version('tt-translate')}")
        raise typer.Exit


@app.callback()
def tt(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and exit.", callback=_print_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Train translation models on parallel corpora, and translate tables in bulk."""


def _describe(error: Any, command: str) -> str:
    """Return the message for a wrong flag, with the value received and the help command."""
    said = error.format_message()
    if hasattr(error.__cause__, "errors"):  # Pydantic's error about a value
        found = error.__cause__.errors()[0]
        kind = _KINDS[found["type"].partition("_")[0]]
        said = f"{error.param.opts[0]} must be {kind}. Received: {found['input']}"
    advice = f"See `tt {command} --help`" if command in COMMANDS else "See `tt --help`"
    return f"{said if said[-1] in '.?' else f'{said}.'} {advice}"


def _open_stderr() -> None:
    """Discard messages if the caller has closed stderr, or has opened it only for reading.

    Otherwise, printing a message raises an error. The next file that the process opens would get
    the file descriptor of stderr, and C++ libraries would write into this file.
    """
    try:
        os.write(_STDERR, b"")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 -- open until the process ends


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `tt`. Beam gets the arguments after `--`.

    Args:
      arguments: The arguments of the command line; by default, the arguments of this process.
    """
    BEGUN.set(time.monotonic())
    _open_stderr()
    if arguments is None:
        # Otherwise, a garbage collection at exit would scan all objects of TensorFlow and Beam, and
        # take seconds.
        atexit.register(gc.freeze)
    given = list(sys.argv[1:] if arguments is None else arguments)
    COMMAND.set(shlex.join(["tt", *given]))
    beam_arguments: list[str] = []
    if "--" in given:
        cut = given.index("--")
        given, beam_arguments = given[:cut], given[cut + 1 :]
        if given[:1] not in ([name] for name in _TAKE_BEAM):
            *first, last = (f"`tt {name}`" for name in _TAKE_BEAM)
            names = f"{', '.join(first)} and {last}"
            say(f"tt: error: only {names} take Beam options after --. Remove these options")
            raise SystemExit(2)
    try:
        code = app(args=given, obj=beam_arguments, standalone_mode=False)
    except _UsageError as error:
        if not given:
            error.show()  # This prints the help.
        else:
            say(f"tt: error: {_describe(error, given[0])}")
        code = 2
    if code == _INTERRUPTED:
        # Threads of a Beam job may still run C++ code, which aborts if the interpreter shuts down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code or 0)


if __name__ == "__main__":
    main()
