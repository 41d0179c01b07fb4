"""Serve `tt` to shell scripts: run each command in a child of this process.

    python tt_server.py SOCKET '{"train": ["--steps", "3"]}'

`tt_client.py` is on a script's PATH as `tt`. It sends the arguments, folder, environment and open
files, and the command runs with them and ends as usual. Forking this process, which has imported
TensorFlow and Beam, saves seconds per command. It is safe as long as this process has executed no
operation, because TensorFlow starts its threads with the first operation.

The server leads a process group. When its stdin closes, it ends with all commands, because its
parent may have been killed, and then no other process would end it.

The second argument has flags that are added to a command, before Beam's own flags.
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
_ABOVE = 512  # higher than all file descriptors in use


def with_added(arguments, added):
    """Return arguments with the flags that are added to their command."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    if "--vocab-of" in arguments:  # which already has a size
        return arguments
    flags = added.get(arguments[0] if arguments else "", [])
    if "--init-from" in arguments:  # which already has a shape
        pairs = [flags[i : i + 2] for i in range(0, len(flags), 2)]
        flags = [word for pair in pairs if pair[0] not in _SHAPE for word in pair]
    return arguments[:end] + flags + arguments[end:]


def run(request, descriptors, added):
    """Run a command, and end the process as the command does."""
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
    os._exit(code)  # without the second that a normal exit takes


def serve(connection, added):
    """Run the command of a connection, and send back its exit code."""
    message, descriptors, _, _ = socket.recv_fds(connection, 1 << 20, 64)
    child = os.fork()
    if child == 0:
        run(json.loads(message), descriptors, added)
    for descriptor in descriptors:
        os.close(descriptor)
    _, status = os.waitpid(child, 0)
    connection.send(str(os.waitstatus_to_exitcode(status)).encode())


def main():
    """Serve until stdin closes."""
    path, added = sys.argv[1], json.loads(sys.argv[2])
    for command in tt.cli.main.COMMANDS:
        tt.cli.main.load_command(command)
    gc.collect()
    gc.freeze()  # so that children do not scan the objects of the imports
    gc.set_threshold(50_000, 20, 20)  # because tracing creates hundreds of thousands of objects
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
