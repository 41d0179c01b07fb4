"""Show the progress of a run: on a terminal in one line, otherwise in a new line every minute."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from typing import TextIO, TypeVar

from tt.model.long_work import current_work
from tt.pipelines.runners.formatting import describe_work, format_seconds

PLAIN_SECONDS = 60.0  # between two lines if the stream is not a terminal
UPDATE_SECONDS = 1.0  # between two updates
_STOP_SECONDS = 10.0  # longest wait for an update in progress at the end
_SHARE_OF_TIME = 0.1  # maximum share of the time that updates take
_Found = TypeVar("_Found")


def listing_interval(*, is_local: bool) -> float:
    """Return the seconds between two listings of a folder; remote listings cost time and money."""
    return UPDATE_SECONDS if is_local else 15.0


@contextlib.contextmanager
def repeating(
    look: Callable[[], _Found], tell: Callable[[_Found], object], *, interval: float
) -> Iterator[None]:
    """Call `look` repeatedly in a thread while the block runs, and pass its result to `tell`.

    If `look` raises an OSError or ValueError, because a file was just renamed or deleted, `tell` is
    not called. The interval is in seconds, and grows if `look` takes long.
    """
    ended = threading.Event()

    def run() -> None:
        while not ended.is_set():
            start = time.monotonic()
            with contextlib.suppress(OSError, ValueError):
                tell(look())
            ended.wait(max(interval, (time.monotonic() - start) / _SHARE_OF_TIME))

    thread = threading.Thread(target=run, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join(_STOP_SECONDS)


class StatusLine:
    """Shows the progress of the `with` block.

    On a terminal, each line replaces the previous line. Otherwise, a line is printed every
    `PLAIN_SECONDS`, without control characters.

    Args:
      look: Returns the line, in a thread. If it raises an OSError or ValueError, the line does not
        change. If it is None, only `show` changes the line.
      stream: The stream to write to.
      is_shown_on_terminals: False if the block prints its own lines to a terminal.
    """

    def __init__(
        self,
        look: Callable[[], str] | None = None,
        *,
        stream: TextIO,
        is_shown_on_terminals: bool = True,
    ) -> None:
        self._look = look
        self._stream = stream
        self._is_terminal = stream.isatty()
        self._is_shown = is_shown_on_terminals or not self._is_terminal
        self._stack = contextlib.ExitStack()
        self._has_ended = False
        self._lock = threading.Lock()  # for the stream, so that no line follows the end
        self._shown = 0  # characters in the shown line
        self._last_plain = 0.0  # time of the last plain line, including the block's own lines

    def __enter__(self) -> StatusLine:
        self._last_plain = time.monotonic()
        if self._look is not None and self._is_shown:
            self._stack.enter_context(repeating(self._look, self.show, interval=UPDATE_SECONDS))
        return self

    def __exit__(self, *exception: object) -> None:
        with self._lock:
            self._has_ended = True
            self._clear()
        self._stack.close()

    def show(self, line: str) -> None:
        """Show a line; without a terminal, print it only if a plain line is due."""
        with self._lock:
            if self._has_ended or not self._is_shown:
                return
            if self._is_terminal:
                self._replace(line)
            elif time.monotonic() >= self._last_plain + PLAIN_SECONDS:
                self._print(line)

    def say(self, line: str) -> None:
        """Print a permanent line in place of the shown line."""
        with self._lock:
            self._clear()
            self._print(line)

    def note_line(self) -> None:
        """Delay the next plain line, because the block has printed its own line."""
        self._last_plain = time.monotonic()

    def _print(self, line: str) -> None:
        self._last_plain = time.monotonic()
        with contextlib.suppress(OSError, ValueError):  # the reader has closed the stream
            self._stream.write(f"{line}\n")
            self._stream.flush()

    def _clear(self) -> None:
        if self._shown:
            self._replace("")
            self._stream.write("\r")
            self._stream.flush()

    def _replace(self, line: str) -> None:
        line = line[: shutil.get_terminal_size().columns - 1]
        self._stream.write(f"\r{line}{' ' * (self._shown - len(line))}")
        self._stream.flush()
        self._shown = len(line)


class TimeLine(StatusLine):
    """Shows the progress of the current `long_work`; if there is none, the time since the start."""

    def __init__(self, what: str, *, stream: TextIO) -> None:
        start = time.monotonic()

        def look() -> str:
            now = time.monotonic()
            if work := current_work():
                return describe_work(work, seconds=now - work.began)
            return f"{what}: {format_seconds(now - start)}"

        super().__init__(look, stream=stream)
