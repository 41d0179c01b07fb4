"""Stop a process, or limit its files, at an exact moment of its work."""

from __future__ import annotations

import functools
import glob
import importlib
import itertools
import os
import resource
import signal
import time
from collections.abc import Callable, Sequence


def set_hook(
    tell: Callable[[], None],
    *,
    where: str,
    call: int,
    signals: Sequence[str] = ("SIGTERM",),
    seconds: float = 0,
    room: int | None = None,
    files: str | None = None,
) -> None:
    """Stop or limit this process before a certain call of a function of the product.

    Args:
      tell: Called before this call of the function.
      where: The function, such as "tt.model.training.step:TrainingStep.update".
      call: The number of the call; the first call has the number 1.
      signals: The signals that the process then sends to itself.
      seconds: The time for which the process then sleeps.
      room: If given, the process gets no signals, but files can grow only to this size in bytes. A
        larger write raises an OSError, as on a full disk. With SIGXFSZ in `signals`, it ends the
        process instead.
      files: A pattern; the size of the matching files is added to `room`.
    """
    module, _, names = where.partition(":")
    *outer, name = names.split(".")
    owner = functools.reduce(getattr, outer, importlib.import_module(module))
    function = getattr(owner, name)
    calls = itertools.count(1)

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        if next(calls) == call:
            tell()
            if room is None:
                for name in signals:
                    os.kill(os.getpid(), signal.Signals[name])
                time.sleep(seconds)
            else:
                found = glob.glob(files) if files else []  # noqa: PTH207
                is_deadly = "SIGXFSZ" in signals
                limit_files(room + sum(map(os.path.getsize, found)), is_deadly=is_deadly)
        return function(*args, **kwargs)

    setattr(owner, name, wrapper)


def limit_files(size: int, *, is_deadly: bool = False) -> None:
    """Limit the size of files. A larger write raises an OSError, or kills if `is_deadly`."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if is_deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
