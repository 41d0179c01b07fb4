"""Names of table formats, compressions and text encodings.

This module imports no large library, so that `tt --help` is fast.
"""

from __future__ import annotations

import codecs

from tt.model.errors import UserError

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
LAKE_PREFIXES = ("delta:", "iceberg:")  # of the addresses of tables
DELIMITERS = {".csv": ",", ".tsv": "\t"}
JSONL_SUFFIX = f".{JSONL}"
TEXT_SUFFIX = ".txt"  # one text per line
IPC_SUFFIXES = (".arrow", ".feather", ".ipc")
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # suffix: Arrow's name
_TEXTS = (*DELIMITERS, JSONL_SUFFIX)
_SUFFIXES = (
    PARQUET_SUFFIX,
    *IPC_SUFFIXES,
    *(text + compression for text in (*_TEXTS, TEXT_SUFFIX) for compression in ("", *COMPRESSED)),
)
ENDINGS = (
    f"{', '.join((PARQUET_SUFFIX, *_TEXTS))} (also {', '.join(COMPRESSED)}) or "
    f"{', '.join(IPC_SUFFIXES)}"
)


def table_suffix(path: str) -> str:
    """Return the ending of a path that determines its format, or "" if there is none.

    >>> table_suffix("x/part.CSV.gz"), table_suffix("x/part.pq")
    ('.csv.gz', '')
    """
    path = path.lower()
    return next((suffix for suffix in _SUFFIXES if path.endswith(suffix)), "")


def is_text_file(path: str) -> bool:
    """Return whether a path has the ending of a text file, which has one text per line.

    >>> is_text_file("x/german.txt.gz"), is_text_file("x/german.tsv")
    (True, False)
    """
    return table_suffix(path).startswith(TEXT_SUFFIX)


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
