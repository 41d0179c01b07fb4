"""Files and folders that this user may not read or write: no damage, but for the owner to mend."""

from __future__ import annotations

import errno
from pathlib import Path

from model.errors import NoAccessError, first_line

_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)
_TENSORFLOW = "tensorflow.python.framework.errors_impl.PermissionDeniedError"


def explain_denied(error: BaseException) -> NoAccessError | None:
    """Returns what to tell the user where rights are missing; None of any other error."""
    if isinstance(error, OSError) and error.errno in _DENIED:
        path = error.filename if error.filename2 is None else error.filename2
        return no_access(str(path or "a file"), reason=error.strerror or str(error))
    # By its name, so that TensorFlow need not be imported.
    if f"{type(error).__module__}.{type(error).__name__}" == _TENSORFLOW:
        path, _, reason = str(getattr(error, "message", error)).partition("; ")
        return no_access(path, reason=reason or "permission denied")
    return None


def no_access(path: str | Path, *, reason: str) -> NoAccessError:
    """Returns the error of a file or folder that may not be used.

    >>> str(no_access("run/model", reason="Permission denied"))
    'no access to run/model (permission denied): get the rights to it, or name another'
    """
    reason = first_line(reason.strip() or "permission denied")
    reason = f"{reason[:1].lower()}{reason[1:]}"
    return NoAccessError(f"no access to {path} ({reason}): get the rights to it, or name another")


def check_readable(path: Path) -> None:
    """Checks that a file may be read: where it may not, libraries can speak of damage.

    Raises:
      NoAccessError: It may not be.
    """
    try:
        with path.open("rb"):
            pass
    except PermissionError as error:
        raise no_access(path, reason=error.strerror or str(error)) from error
