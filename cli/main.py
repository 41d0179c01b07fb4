"""The entry point of `tt`: the commands by name, and what is for Beam set apart."""

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

_MODULES = {  # of commands that do not have one each
    **dict.fromkeys(("average", "export", "import"), "models"),
    **dict.fromkeys(("show", "report", "attention", "evaluate"), "look"),
}
# By Pydantic's names.
_KINDS = {"int": "a whole number", "float": "a number", "bool": "true or false"}

_TAKE_BEAM = ("preprocess", "translate-batch", "translate-stream")
_INTERRUPTED = 130
_WIDEST_HELP = 120  # characters; a narrower terminal has its own width
_STDERR = 2  # the file descriptor

_UsageError: Any = typer.BadParameter.__base__  # of all that Typer says of wrong flags

_Typer = functools.partial(
    typer.Typer,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in a help text are brackets
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST_HELP},
)


class _Commands(TyperGroup):
    """All commands; one is imported when it is called, since its libraries take seconds."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for name, line in COMMANDS.items():
            self.add_command(TyperCommand(name, help=line))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the commands, group by group."""
        width = max(map(len, COMMANDS))  # the same in each group
        for heading, group in GROUPS.items():
            with formatter.section(heading):
                formatter.write_dl([(name.ljust(width), line) for name, line in group.items()])

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the name, the command and its arguments."""
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
    """From a parallel corpus to a trained Transformer to translated Parquet tables."""


def _describe(error: Any, command: str) -> str:
    """Describe a wrong flag, with the value received and the command that shows the help."""
    said = error.format_message()
    if hasattr(error.__cause__, "errors"):  # Pydantic's, of a value
        found = error.__cause__.errors()[0]
        kind = _KINDS[found["type"].partition("_")[0]]
        said = f"{error.param.opts[0]} must be {kind}. Received: {found['input']}"
    advice = f"See `tt {command} --help`" if command in COMMANDS else "See `tt --help`"
    return f"{said if said[-1] in '.?' else f'{said}.'} {advice}"


def _open_stderr() -> None:
    """Let messages go nowhere if the caller has closed stderr, or opened it only for reading.

    Otherwise messages raise, and the next file that is opened becomes stderr for libraries in C++.
    """
    try:
        os.write(_STDERR, b"")
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), _STDERR)
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w")  # noqa: SIM115 -- for all of the process


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `tt`, by default with the arguments of this process; Beam gets those after `--`."""
    BEGUN.set(time.monotonic())
    _open_stderr()
    if arguments is None:
        # Otherwise, Python collects garbage among all objects of TensorFlow and Beam before it
        # exits, which takes seconds.
        atexit.register(gc.freeze)
    given = list(sys.argv[1:] if arguments is None else arguments)
    COMMAND.set(shlex.join(["tt", *given]))
    beam_arguments: list[str] = []
    if "--" in given:
        cut = given.index("--")
        given, beam_arguments = given[:cut], given[cut + 1 :]
        if given[:1] not in ([name] for name in _TAKE_BEAM):
            names = " and ".join(f"`tt {name}`" for name in _TAKE_BEAM)
            say(f"tt: error: only {names} take Beam's options")
            raise SystemExit(2)
    try:
        code = app(args=given, obj=beam_arguments, standalone_mode=False)
    except _UsageError as error:
        if not given:
            error.show()  # the help
        else:
            say(f"tt: error: {_describe(error, given[0])}")
        code = 2
    if code == _INTERRUPTED:
        # Threads of a Beam job may still be in C++ code, which aborts when it is torn down.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    raise SystemExit(code or 0)


if __name__ == "__main__":
    main()
