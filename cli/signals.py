"""Let a command finish its work in progress after Ctrl-C or SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

_DRAINING = b"tt: finishing the work in progress; press Ctrl-C again to stop at once\n"


@contextlib.contextmanager
def draining_on_signals(drain: Callable[[], object]) -> Iterator[None]:
    """Call `drain` at the first Ctrl-C or SIGTERM inside the block; interrupt at the second."""
    before = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}

    def handle(number: int, frame: Any) -> None:
        drain()
        for each in before:
            signal.signal(each, signal.default_int_handler)
        os.write(2, _DRAINING)  # `print` is not reentrant, and may be running.

    for each in before:
        signal.signal(each, handle)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
