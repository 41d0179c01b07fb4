"""The entry point of `tt`: the commands by name, and what is for Beam set apart."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.commands.average import average_command
from cli.commands.evaluate import evaluate_command
from cli.commands.export import export_command
from cli.commands.preprocess import preprocess_command
from cli.commands.train import train_command
from cli.commands.translate import translate_command
from cli.commands.translate_batch import translate_batch_command
from cli.options import GroupedCommand, resumable_command, say

_INTERRUPTED = 130
_UsageError: Any = typer.BadParameter.__base__  # of all that Typer says of wrong flags

app = typer.Typer(
    name="tt",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # brackets in a help text are brackets
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("preprocess", cls=GroupedCommand)(preprocess_command)
app.command("train", cls=GroupedCommand)(train_command)
app.command("average")(average_command)
app.command("export")(export_command)
app.command("translate-batch", cls=GroupedCommand)(translate_batch_command)
app.command("translate", cls=GroupedCommand)(translate_command)
app.command("evaluate")(evaluate_command)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        typer.echo(f"tt {importlib.metadata.version('tt-translate')}")
        raise typer.Exit


@app.callback()
def tt(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and exit.",
            callback=_print_version,
            is_eager=True,
        ),
    ] = False,
) -> None:
    """From a parallel corpus to a trained Transformer to translated Parquet tables."""


@app.command("demo")
@resumable_command
def demo_command(
    folder: Annotated[Path, typer.Option(help="Where everything is written.")] = Path("demo"),
) -> None:
    """Run the three commands on the embedded corpus.

    It shows and scores translations of held-out sentences at the end.
    """
    from cli.commands.demo import run_demo

    def run_command(arguments: Sequence[str]) -> None:
        code = app(args=list(arguments), obj=[], standalone_mode=False)
        if code:
            raise typer.Exit(code)

    run_demo(folder, run_command=run_command)


def _describe(error: Any, command: str) -> str:
    """Returns what Typer says of wrong flags, with the value, which only Pydantic's error names."""
    parts = [error.format_message()]
    if hasattr(error.__cause__, "errors"):
        parts.append(f"Received: {error.__cause__.errors()[0]['input']}")
    is_known = command in {each.name for each in app.registered_commands}
    parts.append(f"See `tt {command} --help`" if is_known else "See `tt --help`")
    return " ".join(part if part[-1] in ".?" else f"{part}." for part in parts).removesuffix(".")


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs `tt`; what comes after `--` is for Beam.

    Args:
      arguments: Without the program's name; by default those of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    beam_arguments: list[str] = []
    if "--" in given:
        cut = given.index("--")
        given, beam_arguments = given[:cut], given[cut + 1 :]
        if given[:1] not in (["preprocess"], ["translate-batch"]):
            say("tt: error: only `tt preprocess` and `tt translate-batch` take Beam's options")
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
