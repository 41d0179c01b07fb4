"""The names of the commands, and options and paths that several commands share."""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from tt.model.errors import UserError

# As `tt --help` shows the commands, each with the first line of its help.
GROUPS = {
    "Begin": {
        "doctor": "Show versions, devices and extras of this machine.",
        "init": "Write tt.yaml, a file of options for the files of this folder.",
        "demo": "Run the three commands on the embedded corpus.",
    },
    "From a corpus to translations": {
        "preprocess": "Make a dataset folder from a parallel corpus.",
        "train": "Train a Transformer on a dataset folder, and export it.",
        "translate-batch": "Translate text columns of tables in bulk.",
    },
    "Other ways to translate": {
        "translate": "Translate stdin to stdout, a line for a line.",
        "translate-stream": "Translate messages, or files of a folder, as they come.",
        "evaluate": "Score translations against references by BLEU and chrF.",
    },
    "Models": {
        "average": "Average checkpoints of a run into a model folder.",
        "export": "Write a trained model to a folder for other programs.",
        "import": "Make a model folder from a model of another program.",
    },
    "Look inside": {
        "show": "Show the content of a folder, or the datasets of a tfds: name.",
        "report": "Write a report that a browser opens offline.",
        "attention": "Draw what a model looks at as it translates.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}

# `time.monotonic()` before a command is imported. Not in `tt.cli.main`, which is two modules where
# Python runs it: `python -m tt.cli.main`.
BEGUN: ContextVar[float] = ContextVar("begun")
COMMAND: ContextVar[str] = ContextVar("command", default="")  # as it was typed

# Also inside a corpus, where it may follow a name or another path.
_URL = re.compile(r"(?P<before>^|[=+])file:(?://(?P<host>[^/=+]*))?(?=/)")

DEFAULT_DATASET = Path("dataset")
DEFAULT_RUN = Path("run")
DEFAULT_INPUT = Path("input.parquet")
DEFAULT_TRANSLATED = Path("translated")

EXAMPLE = "Example: "  # before the command line at the end of a command's help
HELP_ALL = "--help-all"
_RARE = 1000  # rank of the options that only `--help-all` shows

# Options that need not be given: None is the library's default.
Text = str | None
Number = float | None

ModelFolder = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="PATH",
        help="Model folder, or run folder.",
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


def _print_all_options(context: typer.Context, is_asked: bool) -> None:
    if is_asked:
        context.meta[HELP_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        HELP_ALL, help="Show all options and exit.", is_eager=True, callback=_print_all_options
    ),
]


class GroupedCommand(TyperCommand):
    """A command whose plain help lists its options under their `rich_help_panel`s.

    Attributes:
      common: Flags that `--help` shows, the most used first; empty shows all.
    """

    common: Sequence[str] = ()

    def format_help_text(self, ctx: Any, formatter: Any) -> None:
        """Write the description, and the example on a line of its own."""
        text, _, example = (self.help or "").partition(EXAMPLE)
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text(text.strip())
            if example:
                formatter.write_paragraph()
                formatter.write(f"  {EXAMPLE}{example.strip()}\n")

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the parameters, group by group in the order in which the groups begin."""
        groups: dict[str, list[tuple[str, str]]] = {}
        shows_all = ctx.meta.get(HELP_ALL) or not self.common
        for parameter in sorted(self.get_params(ctx), key=self._rank):
            record = parameter.get_help_record(ctx)
            if record is not None and (shows_all or self._rank(parameter) < _RARE):
                is_argument = parameter.param_type_name == "argument"
                heading = getattr(parameter, "rich_help_panel", None)
                groups.setdefault(
                    heading or ("Arguments" if is_argument else "Options"), []
                ).append(record)
        for heading, records in groups.items():
            with formatter.section(heading):
                formatter.write_dl(records)

    def _rank(self, parameter: Any) -> int:
        """Return the place of a parameter in the help; `_RARE` is the end of `--help-all`."""
        if parameter.param_type_name == "argument":
            return -1
        places = [self.common.index(flag) for flag in parameter.opts if flag in self.common]
        return places[0] if places else _RARE


def local_path(given: str) -> Path:
    """Return the path of a folder that must be on this machine.

    Raises:
      UserError: The path is on another file system.
    """
    given = plain_path(given)
    if "://" in given:
        raise UserError(f"{given} is not on this machine: name a local folder")
    return Path(given)


def plain_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """Make local paths of the file:// URLs among a command's parameters.

    Raises:
      UserError: A URL names another machine.
    """
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Path):  # which has made one slash of two
        return Path(plain_path(str(value)))
    return plain_path(value) if isinstance(value, str) else value


def plain_path(text: str) -> str:
    """Replace file:// URLs by local paths, also inside a corpus such as `name=URL+URL`.

    Raises:
      UserError: A URL names another machine.

    >>> plain_path("file:///data/a%20b.tsv"), plain_path("n=file:///a.en+file:///a.de")
    ('/data/a b.tsv', 'n=/a.en+/a.de')
    """
    hosts = {found["host"] for found in _URL.finditer(text)}
    if others := hosts - {None, "", "localhost"}:
        raise UserError(
            f"{text} is on another machine, {min(others)}: a file:// URL names a local path, as in "
            "file:///data/a.tsv"
        )
    return urllib.parse.unquote(_URL.sub(r"\g<before>", text)) if hosts else text
