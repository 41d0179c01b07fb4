"""`tt init`: a file of options for what lies in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say
from model.errors import UserError


@command()
def init_command(
    output: Annotated[
        Path, typer.Option(help="File to write.  [default: tt.yaml]", show_default=False)
    ] = Path("tt.yaml"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace the file if it is there.")
    ] = False,
) -> None:
    """Write tt.yaml, the options for what lies in this folder.

    It has a section for each of preprocess, train and translate-batch, for the parallel texts and
    tables (TSV, JSONL, Parquet, CSV, Arrow), the dataset and the model that lie here; its comments
    say what was guessed.

    Example: tt init
    """
    from cli.main import load_command
    from pipelines.storage.text_files import compression_ending
    from pipelines.summaries.project import look_around
    from pipelines.summaries.project_file import OFTEN_WANTED, write_sections

    if output.exists() and not force:
        raise UserError(f"{output} is there already: replace it with --force, or name another file")
    helps = {
        name: {
            option.lstrip("-").replace("-", "_"): str(getattr(each, "help", ""))
            for each in load_command(name).params
            for option in each.opts
        }
        for name in OFTEN_WANTED
    }
    project = look_around()
    text, commands = write_sections(project, helps=helps)
    try:
        output.write_text(text, "utf-8")
    except OSError as error:
        raise UserError(f"{output} cannot be written: {error.strerror or error}") from error
    for name in project.unreadable:
        is_any = name.lower().removesuffix(compression_ending(name)).endswith(".txt")
        how = "as text in UTF-8" if is_any else "as its ending says"
        say(f"tt: warning: {name} cannot be read {how}, and is left out")
    say(f"Options: {output}. Read it, then run:")
    for name in commands:
        typer.echo(f"tt {name} --config {output}")
