"""The formats that tables are written in, and their compressions; no library is needed."""

from __future__ import annotations

PARQUET, JSONL, CSV = "parquet", "jsonl", "csv"
FORMATS = (PARQUET, JSONL, CSV)
COMPRESSIONS = ("zstd", "snappy", "gzip", "brotli", "lz4", "none")
TEXT_COMPRESSIONS = {"none": "", "gzip": ".gz", "zstd": ".zst"}  # their suffixes


def output_suffix(*, file_format: str, compression: str) -> str:
    """Returns the suffix of output files.

    >>> output_suffix(file_format="jsonl", compression="gzip")
    '.jsonl.gz'
    """
    if file_format == PARQUET:
        return f".{PARQUET}"
    return f".{file_format}{TEXT_COMPRESSIONS[compression]}"
