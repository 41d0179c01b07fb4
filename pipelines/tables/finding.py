"""Formats of tables and encodings of texts, by their names; and the files that a user names.

No library is needed here, so that the help of a command appears at once.
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
MARK_INVALID = "tt.mark_invalid"  # how decoders treat invalid bytes
# Stands for bytes that are invalid in the encoding: half a surrogate pair, which is invalid UTF-8
# as well, so that its line is rejected.
_INVALID = "\udcff"

PARQUET, JSONL, CSV = "parquet", "jsonl", "csv"
FORMATS = (PARQUET, JSONL, CSV)  # formats of written tables
COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
TEXT_COMPRESSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}  # their suffixes

PARQUET_SUFFIX = f".{PARQUET}"
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSONL_SUFFIX = f".{JSONL}"
IPC_SUFFIXES = (".arrow", ".feather", ".ipc")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # Arrow's names, by suffix
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
_MOST_NAMES = 5  # of skipped files, in a line
_LOST = "lost+found"  # the root of a disk has one


def table_suffix(path: str) -> str:
    """Return the ending that tells the format of a file, or "".

    >>> table_suffix("x/part.CSV.gz"), table_suffix("x/part.pq")
    ('.csv.gz', '')
    """
    path = path.lower()
    return next((suffix for suffix in _SUFFIXES if path.endswith(suffix)), "")


def is_read_in_place(path: str) -> bool:
    """Tell whether any run of rows can be read: only of Parquet, the format of unknown endings."""
    return table_suffix(path) in ("", PARQUET_SUFFIX)


def compression_ending(path: str) -> str:
    """Return the ending that tells how a file is compressed, or "".

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
    """Return the one name that Python has for an encoding.

    Raises:
      UserError: It is no encoding of text.

    >>> find_encoding("Latin-1"), find_encoding("UTF8")
    ('iso8859-1', 'utf-8')
    """
    sample = "a\tb\n"
    try:
        found = codecs.lookup(name)
        if found.incrementaldecoder is None:
            raise LookupError
        # As `_Utf8Stream` reads it: IDNA and Punycode cannot continue after invalid bytes.
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
    """A file that an argument named."""

    path: str  # absolute, or with its scheme
    # The path below the folder or the fixed part of the glob, with "/"; the file's name if the
    # argument is the file itself.
    relative_path: str


def find_tables(
    arguments: Sequence[str], *, warn: Callable[[str], object] = lambda line: None
) -> list[FoundFile]:
    """Find the files of tables that files, globs and folders name.

    In a folder every file with the ending of a table counts at any depth, except files and folders
    whose names start with "." or "_".

    Args:
      arguments: Files, globs and folders.
      warn: Receives a line for each folder in which such files or folders were skipped.

    Raises:
      UserError: An argument names nothing, or a pipe or device.
    """
    found = [file for argument in arguments for file in _find_tables(argument, warn=warn)]
    for file in found:
        if listing.is_pipe_or_device(file.path):
            raise UserError(
                f"the input {file.path} is a pipe or a device, and tables are read more than once: "
                "write it to a file first"
            )
    return found


def _find_tables(argument: str, *, warn: Callable[[str], object]) -> list[FoundFile]:
    path = normalize_path(argument)
    named = [FoundFile(path=path, relative_path=path.rpartition("/")[2])]
    # A path with the name of a file is seldom a folder, and each question costs a request.
    if not is_local(path) and table_suffix(path) and listing.exists(path):
        return named
    if is_folder(path):
        skipped: list[str] = []
        files = listing.list_with_links(path, leaves_out=is_left_out, on_left_out=skipped.append)
        found = _below(path.rstrip("/") + "/", [file for file in files if table_suffix(file.path)])
        own = (f"{storage_paths.JOB_FOLDER}/", f"{_LOST}/")  # never a user's tables
        shown = [
            name.removeprefix(path.rstrip("/") + "/")
            for name in sorted(skipped)
            if table_suffix(name) or (name.endswith("/") and not name.endswith(own))
        ]
        more = ", ..." if len(shown) > _MOST_NAMES else ""
        told = (
            f"skipped in {argument}: {counted(len(shown), 'name')} with . or _ at the start "
            f"({', '.join(shown[:_MOST_NAMES])}{more}). To translate such files, name them or use "
            "a glob"
        )
        if not found:
            raise UserError(
                f"the input folder {argument} holds no *.parquet, *.csv, *.tsv, *.jsonl or *.arrow "
                "file: choose another folder, or use a glob for Parquet files with other names"
                + (f" ({told})" if shown else "")
            )
        if shown:
            warn(told)
        return found
    if listing.exists(path):
        return named
    if re.search(r"[*?[]", path):
        base = re.split(r"[*?[]", path, maxsplit=1)[0].rpartition("/")[0] + "/"
        if found := _below(base, listing.find_listed(path)):
            return found
        storage_paths.check_is_open(path)
    raise UserError(f"no file matches the input {argument}: check the path")


def _below(base: str, files: Sequence[ListedFile]) -> list[FoundFile]:
    return [FoundFile(path=file.path, relative_path=file.path.removeprefix(base)) for file in files]


def is_left_out(name: str) -> bool:
    """Tell whether to skip a file or folder of this name when a folder is listed."""
    return name.startswith((".", "_")) or name == _LOST
