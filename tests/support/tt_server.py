"""Serves `tt` to shell scripts: each command in a child of this process, which has imported it all.

    python tt_server.py SOCKET '{"train": ["--steps", "3"]}'

`tt_client.py` stands on a script's PATH as `tt`, and hands over arguments, folder, environment and
open files; the command runs with them and ends as any command does. Forking saves each the seconds
that importing TensorFlow and Beam takes. It is safe as long as this process has executed no
operation: TensorFlow starts its threads with the first.

It leads a process group, and ends with all commands as soon as its stdin does: whoever started it
may be killed, and then nobody else would end it.

The second argument has flags that are added to a command, before Beam's own.
"""

import atexit
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys

os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import apache_beam.runners.portability.fn_api_runner  # noqa: F401
import sacrebleu.metrics  # noqa: F401
import tensorboard.summary.v2  # noqa: F401

import tt.cli.main
import tt.model.engines.tensorflow_engine
import tt.model.training.trainer
import tt.pipelines.preprocess.job
import tt.pipelines.translate.job

_SHAPE = ("--encoder-layers", "--decoder-layers", "--d-model", "--heads", "--d-ff")
_ABOVE = 512  # file descriptors that nothing here uses


def with_added(arguments, added):
    """Returns arguments with the flags that are added to their command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--vocab-of" in arguments:  # that has a size already
        return arguments
    flags = added.get(arguments[0] if arguments else "", [])
    if "--init-from" in arguments:  # that has a shape already
        pairs = [flags[i : i + 2] for i in range(0, len(flags), 2)]
        flags = [word for pair in pairs if pair[0] not in _SHAPE for word in pair]
    return arguments[:end] + flags + arguments[end:]


def run(request, descriptors, added):
    """Runs a command and ends the process as it does."""
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, _ABOVE) for each in descriptors]
    os.closerange(0, _ABOVE)
    for number, descriptor in zip(request["numbers"], above, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        tt.cli.main.main(with_added(request["arguments"], added))
    except SystemExit as ended:
        code = ended.code or 0
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)  # to take down all that was imported takes a second


def serve(connection, added):
    """Runs the command of a connection, and sends back its exit code."""
    message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 64)
    child = os.fork()
    if child == 0:
        run(json.loads(message), descriptors, added)
    for descriptor in descriptors:
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def main():
    """Serves until stdin ends."""
    path, added = sys.argv[1], json.loads(sys.argv[2])
    for command in tt.cli.main.COMMANDS:
        tt.cli.main.load_command(command)
    gc.collect()
    gc.freeze()  # what the imports made is not looked at again in each child
    gc.set_threshold(50_000, 20, 20)  # tracing makes objects by the hundred thousand
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            if sys.stdin in select.select([listener, sys.stdin], [], [])[0]:
                os.killpg(0, signal.SIGKILL)
            connection, _ = listener.accept()
            if os.fork() == 0:
                listener.close()
                serve(connection, added)
                os._exit(0)
            connection.close()
            while True:  # collect handlers that have ended
                try:
                    if os.waitpid(-1, os.WNOHANG)[0] == 0:
                        break
                except ChildProcessError:
                    break


if __name__ == "__main__":
    main()
