"""Measure the speed of the same matrix product in NumPy, TensorFlow or PyTorch.

    python tests/bench/product.py numpy
    .venv/torch/bin/python tests/bench/product.py torch --threads 2

Training speeds differ between libraries in large part because their matrix libraries differ. This
benchmark measures that part.
"""

from __future__ import annotations

import argparse
import functools
import os
import time
from collections.abc import Callable
from typing import Any

# The product of the feed-forward layer of `base` for 2,048 tokens, in float32.
ROWS, INNER, COLUMNS = 2048, 512, 2048
_TRIES, _CALLS = 7, 5


def numpy_product(threads: int) -> Callable[[], Any]:
    """Return the product in NumPy; `main` has set its threads."""
    import numpy as np

    a, b = np.ones([ROWS, INNER], np.float32), np.ones([INNER, COLUMNS], np.float32)
    return functools.partial(np.matmul, a, b)


def tensorflow_product(threads: int) -> Callable[[], Any]:
    """Return the product in TensorFlow."""
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    return functools.partial(tf.matmul, tf.ones([ROWS, INNER]), tf.ones([INNER, COLUMNS]))


def torch_product(threads: int) -> Callable[[], Any]:
    """Return the product in PyTorch."""
    import torch

    torch.set_num_threads(threads)
    return functools.partial(torch.matmul, torch.ones(ROWS, INNER), torch.ones(INNER, COLUMNS))


LIBRARIES = {
    "numpy": numpy_product,
    "tensorflow": tensorflow_product,
    "torch": torch_product,
}


def main() -> None:
    """Print the GFLOP/s of the fastest trial."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(options.threads)  # read when NumPy is imported
    product = LIBRARIES[options.library](options.threads)
    product()
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        for _ in range(_CALLS):
            product()
        seconds.append((time.perf_counter() - start) / _CALLS)
    print(2 * ROWS * INNER * COLUMNS / min(seconds) / 1e9)


if __name__ == "__main__":
    main()
