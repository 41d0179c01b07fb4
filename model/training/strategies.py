"""Where a model is trained: one device, all GPUs of a machine, or several machines."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from model.engines.machine import count_gpus, explain_missing_gpu, let_memory_grow
from model.errors import UserError

STRATEGIES = ("auto", "one-device", "mirrored", "multi-worker")
CLUSTER = "TF_CONFIG"  # https://www.tensorflow.org/guide/distributed_training#TF_CONFIG
_WORKER_JOBS = ("chief", "worker")  # of a cluster, those that train


def make_strategy(
    name: str, *, devices: Sequence[str] = (), report: Callable[[str], None] | None = None
) -> tf.distribute.Strategy:
    """Returns a strategy by its name, one of `STRATEGIES`.

    "auto" is multi-worker where TF_CONFIG names several workers, mirrored where there are several
    GPUs or devices are named, and one-device otherwise. "mirrored" takes all GPUs of this machine,
    or one CPU replica where there is none. `devices` are such as "GPU:1" or "CPU:0", or the bare
    number of a GPU; none takes all. `report` takes a line where this waits for other workers.

    Raises:
      UserError: There is no such strategy or device, or TF_CONFIG does not describe a cluster.
    """
    if name not in STRATEGIES:
        raise UserError(f"no strategy {name!r}: choose one of {', '.join(STRATEGIES)}")
    let_memory_grow()
    workers = _cluster_workers() if name in ("auto", "multi-worker") else 0
    if name == "multi-worker" or (name == "auto" and workers > 1):
        if workers == 0:
            raise UserError(
                f"strategy multi-worker needs {CLUSTER}, which is not set: give every worker the "
                "cluster and its own task in that environment variable"
            )
        if devices:
            raise UserError(
                f"`devices` go with one machine, and strategy {name} takes all GPUs of each "
                "worker: leave it out, or set CUDA_VISIBLE_DEVICES. Received: "
                f"{', '.join(devices)}"
            )
        if report:
            report(f"Waiting for all {workers} workers of {CLUSTER}")
        # Before any device is looked at: TensorFlow starts its cluster with its first operation.
        return _make_multi_worker()
    found = _find_devices(devices) or tf.config.list_logical_devices("GPU")
    places = [device.name for device in found] or ["/cpu:0"]
    if name == "one-device" and len(devices) > 1:
        raise UserError(
            f"strategy one-device takes one of `devices`. Received: {', '.join(devices)}"
        )
    if name == "one-device" or (name == "auto" and len(places) == 1):
        return tf.distribute.OneDeviceStrategy(places[0])
    if all("cpu" in place.lower() for place in places):
        # The default, collective operations, can wait for ever where replicas share the few
        # threads of one CPU.
        operations = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(places, cross_device_ops=operations)
    return tf.distribute.MirroredStrategy(places)


def count_replicas(name: str, *, devices: Sequence[str] = ()) -> int:
    """Returns how many replicas `make_strategy` would have, without making it begin.

    The workers of a cluster are taken to have as many GPUs each as this machine.

    Raises:
      UserError: TF_CONFIG does not describe a cluster.
    """
    gpus = count_gpus()
    workers = _cluster_workers() if name in ("auto", "multi-worker") else 0
    if name == "multi-worker" or (name == "auto" and workers > 1):
        return max(workers, 1) * max(gpus, 1)
    return 1 if name == "one-device" else len(devices) or max(gpus, 1)


def _make_multi_worker() -> tf.distribute.MultiWorkerMirroredStrategy:
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        raise UserError(
            f"TensorFlow cannot start this worker ({_reason(error)}): the addresses of {CLUSTER} "
            "must be those of the workers' machines, with a port that no other process has. "
            f"Received: {os.environ.get(CLUSTER)}"
        ) from error


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
    """Turns what TensorFlow raises where another worker has ended into a UserError."""
    try:
        yield
    except (tf.errors.UnavailableError, tf.errors.AbortedError) as error:
        if not is_multi_worker(strategy):
            raise
        raise UserError(
            f"a worker is lost ({_reason(error)}): look at what the others say, and start all "
            "workers again; training goes on from the last checkpoint"
        ) from error


def _reason(error: Exception) -> str:
    """Returns the line of TensorFlow's message that says most, neither a heading nor a place."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [
        line
        for line in lines
        if not line.endswith(":") and not line.startswith('File "') and "[[" not in line
    ]
    return (told or lines or [type(error).__name__])[0]


def _cluster_workers() -> int:
    """Returns how many workers TF_CONFIG names; 0 where it is not set."""
    text = os.environ.get(CLUSTER)
    if not text:
        return 0
    try:
        described = json.loads(text)
        workers = {job: described["cluster"].get(job, []) for job in _WORKER_JOBS}
        kind, index = described["task"]["type"], int(described["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UserError(
            f"{CLUSTER} does not describe a cluster and a task of it ({error!r}). Received: {text}"
        ) from error
    for job, addresses in workers.items():
        if not (isinstance(addresses, list) and all(map(_is_address, addresses))):
            raise UserError(
                f"{CLUSTER} must give {job} a list of addresses host:port. Received: {text}"
            )
    if not 0 <= index < len(workers.get(kind, [])):
        raise UserError(
            f"{CLUSTER} gives this process the task {kind} {index}, but its cluster has "
            f"{' and '.join(f'{len(each)} {job}' for job, each in workers.items())}. "
            f"Received: {text}"
        )
    return sum(map(len, workers.values()))


def _is_address(value: object) -> bool:
    """Says whether a value is such as "10.0.0.1:2222".

    >>> [_is_address(value) for value in ("localhost:2222", "grpc://localhost:2222", 5)]
    [True, False, False]
    """
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    return bool(host) and "/" not in host and port.isdecimal() and int(port) < 1 << 16


def _find_devices(names: Sequence[str]) -> list[tf.config.LogicalDevice]:
    present = {
        f"{device.device_type}:{device.name.rsplit(':', 1)[1]}": device
        for device in tf.config.list_logical_devices()
        if device.device_type in ("CPU", "GPU")
    }
    found = []
    for name in names:
        key = f"GPU:{name}" if name.isdecimal() else name.upper()
        if key not in present:
            reason = explain_missing_gpu() if key.startswith("GPU") else None
            raise UserError(
                f"no device {name!r} on this machine: there are {', '.join(sorted(present))}"
                f"{f'; {reason}' if reason else ''}"
            )
        found.append(present[key])
    if len({device.name for device in found}) < len(found):
        raise UserError(f"`devices` name a device twice. Received: {', '.join(names)}")
    return found
