"""Where a model is trained: one device, all GPUs of a machine, or several machines."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.engines.machine import count_gpus, explain_missing_gpu, let_memory_grow
from tt.model.errors import UserError, require, require_one_of
from tt.model.remote_files import plain_reason
from tt.model.training.options import STRATEGIES

CLUSTER = "TF_CONFIG"  # https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
_WORKER_JOBS = ("chief", "worker")  # the jobs of a cluster that train
_ADDRESS = re.compile(r"[^/]+:(\d{1,5})")  # such as "10.0.0.1:2222"


def make_strategy(
    name: str, *, devices: Sequence[str] = (), report: Callable[[str], None] | None = None
) -> tf.distribute.Strategy:
    """Return a strategy by its name, one of `STRATEGIES`.

    "auto" is multi-worker if TF_CONFIG names several workers, mirrored if there are several GPUs or
    `devices`, and one-device otherwise. "mirrored" takes all GPUs of this machine, or one CPU
    replica without GPUs. `devices` are such as "GPU:1" or "CPU:0", or the bare number of a GPU; an
    empty list takes all. `report` gets a line before this function waits for other workers.

    Raises:
      UserError: There is no such strategy or device, or TF_CONFIG does not describe a cluster.
    """
    require_one_of("`strategy`", name, STRATEGIES)
    let_memory_grow()
    received = ", ".join(devices)
    if workers := _cluster_workers(name):
        rule = "`devices` must be empty with several workers, which take all GPUs of their machines"
        require(not devices, rule, received)
        if report:
            report(f"Waiting for all {workers} workers of {CLUSTER}")
        try:
            # TensorFlow starts its cluster with its first operation, so no device is listed before.
            return tf.distribute.MultiWorkerMirroredStrategy()
        except (RuntimeError, ValueError, tf.errors.OpError) as error:
            raise UserError(
                f"TensorFlow cannot start this worker ({plain_reason(error)}): the addresses of "
                f"{CLUSTER} must be those of the workers' machines, with a port that no other "
                f"process has. Received: {os.environ.get(CLUSTER)}"
            ) from error
    found = _find_devices(devices) or tf.config.list_logical_devices("GPU")
    places = [device.name for device in found] or ["/cpu:0"]
    rule = "strategy one-device takes one of `devices`"
    require(name != "one-device" or len(devices) <= 1, rule, received)
    if name == "one-device" or (name == "auto" and len(places) == 1):
        return tf.distribute.OneDeviceStrategy(places[0])
    if all("cpu" in place.lower() for place in places):
        # Collective operations, the default, can wait forever if replicas share the few threads of
        # one CPU.
        operations = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(places, cross_device_ops=operations)
    return tf.distribute.MirroredStrategy(places)


def count_replicas(name: str, *, devices: Sequence[str] = ()) -> int:
    """Return the number of replicas of `make_strategy`, without starting TensorFlow's cluster.

    Each worker of a cluster is assumed to have as many GPUs as this machine.

    Raises:
      UserError: TF_CONFIG does not describe a cluster.
    """
    gpus = max(count_gpus(), 1)
    if workers := _cluster_workers(name):
        return workers * gpus
    return 1 if name == "one-device" else len(devices) or gpus


class Workers:
    """The processes that train together by a strategy; without a cluster, this one alone.

    `number` is that of this process among `count` workers, from 0; `replicas` are those of all.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self.are_several = is_multi_worker(strategy)
        self.number, self.count = worker_place(strategy.cluster_resolver)
        # As `autograph=False`: nothing here needs to be rewritten, which takes seconds.
        self._sum = tf.function(
            self._sum_of_all, input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False
        )

    @property
    def is_chief(self) -> bool:
        """Whether this process writes the run folder: one of the workers does."""
        return self.number == 0

    @property
    def devices(self) -> list[str | None]:
        """The devices of this process's replicas; None stands for a single CPU."""
        devices: list[str | None] = list(self.strategy.extended.worker_devices)
        return devices if len(devices) > 1 or "GPU" in str(devices) else [None]

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Returns the sum of the values [N] of all workers, float32 [N]; all must call this."""
        return np.asarray(self._sum(values.astype(np.float32)))

    def are_equal(self, text: str) -> bool:
        """Says whether all workers give the same text; all must call this."""
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        own = np.frombuffer(digest, np.uint16).astype(np.float32)  # sums of them are exact
        workers = self.sum(np.ones(1))[0]
        return np.array_equal(self.sum(own), workers * own)

    def _sum_of_all(self, values: tf.Tensor) -> tf.Tensor:
        local = len(self.strategy.extended.worker_devices)

        def share(values: tf.Tensor) -> tf.Tensor:
            # The first replica of a process gives all of it: shares would not add up exactly.
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(replica % local == 0, values, tf.zeros_like(values))

        plain = tf.autograph.experimental.do_not_convert(share)
        return self.strategy.reduce("SUM", self.strategy.run(plain, args=(values,)), axis=None)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Says whether several processes train together."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def worker_place(resolver: Any) -> tuple[int, int]:
    """Returns the number of this process among those that train, and their count.

    The cluster resolver of a strategy is None without a cluster.
    """
    if resolver is None or not resolver.task_type:
        return 0, 1
    cluster = resolver.cluster_spec()
    workers = [
        (job, index)
        for job in _WORKER_JOBS
        if job in cluster.jobs
        for index in range(cluster.num_tasks(job))
    ]
    return workers.index((resolver.task_type, resolver.task_id)), len(workers)


@contextlib.contextmanager
def lost_worker_errors(strategy: tf.distribute.Strategy) -> Iterator[None]:
    """Turn TensorFlow's errors about a lost worker into a UserError."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        if not is_multi_worker(strategy):
            raise
        raise UserError(
            f"a worker is lost ({plain_reason(error)}): read the messages of the others, and start "
            "all workers again; training resumes from the last checkpoint"
        ) from error


def _cluster_workers(name: str) -> int:
    """Return how many workers of TF_CONFIG a strategy has; 0 if it is not one of several workers.

    Raises:
      UserError: TF_CONFIG is missing, or does not describe a cluster and a task of it.
    """
    text = os.environ.get(CLUSTER)
    if name not in ("auto", "multi-worker") or (name == "auto" and not text):
        return 0
    rule = f"{CLUSTER} must describe a cluster and a task of it, with addresses host:port"
    try:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        _, count = worker_place(resolver)
        jobs = resolver.cluster_spec().as_dict()
        addresses = [address for job in _WORKER_JOBS for address in jobs.get(job, [])]
        are_right = resolver.task_type in _WORKER_JOBS and all(
            (found := _ADDRESS.fullmatch(address)) and int(found[1]) < 1 << 16
            for address in addresses
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{rule} ({error!r}). Received: {text}") from error
    require(are_right, rule, text or "nothing")
    return count if name == "multi-worker" or count > 1 else 0


def _find_devices(names: Sequence[str]) -> list[tf.config.LogicalDevice]:
    present = {
        f"{device.device_type}:{device.name.rsplit(':', 1)[1]}": device
        for device in tf.config.list_logical_devices()
        if device.device_type in ("CPU", "GPU")
    }
    keys = [f"GPU:{name}" if name.isdecimal() else name.upper() for name in names]
    for name, key in zip(names, keys, strict=True):
        if key not in present:
            reason = explain_missing_gpu() if key.startswith("GPU") else None
            raise UserError(
                f"no device {name!r} on this machine: there are {', '.join(sorted(present))}"
                f"{f'; {reason}' if reason else ''}"
            )
    require(len({*keys}) == len(keys), "`devices` name a device twice", ", ".join(names))
    return [present[key] for key in keys]
