"""`tt` for shell scripts: send a command to `tt_server.py`, and end with its exit code."""

import contextlib
import json
import os
import socket
import sys


def main():
    """Send the arguments, folder, environment and open files; wait for the exit code."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 -- a fast start
        with contextlib.suppress(OSError):  # the descriptor that listed the folder
            os.fstat(int(name))
            numbers.append(int(name))
    request = {
        "arguments": sys.argv[2:], "folder": os.getcwd(),  # noqa: PTH109
        "environment": dict(os.environ), "numbers": numbers,
    }  # fmt: skip
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(sys.argv[1])
        socket.send_fds(connection, [json.dumps(request).encode()], numbers)
        code = connection.recv(100)
    # A command that a signal ended has the code that a shell would give it.
    value = int(code or b"1")
    sys.exit(value if value >= 0 else 128 - value)


if __name__ == "__main__":
    main()
