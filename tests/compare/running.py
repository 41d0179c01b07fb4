"""Run a case, which is a list of commands in a folder of its own, with a program.

A line of a case is one of these:

- `tt ARGUMENTS`, optionally with `< FILE`. Stdout, stderr and exit code of the first command become
  the files `1.out`, `1.err` and `1.code`, and so on.
- `until PATH tt ARGUMENTS`: the same, but the command gets SIGTERM as soon as the file exists. The
  lines of its stderr are sorted, because the signal arrives at any moment.
- any other line: a command of the shell, which must succeed.

The folder of the inputs is `../in`.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

SERVER = Path(__file__).with_name("server.py")
CASE, INPUTS = "case", "in"  # folders of a case
_SECONDS = 600  # longest wait for a file
_SHARED = {
    "COLUMNS": "100", "CUDA_VISIBLE_DEVICES": "-1", "LC_ALL": "C.UTF-8", "NO_COLOR": "1",
    "PATH": os.environ["PATH"], "PYTHONHASHSEED": "0", "TF_CPP_MIN_LOG_LEVEL": "3", "TZ": "UTC",
}  # fmt: skip


class Program:
    """A connection to the server of an installed program, for one command at a time."""

    def __init__(self, address: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(address))
        self._stream = self._socket.makefile("rw", encoding="utf-8")

    def run(self, words: list[str], folder: Path, *, stem: str, until: Path | None = None) -> None:
        """Run `tt`, and write the files `STEM.out`, `STEM.err` and `STEM.code`."""
        stdin = "/dev/null"
        if words[-2:-1] == ["<"]:
            stdin, words = words[-1], words[:-2]
        home = str(folder.parent)
        request = {
            "arguments": words,
            "folder": str(folder),
            "environment": _SHARED | {"HOME": home, "XDG_CACHE_HOME": f"{home}/cache"},
            "stdin": stdin,
            "stdout": str(folder / f"{stem}.out"),
            "stderr": str(folder / f"{stem}.err"),
        }
        print(json.dumps(request), file=self._stream, flush=True)
        process = int(self._stream.readline())
        if until is not None:
            _wait_for(until)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGTERM)
        code = self._stream.readline().strip()
        (folder / f"{stem}.code").write_text(f"{code}\n", "utf-8")
        if until is not None:
            errors = folder / f"{stem}.err"
            lines = errors.read_text("utf-8").splitlines(keepends=True)
            errors.write_text("".join(sorted(lines)), "utf-8")


def run_case(program: Program, script: str, root: Path, inputs: Path) -> None:
    """Run a case in the folder `root/case`, which the function creates."""
    folder = root / CASE
    folder.mkdir(parents=True, exist_ok=True)  # The folder of the inputs exists.
    (root / INPUTS).symlink_to(inputs)
    count = 0
    for line in script.strip().splitlines():
        words = shlex.split(line, comments=True)
        until = None
        if words[:1] == ["until"]:
            until, words = folder / words[1], words[2:]
        if words[:1] == ["tt"]:
            count += 1
            program.run(words[1:], folder, stem=str(count), until=until)
        elif words:
            subprocess.run(["sh", "-e", "-c", line], cwd=folder, check=True)


class Server:
    """The server of an installed program, which starts with the first connection."""

    def __init__(self, python: Path, scratch: Path) -> None:
        self._python, self._scratch = python, scratch
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._programs = threading.local()

    def connect(self) -> Program:
        """Return the connection of this thread."""
        with self._lock:
            if self._process is None:
                self._start()
        if not hasattr(self._programs, "program"):
            self._programs.program = Program(self._scratch / "socket")
        return self._programs.program

    def _start(self) -> None:
        self._scratch.mkdir()
        log = self._scratch / "server.log"
        self._process = subprocess.Popen(
            [self._python, "-P", SERVER, self._scratch / "socket"],
            env=_SHARED | {"HOME": str(self._scratch)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log.open("wb"),
            start_new_session=True,
        )
        if self._process.stdout.readline() != b"ready\n":
            raise SystemExit(f"{self._python} cannot import tt:\n{log.read_text('utf-8')}")

    def close(self) -> None:
        """End the server with all its commands."""
        if self._process is not None:
            self._process.stdin.close()
            self._process.wait()


def _wait_for(path: Path) -> None:
    end = time.monotonic() + _SECONDS
    while not path.exists():
        if time.monotonic() > end:
            raise SystemExit(f"{path} does not exist after {_SECONDS} s")
        time.sleep(0.05)
