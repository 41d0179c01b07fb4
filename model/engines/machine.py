"""The cores, threads and memory that an engine computes with."""

from __future__ import annotations

import ctypes
import logging
import os
import sys

_LOGGER = logging.getLogger(__name__)

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_FROM_HEAP = 32 * 2**20  # bytes; glibc refuses more


def keep_freed_memory() -> None:
    """Makes the C library keep freed memory, where it is glibc.

    A step of a search takes and frees some tens of megabytes; returned to the system, they would be
    mapped and cleared again in each step, which takes 6 % of the time.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every C library
        if mallopt:
            mallopt(_M_MMAP_THRESHOLD, _MOST_FROM_HEAP)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def set_threads(threads: int) -> None:
    """Sets TensorFlow's threads of an operation, and as many operations at once as cores allow.

    A process in which TensorFlow has begun to compute keeps its threads; that is logged.
    """
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(calls_at_once(threads))
    except RuntimeError as error:
        _LOGGER.warning("TensorFlow keeps the threads that it has: %s", error)


def cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def calls_at_once(threads: int) -> int:
    """Returns how many calls of so many threads keep the cores busy."""
    return max(1, cores() // threads)
