"""Distribution strategies: one device, all GPUs of a machine, or several machines."""

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
from tt.model.errors import UserError, plain_reason, require, require_one_of
from tt.model.training.options import CLUSTER, EXCHANGES, STRATEGIES

_WORKER_JOBS = ("chief", "worker")  # jobs of a cluster whose tasks train
_ADDRESS = re.compile(r"[^/]+:(\d{1,5})")  # for example "10.0.0.1:2222"


def make_strategy(
    name: str,
    *,
    devices: Sequence[str] = (),
    exchange: str = EXCHANGES[0],
    report: Callable[[str], None] | None = None,
) -> tf.distribute.Strategy:
    """Create a distribution strategy.

    Args:
      name: One of `STRATEGIES`. "auto" means "multi-worker" if TF_CONFIG lists several workers,
        "mirrored" if there are several GPUs or `devices`, and "one-device" otherwise. "mirrored"
        uses all GPUs of this machine, or one CPU replica if there is no GPU.
      devices: Devices to use, for example "GPU:1" or "CPU:0"; "1" means "GPU:1". An empty sequence
        selects all GPUs, or the CPU if there is no GPU.
      exchange: One of `EXCHANGES`. "auto" exchanges the gradients of several workers by NCCL if
        this machine has GPUs, and by TensorFlow's ring of gRPC connections otherwise. TensorFlow
        needs the same kind of device on all workers.
      report: Receives a message before this function waits for other workers.

    Raises:
      UserError: The strategy or a device does not exist, or TF_CONFIG does not describe a cluster.
    """
    require_one_of("`strategy`", name, STRATEGIES)
    require_one_of("`exchange`", exchange, EXCHANGES)
    let_memory_grow()
    received = ", ".join(devices)
    if workers := _cluster_workers(name):
        rule = "`devices` must be empty with several workers, because each worker uses all its GPUs"
        require(not devices, rule, received)
        return _join_workers(workers, uses_ring=exchange == "ring", report=report)
    rule = "`exchange` must be auto without several workers, because it applies only between them"
    require(exchange == "auto", rule, exchange)
    found = _find_devices(devices) or tf.config.list_logical_devices("GPU")
    places = [device.name for device in found] or ["/cpu:0"]
    rule = "`devices` must name at most one device with `strategy=one-device`"
    require(name != "one-device" or len(devices) <= 1, rule, received)
    if name == "one-device" or (name == "auto" and len(places) == 1):
        return tf.distribute.OneDeviceStrategy(places[0])
    if all("cpu" in place.lower() for place in places):
        # The default, collective operations, can deadlock if replicas share the few threads of one
        # CPU.
        operations = tf.distribute.ReductionToOneDevice()
        return tf.distribute.MirroredStrategy(places, cross_device_ops=operations)
    return tf.distribute.MirroredStrategy(places)


def _join_workers(
    workers: int, *, uses_ring: bool, report: Callable[[str], None] | None
) -> tf.distribute.Strategy:
    # TensorFlow's own choice would be the ring, even between GPUs.
    uses_nccl = count_gpus() > 0 and not uses_ring
    if report:
        way = "NCCL" if uses_nccl else "gRPC"
        report(f"Waiting for all {workers} workers in {CLUSTER}; they exchange gradients by {way}")
    ways = tf.distribute.experimental.CommunicationImplementation
    options = tf.distribute.experimental.CommunicationOptions(
        implementation=ways.NCCL if uses_nccl else ways.RING
    )
    try:
        # TensorFlow must create this strategy before its first operation. Listing the logical
        # devices would be an operation, so this function does not list them before.
        return tf.distribute.MultiWorkerMirroredStrategy(communication_options=options)
    except (RuntimeError, ValueError, tf.errors.OpError) as error:
        if "program startup" in str(error):
            raise UserError(
                "this process has already computed with TensorFlow, which must first connect the "
                "workers. Start each worker as a new process that computes nothing before"
            ) from error
        raise UserError(
            f"TensorFlow cannot start this worker ({plain_reason(error)}). {CLUSTER} is "
            f"{os.environ.get(CLUSTER)}. Check that each address names a worker's machine and "
            "a port that no other process uses"
        ) from error


def count_replicas(name: str, *, devices: Sequence[str] = ()) -> int:
    """Return the number of replicas that `make_strategy` would create, without creating them.

    For a cluster, this assumes that each worker has as many GPUs as this machine.

    Raises:
      UserError: TF_CONFIG does not describe a cluster.
    """
    gpus = max(count_gpus(), 1)
    if workers := _cluster_workers(name):
        return workers * gpus
    return 1 if name == "one-device" else len(devices) or gpus


class Workers:
    """The processes that train together; without a cluster, only this process.

    Attributes:
      strategy: The strategy that distributes the training.
      number: Index of this process among the workers, from 0.
      count: Number of workers.
      replicas: Number of replicas on all workers.
      are_several: Whether the strategy supports several workers.
    """

    def __init__(self, strategy: tf.distribute.Strategy) -> None:
        self.strategy = strategy
        self.replicas: int = strategy.num_replicas_in_sync
        self.are_several = is_multi_worker(strategy)
        self.number, self.count = worker_place(strategy.cluster_resolver)
        # AutoGraph takes seconds, and no code here needs its conversion.
        self._sum = tf.function(
            self._sum_of_all, input_signature=[tf.TensorSpec([None], tf.float32)], autograph=False
        )

    @property
    def is_chief(self) -> bool:
        """Whether this process is the one worker that writes the run folder."""
        return self.number == 0

    @property
    def devices(self) -> list[str | None]:
        """The devices of this process's replicas; [None] if it has only one CPU replica."""
        devices: list[str | None] = list(self.strategy.extended.worker_devices)
        return devices if len(devices) > 1 or "GPU" in str(devices) else [None]

    def sum(self, values: np.ndarray) -> np.ndarray:
        """Return the sum of the values of all workers; all workers must call this method.

        Args:
          values: Values of this worker, [N].

        Returns:
          The sums, float32 [N].
        """
        return np.asarray(self._sum(values.astype(np.float32)))

    def are_equal(self, text: str) -> bool:
        """Return whether all workers pass the same text; all workers must call this method."""
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        own = np.frombuffer(digest, np.uint16).astype(np.float32)  # float32 adds these exactly
        workers = self.sum(np.ones(1))[0]
        return np.array_equal(self.sum(own), workers * own)

    def _sum_of_all(self, values: tf.Tensor) -> tf.Tensor:
        local = len(self.strategy.extended.worker_devices)

        def share(values: tf.Tensor) -> tf.Tensor:
            # Only the first replica of a process contributes, because fractions of the values would
            # not add up exactly.
            replica = tf.distribute.get_replica_context().replica_id_in_sync_group
            return tf.where(replica % local == 0, values, tf.zeros_like(values))

        plain = tf.autograph.experimental.do_not_convert(share)
        return self.strategy.reduce("SUM", self.strategy.run(plain, args=(values,)), axis=None)


def is_multi_worker(strategy: tf.distribute.Strategy) -> bool:
    """Return whether a strategy supports several processes."""
    return isinstance(strategy, tf.distribute.MultiWorkerMirroredStrategy)


def worker_place(resolver: Any) -> tuple[int, int]:
    """Return the index of this process among the workers, and the number of workers.

    Args:
      resolver: Cluster resolver of a strategy, or None without a cluster.
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
    """Turn TensorFlow's errors about the connections of workers and GPUs into a `UserError`."""
    try:
        yield
    except tf.errors.OpError as error:
        explain = _explain if is_multi_worker(strategy) else _explain_on_one_machine
        explanation = explain(error)
        if explanation is None:
            raise
        raise UserError(explanation) from error


def _explain_on_one_machine(error: tf.errors.OpError) -> str | None:
    """Return the message for an error of the connections between GPUs, else None."""
    if "NCCL" not in error.message:
        return None
    return (
        f"the GPUs cannot exchange gradients by NCCL ({plain_reason(error)}). Set NCCL_DEBUG=WARN "
        "to see the cause, such as a small /dev/shm in a container, or set `devices=GPU:0`"
    )


def _explain(error: tf.errors.OpError) -> str | None:
    """Return the message for an error of the connections between workers, else None."""
    reason = plain_reason(error)
    if "NCCL" in error.message:
        return (
            f"the workers cannot exchange gradients by NCCL ({reason}). Fix the network, or set "
            "`exchange=ring` on all workers"
        )
    if "is joining a group with" in error.message:
        return (
            f"the workers have different devices ({reason}). Run `tt doctor` on all workers, and "
            "set CUDA_VISIBLE_DEVICES so that all workers have equally many GPUs"
        )
    if isinstance(error, tf.errors.UnavailableError | tf.errors.AbortedError):
        return (
            f"the connection to a worker was lost ({reason}). Check the messages of all workers, "
            "then restart the workers; the training resumes from the last checkpoint"
        )
    return None


def _cluster_workers(name: str) -> int:
    """Return the number of workers in TF_CONFIG, or 0 if the strategy does not use a cluster.

    Raises:
      UserError: The strategy needs TF_CONFIG, but TF_CONFIG does not describe a cluster and a task
        in it.
    """
    text = os.environ.get(CLUSTER)
    if name not in ("auto", "multi-worker") or (name == "auto" and not text):
        return 0
    rule = f"{CLUSTER} must describe a cluster with host:port addresses, and a task in that cluster"
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
            fix = f"; {reason}" if reason else ". Choose from these with `devices`"
            raise UserError(
                f"this machine has no device {name!r}, only {', '.join(sorted(present))}{fix}"
            )
    rule = "`devices` must name each device only once"
    require(len({*keys}) == len(keys), rule, ", ".join(names))
    return [present[key] for key in keys]
