"""File permissions that bind, for root as well."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from apache_beam.utils import thread_pool_executor as beam_threads

_VERSION = 0x20080522  # of the kernel's interface, with two words of capabilities
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2  # which let root read, write and search whatever the modes


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
def modes_that_bind() -> Iterator[None]:
    """Lets this thread, and those that it starts, do what the modes of files allow, and no more.

    Other users can do no more in any case. Of root, the two capabilities that say otherwise are
    taken away, and given back at the end.
    """
    if os.geteuid() != 0:
        yield
        return
    assert sys.platform == "linux", "only Linux has capabilities that a thread can lay down"
    data = (_Data * 2)()
    _call("capget", data)
    before = data[0].effective
    data[0].effective = before & ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    _call("capset", data)
    # Beam's threads that wait for work are older than the block, and may do all.
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
    """Gives a file or folder a mode inside the `with` block, in which modes bind."""
    before = path.stat().st_mode
    path.chmod(mode)
    try:
        with modes_that_bind():
            yield path
    finally:
        path.chmod(before)
