"""Names of table formats and text encodings, and the search for the files that a user names.

This module imports no large library, so that `tt --help` is fast.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
from collections.abc import Callable, Sequence

from tt.model.errors import UserError, counted
from tt.pipelines.storage import listing
from tt.pipelines.storage import paths as storage_paths
from tt.pipelines.storage.listing import ListedFile, is_folder
from tt.pipelines.storage.paths import is_local, normalize_path

UTF8 = "utf-8"
MARK_INVALID = "tt.mark_invalid"  # the error handler of decoders
# The replacement of bytes that are invalid in an encoding. It is half a surrogate pair, which is
# invalid in UTF-8 too, so that a later step rejects the line.
_INVALID = "\udcff"

PARQUET, JSONL, CSV = "parquet", "jsonl", "csv"
FORMATS = (PARQUET, JSONL, CSV)  # output formats
COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")  # of Parquet
TEXT_COMPRESSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}  # suffixes of JSONL and CSV files

PARQUET_SUFFIX = f".{PARQUET}"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSONL_SUFFIX = f".{JSONL}"
IPC_SUFFIXES = (".arrow", ".feather", ".ipc")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # suffix: Arrow's name
_TEXTS = (*DELIMITERS, JSONL_SUFFIX)
_SUFFIXES = (
    PARQUET_SUFFIX,
    *IPC_SUFFIXES,
    *(text + compression for text in _TEXTS for compression in ("", *COMPRESSED)),
)
ENDINGS = (
    f"{', '.join((PARQUET_SUFFIX, *_TEXTS))} (also {', '.join(COMPRESSED)}) or "
    f"{', '.join(IPC_SUFFIXES)}"
)
_MOST_NAMES = 5  # the maximum number of skipped files that a notice lists
_LOST_AND_FOUND = "lost+found"  # a folder that Linux creates in the root of a disk


def table_suffix(path: str) -> str:
    """Return the ending of a path that determines its format, or "" if there is none.

    >>> table_suffix("x/part.CSV.gz"), table_suffix("x/part.pq")
    ('.csv.gz', '')
    """
    path = path.lower()
    return next((suffix for suffix in _SUFFIXES if path.endswith(suffix)), "")


def has_random_access(path: str) -> bool:
    """Return whether a file allows random access to its rows, which only Parquet does.

    A file with an unknown ending counts as Parquet.
    """
    return table_suffix(path) in ("", PARQUET_SUFFIX)


def compression_ending(path: str) -> str:
    """Return the ending of a path that determines its compression, or "" if there is none.

    >>> compression_ending("train.en.zst"), compression_ending("T.GZ"), compression_ending("t.en")
    ('.zst', '.gz', '')
    """
    path = path.lower()
    return next((ending for ending in COMPRESSED if path.endswith(ending)), "")


def output_suffix(*, file_format: str, compression: str) -> str:
    """Return the suffix of output files.

    >>> output_suffix(file_format="jsonl", compression="gzip")
    '.jsonl.gz'
    """
    if file_format == PARQUET:
        return PARQUET_SUFFIX
    return f".{file_format}{TEXT_COMPRESSIONS[compression]}"


def _mark_invalid(error: UnicodeError) -> tuple[str, int]:
    if isinstance(error, UnicodeDecodeError):
        return _INVALID, error.end
    raise error


codecs.register_error(MARK_INVALID, _mark_invalid)


def find_encoding(name: str) -> str:
    """Return Python's canonical name of an encoding.

    Raises:
      UserError: The name is not a text encoding that Python knows.

    >>> find_encoding("Latin-1"), find_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    sample = "a\tb\n"
    try:
        found = codecs.lookup(name)
        if found.incrementaldecoder is None:
            raise LookupError
        # Decode as `_Utf8Stream` does: IDNA and Punycode cannot continue after invalid bytes.
        decoder = found.incrementaldecoder(MARK_INVALID)
        if decoder.decode(sample.encode(name), final=True) != sample:
            raise LookupError
    except (LookupError, ValueError, TypeError) as error:
        raise UserError(
            "`encoding` must be one that Python knows, such as latin-1, cp1252, gb18030 or "
            f"utf-16. Received: {name!r}"
        ) from error
    return UTF8 if found.name == "utf-8-sig" else found.name


@dataclasses.dataclass(frozen=True, kw_only=True)
class FoundFile:
    """An input file that an argument names or matches.

    Attributes:
      path: The absolute path, or the path with its scheme.
      relative_path: The path relative to the folder or to the fixed part of the glob, with "/" as
        the separator; only the file's name if the argument is the file itself.
      size: The size in bytes, if the file has been listed.
      changed: The modification time in seconds since 1970, if the file has been listed.
    """

    path: str
    relative_path: str
    size: int | None = None
    changed: float | None = None


def find_tables(
    arguments: Sequence[str], *, warn: Callable[[str], object] = lambda line: None
) -> list[FoundFile]:
    """Find the table files that paths, globs and folders name.

    A folder stands for all files in it, at any depth, that have the ending of a table format.
    Files and folders whose names start with "." or "_" are skipped.

    Args:
      arguments: Paths of files, globs and folders.
      warn: Receives a line for each folder in which files or folders were skipped.

    Raises:
      UserError: An argument matches no file, or names a pipe or a device.
    """
    found = [file for argument in arguments for file in _find_tables(argument, warn=warn)]
    for file in found:
        if listing.is_pipe_or_device(file.path):
            raise UserError(
                f"the input {file.path} is a pipe or a device, but tt reads tables more than once. "
                "Write the table to a file first"
            )
    return found


def _find_tables(argument: str, *, warn: Callable[[str], object]) -> list[FoundFile]:
    path = normalize_path(argument)
    named = [FoundFile(path=path, relative_path=path.rpartition("/")[2])]
    # A path that ends like a table is rarely a folder, and each check costs a request to the object
    # store.
    if not is_local(path) and table_suffix(path) and listing.exists(path):
        return named
    if is_folder(path):
        skipped: list[str] = []
        files = listing.list_with_links(path, is_skipped=is_skipped_name, on_skipped=skipped.append)
        found = _below(path.rstrip("/") + "/", [file for file in files if table_suffix(file.path)])
        own = (f"{storage_paths.JOB_FOLDER}/", f"{_LOST_AND_FOUND}/")  # never a user's tables
        shown = [
            name.removeprefix(path.rstrip("/") + "/")
            for name in sorted(skipped)
            if table_suffix(name) or (name.endswith("/") and not name.endswith(own))
        ]
        more = ", ..." if len(shown) > _MOST_NAMES else ""
        notice = (
            f"skipped {counted(len(shown), 'name')} starting with . or _ in {argument} "
            f"({', '.join(shown[:_MOST_NAMES])}{more}). To translate such files, choose their "
            "paths or a glob"
        )
        if not found:
            raise UserError(
                f"the input folder {argument} contains no *.parquet, *.csv, *.tsv, *.jsonl or "
                "*.arrow file. Choose another folder, or a glob for Parquet files with other names"
                + (f" ({notice})" if shown else "")
            )
        if shown:
            warn(notice)
        return found
    if listing.exists(path):
        return named
    if re.search(r"[*?[]", path):
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        if found := _below(base, listing.find_listed(path)):
            return found
        storage_paths.check_searchable(path)
    raise UserError(f"no file matches the input {argument}. Check the path")


def _below(base: str, files: Sequence[ListedFile]) -> list[FoundFile]:
    return [
        FoundFile(
            path=file.path,
            relative_path=file.path.removeprefix(base),
            size=file.size,
            changed=file.changed,
        )
        for file in files
    ]


def is_skipped_name(name: str) -> bool:
    """Return whether the search in a folder skips files and folders with this name."""
    return name.startswith((".", "_")) or name == _LOST_AND_FOUND
