"""`tt init`: write a file of options for the files of this folder."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from cli.decorators import command
from cli.errors import say
from cli.shared_options import DEFAULT_DATASET, DEFAULT_RUN, DEFAULT_TRANSLATED
from model.errors import UserError

_COMPRESSIONS = r"(?:\.gz|\.bz2|\.zst)?"
_TABLE = re.compile(rf".+\.(?:parquet|csv|jsonl|arrow|feather){_COMPRESSIONS}", re.IGNORECASE)
_TSV = re.compile(rf".+\.tsv{_COMPRESSIONS}", re.IGNORECASE)
# The last part of the name is a language or a side: train.en, train_de.txt, train.src.gz.
_TEXT = re.compile(
    rf"(.+?)[._](source|target|src|tgt|trg|[a-z]{{2,3}}(?:-\w+)?)(\.txt)?{_COMPRESSIONS}"
)
_SIDES = ("source", "src", "target", "tgt", "trg")
_NO_LANGUAGES = {"bak", "bin", "cfg", "csv", "log", "md", "py", "sh", "spm", "tsv", "txt", "yml"}
_VALIDATION = re.compile(r"(?:^|[\W_])(?:dev|val|valid|validation)", re.IGNORECASE)
_TEST = re.compile(r"(?:^|[\W_])test", re.IGNORECASE)


@command()
def init_command(
    output: Annotated[
        Path, typer.Option(help="File to write.  [default: tt.yaml]", show_default=False)
    ] = Path("tt.yaml"),
    force: Annotated[bool, typer.Option("--force", help="Replace an existing file.")] = False,
) -> None:
    """Write tt.yaml, a file of options for the files of this folder.

    It lists the files with texts and tables. Check the file before you use it.

    Example: tt init
    """
    if output.exists() and not force:
        raise UserError(f"{output} exists. Replace it with --force, or choose another --output")
    names = sorted(path.name for path in Path().iterdir() if path.is_file())
    try:
        output.write_text("".join(f"{line}\n" for line in _write(names)), "utf-8")
    except OSError as error:
        raise UserError(
            f"{output} cannot be written: {error.strerror or error}. Choose another --output"
        ) from error
    say(f"Options: {output}. Read it, then run:")
    for name in ("preprocess", "train", "translate-batch"):
        typer.echo(f"tt {name} --config {output}")


def _write(names: list[str]) -> Iterator[str]:
    """Yield the lines of the file."""
    pairs = _pair_texts(names)
    tsv = [name for name in names if _TSV.fullmatch(name)]
    tables = [name for name in names if _TABLE.fullmatch(name)]
    yield "# Options of `tt`. A flag on the command line replaces the value of the file."
    yield "preprocess:"
    for use, keys in (
        ("", ("source", "target")),
        ("validation", ("validation_source", "validation_target")),
    ):
        chosen = [pair for name, pair in pairs.items() if _use_of(name) == use]
        for side, key in enumerate(keys):
            if chosen:
                yield f"  {key}: [{', '.join(pair[side][1] for pair in chosen)}]"
    languages = [code for code, _ in next(iter(pairs.values()), ()) if code not in _SIDES]
    if len(languages) == len(("source", "target")):
        yield f'  source_language: "{languages[0]}"  # check which side is the source'
        yield f'  target_language: "{languages[1]}"'
    if tests := [
        name for stem, pair in pairs.items() if _use_of(stem) == "test" for _, name in pair
    ]:
        yield f"  exclude: [{', '.join(tests)}]  # texts that training must not see"
    mark = "# " if pairs or not tsv else ""
    corpora = ", ".join(tsv) or "CORPUS.parquet:SOURCE_COLUMN:TARGET_COLUMN"
    yield f"  {mark}corpora: [{corpora}]"
    yield f"  output: {DEFAULT_DATASET}"
    yield "train:"
    yield f"  dataset: {DEFAULT_DATASET}"
    yield f"  run: {DEFAULT_RUN}"
    yield "translate-batch:"
    yield f"  input: [{', '.join(tables[:1])}]" if tables else "  # input: [TABLE.parquet]"
    if tables[1:]:
        yield f"  # other tables: {', '.join(tables[1:])}"
    yield "  # text_column: [NAME]  # if a table has several columns of texts"
    yield f"  model: {DEFAULT_RUN}"
    yield f"  output: {DEFAULT_TRANSLATED}"


def _pair_texts(names: list[str]) -> dict[str, list[tuple[str, str]]]:
    """Return pairs of text files by their common name: [(code, file name), (code, file name)]."""
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


def _use_of(name: str) -> str:
    if _TEST.search(name):
        return "test"
    return "validation" if _VALIDATION.search(name) else ""
