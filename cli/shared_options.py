"""Options that several commands share."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from cli.paths import plain_path
from model.errors import UserError

# `time.monotonic()` before a command is imported. Not in `cli.main`, which is two modules where
# Python runs it: `python -m cli.main`.
BEGUN: ContextVar[float] = ContextVar("begun")
COMMAND: ContextVar[str] = ContextVar("command", default="")  # as it was typed

DEFAULT_DATASET = Path("dataset")
DEFAULT_RUN = Path("run")
DEFAULT_INPUT = Path("input.parquet")
DEFAULT_TRANSLATED = Path("translated")

# Options that need not be given: None is the library's default.
Text = str | None
Number = float | None

ModelFolder = Annotated[
    str,
    typer.Option(
        "--model",
        help="Exported model folder, or the run folder it lies in.",
        rich_help_panel="Model",
    ),
]

Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Leave the job to the --runner behind -- as soon as that has it; the same command "
        "says later whether it is finished.",
    ),
]

WithScores = Annotated[
    bool, typer.Option("--with-scores", help="Print `score ||| text`, as --n-best does.")
]


DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print what would be done, and do nothing.")
]


class GroupedCommand(TyperCommand):
    """A command whose plain help lists its options under their `rich_help_panel`s."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Writes the parameters, group by group in the order in which the groups begin."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                is_argument = parameter.param_type_name == "argument"
                heading = getattr(parameter, "rich_help_panel", None)
                groups.setdefault(
                    heading or ("Arguments" if is_argument else "Options"), []
                ).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)


def local_path(given: str) -> Path:
    """Returns the path of a folder that must lie on this machine.

    Raises:
      UserError: It names another file system.
    """
    given = plain_path(given)
    if "://" in given:
        raise UserError(f"{given} is not on this machine: name a local folder")
    return Path(given)
