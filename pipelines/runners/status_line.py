"""How far a run is: one line in its place on a terminal, else a plain line now and then."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import TextIO

PLAIN_SECONDS = 60.0  # without a line, where there is no terminal: whoever waits wants a sign

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
    """Shows how far the run inside its `with` block is.

    A thread looks now and then. On a terminal it puts the line in the place of the one before;
    elsewhere it prints a line, without control characters, each `PLAIN_SECONDS`.

    Args:
      look: Returns the line; an OSError or ValueError of it leaves the line as it is.
      interval: Seconds between two looks; more if looking takes long.
      stream: Where it is shown.
      is_shown_on_terminals: Whether a terminal gets it: not where other lines come meanwhile.
    """

    def __init__(
        self,
        look: Callable[[], str],
        *,
        interval: float,
        stream: TextIO,
        is_shown_on_terminals: bool = True,
    ) -> None:
        self._look = look
        self._interval = interval
        self._stream = stream
        self._is_shown_on_terminals = is_shown_on_terminals
        self._ended = threading.Event()
        self._lock = threading.Lock()  # of the stream, so that nothing comes after the end
        self._shown = 0  # characters
        self._spoken = 0.0  # when a plain line was printed last, by whomever
        self._thread: threading.Thread | None = None
        self._is_terminal = False

    def __enter__(self) -> StatusLine:
        self._is_terminal = self._stream.isatty()
        self._spoken = time.monotonic()
        if self._is_shown_on_terminals or not self._is_terminal:
            run = self._run if self._is_terminal else self._run_plainly
            self._thread = threading.Thread(target=run, name="progress", daemon=True)
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
            if self._is_terminal:
                self._write("")
        self._thread.join(_STOP_SECONDS)

    def note_line(self) -> None:
        """Takes note that the run has printed a line of its own: the next plain one can wait."""
        self._spoken = time.monotonic()

    def _run(self) -> None:
        while True:
            start = time.monotonic()
            line = self._try_look()
            with self._lock:
                if self._ended.is_set():
                    return
                if line is not None:
                    self._write(line)
            taken = time.monotonic() - start
            if self._ended.wait(max(self._interval, taken / _SHARE_OF_TIME)):
                return

    def _run_plainly(self) -> None:
        line: str | None = None
        while not self._ended.wait(self._spoken + PLAIN_SECONDS - time.monotonic()):
            if time.monotonic() < self._spoken + PLAIN_SECONDS:
                continue  # the run has printed a line meanwhile
            self._spoken = time.monotonic()  # a look that takes long is not waited for twice
            line = self._try_look() or line
            with self._lock:
                if self._ended.is_set():
                    return
                if line is not None and not self._print(line):
                    return

    def _try_look(self) -> str | None:
        """Looks; None where a file was just renamed or deleted: the next look is better."""
        try:
            return self._look()
        except (OSError, ValueError):
            return None

    def _print(self, line: str) -> bool:
        """Prints a plain line; returns whether anybody still reads."""
        try:
            self._stream.write(f"{line}\n")
            self._stream.flush()
        except (OSError, ValueError):
            return False
        return True

    def _write(self, line: str) -> None:
        """Puts a line in the place of the one that is shown; "" clears it."""
        line = line[: shutil.get_terminal_size().columns - 1]
        blank = " " * (self._shown - len(line))
        back = "\r" if not line else ""
        self._stream.write(f"\r{line}{blank}{back}")
        self._stream.flush()
        self._shown = len(line)


class TimeLine(StatusLine):
    """Says, where there is no terminal, what has been going on for how long.

    Args:
      what: Goes on, such as "exporting".
      stream: Where it is shown.
    """

    def __init__(self, what: str, *, stream: TextIO) -> None:
        start = time.monotonic()
        super().__init__(
            lambda: f"{what}: {format_seconds(time.monotonic() - start)}",
            interval=PLAIN_SECONDS,
            stream=stream,
            is_shown_on_terminals=False,
        )
