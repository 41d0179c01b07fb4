"""The cores, threads, memory and GPUs of this machine."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt.model.extras import install_extra

_LOGGER = logging.getLogger(__name__)

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_FROM_HEAP = 32 * 2**20  # bytes; glibc refuses more
_HIDDEN = "CUDA_VISIBLE_DEVICES"
_NVIDIA = Path("/proc/driver/nvidia/gpus")  # where the driver lists them


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


@functools.cache
def explain_missing_gpu() -> str | None:
    """Return a line on GPUs that TensorFlow does not find; None if there are none, or it does."""
    if os.environ.get(_HIDDEN, "all").startswith(("-1", ",")) or os.environ.get(_HIDDEN) == "":
        return None
    if count_gpus() or not any(_NVIDIA.glob("*")):
        return None
    return (
        "this machine has an NVIDIA GPU, but TensorFlow finds none. Install its libraries with "
        f"{install_extra('gpu')}, or see `tt doctor -v`"
    )


def let_memory_grow() -> None:
    """Import TensorFlow so that it takes a GPU's memory as it needs it.

    By default it takes all of the memory, and other processes find none.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    count_gpus()


def count_gpus() -> int:
    """Return the number of GPUs that TensorFlow finds, without starting to compute on them."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


def gpu_devices() -> list[str]:
    """Return the names of the GPUs to compute on, such as "/device:GPU:0"."""
    import tensorflow as tf

    if not count_gpus():
        return []
    return [device.name for device in tf.config.list_logical_devices("GPU")]


def describe_machine(devices: Sequence[str]) -> dict[str, Any]:
    """Returns what a run notes of this machine: nothing that tells whose it is. Needs TensorFlow.

    Args:
      devices: TensorFlow's names of those that are used, such as "/device:GPU:0".
    """
    return {
        "processor": _processor(),
        "cores": cores(),
        "devices": [_device(name) for name in devices],
        "system": platform.platform(terse=True),
    }


def _device(name: str) -> str:
    """Returns a device by its place and, of a GPU, what it is called."""
    import tensorflow as tf

    kind, number = name.rpartition("device:")[2].upper().split(":")
    if kind != "GPU":
        return f"{kind}:{number}"
    # Logical and physical GPUs have the same numbers: memory is not divided.
    details = tf.config.experimental.get_device_details(
        tf.config.list_physical_devices("GPU")[int(number)]
    )
    return f"GPU:{number} {details.get('device_name', '')}".rstrip()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except (OSError, ValueError):
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
