"""Beam's portable job service and its workers, which only this machine can reach."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

ENGINES = Path(__file__).parents[1]
ROOT = ENGINES.parents[1]


@pytest.fixture(autouse=True, scope="session")
def _local_servers():
    """Make Beam's servers listen on 127.0.0.1 instead of all addresses."""
    kind = type(grpc.server(None))
    original = kind.add_insecure_port
    kind.add_insecure_port = lambda self, address: original(
        self, address.replace("[::]", "127.0.0.1")
    )
    yield
    kind.add_insecure_port = original


@contextlib.contextmanager
def start_pool(*folders):
    """Start a pool of worker processes that import from these folders; yield its address."""
    path = os.pathsep.join(map(str, (*folders, ROOT, ENGINES)))
    command = [sys.executable, str(ENGINES / "worker_pool.py")]
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": path}, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True,
    ) as pool:  # fmt: skip
        yield f"localhost:{pool.stdout.readline().strip()}"
        pool.stdin.close()
        pool.wait(60)


@pytest.fixture(scope="session")
def worker_pool():
    """The address of a pool of worker processes."""
    with start_pool() as address:
        yield address


@pytest.fixture
def older_pool(tmp_path):
    """Beam's flags for workers that have another version of tt."""
    metadata = tmp_path / "older/tt_translate-0.0.9.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: tt-translate\nVersion: 0.0.9\n"
    )
    with start_pool(tmp_path / "older") as address:
        yield flags_of(address)


@pytest.fixture
def bare_pool(tmp_path, monkeypatch):
    """Beam's flags for workers that have no TensorFlow, and another cache."""
    package = tmp_path / "bare/tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise ImportError('no TensorFlow here')\n")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache of workers"))
    with start_pool(tmp_path / "bare") as address:
        yield flags_of(address)


@pytest.fixture
def remote_workers(s3_bucket):
    """Beam's flags for workers that have an account at a store, but not its address."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            for name in ("AWS_REGION", "AWS_ENDPOINT_URL"):
                patch.delenv(name)
            address = stack.enter_context(start_pool())
        yield flags_of(address)


def flags_of(pool):
    """Return Beam's flags for a job whose workers are the processes of a pool."""
    return [
        "--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL",
        f"--environment_config={pool}",
    ]  # fmt: skip


@pytest.fixture
def portable(worker_pool):
    """Beam's flags for workers in separate processes."""
    return flags_of(worker_pool)
