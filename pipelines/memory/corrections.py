"""Read human translations from tables and TMX files."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from tt.model.errors import BadFileError, UserError
from tt.model.storage.files import open_input
from tt.model.storage.listing import exists
from tt.model.storage.paths import normalize_path
from tt.pipelines.memory.options import MemoryRequest
from tt.pipelines.memory.tmx import read_tmx
from tt.pipelines.tables.columns import cell_bytes, column_of, is_text, type_of
from tt.pipelines.tables.damage import with_remedy
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.formats import ENDINGS, table_suffix
from tt.pipelines.tables.reading import OpenTable, scan_file

_TMX_SUFFIX = ".tmx"


def read_corrections(request: MemoryRequest, keep: Callable[[str, str], object]) -> int:
    """Read the human translations in the files of a request.

    Args:
      request: The request.
      keep: Receives each text and its translation, in the order of the files.

    Returns:
      The number of rows that lack a text or a translation.

    Raises:
      UserError: A file is missing, damaged or empty, or lacks the columns or languages.
    """
    kept = skipped = 0

    def add(source: str, target: str) -> None:
        nonlocal kept, skipped
        if source.strip() and target.strip():
            kept += 1
            keep(source, target)
        else:
            skipped += 1

    for name in request.files:
        path = normalize_path(name)
        is_tmx = path.lower().endswith(_TMX_SUFFIX)
        if not (is_tmx or table_suffix(path)):
            raise UserError(
                f"a file of human translations must end in {_TMX_SUFFIX}, {ENDINGS}. Received: "
                f"{name}"
            )
        if not exists(path):
            raise UserError(f"there is no file {name}. Check the path")
        before = kept + skipped
        with with_remedy():
            (_read_tmx if is_tmx else _read_table)(path, request, add)
        if kept + skipped == before and not kept:
            raise UserError(f"{name} contains no translations. Choose another file")
    return skipped


def _read_tmx(path: str, request: MemoryRequest, add: Callable[[str, str], object]) -> None:
    count = 0

    def counted(source: str, target: str) -> None:
        nonlocal count
        count += 1
        add(source, target)

    source, target = request.source_language, request.target_language
    with open_input(path) as file:
        languages = read_tmx(
            file, path=path, source_language=source, target_language=target, add=counted
        )
    if languages and not count:
        raise UserError(
            f"{path} has no translation from {source} into {target}. Its languages are "
            f"{', '.join(sorted(languages))}. Change `source_language` or `target_language`"
        )


def _read_table(path: str, request: MemoryRequest, add: Callable[[str, str], object]) -> None:
    contents = scan_file(path)
    names = (request.source_column, request.target_column)
    for field, name in zip(("source_column", "target_column"), names, strict=True):
        kind = type_of(contents.schema, name)
        if kind is None:
            raise UserError(
                f"{path} has no column {name!r}. Its columns are "
                f"{', '.join(contents.schema.names)}. Set `{field}`"
            )
        if not is_text(kind) and not pa.types.is_null(kind):
            raise UserError(
                f"the column {name!r} of {path} must contain strings. It contains {kind}. Set "
                f"`{field}`"
            )
    row = 0
    with OpenTable(path, schema=contents.schema) as table:
        for batch in table.batches():
            kept, faults = split_faults(batch)
            if faults:
                raise BadFileError(f"{path} has a bad row: {next(iter(faults.values()))}")
            columns = [cell_bytes(column_of(kept, name)) for name in names]
            for source, target in zip(*columns, strict=True):
                row += 1
                try:
                    add((source or b"").decode(), (target or b"").decode())
                except UnicodeDecodeError as error:
                    problem = f"row {row:,} of {path} is not UTF-8: {error.reason}"
                    raise BadFileError(problem) from error
