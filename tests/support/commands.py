"""Run functions in child processes that a test can kill.

The children are forked from a process that has already imported TensorFlow and Beam, which saves
seconds per child. This is safe as long as the forked process has executed no operation, because
TensorFlow starts its threads with the first operation.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import forkserver
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest import mock

import hooks

PATIENCE = 900  # seconds until a child that has not ended is killed

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["preloaded"])
_STARTING = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Ended:
    """The end of a child.

    Attributes:
      code: The exit code, or minus the number of the signal that killed the child.
      lines: The lines that the child printed.
      result: The return value of the function; None if it did not return.
      seconds: Time from the hook to the end; None without a hook, or if the hook was not reached.
    """

    code: int
    lines: list[str]
    result: Any
    seconds: float | None


class Child:
    """A separate process, which leads its process group."""

    def __init__(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        hook: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] | None = None,
        file_limit: int | None = None,
        namespaces_of: int | None = None,
    ) -> None:
        """Start the process.

        Args:
          function: A function in a module of this folder or of the product.
          *arguments: The arguments of the function.
          hook: An event at an exact moment: see `hooks.set_hook`.
          environment: Variables in addition to the environment of the server.
          file_limit: The largest size of files in bytes.
          namespaces_of: The process whose user and network namespaces the child enters.
        """
        self._messages, messages = multiprocessing.Pipe(duplex=False)
        printed, output = multiprocessing.Pipe(duplex=False)
        self._process = _CONTEXT.Process(
            target=_run,
            args=(messages, output, function, arguments),
            kwargs={
                "hook": hook, "environment": environment or {}, "file_limit": file_limit,
                "namespaces_of": namespaces_of,
            },
        )  # fmt: skip
        with (
            _STARTING,
            mock.patch.dict(
                os.environ, PYTHONPATH=os.pathsep.join(sys.path), TF_CPP_MIN_LOG_LEVEL="3"
            ),
        ):
            forkserver.ensure_running()
            self._process.start()
        messages.close()
        output.close()
        self.pid = self._process.pid
        self._messages.recv()  # the child now leads its group
        self._reader = ThreadPoolExecutor(1)
        self._printed = self._reader.submit(_read_all, printed)

    def is_alive(self) -> bool:
        return self._process.is_alive()

    def kill_group(self) -> None:
        """Kill the child and all its children, even if the child has ended."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, seconds: float = PATIENCE) -> Ended:
        """Wait for the end of the child, and kill it after this many seconds.

        A child that is killed first prints the stacks of its threads.
        """
        self._process.join(seconds)
        if self._process.exitcode is None:
            os.kill(self.pid, signal.SIGUSR2)
            self._process.join(5)
            self.kill_group()
            self._process.join()
        ended = time.monotonic()
        found = {}
        with contextlib.suppress(EOFError):
            while True:
                found.update(self._messages.recv())
        self._messages.close()
        self._reader.shutdown()
        moment = found.get("moment")
        return Ended(
            code=self._process.exitcode,
            lines=self._printed.result().splitlines(),
            result=found.get("result"),
            seconds=None if moment is None else ended - moment,
        )


def run_tt(arguments: list[str]) -> None:
    """Run the command line."""
    import tt.cli.main

    tt.cli.main.main(arguments)


def run_command(
    *arguments: Any,
    folder: Path,
    text: str = "",
    stdout: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run the command line in a child, with separate standard streams.

    Args:
      *arguments: The arguments of `tt`.
      folder: The current folder of the command.
      text: The content of stdin.
      stdout: A file to write to, or `NO_READER`. By default, the result has the output.
      environment: Variables in addition to the environment of the server.
    """
    with tempfile.TemporaryDirectory() as scratch:
        streams = [f"{scratch}/{name}" for name in ("stdin", "stdout", "stderr")]
        for stream, content in zip(streams, (text, "", ""), strict=True):
            Path(stream).write_text(content, "utf-8")
        opened = [streams[0], stdout or streams[1], streams[2]]
        words = [str(argument) for argument in arguments]
        ended = Child(_run_with, opened, str(folder), words, environment=environment).wait()
        printed = [Path(stream).read_text("utf-8") for stream in streams[1:]]
    return subprocess.CompletedProcess(words, ended.code, *printed)


NO_READER = "a pipe that nobody reads"


def _run_with(streams: list[str], folder: str, arguments: list[str]) -> None:
    """Run the command line with these files as stdin, stdout and stderr."""
    for number, stream in enumerate(streams):
        if stream == NO_READER:
            reading, descriptor = os.pipe()
            os.close(reading)
        else:
            descriptor = os.open(stream, os.O_WRONLY if number else os.O_RDONLY)
        os.dup2(descriptor, number)
        os.close(descriptor)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 -- a descriptor
    os.chdir(folder)
    run_tt(arguments)


def _read_all(printed: Connection) -> str:
    """Read until all processes that write to a pipe have ended."""
    with printed, open(os.dup(printed.fileno()), "rb") as file:  # noqa: PTH123 -- a descriptor
        return file.read().decode()


def _run(
    messages: Connection,
    output: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
    *,
    hook: Mapping[str, Any] | None,
    environment: Mapping[str, str],
    file_limit: int | None,
    namespaces_of: int | None,
) -> None:
    os.setsid()
    messages.send({})
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output.fileno(), 1)
    os.dup2(output.fileno(), 2)
    output.close()
    faulthandler.register(signal.SIGUSR2, file=2)
    # A background job ignores SIGINT, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.update(environment)
    if namespaces_of is not None:
        _enter_namespaces(namespaces_of)
    if file_limit is not None:
        hooks.limit_files(file_limit)
    if hook is not None:
        hooks.set_hook(lambda: messages.send({"moment": time.monotonic()}), **hook)
    code = 1
    try:
        messages.send({"result": function(*arguments)})
        code = 0
    except SystemExit as stopped:
        code = stopped.code or 0
    except BaseException:
        traceback.print_exc()
    # End the interpreter as every command does, because nothing may hang or crash there.
    ctypes.pythonapi.Py_Exit(code)


def _enter_namespaces(process: int) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    for name in ("user", "net"):
        with open(f"/proc/{process}/ns/{name}") as namespace:  # noqa: PTH123
            if library.setns(namespace.fileno(), 0) != 0:
                raise OSError(ctypes.get_errno(), f"the namespace {name} cannot be entered")
