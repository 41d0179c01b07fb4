"""The cores, threads, memory and GPUs of this machine."""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import logging
import os
import platform
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tt.model.extras import install_extra

_LOGGER = logging.getLogger(__name__)

# Parameters of `mallopt` from glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_MOST_FROM_HEAP = 32 * 2**20  # bytes; glibc refuses more
_HIDDEN = "CUDA_VISIBLE_DEVICES"
_NVIDIA = Path("/proc/driver/nvidia/gpus")  # the driver's list of GPUs
# cuBLAS, by the names that CTranslate2's wheels open. The second library needs the first.
_CUBLAS = ("libcublasLt.so.12", "libcublas.so.12")


def keep_freed_memory() -> None:
    """Configure glibc to keep freed memory; this does nothing with other C libraries.

    Each step of a search allocates and frees tens of megabytes. If glibc returned this memory to
    the system, mapping and clearing it again would take 6% of the time.
    """
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # not in every C library
        if mallopt:
            mallopt(_M_MMAP_THRESHOLD, _MOST_FROM_HEAP)
            mallopt(_M_TRIM_THRESHOLD, 2**31 - 1)


def set_threads(threads: int) -> None:
    """Set TensorFlow's threads per operation, and run as many operations as the cores allow.

    If TensorFlow has already started to compute, it keeps its threads, and a warning is logged.
    """
    import tensorflow as tf

    try:
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(calls_at_once(threads))
    except RuntimeError as error:
        _LOGGER.warning("TensorFlow keeps its current threads: %s", error)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def calls_at_once(threads: int) -> int:
    """Return how many calls with this number of threads keep all cores busy."""
    return max(1, cores() // threads)


def has_nvidia_gpu() -> bool:
    """Return whether the driver lists an NVIDIA GPU, and the user has not hidden all of them."""
    hidden = os.environ.get(_HIDDEN, "all")
    return hidden != "" and not hidden.startswith(("-1", ",")) and any(_NVIDIA.glob("*"))


def preload_cublas() -> None:
    """Load cuBLAS from the packages of the extra `gpu`, if they are installed.

    Only TensorFlow searches these packages. CTranslate2 opens cuBLAS by its name at the first
    batch, and finds a library of this name that the process has already loaded.

    Raises:
      OSError: A library cannot be loaded.
    """
    packages = importlib.util.find_spec("nvidia")
    folders = (packages and packages.submodule_search_locations) or []
    for name in _CUBLAS:
        for path in [path for folder in folders for path in Path(folder).glob(f"*/lib/{name}")]:
            ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)


def explain_missing_cublas() -> str | None:
    """Return the system's message if CTranslate2 cannot open cuBLAS, else None."""
    try:
        preload_cublas()
        ctypes.CDLL(_CUBLAS[-1])
    except OSError as error:
        return str(error)
    return None


@functools.cache
def explain_missing_gpu() -> str | None:
    """Return a message if TensorFlow does not find the machine's NVIDIA GPUs, else None."""
    if not has_nvidia_gpu() or count_gpus():
        return None
    return (
        "this machine has an NVIDIA GPU, but TensorFlow finds none. Install the GPU libraries "
        f"with {install_extra('gpu')}, or check `tt doctor -v`"
    )


def let_memory_grow() -> None:
    """Import TensorFlow, and let it allocate the memory of GPUs as needed.

    By default, TensorFlow allocates all memory of a GPU, and leaves none to other processes.
    """
    os.environ.setdefault("TF_FORCE_GPU_ALLOW_GROWTH", "true")
    count_gpus()


def count_gpus() -> int:
    """Return the number of GPUs that TensorFlow finds, without initializing them."""
    import tensorflow as tf

    return len(tf.config.list_physical_devices("GPU"))


def gpu_devices() -> list[str]:
    """Return the names of the GPUs to compute on, such as "/device:GPU:0"."""
    import tensorflow as tf

    if not count_gpus():
        return []
    return [device.name for device in tf.config.list_logical_devices("GPU")]


def describe_machine(devices: Sequence[str]) -> dict[str, Any]:
    """Return facts about this machine for the log of a run, without identifying the machine.

    Args:
      devices: TensorFlow's names of the devices in use, such as "/device:GPU:0".
    """
    return {
        "processor": _processor(),
        "cores": cores(),
        "devices": [_device(name) for name in devices],
        "system": platform.platform(terse=True),
    }


def _device(name: str) -> str:
    """Return the kind and number of a device, and the product name of a GPU."""
    import tensorflow as tf

    kind, number = name.rpartition("device:")[2].upper().split(":")
    if kind != "GPU":
        return f"{kind}:{number}"
    # Logical and physical GPUs have the same numbers, because no GPU is split.
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
