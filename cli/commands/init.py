"""`tt init`: write a configuration file for the files in this folder."""

from __future__ import annotations

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable
from math import inf
from pathlib import Path
from typing import Annotated

import typer
import yaml

from tt.cli.decorators import command
from tt.cli.errors import say
from tt.cli.shared_options import DEFAULT_DATASET, DEFAULT_RUN, DEFAULT_TRANSLATED
from tt.model.errors import UserError

_COMPRESSIONS = r"(?:\.gz|\.bz2|\.zst)?"
_TABLE = re.compile(rf".+\.(?:parquet|csv|jsonl|arrow|feather){_COMPRESSIONS}", re.IGNORECASE)
_TSV = re.compile(rf".+\.tsv{_COMPRESSIONS}", re.IGNORECASE)
# The name ends in a language code or a side, as in train.en, train_de.txt and train.src.gz.
_TEXT = re.compile(
    rf"(.+?)[._](source|target|src|tgt|trg|[a-z]{{2,3}}(?:-\w+)?)(\.txt)?{_COMPRESSIONS}"
)
_SIDES = ("source", "src", "target", "tgt", "trg")
_NO_LANGUAGES = {"bak", "bin", "cfg", "csv", "log", "md", "py", "sh", "spm", "tsv", "txt", "yml"}
_USES = re.compile(r"(?:^|[\W_])(?:(test)|dev|val|valid|validation)", re.IGNORECASE)


@command()
def init_command(
    output: Annotated[
        Path, typer.Option(metavar="PATH", help="Write the configuration to this file.")
    ] = Path("tt.yaml"),
    force: Annotated[
        bool, typer.Option("--force", help="Replace the output file if it exists.")
    ] = False,
) -> None:
    """Write a configuration file for the corpora and tables in this folder.

    `tt` guesses the use of each file from its name. Check the configuration before you use it.

    Example: tt init
    """
    from tt.pipelines.reports.folders import write_whole_file

    if output.exists() and not force:
        raise UserError(
            f"{output} already exists. Replace it with --force, or choose another `output`"
        )
    names = sorted(path.name for path in Path().iterdir() if path.is_file())
    write_whole_file(output, _write(names).encode())
    say(f"Configuration: {output}. Check this file, then run:")
    for name in ("preprocess", "train", "translate-batch"):
        typer.echo(f"tt {name} --config {shlex.quote(str(output))}")


def _write(names: list[str]) -> str:
    """Return the configuration for these file names."""
    texts = _pair_texts(names)
    tsv = [name for name in names if _TSV.fullmatch(name)]
    tables = [name for name in names if _TABLE.fullmatch(name)]
    lines = []
    pairs_of_use: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for stem, ((_, source), (_, target)) in texts.items():
        pairs_of_use[_use_of(stem)].append((source, target))
    if pairs := pairs_of_use[""]:
        lines.append(f"source: {_as_yaml(source for source, _ in pairs)}")
        lines.append(f"target: {_as_yaml(target for _, target in pairs)}")
    if pairs := pairs_of_use["validation"]:
        lines.append(f"validation: {_as_yaml(map('+'.join, pairs))}")
    first = next(iter(texts.values()), None)
    if first and not any(code in _SIDES for code, _ in first):
        lines.append(f'source_language: "{first[0][0]}"  # check which side is the source')
        lines.append(f'target_language: "{first[1][0]}"')
    tests = [name for stem, pair in texts.items() if _use_of(stem) == "test" for _, name in pair]
    if tests:
        lines.append(f"exclude: {_as_yaml(tests)}  # texts that training must not see")
    mark = "# " if texts or not tsv else ""
    lines.append(f"{mark}corpora: {_as_yaml(tsv or ['CORPUS.parquet:SOURCE:TARGET'])}")
    options = "\n".join(f"  {line}" for line in lines)
    table = f"input: {_as_yaml(tables[:1])}" if tables else "# input: [TABLE.parquet]"
    others = f"\n  # other tables: {_as_yaml(tables[1:])}" if tables[1:] else ""
    return f"""\
# Options for `tt`. Options on the command line take precedence over this file.
preprocess:
{options}
  output: {DEFAULT_DATASET}
train:
  dataset: {DEFAULT_DATASET}
  run: {DEFAULT_RUN}
translate-batch:
  {table}{others}
  # text_column: [NAME]  # required if a table has several text columns
  model: {DEFAULT_RUN}
  output: {DEFAULT_TRANSLATED}
"""


def _as_yaml(names: Iterable[str]) -> str:
    """Return names as a YAML list in one line, with quotes around names that need them.

    >>> _as_yaml(["a.tsv", "b, c #1.tsv"])
    "[a.tsv, 'b, c #1.tsv']"
    """
    names = list(names)
    # Single quotes keep line separators, which a reader of YAML replaces by spaces.
    style = None if "".join(names).isprintable() else '"'
    dumped = yaml.safe_dump(
        names, default_flow_style=True, default_style=style, allow_unicode=True, width=inf
    )
    return str(dumped).strip()


def _pair_texts(names: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Return pairs of text files as [(code, file name), (code, file name)], by common name."""
    found: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name in names:
        match = _TEXT.fullmatch(name)
        if match and match[2] not in _NO_LANGUAGES:
            found[match[1]].append((match[2], name))
    return {
        stem: sorted(files, key=lambda file: file[0] in ("target", "tgt", "trg"))
        for stem, files in found.items()
        if len(files) == len(("source", "target"))
    }


def _use_of(stem: str) -> str:
    match = _USES.search(stem)
    return ("test" if match[1] else "validation") if match else ""
