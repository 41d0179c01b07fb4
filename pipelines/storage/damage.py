"""Errors that mean a damaged file, whichever library raises them."""

from __future__ import annotations

import gzip
import zlib

import pyarrow as pa


def is_damage(error: Exception) -> bool:
    """Tells what decompressors raise on damaged data from what file systems do, as on a timeout."""
    if isinstance(error, MemoryError):
        return False
    if isinstance(error, (EOFError, zlib.error, gzip.BadGzipFile, pa.ArrowException)):
        return True
    return type(error) is OSError and error.errno is None  # Arrow's, and bz2's
