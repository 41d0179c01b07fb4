"""`tt evaluate`: translations and references from files, and their scores by sacreBLEU."""

from __future__ import annotations

import gzip
import re
import stat
import sys
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import regex
import typer

from cli.options import Texts, command, say, say_what_is_awaited
from model.errors import UserError
from model.folders.access import check_readable

# Those of sacreBLEU's that need neither another package nor a download.
TOKENIZERS = ("13a", "intl", "zh", "char", "none")

_UNIT = re.compile(r"(.*)-(\d{5,})-of-\d{5,}\.parquet")  # an output file of `tt translate-batch`
_SAMPLE = 1000  # references that are looked at, where no language is known
_LETTERS = regex.compile(r"\p{L}")
_UNSPACED = {
    "Han characters or kana": regex.compile(r"[\p{Hiragana}\p{Katakana}\p{Han}]"),
    "Hangul": regex.compile(r"\p{Hangul}"),
    "Thai": regex.compile(r"\p{Thai}"),
}
_STDIN = ("-", "/dev/stdin", "/dev/fd/0")
_GZIP = b"\x1f\x8b"  # what it begins with; no UTF-8 text does


@command
def evaluate_command(
    hypotheses: Annotated[
        Path,
        typer.Argument(
            help="Translations: a text (.gz too; - is stdin), or Parquet of `tt translate-batch`."
        ),
    ],
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            help="References, line for line: a text (.gz too; - is stdin), or Parquet; repeatable.",
            show_default=False,
        ),
    ] = None,
    reference_column: Annotated[
        Texts,
        typer.Option(
            help="Column of Parquet references, or, where no --reference is Parquet, of the "
            "translations' own table; repeatable.",
            show_default=False,
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(help="Of Parquet translations. [default: translation]", show_default=False),
    ] = None,
    tokenize: Annotated[
        str | None,
        typer.Option(
            help="sacreBLEU's tokenizer: 13a, intl, zh, char, none. [default: by --language]",
            show_default=False,
        ),
    ] = None,
    language: Annotated[
        str | None,
        typer.Option(
            help="Code of the translations' language, which chooses the tokenizer. [default: as "
            "`tt translate-batch` wrote it down]",
            show_default=False,
        ),
    ] = None,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
) -> None:
    """Score translations against references by BLEU and chrF.

    Both are sacreBLEU's, with their signatures.
    """
    if not (reference or reference_column):
        raise UserError(
            "there is no reference: name a text with --reference, or a column of the translations' "
            "table with --reference-column"
        )
    check_pipes([hypotheses, *(reference or [])])
    translations = read_translations(hypotheses, column=column)
    lines = [text or "" for text in translations]
    references = read_references(
        reference or [],
        columns=reference_column or [],
        count=len(lines),
        hypotheses=hypotheses,
    )
    if nulls := translations.count(None):
        say(f"tt: {nulls:,} of {len(lines):,} translations are null and count as empty")
    if tokenize is None:
        tokenize = choose_tokenizer(hypotheses, references, language=language)
    for line in score_lines(lines, references, tokenize=tokenize, lowercase=lowercase):
        typer.echo(line)


def choose_tokenizer(
    hypotheses: Path, references: Sequence[Sequence[str]], *, language: str | None
) -> str | None:
    """Returns the tokenizer of the translations' language, as training's validation has it.

    Where the language is not known, it warns of texts that are written without spaces.

    Args:
      hypotheses: Where the translations are from.
      references: Of them.
      language: What the user says; None takes that of the model that translated.

    Raises:
      UserError: That is no code of a language.
    """
    from model.text.languages import find_language, read_language
    from model.text.scores import bleu_tokenizer

    if language is not None:
        read_language(language, name="--language")
    code = language if language is not None else _planned_language(hypotheses)
    if find_language(code):
        return bleu_tokenizer(code)
    if example := find_unspaced([text for texts in references for text in texts]):
        say(
            f"tt: warning: the references are written in {example}, and BLEU's tokenizer 13a takes "
            "what stands between two spaces for a word: give their --language, or --tokenize"
        )
    return None


def _planned_language(hypotheses: Path) -> str:
    """Returns the target language that a folder of `tt translate-batch` tells, or ""."""
    from pipelines.translate.plan import JOB_FOLDER, PLAN_FILE, read_json

    path = hypotheses / JOB_FOLDER / PLAN_FILE
    languages = read_json(str(path)).get("languages") if path.is_file() else None
    return str(languages.get("target", "")) if isinstance(languages, dict) else ""


def find_unspaced(texts: Sequence[str]) -> str:
    """Names the script without spaces, or Hangul, that most letters of some texts are in, or ""."""
    sample = "".join(texts[:_SAMPLE])
    letters = len(_LETTERS.findall(sample))
    for name, pattern in _UNSPACED.items():
        if 2 * len(pattern.findall(sample)) > letters:
            return name
    return ""


def check_pipes(paths: Sequence[Path]) -> None:
    """Checks that no pipe is named twice.

    Raises:
      UserError: One is; both names are given.
    """
    seen: dict[object, Path] = {}
    for path in paths:
        pipe: object = "stdin"
        if str(path) not in _STDIN:
            try:
                status = path.stat()
            except OSError:
                continue  # reading it says what is wrong
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                continue
            pipe = (status.st_dev, status.st_ino)
        if pipe in seen:
            raise UserError(
                f"{seen[pipe]} and {path} are one pipe, which can be read only once: write it to a "
                "file, and name that"
            )
        seen[pipe] = path


def read_lines(path: Path) -> list[str]:
    r"""Reads a UTF-8 text, gzip or plain, of a file or a pipe, once; a line ends at \n alone."""
    try:
        data = _read_bytes(path)
        if path.suffix == ".gz" or data.startswith(_GZIP):
            data = gzip.decompress(data)
        text = data.decode("utf-8")
    except IsADirectoryError:
        raise UserError(f"{path} is a folder: name a text file") from None
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no file {path}: name a text file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not a UTF-8 text: {error}. Name a text file") from error
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}. Name another text file") from error
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: Path) -> bytes:
    if str(path) not in _STDIN:
        return path.read_bytes()
    if sys.stdin is None:
        raise UserError(f"stdin is closed, and {path} stands for it: redirect it, or name a file")
    say_what_is_awaited(sys.stdin)
    return sys.stdin.buffer.read()


def read_hypotheses(path: Path, *, column: str | None = None) -> list[str]:
    """Reads translations as `read_translations` does; a null one counts as empty."""
    return [text or "" for text in read_translations(path, column=column)]


def read_translations(path: Path, *, column: str | None = None) -> list[str | None]:
    """Reads translations from a text, a Parquet file, or a folder of Parquet files.

    Those of a folder of `tt translate-batch` are in the order of its input's rows.

    Args:
      path: Of the file or folder, or "-".
      column: Of Parquet; None is "translation".

    Raises:
      UserError: There is nothing, or not the column.
    """
    files = _find_parquet(path)
    if not files:
        if column is not None:
            raise UserError(f"--column belongs to Parquet, and {path} is a text: leave it out")
        return [*read_lines(path)]
    tables = _read_column(files, column or "translation", flag="--column")
    return [text for _, texts in tables for text in texts]


def _find_parquet(path: Path) -> list[Path]:
    """Returns the Parquet files that a name stands for; none if it stands for a text."""
    if not path.is_dir():
        return [path] if path.suffix == ".parquet" else []
    files = list_parquet(path)
    if not files:
        raise UserError(f"{path} holds no *.parquet: name the output of `tt translate-batch`")
    return files


def _read_column(
    files: Sequence[Path], column: str, *, flag: str
) -> Iterator[tuple[Path, list[str | None]]]:
    """Yields the texts of a column, file by file.

    Args:
      files: Of Parquet.
      column: Its name.
      flag: The option that chooses it.

    Raises:
      UserError: A file cannot be read, or has no such column of strings.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    from pipelines.storage.text_cells import cell_bytes, is_text

    for file in files:
        try:
            check_readable(file)
            schema = pq.read_schema(file)
            if column not in schema.names:
                raise UserError(
                    f"{file} has no column {column!r}: choose one of "
                    f"{', '.join(schema.names)} with {flag}"
                )
            if schema.names.count(column) > 1:
                raise UserError(f"{file} has several columns {column!r}: rename all but one")
            kind = schema.field(column).type
            if not is_text(kind):
                raise UserError(f"column {column!r} of {file} must hold strings. Received: {kind}")
            cells = cell_bytes(pq.ParquetFile(file).read(columns=[column])[column])
            yield file, [None if cell is None else cell.decode() for cell in cells]
        except UnicodeDecodeError as error:
            raise UserError(
                f"column {column!r} of {file} has texts that are not UTF-8: choose another with "
                f"{flag}"
            ) from error
        except (OSError, pa.ArrowInvalid) as error:
            raise UserError(
                f"{file} cannot be read as Parquet: {error}. Name another file"
            ) from error


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
    from pipelines.translate.plan import (
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


def read_references(
    paths: Sequence[Path], *, columns: Sequence[str] = (), count: int, hypotheses: Path
) -> list[list[str]]:
    """Reads references, each of `count` texts, in the order of the translations.

    Args:
      paths: Of texts and Parquet.
      columns: Of the Parquet among them; where there is none, of the translations' table.
      count: Number of translations.
      hypotheses: Where they are from.

    Raises:
      UserError: One has another number of texts, or none for a row.
    """
    texts = [
        path for path in paths if not (path.suffix == ".parquet" or (columns and path.is_dir()))
    ]
    tables = [path for path in paths if path not in texts]
    if tables and not columns:
        raise UserError(
            f"{tables[0]} is Parquet: name the column of its references with --reference-column"
        )
    if columns and not tables:
        tables = [hypotheses]
    references = [(path, read_lines(path), "lines") for path in texts]
    references += [
        (path, read_reference_column(path, column), "rows") for path in tables for column in columns
    ]
    for path, found, unit in references:
        if len(found) != count:
            raise UserError(
                f"{hypotheses} has {count} translations and {path} has {len(found)} {unit}: "
                "they must be of the same sentences"
            )
    if count == 0:
        raise UserError(f"{hypotheses} is empty: there is nothing to score")
    return [found for _, found, _ in references]


def read_reference_column(path: Path, column: str) -> list[str]:
    """Reads a column of Parquet, as `read_translations` does, of which every row has a text.

    Raises:
      UserError: The path is of a text, there is no such column, or a row is null.
    """
    files = _find_parquet(path)
    if not files:
        raise UserError(
            f"--reference-column belongs to Parquet, and {path} is a text: name Parquet with "
            "--reference, or leave it out"
        )
    references: list[str] = []
    for file, texts in _read_column(files, column, flag="--reference-column"):
        for row, text in enumerate(texts, 1):
            if text is None:
                raise UserError(
                    f"each row needs a reference, and column {column!r} of {file} is null in row "
                    f"{row:,}: leave such rows out of the table, or choose another column"
                )
            references.append(text)
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
