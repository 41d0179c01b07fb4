"""`tt average`: the mean of several checkpoints' weights, as an exported model."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.options import DEFAULT_RUN, command, import_tensorflow, local_path, say


@command
def average_command(
    run: Annotated[str, typer.Option(help="Run folder, from `tt train`.")] = str(DEFAULT_RUN),
    output: Annotated[str, typer.Option(help="Model folder to write.")] = "averaged",
    of: Annotated[str, typer.Option(help="last or best: which checkpoints.")] = "last",
    count: Annotated[
        int | None, typer.Option(help="How many of them, the newest or the best. [default: all]")
    ] = None,
) -> None:
    """Average checkpoints of a run into a model folder."""
    folder = local_path(output)
    import_tensorflow()
    from model.runs.averaging import export_average

    names = export_average(run, folder, which=of, count=count)
    say(f"Model: {folder}, the mean of {', '.join(names)}")
