"""Names of table formats, compressions and text encodings.

This module imports no large library, so that `tt --help` is fast.
"""

from __future__ import annotations

import codecs
import dataclasses
import re
from collections.abc import Collection

from tt.model.errors import UserError, checked, one_of, require, require_one_of

UTF8 = "utf-8"
MARK_INVALID = "tt.mark_invalid"  # the error handler of decoders
# The replacement of bytes that are invalid in an encoding. It is half a surrogate pair, which is
# invalid in UTF-8 too, so that a later step rejects the line.
_INVALID = "\udcff"

COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")  # of Parquet
TEXT_COMPRESSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}  # suffixes of JSONL and CSV files
COMPRESSED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}  # suffix: Arrow's name
LAKE_PREFIXES = ("delta:", "iceberg:")  # of the addresses of tables


@dataclasses.dataclass(frozen=True, kw_only=True)
class Format:
    """A format of table files; `reading.py` has the readers.

    Attributes:
      name: The name that users give.
      endings: The endings of file names, in lower case; the first one is for output files.
      is_text: Whether the files are text, which can be compressed and have an encoding.
      is_in_folders: Whether a folder stands for its files of this format.
      is_written: Whether `tt` writes this format.
      has_random_access: Whether the rows can be read in any order.
    """

    name: str
    endings: tuple[str, ...]
    is_text: bool = True
    is_in_folders: bool = True
    is_written: bool = False
    has_random_access: bool = False


PARQUET, JSONL, CSV, TSV, JSON, TEXT, ARROW = (
    "parquet", "jsonl", "csv", "tsv", "json", "text", "arrow",
)  # fmt: skip
# Many folders contain a .txt or .json file that describes their tables.
_FORMATS = (
    Format(
        name=PARQUET,
        endings=(".parquet", ".parq"),
        is_text=False,
        is_written=True,
        has_random_access=True,
    ),
    Format(name=JSONL, endings=(".jsonl", ".ndjson"), is_written=True),
    Format(name=CSV, endings=(".csv",), is_written=True),
    Format(name=TSV, endings=(".tsv", ".tab")),
    Format(name=JSON, endings=(".json",), is_in_folders=False),
    Format(name=TEXT, endings=(".txt",), is_in_folders=False),
    Format(name=ARROW, endings=(".arrow", ".feather", ".ipc"), is_text=False),
)
INPUT_FORMATS = tuple(each.name for each in _FORMATS)
FORMATS = tuple(each.name for each in _FORMATS if each.is_written)
PARQUET_SUFFIX = _FORMATS[0].endings[0]
_BY_ENDING = {
    f"{ending}{compression}": each
    for each in _FORMATS
    for ending in each.endings
    for compression in ("", *(COMPRESSED if each.is_text else ()))
}
_BY_NAME = {each.name: each for each in _FORMATS}
ENDINGS = (
    f"{', '.join(ending for each in _FORMATS if each.is_text for ending in each.endings)} (also "
    f"{', '.join(COMPRESSED)}) or "
    f"{', '.join(ending for each in _FORMATS if not each.is_text for ending in each.endings)}"
)


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read table files.

    Attributes:
      input_format: Read all files in this format. By default, the ending determines the format.
      delimiter: Split CSV and TSV at this character. By default a comma or semicolon, or a tab.
      encoding: Decode text files with this encoding, such as latin-1 or cp1252.
    """

    input_format: str | None = one_of(INPUT_FORMATS, default=None)
    delimiter: str | None = None
    encoding: str = UTF8

    def __post_init__(self) -> None:
        if self.input_format is not None:
            require_one_of("`input_format`", self.input_format, INPUT_FORMATS)
        if self.delimiter == r"\t":
            object.__setattr__(self, "delimiter", "\t")
        is_one = self.delimiter is None or re.fullmatch(r"(?![\"\r\n])[\x01-\x7f]", self.delimiter)
        require(bool(is_one), "`delimiter` must be one ASCII character", self.delimiter)
        object.__setattr__(self, "encoding", find_encoding(self.encoding))

    def format_of(self, path: str) -> Format | None:
        """Return the format of a file; None if its ending is unknown.

        >>> str(ReadOptions().format_of("x/part.CSV.gz").name), ReadOptions().format_of("x.pdf")
        ('csv', None)
        >>> ReadOptions(input_format="csv").format_of("x.dat").name
        'csv'
        """
        if self.input_format is not None:
            return _BY_NAME[self.input_format]
        return _BY_ENDING.get(table_suffix(path))


def endings_of(names: Collection[str], *, without: str = "") -> list[str]:
    """Return the endings of the files of some formats."""
    return [ending for ending, each in _BY_ENDING.items() if each.name in {*names} - {without}]


def table_suffix(path: str) -> str:
    """Return the ending of a path that determines its format, or "" if there is none.

    >>> table_suffix("x/part.CSV.gz"), table_suffix("x/part.pdf")
    ('.csv.gz', '')
    """
    path = path.lower()
    return next((suffix for suffix in _BY_ENDING if path.endswith(suffix)), "")


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


DEFAULTS = ReadOptions()
