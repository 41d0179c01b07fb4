"""Beam's workers in separate processes, which start when a job requests them.

    python worker_pool.py

This is Beam's worker pool with two differences: it listens only on this machine, and its workers
run in this interpreter. It prints its port, and ends when its stdin closes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import grpc
from apache_beam.portability.api import beam_fn_api_pb2_grpc
from apache_beam.runners.worker.worker_pool_main import (
    BeamFnExternalWorkerPoolServicer,
    kill_process_gracefully,
)
from apache_beam.utils import thread_pool_executor


def main() -> None:
    """Serve until stdin closes."""
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    server = grpc.server(thread_pool_executor.shared_unbounded_instance())
    pool = BeamFnExternalWorkerPoolServicer(use_process=True)
    beam_fn_api_pb2_grpc.add_BeamFnExternalWorkerPoolServicer_to_server(pool, server)
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()
    for worker in pool._worker_processes.values():
        kill_process_gracefully(worker)


if __name__ == "__main__":
    main()
