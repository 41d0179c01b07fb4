"""`tt doctor`: what will work on this machine, and what to do about the rest."""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.decorators import command

if TYPE_CHECKING:  # imported by the function that needs it, as the help does not
    from pipelines.summaries.doctor import Diagnosis

_MARKS = {"ok": "ok", "warning": "WARN", "missing": "-", "failure": "FAIL"}


@command()
def doctor_command(
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON, for programs.")
    ] = False,
) -> None:
    """Say what will work on this machine.

    Each line says what was found, what is needed, and what to do. It takes some seconds, writes
    nothing and uses no network. The exit code is 1 where preprocess, train or translate-batch would
    not run here.

    Example: tt doctor
    """
    from pipelines.summaries.doctor import diagnose

    found = diagnose()
    if as_json:
        content = {"works": found.works, "checks": list(map(dataclasses.asdict, found.checks))}
        typer.echo(json.dumps(content, indent=2, ensure_ascii=False))
    else:
        _print(found)
    if not found.works:
        raise typer.Exit(1)


def _print(found: Diagnosis) -> None:
    from rich.table import Table
    from rich.text import Text

    from cli.look.blocks import make_console, plain, print_heading

    console = make_console()
    for group, checks in itertools.groupby(found.checks, key=lambda check: check.group):
        print_heading(console, group)
        table = Table.grid(padding=(0, 2))
        table.add_column(width=max(map(len, _MARKS.values())))
        table.add_column(no_wrap=True)
        table.add_column(overflow="fold")
        for check in checks:
            table.add_row(Text(_MARKS[check.state]), plain(check.name), plain(check.value))
            table.add_row("", "", plain(f"needs: {check.rule}"))
            if check.remedy:
                table.add_row("", "", plain(f"to do: {check.remedy}"))
        console.print(table)
    console.print()
    if found.works:
        console.print("preprocess, train and translate-batch work here.")
    else:
        console.print("preprocess, train and translate-batch do not work here: mend what FAILs.")
