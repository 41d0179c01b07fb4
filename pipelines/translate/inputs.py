"""The input of a job: its files and columns, checked before anything is written."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from tt.model.errors import BadFileError, ColumnsError, UserError, counted
from tt.pipelines.storage import listing
from tt.pipelines.storage import paths as storage_paths
from tt.pipelines.storage.files import AT_ONCE
from tt.pipelines.storage.listing import compile_glob, exists
from tt.pipelines.storage.paths import JOB_FOLDER, check_no_glob, is_local, normalize_path
from tt.pipelines.tables.columns import is_text, is_text_list, read_text_column, type_of
from tt.pipelines.tables.finding import (
    JSONL_SUFFIX,
    PARQUET,
    FoundFile,
    find_tables,
    is_read_in_place,
    table_suffix,
)
from tt.pipelines.tables.forward import read_rows
from tt.pipelines.tables.parquet import Contents
from tt.pipelines.tables.reading import look_at
from tt.pipelines.tables.writing import check_schema
from tt.pipelines.texts.translating import ROW_FLAGS
from tt.pipelines.translate.job_folder import PLAN_PATH
from tt.pipelines.translate.manifest import SkippedFile
from tt.pipelines.translate.options import SKIP, TranslateOptions
from tt.pipelines.translate.plan import (
    InputFile,
    fitting_rows,
    output_stem,
    plan_output_paths,
    planned_outputs,
)
from tt.pipelines.translate.table import TableOptions, added_fields

_LONGEST_NAME = 255  # bytes, of the file systems in use


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundInput:
    """What there is to translate."""

    files: list[InputFile]  # the input files, with no more rows in all than the limit
    skipped: list[SkippedFile]  # bad files, with the reasons of this run
    text_columns: tuple[str, ...]  # the columns to translate
    first_rows: pa.Table | None = None  # rows of the first file with any, unless it is Parquet
    notices: tuple[str, ...] = ()  # warnings for the user, a line each


def inspect_input(options: TranslateOptions, *, has_n_best: bool = False) -> FoundInput:
    """Read the footer of each Parquet file, and the head of each other file.

    Raises:
      UserError: A file is missing, is bad or has no such column, names collide, it is not clear
        what the text columns are, or the format of the output cannot hold a column.
    """
    notices: list[str] = []
    found = find_tables(options.input, warn=notices.append)
    _check_names(found, output=normalize_path(options.output), suffix=options.suffix)
    kept: list[InputFile] = []
    first: Contents | None = None  # of the first file with rows
    skipped: list[SkippedFile] = []
    table = TableOptions(
        fields=options.text_columns,
        has_n_best=has_n_best,
        language_column=options.target_language_column,
    )
    text_columns = options.text_columns
    left = options.limit  # rows that are still to be found, if that is known
    for file, contents in _look_at_all(found):
        try:
            if isinstance(contents, BadFileError):
                raise contents
            columns = check_table(contents, path=file.path, table=table, file_format=options.format)
        except BadFileError as error:
            if options.on_bad_file != SKIP:
                raise with_fix(error, has_others=len(found) > 1) from error
            rows = None if isinstance(contents, BadFileError) else contents.rows
            rows = rows if left is None else rows and min(rows, left)
            skipped.append(
                SkippedFile(relative_path=file.relative_path, reason=str(error), rows=rows)
            )
            continue
        if kept and columns != text_columns:
            raise UserError(
                f"the files must agree on the column to translate; it is "
                f"{text_columns[0]!r} in {kept[0].path} and {columns[0]!r} in "
                f"{file.path}. Translate them into two folders"
            )
        text_columns = columns
        planned = with_contents(
            InputFile(
                path=file.path,
                relative_path=file.relative_path,
                size=contents.size,
                rows=None,
                footer_checksum="",
                changed=contents.changed,
            ),
            contents,
        )
        limited, left = _within(planned, left=left, limit=options.limit)
        if limited is not None:
            kept.append(limited)
            if first is None and limited.rows != 0:
                first = contents
    if not kept:
        raise UserError(
            f"of {counted(len(skipped), 'input file')} none can be translated: {skipped[0].reason}"
        )
    return FoundInput(
        files=kept,
        skipped=skipped,
        text_columns=text_columns,
        first_rows=first and first.head,
        notices=tuple(notices),
    )


def _look_at_all(
    files: Sequence[FoundFile],
) -> Iterator[tuple[FoundFile, Contents | BadFileError]]:
    """Yield files with their contents; only the heads of a few files are in memory at once."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for start in range(0, len(files), AT_ONCE):
            some = files[start : start + AT_ONCE]
            yield from zip(some, pool.map(_try_look, [file.path for file in some]), strict=True)


def _try_look(path: str) -> Contents | BadFileError:
    try:
        return look_at(path)
    except BadFileError as error:
        return error


def _within(
    file: InputFile, *, left: int | None, limit: int | None
) -> tuple[InputFile | None, int | None]:
    """Return a file with its rows within a limit, and the rows that are left for other files.

    None is no file, or an unknown number: after a file whose rows the job counts it is unknown how
    many are left.
    """
    if limit is None:
        return file, None
    if left is None:
        return dataclasses.replace(file, rows=None), None
    if not left:
        return None, 0
    if file.rows is None:
        return file, None
    rows = min(left, file.rows)
    return dataclasses.replace(file, rows=rows), left - rows


def with_contents(file: InputFile, contents: Contents) -> InputFile:
    """Return a file with the facts that reading it has told."""
    rows = contents.rows
    return dataclasses.replace(
        file,
        rows=rows,
        footer_checksum=contents.checksum,
        schema=None if is_read_in_place(file.path) else contents.schema,
        group_rows=contents.group_rows,
        fitting_rows=fitting_rows(rows=rows or 0, content_bytes=contents.content_bytes),
    )


@contextlib.contextmanager
def unchanged_file(file: InputFile) -> Iterator[None]:
    """Check that a file is the planned one after the block has read it."""
    identity = {"path": file.path, "bytes": file.size, "changed": file.changed}
    with listing.unchanged([] if file.changed is None else [identity]):
        yield


class _ColumnError(BadFileError):
    """A file has no such column of texts."""

    remedy = "Choose `text_columns`"


def with_fix(error: BadFileError, *, has_others: bool = True) -> UserError:
    """Return the error of a bad file that ends the job, with the ways out."""
    fix = "Check the file" if error.remedy == BadFileError.remedy else error.remedy
    skip = ", or leave such files out with `on_bad_file=skip`" if has_others else ""
    return UserError(f"{error}. {fix}{skip}")


def check_table(
    contents: Contents, *, path: str, table: TableOptions, file_format: str
) -> tuple[str, ...]:
    """Return the columns to translate; check that a file has them and that it can be written.

    Raises:
      BadFileError: There is no such column, or it holds no text.
      ColumnsError: No column is named, and several hold text; or a column cannot be added or
        written.
    """
    schema = contents.schema
    named = table.fields
    is_partial = contents.rows is None and table_suffix(path).startswith(JSONL_SUFFIX)
    wanted = [name for name in (*named, table.language_column) if name is not None]
    if named and is_partial and not all(type_of(schema, name) for name in wanted):
        return named  # others may begin after the head
    if contents.rows is not None and not (contents.rows or schema.names):
        raise BadFileError(f"{path} is empty: no row of it names columns")
    columns = find_text_columns(
        schema=schema,
        text_columns=table.fields,
        path=path,
        language_column=table.language_column,
    )
    table = dataclasses.replace(table, fields=columns)
    _check_columns(schema, table=table, file_format=file_format, path=path)
    return columns


def _check_columns(schema: pa.Schema, *, table: TableOptions, file_format: str, path: str) -> None:
    """Checks that columns can be added to those of a file, and all of them be written.

    Raises:
      UserError: One cannot.
    """
    added = added_fields(schema, options=table)
    for field in added:
        if field.name in schema.names:
            raise ColumnsError(
                f"{path} has a column {field.name!r} already, which is the name of a column that "
                "is added: rename or drop it"
            )
    if file_format == PARQUET and is_read_in_place(path):
        return
    joined = {table.name(column, ROW_FLAGS) for column in table.fields}
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


def first_texts(found: FoundInput, *, count: int) -> dict[str, list[str]]:
    """Return the texts, without null ones, of the first rows of the first file that has any.

    They are by column.
    """
    file = next((file for file in found.files if file.rows != 0), None)
    if file is None:
        return {}
    table = found.first_rows
    if table is None and file.schema is not None:
        return {}
    try:
        if table is None:
            table = read_rows(
                path=file.path,
                first_row=0,
                rows=min(count, file.rows or 0),
                footer_checksum=file.footer_checksum,
            )
        return {
            name: [
                cell.decode(errors="ignore")
                for cell in read_text_column(table.slice(0, count), name).cells
                if cell is not None
            ]
            for name in found.text_columns
        }
    except (BadFileError, KeyError):  # which the job tells of, or skips
        return {}


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
            raise _ColumnError(
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
            raise _ColumnError(
                f"{path} has no column of strings to translate. Its columns: {_columns(schema)}"
            )
        if len(set(names)) > 1:
            raise ColumnsError(
                f"{path} has {len(names)} columns of strings: {', '.join(names)}. "
                "Choose `text_columns`"
            )
        text_columns = names[:1]
    for name in text_columns:
        kind = type_of(schema, name)
        if kind is None:
            count = schema.names.count(name)
            problem = f"{count} columns of the name" if count else "no column"
            raise _ColumnError(f"{path} has {problem} {name!r}. Its columns: {_columns(schema)}")
        # Null is the type of a column in which all are null.
        if not (is_text(kind) or is_text_list(kind) or pa.types.is_null(kind)):
            raise _ColumnError(
                f"the text column must hold strings, or lists of them; {name!r} of {path} is "
                f"{kind}. Its columns: {_columns(schema)}"
            )
    return tuple(text_columns)


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name}: {field.type}" for field in schema) or "none"
