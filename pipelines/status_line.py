"""One line on a terminal that says how far a run is."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

_STOP_SECONDS = 10.0  # that the end waits for a look under way
_SHARE_OF_TIME = 0.1  # that looking may take


def format_seconds(seconds: float) -> str:
    """Writes a time as minutes and seconds, and hours where there are some.

    >>> format_seconds(192.4), format_seconds(3_661)
    ('3:12', '1:01:01')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


class StatusLine:
    """Shows on a terminal, in one line, how far the run inside its `with` block is.

    A thread looks now and then; where `stream` is no terminal there is none, and nothing is shown.

    Args:
      look: Returns the line; an OSError or ValueError of it leaves the line as it is.
      interval: Seconds between two looks; more if looking takes long.
      stream: Where it is shown.
    """

    def __init__(self, look: Callable[[], str], *, interval: float, stream: TextIO) -> None:
        self._look = look
        self._interval = interval
        self._stream = stream
        self._ended = threading.Event()
        self._lock = threading.Lock()  # of the stream, so that nothing comes after the end
        self._shown = 0  # characters
        self._thread: threading.Thread | None = None

    def __enter__(self) -> StatusLine:
        if self._stream.isatty():
            self._thread = threading.Thread(target=self._run, name="progress", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._thread is None:
            return
        with self._lock:
            self._ended.set()
            self._write("")
        self._thread.join(_STOP_SECONDS)

    def _run(self) -> None:
        while True:
            start = time.monotonic()
            try:
                line = self._look()
            except (OSError, ValueError):
                line = None  # a file that was just renamed or deleted: the next look is better
            with self._lock:
                if self._ended.is_set():
                    return
                if line is not None:
                    self._write(line)
            taken = time.monotonic() - start
            if self._ended.wait(max(self._interval, taken / _SHARE_OF_TIME)):
                return

    def _write(self, line: str) -> None:
        """Puts a line in the place of the one that is shown; "" clears it."""
        line = line[: shutil.get_terminal_size().columns - 1]
        blank = " " * (self._shown - len(line))
        back = "\r" if not line else ""
        self._stream.write(f"\r{line}{blank}{back}")
        self._stream.flush()
        self._shown = len(line)
