"""Serve an installed `tt`: import the program once, and run each command in a forked child.

    PYTHON -P tests/compare/server.py SOCKET

A client sends one JSON object per command and line: `arguments`, `folder`, `environment`, and the
paths `stdin`, `stdout` and `stderr`. The server answers with the process ID of the command, and at
its end with the exit code. The server ends with all its commands as soon as its stdin closes.

Importing TensorFlow and Beam takes 6 s per interpreter, a fork takes a few milliseconds. Forking is
safe because this process executes no operation of TensorFlow, which would start threads. This file
uses only the entry point `tt`, because it serves programs of different commits.
"""

import atexit
import contextlib
import gc
import importlib
import importlib.metadata
import json
import os
import pkgutil
import select
import signal
import socket
import sys
import traceback

LIBRARIES = (
    "apache_beam.runners.portability.fn_api_runner", "ctranslate2", "deltalake", "duckdb", "eldc",
    "matplotlib.pyplot", "pyarrow.dataset", "pyiceberg.utils.config", "sacrebleu.metrics",
    "sentencepiece", "tensorboard.summary.v2", "tensorflow",
)  # fmt: skip


def load() -> object:
    """Import the program with its libraries, and return its entry point."""
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    (entry,) = importlib.metadata.entry_points(group="console_scripts", name="tt")
    main = entry.load()
    for package in ("tt.cli", "tt.model", "tt.pipelines"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}.", onerror=lambda name: None):
            with contextlib.suppress(Exception):  # a package that this machine lacks
                importlib.import_module(module.name)
    return main


def run(main, request) -> int:
    """Run a command in this process, and return its exit code."""
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC if number else os.O_RDONLY
        os.dup2(os.open(request[name], flags, 0o644), number)
    os.closerange(3, 64)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if catalogs := sys.modules.get("pyiceberg.catalog"):  # which read its settings when imported
        catalogs._ENV_CONFIG = sys.modules["pyiceberg.utils.config"].Config()
    sys.argv = ["tt", *request["arguments"]]
    try:
        code = main() or 0
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return code if isinstance(code, int) else 1


def serve(main, connection):
    """Run the commands of a client, one after the other."""
    with connection.makefile("rw", encoding="utf-8") as stream:
        for line in stream:
            request = json.loads(line)
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = run(main, request)
                finally:
                    os._exit(code)  # without the second that a normal exit takes
            print(child, file=stream, flush=True)
            _, status = os.waitpid(child, 0)
            print(os.waitstatus_to_exitcode(status), file=stream, flush=True)


def serve_clients(path):
    """Serve each client in a process, until stdin closes."""
    main = load()
    gc.collect()
    gc.freeze()  # so that children do not scan the objects of the imports
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that no handler stays a zombie
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                os.killpg(0, signal.SIGKILL)
            connection, _ = listener.accept()
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                listener.close()
                serve(main, connection)
                os._exit(0)
            connection.close()


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    serve_clients(sys.argv[1])
