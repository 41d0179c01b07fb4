"""Run a command on some cores and measure its time and memory; judge measured numbers.

The module imports only the standard library, because Linux counts the memory of the process that
starts a command in the memory of the command. The measuring process must therefore be small.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

_SAMPLE_SECONDS = 0.2
_SHOWN_LINES = 15  # of the output of a failed command
_SHOWN_CHARACTERS = 2000  # of the output of a failed competitor


class CommandError(Exception):
    """A command ended with an exit code other than 0."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finished:
    """The result of a command.

    Attributes:
      seconds: The wall-clock time from start to end.
      cpu_seconds: The CPU time of all cores, including the child processes that were waited for.
      peak_bytes: The peak memory of a single process (RSS) or of all processes (PSS, sampled).
      output: The text on stdout.
    """

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    output: str

    def json(self) -> dict[str, Any]:
        """Read the last line of the output as a JSON object."""
        values: dict[str, Any] = json.loads(self.output.splitlines()[-1])
        return values


def run(
    command: Sequence[str | Path],
    *,
    cores: int,
    folder: Path,
    environment: Mapping[str, str] | None = None,
) -> Finished:
    """Run a command to its end.

    Args:
      command: The program and its arguments.
      cores: The number of cores. The command is pinned to the first of them.
      folder: The working folder.
      environment: Variables to add to this process's variables.

    Raises:
      CommandError: The exit code is not 0.
    """
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        with _pinned(cores):
            start = time.perf_counter()
            process = subprocess.Popen(
                command, cwd=folder, env={**os.environ, **(environment or {})},
                stdin=subprocess.DEVNULL, stdout=output, stderr=errors,
            )  # fmt: skip
        with _SampledMemory(process.pid) as memory:
            try:
                _, status, usage = os.wait4(process.pid, 0)
            except BaseException:
                process.kill()
                raise
            seconds = time.perf_counter() - start
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()[-_SHOWN_LINES:]
            said = f"exit code {process.returncode}: {' '.join(map(str, command))}"
            raise CommandError("\n".join([said, *lines]))
        output.seek(0)
        return Finished(
            seconds=seconds,
            cpu_seconds=usage.ru_utime + usage.ru_stime,
            peak_bytes=max(usage.ru_maxrss * 1024, memory.peak_bytes),
            output=output.read().decode(),
        )


class Competitor:
    """A process that works on each request, so that processes can take turns.

    Args:
      name: The name in the results.
      command: The program. It reads requests, one per line, and answers each in a line of stdout.
      errors: A file for its stderr.
    """

    def __init__(self, name: str, command: Sequence[str | Path], *, errors: Path) -> None:
        self.name = name
        self._errors = errors
        with errors.open("wb") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )  # fmt: skip

    def ask(self, request: str, *, answer: re.Pattern[str]) -> re.Match[str]:
        """Send a request, and return the start of the next line that matches `answer`.

        Raises:
          CommandError: The process has ended.
        """
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(f"{request}\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if match := answer.match(line):
                return match
        code = self._process.wait()
        said = self._errors.read_text(errors="replace")[-_SHOWN_CHARACTERS:]
        raise CommandError(f"{self.name} ended with exit code {code}:\n{said}")

    def stop(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait()


def cache_folder() -> Path:
    """Return the default folder for corpora and vocabularies."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tt-bench"


def available_cores() -> list[int]:
    """Return the numbers of the cores that this process may use."""
    return sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def _pinned(cores: int) -> Iterator[None]:
    """Pin this thread, and thus its child processes, to the first cores."""
    before = available_cores()
    os.sched_setaffinity(0, before[:cores])
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


class _SampledMemory:
    """The sampled memory of a process tree, in which shared pages count once."""

    def __init__(self, root: int) -> None:
        self.peak_bytes = 0
        self._root = root
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _SampledMemory:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._is_over.wait(_SAMPLE_SECONDS):
            tree = _descendants(self._root)
            if tree:  # the kernel records the peak of a single process
                total = sum(map(_proportional_bytes, [self._root, *tree]))
                self.peak_bytes = max(self.peak_bytes, total)


def _descendants(process: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):  # the process has ended
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _proportional_bytes(process: int) -> int:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Target:
    """A target for a measured number.

    Attributes:
      rule: A description of the target.
      value: The measured value.
      bound: The smallest or largest accepted value.
      is_upper_bound: Whether `bound` is the largest accepted value.
    """

    rule: str
    value: float
    bound: float
    is_upper_bound: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the value reaches the target."""
        return self.value <= self.bound if self.is_upper_bound else self.value >= self.bound

    def line(self) -> str:
        """Return a line that describes the target and the value."""
        sign = "<=" if self.is_upper_bound else ">="
        verdict = "met" if self.is_met else "NOT met"
        return f"{verdict:7s}  {self.rule}: {self.value:.2f} (target {sign} {self.bound:.2f})"


def judge(targets: list[Target], *, has_limits: bool) -> None:
    """Print the targets; exit with code 1 if there are limits and one is missed."""
    print(*(target.line() for target in targets), sep="\n")
    if has_limits and not all(target.is_met for target in targets):
        sys.exit(1)
