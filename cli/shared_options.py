"""Command names, and options and paths that several commands share."""

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

# The commands in the groups of `tt --help`, each with the first line of its docstring.
GROUPS = {
    "Get started": {
        "doctor": "Check the installed packages, extras and devices.",
        "init": "Write a configuration file for the corpora and tables in this folder.",
        "demo": "Preprocess, train and translate with the embedded corpus.",
    },
    "Train and translate": {
        "preprocess": "Make a dataset folder from parallel corpora.",
        "train": "Train a Transformer on a dataset, and export the model.",
        "translate-batch": "Translate text columns of tables in bulk.",
        "back-translate": "Translate monolingual texts back into a corpus for training.",
        "translate": "Translate stdin to stdout, line by line.",
        "memory": "Add human translations to a translation memory, or export or show it.",
        "translate-stream": "Translate Kafka or Pub/Sub messages.",
    },
    "Manage models": {
        "average": "Average checkpoints of a run into a model folder.",
        "export": "Export a trained model for tt, TensorFlow, CTranslate2 or Transformers.",
        "import": "Import a model from Hugging Face or CTranslate2.",
    },
    "Inspect and evaluate": {
        "evaluate": "Score translations against references with BLEU and chrF.",
        "show": "Show the contents of a folder, or list TFDS corpora.",
        "report": "Write an HTML report on a dataset, run, model or translation.",
        "attention": "Draw the attention weights for one sentence.",
    },
}
COMMANDS = {name: line for group in GROUPS.values() for name, line in group.items()}

# The value of `time.monotonic()` before the command was imported. It is not defined in
# `tt.cli.main`, because `python -m tt.cli.main` loads that module under two names.
BEGUN: ContextVar[float] = ContextVar("begun")
COMMAND: ContextVar[str] = ContextVar("command", default="")  # the command line

# A file:// URL. In a corpus string, it may follow NAME= or another path and a +.
_URL = re.compile(r"(?P<before>^|[=+])file:(?://(?P<host>[^/=+]*))?(?=/)")

DEFAULT_DATASET = Path("dataset")
DEFAULT_RUN = Path("run")
DEFAULT_INPUT = Path("input.parquet")
DEFAULT_TRANSLATED = Path("translated")
DEFAULT_BACK_TRANSLATED = Path("back-translated")

HELP_ALL = "--help-all"
_RARE = 1000  # rank of the options that only `--help-all` shows

ModelFolder = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="PATH",
        help="Load the model from this model folder, run folder or hf:ORG/NAME.",
        rich_help_panel="Model",
    ),
]

ModelCopies = Annotated[
    int | None,
    typer.Option(
        "--model-copies",
        metavar="N",
        help="Translate N units at once on this machine, at most one per core.  "
        "[default: one per core, or two per GPU]",
        show_default=False,
        rich_help_panel="Model",
    ),
]

Detach = Annotated[
    bool,
    typer.Option(
        "--detach",
        help="Submit the job and exit; run the same command again to see its state.",
    ),
]

DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Print the plan of the job without running it.")
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
    """A command whose help groups its options by `rich_help_panel`.

    Attributes:
      common: The flags that `--help` shows, in this order. If empty, `--help` shows all flags.
    """

    common: Sequence[str] = ()

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the parameters in groups, which have the order of their first parameters."""
        groups: dict[str, list[tuple[str, str]]] = {}
        shows_all = ctx.meta.get(HELP_ALL) or not self.common
        for parameter in sorted(self.get_params(ctx), key=self._rank):
            record = help_record(parameter, ctx)
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
        """Return the position of a parameter in the help; `_RARE` if `--help` does not show it."""
        if parameter.param_type_name == "argument":
            return -1
        common = (self.common.index(flag) for flag in parameter.opts if flag in self.common)
        return next(common, _RARE)


def help_record(parameter: Any, context: Any) -> tuple[str, str] | None:
    """Return the name and the description of a parameter for the help; None if it is hidden."""
    record: tuple[str, str] | None = parameter.get_help_record(context)
    if record is None or parameter.param_type_name != "argument":
        return record
    return parameter.metavar or record[0], record[1]  # without a type such as <list[str]>


def local_path(given: str) -> Path:
    """Return the path of a file or folder that must be on this machine.

    Raises:
      UserError: The path is on another file system.
    """
    given = plain_path(given)
    if "://" in given:
        raise UserError(f"{given} is not on this machine. Choose a local path")
    return Path(given)


def plain_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """Replace file:// URLs among a command's parameters by local paths.

    Raises:
      UserError: A URL has the host of another machine.
    """
    return {name: _plain(value) for name, value in parameters.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Path):  # Path has merged the slashes of a URL.
        return Path(plain_path(str(value)))
    return plain_path(value) if isinstance(value, str) else value


def plain_path(text: str) -> str:
    """Replace file:// URLs by local paths, also inside a corpus such as `name=URL+URL`.

    Raises:
      UserError: A URL has the host of another machine.

    >>> plain_path("file:///data/a%20b.tsv"), plain_path("n=file:///a.en+file:///a.de")
    ('/data/a b.tsv', 'n=/a.en+/a.de')
    """
    hosts = {found["host"] for found in _URL.finditer(text)}
    if others := hosts - {None, "", "localhost"}:
        raise UserError(
            f"{text} names a file on the machine {min(others)}. Choose a local path, such as "
            "file:///data/a.tsv"
        )
    return urllib.parse.unquote(_URL.sub(r"\g<before>", text)) if hosts else text
