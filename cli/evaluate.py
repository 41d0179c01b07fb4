"""`tt evaluate`: translations and references from files, and their scores by sacreBLEU."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cli.options import command, say
from model.errors import UserError

# Those of sacreBLEU's that need neither another package nor a download.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")

_UNIT = re.compile(r"(.*)-(\d{5,})-of-\d{5,}\.parquet")  # an output file of `tt translate-batch`


@command
def evaluate_command(
    hypotheses: Annotated[
        Path,
        typer.Argument(help="Translations: text (.gz too), or Parquet of `tt translate-batch`."),
    ],
    reference: Annotated[
        list[Path], typer.Option(help="Reference text, line for line (.gz too); repeatable.")
    ],
    column: Annotated[
        str | None,
        typer.Option(help="Of Parquet translations. [default: translation]", show_default=False),
    ] = None,
    tokenize: Annotated[
        str | None, typer.Option(help="sacreBLEU's tokenizer: 13a (default), intl, zh, char, none.")
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
) -> None:
    """Score translations against references: BLEU and chrF with their signatures."""
    translations = read_translations(hypotheses, column=column)
    lines = [text or "" for text in translations]
    references = read_references(reference, count=len(lines), hypotheses=hypotheses)
    if nulls := translations.count(None):
        say(f"tt: {nulls:,} of {len(lines):,} translations are null and count as empty")
    for line in score_lines(lines, references, tokenize=tokenize, lowercase=lowercase):
        typer.echo(line)


def read_lines(path: Path) -> list[str]:
    r"""Reads a UTF-8 text, gzip or plain; a line ends at \n alone."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a text file")
    if not path.is_file():
        raise UserError(f"no file {path}: name a text file")
    try:
        data = path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a UTF-8 text: {error}. Name a text file") from error
    except (OSError, EOFError, zlib.error) as error:
        raise UserError(f"{path} cannot be read: {error}. Name another text file") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def read_hypotheses(path: Path, *, column: str | None = None) -> list[str]:
    """Reads translations as `read_translations` does; a null one counts as empty."""
    return [text or "" for text in read_translations(path, column=column)]


def read_translations(path: Path, *, column: str | None = None) -> list[str | None]:
    """Reads translations from a text, a Parquet file, or a folder of Parquet files.

    Those of a folder of `tt translate-batch` are in the order of its input's rows.

    Args:
      path: Of the file or folder.
      column: Of Parquet; None is "translation".

    Raises:
      UserError: There is nothing, or not the column.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = [path] if path.suffix == ".parquet" else []
    if path.is_dir():
        files = list_parquet(path)
        if not files:
            raise UserError(f"{path} holds no *.parquet: name the output of `tt translate-batch`")
    if not files:
        if column is not None and path.is_file():
            raise UserError(f"--column belongs to Parquet, and {path} is a text: leave it out")
        return [*read_lines(path)]
    column = column or "translation"
    lines: list[str | None] = []
    for file in files:
        try:
            schema = pq.read_schema(file)
            if column not in schema.names:
                raise UserError(
                    f"{file} has no column {column!r}: choose one of "
                    f"{', '.join(schema.names)} with --column"
                )
            if schema.names.count(column) > 1:
                raise UserError(f"{file} has several columns {column!r}: rename all but one")
            kind = schema.field(column).type
            if not (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
                raise UserError(f"column {column!r} of {file} must hold strings. Received: {kind}")
            lines += pq.ParquetFile(file).read(columns=[column])[column].to_pylist()
        except UnicodeDecodeError as error:
            raise UserError(
                f"column {column!r} of {file} has texts that are not UTF-8: choose another with "
                "--column"
            ) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{file} cannot be read as Parquet: {error}. Name another file"
            ) from error
    return lines


def list_parquet(folder: Path) -> list[Path]:
    """Lists the Parquet files of a folder in the order of the input that they were made of.

    That is the order of the plan of `tt translate-batch`; units that were skipped have no file.
    In a folder without a plan, the files are sorted by the name of the input file and their
    number; hidden ones, and those in hidden folders, do not count.

    Raises:
      UserError: A file of the plan is missing.
    """
    if (folder / "_tt/plan.json").is_file():
        return _list_planned(folder)
    found = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.parquet")}
    shown = [name for name in found if not any(part[0] in "._" for part in name.split("/"))]
    return [found[name] for name in sorted(shown, key=_input_order)]


def _list_planned(folder: Path) -> list[Path]:
    from pipelines.translation_plan import (
        JOB_FOLDER,
        MANIFEST_FILE,
        PLAN_FILE,
        planned_outputs,
        read_json,
    )

    manifest_path = folder / JOB_FOLDER / MANIFEST_FILE
    manifest = read_json(str(manifest_path)) if manifest_path.is_file() else {}
    skipped_units = manifest.get("skipped_units", ())
    skipped = {unit["output"] for unit in skipped_units}
    if rows := sum(unit["rows"] for unit in skipped_units):
        say(f"tt: {folder} has no translations of {rows:,} rows, which its job skipped")
    names = planned_outputs(read_json(str(folder / JOB_FOLDER / PLAN_FILE)))
    files = [folder / name for name in names if name not in skipped]
    for file in files:
        if not file.is_file():
            raise UserError(
                f"{folder} is not finished ({file} is missing): run its `tt translate-batch` again"
            )
    return files


def _input_order(name: str) -> tuple[str, int]:
    numbered = _UNIT.fullmatch(name)
    return (f"{numbered[1]}.parquet", int(numbered[2])) if numbered else (name, 0)


def read_references(paths: Sequence[Path], *, count: int, hypotheses: Path) -> list[list[str]]:
    """Reads reference texts, each of `count` lines.

    Raises:
      UserError: A text has another number of lines; both are named.
    """
    references = [read_lines(path) for path in paths]
    for path, lines in zip(paths, references, strict=True):
        if len(lines) != count:
            raise UserError(
                f"{hypotheses} has {count} translations and {path} has {len(lines)} lines: "
                "they must be of the same sentences"
            )
    if count == 0:
        raise UserError(f"{hypotheses} is empty: there is nothing to score")
    return references


def score_lines(
    hypotheses: list[str],
    references: list[list[str]],
    *,
    tokenize: str | None = None,
    lowercase: bool = False,
) -> list[str]:
    """Returns a line for BLEU and one for chrF, each with its signature.

    Args:
      hypotheses: Detokenised translations.
      references: Lists of as many texts.
      tokenize: A tokenizer of sacreBLEU's; None is its default, 13a.
      lowercase: Whether case is ignored, by both.

    Raises:
      UserError: There is no such tokenizer.
    """
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    if tokenize is not None and tokenize not in TOKENIZERS:
        raise UserError(f"no tokenizer {tokenize!r}: choose one of {', '.join(TOKENIZERS)}")
    lines = []
    for metric in (BLEU(tokenize=tokenize, lowercase=lowercase), CHRF(lowercase=lowercase)):
        score = metric.corpus_score(hypotheses, references)
        lines.append(f"{score.format(signature=str(metric.get_signature()))}")
    return lines
