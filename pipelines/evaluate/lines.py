"""Texts of a file or a pipe, a line each."""

from __future__ import annotations

import gzip
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from model.errors import UserError
from pipelines.storage.text_files import wide_encoding

_STDIN = ("-", "/dev/stdin", "/dev/fd/0")
_GZIP = b"\x1f\x8b"  # what it begins with; no UTF-8 text does


def is_stdin(path: str) -> bool:
    """Says whether a name stands for the standard input."""
    return path in _STDIN


def check_pipes(paths: Sequence[str]) -> None:
    """Checks that no pipe is named twice.

    Raises:
      UserError: One is; both names are given.
    """
    seen: dict[object, str] = {}
    for path in paths:
        pipe: object = "stdin"
        if not is_stdin(path):
            try:
                status = Path(path).stat()
            except OSError:
                continue  # reading it says what is wrong
            if stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode):
                continue
            pipe = (status.st_dev, status.st_ino)
        if pipe in seen:
            raise UserError(
                f"a pipe can be read only once, and {seen[pipe]} and {path} are the same: write it "
                "to a file, and name that"
            )
        seen[pipe] = path


def read_lines(path: str) -> list[str]:
    r"""Reads a UTF-8 text, gzip or plain, of a file or a pipe, once; a line ends at \n alone.

    Raises:
      UserError: It cannot be read, or is no such text.
    """
    try:
        data = _read_bytes(path)
        if path.endswith(".gz") or data.startswith(_GZIP):
            data = gzip.decompress(data)
    except IsADirectoryError:
        raise UserError(
            f"a text must be a file. Received: the folder {path}. Name a file, or for Parquet in "
            "it a column, with `reference_columns`"
        ) from None
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"a text must be a file. There is none at {path}: check the path") from None
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}. Name another text file") from error
    lines = _decode(data, path).split("\n")
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _decode(data: bytes, path: str) -> str:
    if encoding := wide_encoding(data):
        received, example = f"{encoding[:6].upper()}", encoding
    else:
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            received, example = f"other bytes in line {line:,}", "latin-1"
    raise UserError(
        f"a text must be UTF-8. Received: {received} of {path}. Convert it first, as with "
        f"iconv -f {example} -t utf-8"
    )


def _read_bytes(path: str) -> bytes:
    if not is_stdin(path):
        return Path(path).read_bytes()
    if sys.stdin is None:
        raise UserError(f"stdin is closed, and {path} stands for it: redirect it, or name a file")
    return sys.stdin.buffer.read()
