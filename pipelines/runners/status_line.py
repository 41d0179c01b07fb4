"""How far a run is: one line in its place on a terminal, else a plain line now and then."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO, TypeVar

from model.folders.long_work import current_work
from pipelines.runners.formatting import describe_work, format_seconds

PLAIN_SECONDS = 60.0  # without a line, where there is no terminal: whoever waits wants a sign
_STOP_SECONDS = 10.0  # the end waits so long for a look that has begun
_SHARE_OF_TIME = 0.1  # the most that looks may take
_Found = TypeVar("_Found")


def look_seconds(*, is_local: bool) -> float:
    """Returns the seconds between two looks at a folder: a remote listing takes one, and costs."""
    return 1.0 if is_local else 15.0


@contextlib.contextmanager
def repeating(
    look: Callable[[], _Found], tell: Callable[[_Found], object], *, interval: float
) -> Iterator[None]:
    """Looks again and again while the `with` block runs, in a thread, and tells what was found.

    If `look` raises an OSError or ValueError, as where a file was just renamed or deleted, nothing
    is told: the next look is better. The interval is seconds; it is more if looking takes long.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            start = time.monotonic()
            try:
                found = look()
            except (OSError, ValueError):
                pass
            else:
                tell(found)
            ended.wait(max(interval, (time.monotonic() - start) / _SHARE_OF_TIME))

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_STOP_SECONDS)


class StatusLine:
    """Shows how far the run inside its `with` block is.

    On a terminal each line takes the place of the one before; elsewhere a line is printed each
    `PLAIN_SECONDS`, without control characters.

    Args:
      look: Returns the line now and then, in a thread; if it raises an OSError or ValueError, the
        line stays as it is. None leaves it to `show`.
      interval: Seconds between two looks; more if looking takes long.
      stream: Where it is shown.
      is_shown_on_terminals: Whether a terminal gets it: not where other lines come meanwhile.
    """

    def __init__(
        self,
        look: Callable[[], str] | None = None,
        *,
        interval: float = 1.0,
        stream: TextIO,
        is_shown_on_terminals: bool = True,
    ) -> None:
        self._look = look
        self._interval = interval
        self._stream = stream
        self._is_shown_on_terminals = is_shown_on_terminals
        self._stack = contextlib.ExitStack()
        self._ended = threading.Event()
        self._lock = threading.Lock()  # of the stream, so that nothing comes after the end
        self._shown = 0  # characters
        self._spoken = 0.0  # when a plain line was printed last, by whomever
        self._thread: threading.Thread | None = None
        self._is_terminal = False

    def __enter__(self) -> StatusLine:
        self._is_terminal = self._stream.isatty()
        self._spoken = time.monotonic()
        if self._look is None:
            return self
        if not self._is_terminal:
            run = self._run_plainly
            self._thread = threading.Thread(target=run, name="progress", daemon=True)
            self._thread.start()
        elif self._is_shown_on_terminals:
            watch = repeating(self._look, self.show, interval=self._interval)
            self._stack.enter_context(watch)
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._ended.set()
            if self._shown:
                self._write("")
        self._stack.close()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def show(self, line: str) -> None:
        """Shows a line, if it is time for one."""
        with self._lock:
            if self._ended.is_set():
                return
            if not self._is_terminal:
                if time.monotonic() >= self._spoken + PLAIN_SECONDS:
                    self._spoken = time.monotonic()
                    self._print(line)
            elif self._is_shown_on_terminals:
                self._write(line)

    def say(self, line: str) -> None:
        """Prints a line that stays, in the place of the one that is shown."""
        with self._lock:
            if self._shown:
                self._write("")
            self._spoken = time.monotonic()
            self._print(line)

    def note_line(self) -> None:
        """Takes note that the run has printed a line of its own: the next plain one can wait."""
        self._spoken = time.monotonic()

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
        assert self._look is not None
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
    """Shows how much of the work that goes on is done; of none, how long "exporting" has taken."""

    def __init__(self, what: str, *, stream: TextIO) -> None:
        start = time.monotonic()

        def look() -> str:
            for line in look_at_work():
                return line
            return f"{what}: {format_seconds(time.monotonic() - start)}"

        super().__init__(look, stream=stream)


def look_at_work() -> list[str]:
    """Returns a line on the work that goes on, or none."""
    work = current_work()
    return [describe_work(work, seconds=time.monotonic() - work.began)] if work else []
