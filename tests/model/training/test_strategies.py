"""Strategies: which strategy follows from names and devices, and how replicas share the rows."""

from __future__ import annotations

import json

import pytest
import tensorflow as tf
from trainers import two_replicas

from tt.model.errors import UserError
from tt.model.training import step
from tt.model.training.options import CLUSTER, STRATEGIES
from tt.model.training.strategies import Workers, lost_worker_errors, make_strategy

ADDRESS = "127.0.0.1:2222"
GPUS = [tf.config.LogicalDevice(f"/device:GPU:{i}", "GPU") for i in range(2)]


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv(CLUSTER, raising=False)


@pytest.fixture
def made(monkeypatch):
    """Replace strategies that need other hardware by stand-ins; return their names and devices."""
    calls = []

    def stand_in(name):
        def make(devices=None, **options):
            calls.append((name, devices))
            return name

        return make

    for name in ("OneDeviceStrategy", "MirroredStrategy", "MultiWorkerMirroredStrategy"):
        monkeypatch.setattr(tf.distribute, name, stand_in(name))
    return calls


@pytest.fixture
def set_cluster(monkeypatch):
    """Return a function that sets TF_CONFIG to a cluster in which this process is a worker."""

    def set_to(*, workers=2, chiefs=0, kind="worker", index=0):
        cluster = {"worker": [ADDRESS] * workers}
        if chiefs:
            cluster["chief"] = [ADDRESS] * chiefs
        task = {"type": kind, "index": index}
        monkeypatch.setenv(CLUSTER, json.dumps({"cluster": cluster, "task": task}))

    return set_to


def has_gpus(monkeypatch, gpus):
    """Pretend that this machine has GPUs next to its two CPU devices."""
    cpus = tf.config.list_logical_devices("CPU")
    devices = {"CPU": cpus, "GPU": gpus, None: [*cpus, *gpus]}
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda kind=None: devices[kind])


def places(strategy):
    """Return the short names of a strategy's devices, for example ["CPU:0"]."""
    return [device.split("device:")[-1] for device in strategy.extended.worker_devices]


@pytest.mark.parametrize("name", ["auto", "one-device"])
def test_one_device_uses_the_cpu_without_a_gpu(name):
    strategy = make_strategy(name)
    assert isinstance(strategy, tf.distribute.OneDeviceStrategy)
    assert places(strategy) == ["CPU:0"]
    workers = Workers(strategy)
    assert workers.is_chief
    assert not workers.are_several


def test_mirrored_without_a_gpu_has_one_cpu_replica():
    strategy = make_strategy("mirrored")
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert places(strategy) == ["CPU:0"]


@pytest.mark.parametrize(
    ("name", "devices"), [("auto", ("CPU:0", "CPU:1")), ("mirrored", ("cpu:1", "Cpu:0"))]
)
def test_two_cpu_devices_are_replicas_without_collective_operations(name, devices):
    strategy = make_strategy(name, devices=devices)
    assert isinstance(strategy, tf.distribute.MirroredStrategy)
    assert places(strategy) == [device.upper() for device in devices]
    # TensorFlow has no public attribute for this.
    assert isinstance(strategy.extended._cross_device_ops, tf.distribute.ReductionToOneDevice)
    workers = Workers(strategy)
    assert workers.is_chief
    assert not workers.are_several


def test_device_can_be_chosen():
    assert places(make_strategy("auto", devices=["CPU:1"])) == ["CPU:1"]
    assert places(make_strategy("one-device", devices=["cpu:1"])) == ["CPU:1"]


@pytest.mark.parametrize(
    ("name", "gpus", "devices", "expected"),
    [
        ("auto", 0, [], ("OneDeviceStrategy", "/cpu:0")),
        ("auto", 1, [], ("OneDeviceStrategy", "/device:GPU:0")),
        ("auto", 2, [], ("MirroredStrategy", ["/device:GPU:0", "/device:GPU:1"])),
        ("auto", 2, ["1"], ("OneDeviceStrategy", "/device:GPU:1")),
        ("auto", 2, ["gpu:1", "0"], ("MirroredStrategy", ["/device:GPU:1", "/device:GPU:0"])),
        ("one-device", 2, [], ("OneDeviceStrategy", "/device:GPU:0")),
        ("mirrored", 2, [], ("MirroredStrategy", ["/device:GPU:0", "/device:GPU:1"])),
        ("mirrored", 2, ["1"], ("MirroredStrategy", ["/device:GPU:1"])),
    ],
)
def test_gpus_are_used(name, gpus, devices, expected, made, monkeypatch):
    has_gpus(monkeypatch, GPUS[:gpus])
    make_strategy(name, devices=devices)
    assert made == [expected]


@pytest.mark.parametrize(
    ("name", "cluster", "expected"),
    [
        ("auto", {"workers": 2}, "MultiWorkerMirroredStrategy"),
        ("auto", {"workers": 1, "chiefs": 1}, "MultiWorkerMirroredStrategy"),
        ("auto", {"workers": 1}, "OneDeviceStrategy"),
        ("multi-worker", {"workers": 2, "index": 1}, "MultiWorkerMirroredStrategy"),
        ("multi-worker", {"workers": 1}, "MultiWorkerMirroredStrategy"),
        ("one-device", {"workers": 2}, "OneDeviceStrategy"),
        ("mirrored", {"workers": 2}, "MirroredStrategy"),
    ],
)
def test_cluster_of_several_workers_is_used(name, cluster, expected, made, set_cluster):
    set_cluster(**cluster)
    make_strategy(name)
    assert [strategy for strategy, _ in made] == [expected]


@pytest.mark.parametrize(
    ("gpus", "exchange", "expected", "way"),
    [(0, "auto", "RING", "gRPC"), (2, "auto", "NCCL", "NCCL"), (2, "ring", "RING", "gRPC")],
)
def test_workers_with_gpus_exchange_gradients_by_nccl(
    gpus, exchange, expected, way, set_cluster, monkeypatch
):
    options, lines = [], []
    monkeypatch.setattr("tt.model.training.strategies.count_gpus", lambda: gpus)
    monkeypatch.setattr(
        tf.distribute,
        "MultiWorkerMirroredStrategy",
        lambda *, communication_options: options.append(communication_options),
    )
    set_cluster(workers=2)
    make_strategy("multi-worker", exchange=exchange, report=lines.append)
    # The options of a step, which only set the size of the packs, keep this choice.
    assert options[0].merge(step._EXCHANGE).implementation.value == expected
    assert lines == [f"Waiting for all 2 workers in TF_CONFIG; they exchange gradients by {way}"]


def test_exchange_is_refused_without_several_workers():
    with pytest.raises(UserError, match="`exchange` must be auto without several workers"):
        make_strategy("one-device", exchange="ring")


class Several(tf.distribute.MultiWorkerMirroredStrategy):
    """A strategy that is never connected."""

    def __init__(self):
        pass


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Error invoking NCCL: unhandled system error",
            "the workers cannot exchange gradients by NCCL (Error invoking NCCL: unhandled system "
            "error). Fix the network, or set `exchange=ring` on all workers",
        ),
        (
            "Device GPU:0 is joining a group with incompatible device type CPU",
            "the workers have different devices (Device GPU:0 is joining a group with incompatible "
            "device type CPU). Run `tt doctor` on all workers, and set CUDA_VISIBLE_DEVICES so "
            "that all workers have equally many GPUs",
        ),
    ],
)
def test_errors_of_the_exchange_name_their_fix(message, expected):
    # The texts are in TensorFlow's nccl_manager.cc and collective_param_resolver_local.cc.
    with pytest.raises(UserError) as raised, lost_worker_errors(Several()):
        raise tf.errors.InternalError(None, None, message)
    assert str(raised.value) == expected
    with pytest.raises(tf.errors.InternalError), lost_worker_errors(Several()):
        raise tf.errors.InternalError(None, None, "another error")


def test_gpus_of_one_machine_that_cannot_exchange_gradients_are_explained():
    with pytest.raises(UserError) as raised, lost_worker_errors(two_replicas()):
        raise tf.errors.InternalError(None, None, "NCCL: unhandled system error")
    assert str(raised.value) == (
        "the GPUs cannot exchange gradients by NCCL (NCCL: unhandled system error). Set "
        "NCCL_DEBUG=WARN to see the cause, such as a small /dev/shm in a container, or set "
        "`devices=GPU:0`"
    )
    for error in (
        tf.errors.InternalError(None, None, "another error"),
        tf.errors.UnavailableError(None, None, "no worker"),
    ):
        with pytest.raises(type(error)), lost_worker_errors(two_replicas()):
            raise error


def refusal(name, devices=()):
    """Return the error of `make_strategy`, and check that it is one line."""
    with pytest.raises(UserError) as raised:
        make_strategy(name, devices=devices)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_unknown_strategy_is_refused():
    assert refusal("mirorred") == (
        f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: mirorred"
    )


@pytest.mark.parametrize("device", ["gpu:7", "CPU:2", "7", "", "GPU", "TPU:0"])
def test_missing_device_is_refused(device):
    found = refusal("mirrored", ["CPU:0", device])
    assert found == (
        f"this machine has no device {device!r}, only CPU:0, CPU:1. Choose from these with "
        "`devices`"
    )


def test_invalid_combinations_of_devices_are_refused(set_cluster, made):
    assert refusal("auto", ["CPU:1", "cpu:1"]).endswith("only once. Received: CPU:1, cpu:1")
    assert refusal("one-device", ["CPU:0", "CPU:1"]) == (
        "`devices` must name at most one device with `strategy=one-device`. Received: CPU:0, CPU:1"
    )
    set_cluster(workers=2)
    assert refusal("multi-worker", ["CPU:1"]).startswith(
        "`devices` must be empty with several workers"
    )
    assert "CPU:1" in refusal("multi-worker", ["CPU:1"])
    assert "CPU:1" in refusal("auto", ["CPU:1"])
    assert made == []


def test_multi_worker_without_a_cluster_is_refused(monkeypatch):
    monkeypatch.delenv(CLUSTER, raising=False)
    assert refusal("multi-worker").endswith("a task in that cluster. Received: nothing")
    monkeypatch.setenv(CLUSTER, "")
    assert refusal("multi-worker").startswith("TF_CONFIG must describe a cluster")


def cluster_json(kind="worker", index=0, **jobs):
    """Return a TF_CONFIG; without `jobs`, its cluster has one worker."""
    cluster = jobs or {"worker": [ADDRESS]}
    return json.dumps({"cluster": cluster, "task": {"type": kind, "index": index}})


@pytest.mark.parametrize(
    "text",
    [
        "worker 0 of 2",
        "[]",
        "{}",
        json.dumps({"cluster": {"worker": [ADDRESS]}}),
        json.dumps({"cluster": [ADDRESS], "task": {}}),
        cluster_json(index="first"),
        cluster_json(index=1),
        cluster_json(index=-1),
        cluster_json("chief"),
        cluster_json("ps", ps=[ADDRESS], chief=[ADDRESS]),
        cluster_json(worker=ADDRESS),
        cluster_json(worker=["localhost"]),
        cluster_json(worker=["localhost:99999"]),
        cluster_json(worker=[5, 6]),
    ],
)
def test_invalid_cluster_is_refused(text, made, monkeypatch):
    monkeypatch.setenv(CLUSTER, text)
    found = refusal("auto")
    assert found.startswith("TF_CONFIG must describe a cluster with host:port addresses")
    assert found.endswith(f"Received: {text}")
    assert made == []


def test_occupied_port_gives_a_one_line_error(set_cluster, monkeypatch):
    def fail(**options):
        raise tf.errors.UnknownError(None, None, "Could not start gRPC server\n\nmore")

    monkeypatch.setattr(tf.distribute, "MultiWorkerMirroredStrategy", fail)
    set_cluster(workers=2)
    found = refusal("multi-worker")
    assert "cannot start this worker (Could not start gRPC server). TF_CONFIG is" in found


def test_worker_that_has_already_computed_is_told_to_restart(set_cluster):
    tf.zeros([1]).numpy()
    set_cluster(workers=2)
    assert refusal("multi-worker").startswith("this process has already computed with TensorFlow")


def test_one_device_ignores_an_invalid_cluster(monkeypatch):
    monkeypatch.setenv(CLUSTER, "{}")
    assert places(make_strategy("one-device")) == ["CPU:0"]
