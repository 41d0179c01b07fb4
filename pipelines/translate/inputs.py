"""The input of a job: its files and columns, checked before anything is written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from model.errors import BadFileError, UnsupportedFileError, UserError, counted
from pipelines.runners.formatting import megabytes
from pipelines.storage import listing
from pipelines.storage import paths as storage_paths
from pipelines.storage.forward import read_rows
from pipelines.storage.int96 import TwoCalendarsError
from pipelines.storage.listing import compile_glob, exists, file_identity
from pipelines.storage.parquet import is_text
from pipelines.storage.paths import JOB_FOLDER, check_no_glob, is_local, normalize_path
from pipelines.tables.finding import FoundFile, find_tables
from pipelines.tables.formats import PARQUET
from pipelines.tables.reading import Contents, OpenTable, is_read_in_place, look_through
from pipelines.tables.text_columns import is_text_list, read_text_column, type_of
from pipelines.tables.writing import check_schema
from pipelines.texts.translating import ROW_FLAGS
from pipelines.translate.job_folder import PLAN_PATH, SkippedFile
from pipelines.translate.options import SKIP, TranslateOptions
from pipelines.translate.plan import (
    InputFile,
    fitting_rows,
    output_stem,
    plan_output_paths,
    planned_outputs,
)
from pipelines.translate.table import TableOptions, added_fields

_LONGEST_NAME = 255  # bytes, of the file systems in use
_LONG_BYTES = 100_000_000  # of an input that is said to be read


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundInput:
    """What there is to translate."""

    files: list[InputFile]  # the input files, with no more rows in all than the limit
    bad_files: dict[str, str]  # files that are skipped, by relative path, and why
    # Rows in them that would be translated; None if the file does not say.
    bad_rows: dict[str, int | None]
    text_columns: tuple[str, ...]  # the columns to translate
    notices: tuple[str, ...] = ()  # warnings for the user, a line each

    @property
    def every(self) -> list[InputFile | SkippedFile]:
        """The files, and then the bad ones."""
        return [*self.files, *self.skipped]

    @property
    def skipped(self) -> list[SkippedFile]:
        """The bad files, with the reasons of this run: an earlier plan may word them otherwise."""
        return [
            SkippedFile(relative_path=name, reason=reason, rows=self.bad_rows[name])
            for name, reason in self.bad_files.items()
        ]


def inspect_input(
    options: TranslateOptions,
    *,
    has_n_best: bool = False,
    report: Callable[[str], object] = lambda line: None,
) -> FoundInput:
    """Reads every footer of Parquet, and all of every other file.

    Raises:
      UserError: A file is missing, is bad or has no such column, names collide, it is not clear
        what the text columns are, or the format of the output cannot hold a column.
    """
    notices: list[str] = []
    found = find_tables(options.input, warn=notices.append)
    _check_names(found, output=normalize_path(options.output), suffix=options.suffix)
    _say_what_is_read(found, report=report)
    files: list[InputFile] = []
    bad_files: dict[str, str] = {}
    bad_rows: dict[str, int | None] = {}
    text_columns = options.text_columns
    for file, contents in zip(found, look_through([file.path for file in found]), strict=True):
        try:
            if isinstance(contents, BadFileError):
                raise contents
            if not (contents.rows or contents.schema.names):
                raise BadFileError(f"{file.path} is empty: no row of it names columns")
            columns = find_text_columns(
                schema=contents.schema,
                text_columns=options.text_columns,
                path=file.path,
                language_column=options.target_language_column,
            )
        except BadFileError as error:
            if options.on_bad_file != SKIP:
                remedy = _remedy(contents, text_columns=options.text_columns)
                if len(found) > 1:
                    remedy += ", or leave such files out with `on_bad_file=skip`"
                raise UserError(f"{error}. {remedy}") from error
            bad_files[file.relative_path] = str(error)
            bad_rows[file.relative_path] = (
                None
                if isinstance(contents, BadFileError)
                else _within(options.limit, files, rows=contents.rows)
            )
            continue
        if text_columns not in ((), columns):
            raise UserError(
                f"the files must agree on the column to translate; it is {text_columns[0]!r} in "
                f"{files[0].path} and {columns[0]!r} in {file.path}. Translate them into two "
                "folders"
            )
        text_columns = columns
        table = TableOptions(text_columns=text_columns, has_n_best=has_n_best)
        _check_columns(contents.schema, table=table, file_format=options.format, path=file.path)
        files.append(
            InputFile(
                path=file.path,
                relative_path=file.relative_path,
                size=contents.size,
                rows=contents.rows,
                footer_checksum=contents.checksum,
                schema=None if is_read_in_place(file.path) else contents.schema,
                group_rows=contents.group_rows,
                fitting_rows=fitting_rows(rows=contents.rows, content_bytes=contents.content_bytes),
            )
        )
    if not files:
        reason = next(iter(bad_files.values()))
        raise UserError(
            f"of {counted(len(bad_files), 'input file')} none can be translated: {reason}"
        )
    return FoundInput(
        files=_limit(files, rows=options.limit),
        bad_files=bad_files,
        bad_rows=bad_rows,
        text_columns=text_columns,
        notices=tuple(notices),
    )


def _remedy(contents: Contents | BadFileError, *, text_columns: Sequence[str]) -> str:
    if isinstance(contents, (TwoCalendarsError, UnsupportedFileError)):
        return contents.remedy
    if isinstance(contents, BadFileError) or not contents.schema.names:
        return "Check the file"
    wanted = text_columns or [field.name for field in contents.schema if is_text(field.type)]
    is_double = any(contents.schema.names.count(name) > 1 for name in wanted)
    return "Rename one of them" if is_double else "Choose `text_columns`"


def _say_what_is_read(found: Sequence[FoundFile], *, report: Callable[[str], object]) -> None:
    """Says that a large input is read, which takes about a second for 100 MB."""
    whole = [file for file in found if not is_read_in_place(file.path)]
    sizes = []
    for file in whole:
        with contextlib.suppress(OSError):  # looking through it tells
            size = file_identity(file.path)["bytes"] if file.size is None else file.size
            sizes.append(int(size))
    if sum(sizes) > _LONG_BYTES:
        report(
            f"Reading {counted(len(whole), 'file')} ({megabytes(sum(sizes))}) to check and count "
            "the rows"
        )


def _check_columns(schema: pa.Schema, *, table: TableOptions, file_format: str, path: str) -> None:
    """Checks that columns can be added to those of a file, and all of them be written.

    Raises:
      UserError: One cannot.
    """
    added = added_fields(schema, options=table)
    for field in added:
        if field.name in schema.names:
            raise UserError(
                f"{path} has a column {field.name!r} already, which is the name of a column that "
                "is added: rename or drop it"
            )
    if file_format == PARQUET and is_read_in_place(path):
        return
    joined = {table.name(column, ROW_FLAGS) for column in table.text_columns}
    whole = pa.schema([*schema, *added])
    check_schema(whole, file_format=file_format, joined=joined, path=path)


def _check_names(found: Sequence[FoundFile], *, output: str, suffix: str) -> None:
    paths_by_stem: dict[str, str] = {}
    paths: set[str] = set()
    folder = f"{_real_path(output)}/"
    for file in found:
        if file.path in paths:
            raise UserError(f"the input names {file.path} twice: name each file once")
        paths.add(file.path)
        _check_name(file, output=output, suffix=suffix)
        if _real_path(file.path).startswith(folder):
            raise UserError(
                f"the input file {file.path} lies in the output folder: choose another folder"
            )
        check_no_glob(f"{output}/{file.relative_path}")
        other = paths_by_stem.setdefault(output_stem(file.relative_path), file.path)
        if other is not file.path:
            is_one_folder = other.rpartition("/")[0] == file.path.rpartition("/")[0]
            remedy = "rename one" if is_one_folder else "name the folder that holds both"
            raise UserError(
                f"{other} and {file.path} would have the same output files, "
                f"{output_stem(file.relative_path)}-*{suffix}: {remedy}, or translate them into "
                "two folders"
            )


def _check_name(file: FoundFile, *, output: str, suffix: str) -> None:
    """Checks that the output files of an input file can have their names."""
    name = file.relative_path
    try:
        file.path.encode()
    except UnicodeEncodeError:
        raise UserError(
            f"the input file {file.path!r} has a path that is not UTF-8: rename it"
        ) from None
    if name.startswith(f"{JOB_FOLDER}/"):
        raise UserError(
            f"the outputs of {file.path} would lie in {JOB_FOLDER}/, the job's own folder: name "
            f"the folder {JOB_FOLDER} itself, or files in it"
        )
    [longest] = plan_output_paths(
        relative_path=name.rpartition("/")[2], rows=1, unit_rows=1, suffix=suffix
    )
    excess = len(longest.encode()) - _LONGEST_NAME
    if is_local(output) and excess > 0:
        raise UserError(
            f"{file.path} has a name that is too long for its outputs, which have numbers behind "
            f"it: shorten it by {excess} bytes"
        )


def _limit(files: Sequence[InputFile], *, rows: int | None) -> list[InputFile]:
    if rows is None:
        return list(files)
    kept: list[InputFile] = []
    for file in files:
        if rows == 0:
            break
        kept.append(dataclasses.replace(file, rows=min(rows, file.rows)))
        rows -= kept[-1].rows
    return kept


def _within(limit: int | None, before: Sequence[InputFile], *, rows: int) -> int:
    """Returns how many of a file's rows are within a limit that earlier files use up first."""
    if limit is None:
        return rows
    return min(rows, max(0, limit - sum(file.rows for file in before)))


def check_place(options: TranslateOptions, *, output: str) -> None:
    """Checks that the output can be a folder, and lies in no input folder: a rerun would read it.

    Raises:
      UserError: It is a file, or lies in an input folder.
    """
    if exists(output) and not listing.is_folder(output):
        raise UserError(f"the output must be a folder; {options.output} is a file")
    for argument in options.input:
        path = storage_paths.normalize_path(argument)
        folder = f"{_real_path(path).rstrip('/')}/"
        if f"{_real_path(output)}/".startswith(folder) and listing.is_folder(path):
            raise _lies_in_input(options.output, f"the input folder {argument}")


def check_matches(arguments: Sequence[str], *, output: str, plan: Mapping[str, Any]) -> None:
    """Checks that no glob of the input will match what the job writes.

    Raises:
      UserError: A glob matches an output file, or the plan.
    """
    written = [PLAN_PATH, *planned_outputs(plan)]
    for argument in arguments:
        path = storage_paths.normalize_path(argument)
        if not re.search(r"[*?[]", path):
            continue
        if exists(path) or listing.is_folder(path):  # a name with brackets in it is a name
            continue
        # As they are named, and where the links lead that Beam's globs go through: those of the
        # path before its first pattern.
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        real_base = _real_path(base).rstrip("/") + "/"
        for pattern, folder in (
            (path, output),
            (real_base + path.removeprefix(base), _real_path(output)),
        ):
            matches = compile_glob(pattern).match
            if any(matches(f"{folder}/{name}") for name in written):
                raise _lies_in_input(output, f"what the glob {argument} matches")


def _lies_in_input(output: str, what: str) -> UserError:
    return UserError(f"the output folder {output} lies in {what}: choose one outside")


def _real_path(path: str) -> str:
    return os.path.realpath(path) if is_local(path) else path


def _first_rows(file: InputFile, *, rows: int) -> pa.Table:
    if file.schema is None:
        return read_rows(
            path=file.path, first_row=0, rows=rows, footer_checksum=file.footer_checksum
        )
    with OpenTable(file.path, schema=file.schema) as table:
        return next(table.runs([rows]), file.schema.empty_table())


def first_texts(found: FoundInput, *, count: int) -> dict[str, list[str]]:
    """Returns the texts, but for null ones, of the first rows of the first file that has any.

    They stand by their column.
    """
    file = next((file for file in found.files if file.rows), None)
    if file is None:
        return {}
    try:
        table = _first_rows(file, rows=min(count, file.rows))
    except BadFileError:  # which the job tells of, or skips
        return {}
    return {
        name: [
            cell.decode(errors="ignore")
            for cell in read_text_column(table, name).cells
            if cell is not None
        ]
        for name in found.text_columns
    }


def find_text_columns(
    *,
    schema: pa.Schema,
    text_columns: Sequence[str],
    path: str,
    language_column: str | None = None,
) -> tuple[str, ...]:
    """Finds the columns to translate: those that the user named, or the only one that holds text.

    The column of languages is none of them.

    Raises:
      BadFileError: There is no such column, or it holds no text.
      UserError: No column is named, and several hold text.
    """
    if language_column is not None:
        kind = type_of(schema, language_column)
        if kind is None or not (is_text(kind) or pa.types.is_null(kind)):
            found = "no column" if kind is None else f"a column of {kind}"
            raise BadFileError(
                f"`target_language_column` must be a column of strings; {path} has {found} "
                f"{language_column!r}. Its columns: {_columns(schema)}"
            )
    if not text_columns:
        names = [
            str(field.name)
            for field in schema
            if is_text(field.type) and field.name != language_column
        ]
        if not names:
            raise BadFileError(
                f"{path} has no column of strings to translate. Its columns: {_columns(schema)}"
            )
        if len(set(names)) > 1:
            raise UserError(
                f"{path} has {len(names)} columns of strings: {', '.join(names)}. "
                "Choose `text_columns`"
            )
        text_columns = names[:1]
    for name in text_columns:
        kind = type_of(schema, name)
        if kind is None:
            count = schema.names.count(name)
            problem = f"{count} columns of the name" if count else "no column"
            raise BadFileError(f"{path} has {problem} {name!r}. Its columns: {_columns(schema)}")
        # Null is the type of a column in which all are null.
        if not (is_text(kind) or is_text_list(kind) or pa.types.is_null(kind)):
            raise BadFileError(
                f"the text column must hold strings, or lists of them; {name!r} of {path} is "
                f"{kind}. Its columns: {_columns(schema)}"
            )
    return tuple(text_columns)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
