"""Runs `tt` in children that can be killed; a process of its own that has only imported TensorFlow.

Reads one JSON a line on stdin, {"arguments": [...], "hook": {...} or null}; for each, forks a child
that runs the command, prints its id, and once it has ended {"code", "output", "seconds"}. Forking
saves each run the seconds that importing TensorFlow takes. It is safe as long as this process has
executed no operation: TensorFlow starts its threads with the first.

A hook meets the command at an exact moment: before call number `call` of the function `where`,
such as "model.updates.step:TrainingStep.update". There the process gets the `signals`, and sleeps for so
many seconds; or, where `room` is given, no file can grow beyond so many bytes more than what
matches `file` in the run folder has.
"""

import functools
import gc
import importlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"

import sacrebleu.metrics  # noqa: F401 (imported here, it is not imported by each child)

import cli.main
import model.training.trainer  # noqa: F401


def set_hook(
    *,
    run: str,
    where: str,
    call: int,
    told: int,
    signals: Sequence[str] = ("SIGTERM",),
    seconds: float = 0,
    room: int | None = None,
    file: str = "-",
) -> None:
    """Wraps a function of the product; `told` is a file descriptor that gets the moment."""
    module, _, names = where.partition(":")
    *outer, name = names.split(".")
    owner = functools.reduce(getattr, outer, importlib.import_module(module))
    function = getattr(owner, name)
    calls = 0

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        nonlocal calls
        calls += 1
        if calls == call:
            os.write(told, str(time.monotonic()).encode())
            if room is None:
                for name in signals:
                    os.kill(os.getpid(), signal.Signals[name])
                time.sleep(seconds)
            else:
                limit = room + sum(path.stat().st_size for path in Path(run).glob(file))
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # writing beyond it is an error
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        return function(*args, **kwargs)

    setattr(owner, name, wrapper)


def read_all(descriptor: int) -> str:
    """Reads a pipe until all that write to it have ended."""
    with open(descriptor, "rb") as file:
        return file.read().decode()


def main() -> None:
    """Serves requests until stdin ends."""
    gc.freeze()  # what the imports made is not looked at again in each child
    for line in sys.stdin:
        request = json.loads(line)
        output, printed = os.pipe()
        moment, told = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(printed, 1)
            os.dup2(printed, 2)
            # A job in the background ignores it, and hands that down.
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if request["hook"]:
                set_hook(**request["hook"], told=told)
            # Ends the interpreter as any command does: nothing may hang or crash there.
            cli.main.main(request["arguments"])
        os.close(printed)
        os.close(told)
        print(child, flush=True)
        text = read_all(output)
        _, status = os.waitpid(child, 0)
        ended = time.monotonic()
        hooked = read_all(moment)
        answer = {
            "code": os.waitstatus_to_exitcode(status),
            "output": text,
            "seconds": ended - float(hooked) if hooked else None,
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
