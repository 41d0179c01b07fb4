"""`tt show`: what lies in a folder, or what a tfds: name offers."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.decorators import command
from cli.libraries import import_tensorflow
from cli.shared_options import Text, local_path
from model.errors import require
from pipelines.runners.status_line import TimeLine

_TFDS = "tfds:"


@command()
def show_command(
    what: Annotated[
        str,
        typer.Argument(
            metavar="WHAT",
            help="Folder of a dataset, run, model or translation, or tfds: (which lists datasets), "
            "tfds:NAME or tfds:NAME/SUBSET.",
            show_default=False,
        ),
    ],
    as_json: Annotated[
        bool, typer.Option("--json", help="Print all of it as JSON, for programs.")
    ] = False,
    examples: Annotated[
        int, typer.Option(help="Examples of each kind: of pairs, reasons, flags, outliers.")
    ] = 3,
    data_dir: Annotated[
        Text,
        typer.Option(
            help="Folder of datasets that TFDS has prepared.  [default: TFDS's own]",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show what lies in a folder, or what a tfds: name offers.

    Datasets, runs, models and translations are told apart by what lies in them.

    Example: tt show dataset
    """
    require(examples >= 1, "`examples` must be at least 1", examples)
    require(
        data_dir is None or what.startswith(_TFDS),
        "`data_dir` is for tfds: names: leave it out, or name one",
        what,
    )
    if what.startswith(_TFDS):
        from pipelines.summaries.tfds_names import list_tfds

        import_tensorflow()
        subsets = list_tfds(what.removeprefix(_TFDS), data_dir=data_dir)
        _print("tfds", subsets, as_json=as_json)
        return
    folder = local_path(what)
    from pipelines.summaries.folders import kind_of_folder

    kind = kind_of_folder(folder)
    import_tensorflow()
    with TimeLine(f"looking at {what}", stream=sys.stderr):
        summary = _summarize(kind, folder, examples=examples)
    _print(kind, summary, as_json=as_json)


def _summarize(kind: str, folder: Path, *, examples: int) -> Any:
    from pipelines.summaries.folders import DATASET, MODEL, RUN

    if kind == DATASET:
        from model.summaries.dataset import summarize_dataset

        return summarize_dataset(folder, samples=examples, examples=examples)
    if kind == RUN:
        from model.summaries.run import summarize_run

        return summarize_run(folder)
    if kind == MODEL:
        from model.summaries.models import summarize_model

        return summarize_model(folder)
    from pipelines.summaries.translated import summarize_translated

    return summarize_translated(folder, examples=examples)


def _finite(value: Any) -> Any:
    """Returns a value with null for what JSON has no number for: infinity, and no number."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _print(kind: str, summary: Any, *, as_json: bool) -> None:
    if as_json:
        is_list = isinstance(summary, list)
        content = [dataclasses.asdict(each) for each in (summary if is_list else [summary])]
        shown = {"kind": kind, "found": content} if is_list else {"kind": kind, **content[0]}
        typer.echo(json.dumps(_finite(shown), indent=2, ensure_ascii=False, allow_nan=False))
        return
    from cli.commands import dataset_tables, folder_tables
    from cli.commands.blocks import make_console

    printers: dict[str, Any] = {
        "dataset": dataset_tables.print_dataset,
        "run": folder_tables.print_run,
        "model": folder_tables.print_model,
        "translated": folder_tables.print_translated,
        "tfds": folder_tables.print_tfds,
    }
    printers[kind](make_console(), summary)
