"""Texts of a file or a pipe, one per line."""

from __future__ import annotations

import gzip
import stat
import sys
import zlib
from collections.abc import Sequence
from pathlib import Path

from model.errors import UserError

_STDIN = ("-", "/dev/stdin", "/dev/fd/0")
_GZIP = b"\x1f\x8b"  # first bytes of gzip; no UTF-8 text begins like this


def is_stdin(path: str) -> bool:
    """Tell whether a name means the standard input."""
    return path in _STDIN


def check_pipes(paths: Sequence[str]) -> None:
    """Check that no pipe is named twice.

    Raises:
      UserError: Two names mean the same pipe.
    """
    seen: dict[object, str] = {}
    for path in paths:
        pipe: object = "stdin"
        if not is_stdin(path):
            try:
                status = Path(path).stat()
            except OSError:
                continue  # reading the file reports the problem
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
    r"""Read the lines of a UTF-8 text, gzip or plain, from a file or a pipe; only \n ends a line.

    Raises:
      UserError: The text cannot be read, or is not UTF-8.
    """
    try:
        data = _read_bytes(path)
        if path.endswith(".gz") or data.startswith(_GZIP):
            data = gzip.decompress(data)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"{path} cannot be read: {reason}. Name a text file") from error
    try:
        lines = data.decode("utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise UserError(
            f"a text must be UTF-8. Received: other bytes in line {line:,} of {path}. Convert it "
            "first, as with iconv -f latin-1 -t utf-8"
        ) from error
    if lines[-1] == "":
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def _read_bytes(path: str) -> bytes:
    if not is_stdin(path):
        return Path(path).read_bytes()
    if sys.stdin is None:
        raise UserError(f"stdin is closed, and {path} stands for it: redirect it, or name a file")
    return sys.stdin.buffer.read()
