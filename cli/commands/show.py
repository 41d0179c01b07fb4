"""`tt show`: the content of a folder, or the datasets of a tfds: name."""

from __future__ import annotations

import dataclasses
import json
import math
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.decorators import command
from cli.libraries import import_tensorflow
from cli.shared_options import Text, local_path
from model.errors import require
from pipelines.runners.status_line import TimeLine

if TYPE_CHECKING:  # the help of the command needs none
    from model.inspection.blocks import Section
    from pipelines.reports.tfds_names import TfdsSubset

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
    """Show the content of a folder, or the datasets of a tfds: name.

    `tt` recognizes datasets, runs, models and translations by their files.

    Example: tt show dataset
    """
    require(examples >= 1, "`examples` must be at least 1", examples)
    require(
        data_dir is None or what.startswith(_TFDS),
        "`data_dir` is for tfds: names: leave it out, or name one",
        what,
    )
    if what.startswith(_TFDS):
        from pipelines.reports.tfds_names import list_tfds

        import_tensorflow()
        subsets = list_tfds(what.removeprefix(_TFDS), data_dir=data_dir)
        content: dict[str, Any] = {"kind": "tfds", "found": list(map(dataclasses.asdict, subsets))}
        sections = _tfds_sections(subsets)
    else:
        from pipelines.reports.folders import kind_of_folder

        folder = local_path(what)
        kind = kind_of_folder(folder)
        import_tensorflow()
        from pipelines.reports.summaries import summarize_folder

        with TimeLine(f"looking at {what}", stream=sys.stderr):
            summary, sections = summarize_folder(kind, folder, examples=examples)
        content = {"kind": kind, **dataclasses.asdict(summary)}
    if as_json:
        text = json.dumps(_finite(content), indent=2, ensure_ascii=False, allow_nan=False)
        typer.echo(text)
        return
    from cli.commands.blocks import make_console, print_sections

    print_sections(make_console(), sections)


def _finite(value: Any) -> Any:
    """Return a value with null for infinity and NaN, which JSON does not have."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    return [_finite(each) for each in value] if isinstance(value, list | tuple) else value


def _tfds_sections(subsets: Sequence[TfdsSubset]) -> list[Section]:
    from model.inspection.blocks import Section, Table
    from pipelines.runners.formatting import megabytes

    rows = []
    for each in subsets:
        splits = ", ".join(f"{s.name} {s.pairs:,} ({megabytes(s.bytes)})" for s in each.splits)
        sizes = {name: f" ({megabytes(size)})" for name, size in each.part_bytes.items() if size}
        parts = "; ".join(
            f"{split}: {', '.join(name + sizes.get(name, '') for name in names)}"
            for split, names in each.parts.items()
        )
        size = megabytes(each.download_bytes) if each.download_bytes else ""
        languages, known = " ".join(each.languages), splits or ", ".join(each.split_names)
        rows.append([f"tfds:{each.name}", languages, each.is_prepared, known, size, parts])
    columns = ("name", "languages", "prepared here", "splits", "download", "made of")
    used = [i for i in range(len(columns)) if i in (0, 2) or any(row[i] for row in rows)]
    table = Table([columns[i] for i in used], [[row[i] for i in used] for row in rows])
    return [Section("tfds", "Datasets of TensorFlow Datasets", [table])]
