"""File permissions that also restrict root."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from apache_beam.utils import thread_pool_executor as beam_threads

_VERSION = 0x20080522  # of the kernel's interface, with two words of capabilities
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2  # capabilities with which root ignores file modes


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("process", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint32) for name in ("effective", "permitted", "inheritable"))


def _call(function: str, data: ctypes.Array[_Data]) -> None:
    library = ctypes.CDLL(None, use_errno=True)
    header = _Header(_VERSION, 0)
    if getattr(library, function)(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), f"{function} failed")


@contextlib.contextmanager
def enforced_modes() -> Iterator[None]:
    """Enforce file modes also for root, in this thread and in the threads that it starts.

    Root loses the two capabilities that ignore modes, and gets them back at the end of the block.
    """
    if os.geteuid() != 0:
        yield
        return
    assert sys.platform == "linux", "only on Linux can a thread drop capabilities"
    data = (_Data * 2)()
    _call("capget", data)
    before = data[0].effective
    data[0].effective = before & ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    _call("capset", data)
    # Beam's waiting threads started before the block, and still ignore modes.
    pool = beam_threads._SHARED_UNBOUNDED_THREAD_POOL_EXECUTOR
    new_pool = beam_threads._SharedUnboundedThreadPoolExecutor()
    beam_threads._SHARED_UNBOUNDED_THREAD_POOL_EXECUTOR = new_pool
    try:
        yield
    finally:
        beam_threads._SHARED_UNBOUNDED_THREAD_POOL_EXECUTOR = pool
        data[0].effective = before
        _call("capset", data)


@contextlib.contextmanager
def with_mode(path: Path, mode: int) -> Iterator[Path]:
    """Give a file or folder a mode inside the `with` block, and enforce the mode also for root."""
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        with enforced_modes():
            yield path
    finally:
        path.chmod(before)
