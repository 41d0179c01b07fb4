"""Limits for zip archives of other programs: none fills the disk or the memory."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Sequence

# What `zipfile` raises for an archive that is damaged or has what it does not know. Passwords and
# unknown methods are a RuntimeError.
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError, LookupError, RuntimeError,
    OverflowError,
)  # fmt: skip

_MOST_MEMBERS = 10_000
# An archive may unpack to the larger of both: weights are hardly smaller in an archive.
_ALWAYS_ALLOWED = 1 << 30
_MOST_TIMES_LARGER = 20
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def check_members(members: Sequence[zipfile.ZipInfo], *, archive_bytes: int) -> None:
    """Check that the members of an archive can be unpacked safely.

    `zipfile` unpacks no more bytes of a member than its header declares.

    Raises:
      ValueError: They are too many or too large, one is a link, or its method is not supported.
    """
    if len(members) > _MOST_MEMBERS:
        raise ValueError(f"it has {len(members):,} files, more than {_MOST_MEMBERS:,}")
    for member in members:
        if stat.S_ISLNK(member.external_attr >> 16):
            raise ValueError(f"{member.filename!r} in it is a link")
        if member.compress_type not in _METHODS:
            raise ValueError(f"{member.filename!r} in it is not compressed with deflate")
    size = sum(member.file_size for member in members)
    most = max(_ALWAYS_ALLOWED, _MOST_TIMES_LARGER * archive_bytes)
    if size > most:
        raise ValueError(
            f"its {archive_bytes:,} bytes would unpack to {size:,}, more than {most:,}"
        )
