"""Two worker processes with MultiWorkerMirroredStrategy: results as on one replica, and faults."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
import tensorflow as tf
from commands import Child
from huggingface_folders import write_marian
from multi_worker import (
    count_dataset,
    count_pairs,
    make_trainer,
    probe,
    probe_pairs,
    probe_worker,
    read_rows,
    trace_exchange,
    train_with_little_memory,
    train_worker,
)
from toy import DIGITS, write_dataset

from tt.model.engines.tensorflow_engine import TensorFlowTranslator
from tt.model.imports.fetching import TENSORFLOW, fetch_model
from tt.model.text.vocabulary import load_vocabularies
from tt.model.training.strategies import make_strategy
from tt.model.transformer.search_options import Decoding

WORKERS = 2
SECONDS = 300  # time limit of a worker on a busy machine
STEPS = 12
LAST = f"ckpt-{STEPS}"
OPTIONS = [
    "--strategy", "multi-worker", "--encoder-layers", "1", "--decoder-layers", "1",
    "--d-model", "32", "--heads", "4", "--d-ff", "64", "--dropout", "0.2",
    "--steps", str(STEPS), "--batch-tokens", "64",
    "--warmup-steps", "5", "--peak-learning-rate", "0.001", "--log-every", "2",
    "--validate-every", "6", "--save-every", "4",
]  # fmt: skip


@pytest.fixture(scope="module")
def toy_dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "dataset"
    write_dataset(folder, train=300, validation=20)
    return folder


@pytest.fixture(scope="module")
def network():
    """The id of a process in an isolated network, or None if the tests may open ports.

    TensorFlow's servers have no passwords, and they listen on all interfaces, even if TF_CONFIG
    contains only local addresses. They therefore run in a network namespace that has only
    127.0.0.1.
    """
    if os.environ.get("TT_OPEN_PORTS") == "1":
        yield None
        return
    namespace = ["unshare", "--user", "--map-root-user", "--net"]
    script = "ip link set lo up && echo ready && exec cat"  # runs until stdin is closed
    try:
        holder = subprocess.Popen(
            [*namespace, "sh", "-c", script],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
    except OSError:
        pytest.skip("this machine has no `unshare`; TT_OPEN_PORTS=1 runs the test with open ports")
    with holder:
        if holder.stdout.readline() != "ready\n":
            pytest.skip("no network namespaces; TT_OPEN_PORTS=1 runs the test with open ports")
        yield holder.pid
        holder.stdin.close()


@pytest.fixture(scope="module")
def run_workers(network):
    """Return a function that runs a worker per (function, arguments, hook), all in parallel."""

    def run(*calls, environment=None):
        # These ports are free: the network is isolated, and earlier workers have ended.
        addresses = [f"127.0.0.1:{2222 + index}" for index in range(len(calls))]
        workers = []
        try:
            for index, (function, arguments, hook) in enumerate(calls):
                task = {"type": "worker", "index": index}
                cluster = json.dumps({"cluster": {"worker": addresses}, "task": task})
                workers.append(
                    Child(
                        function, *arguments, hook=hook, namespaces_of=network,
                        environment={"TF_CONFIG": cluster, **(environment or {})},
                    )
                )  # fmt: skip
            return [worker.wait(SECONDS) for worker in workers]
        finally:
            for worker in workers:
                worker.kill_group()

    return run


def train(dataset, run, *options, hook=None):
    """Return the function, the arguments and the hook of a worker that trains."""
    arguments = ["train", "--dataset", dataset, "--run", run, *OPTIONS, *options]
    return train_worker, [[str(argument) for argument in arguments]], hook


def printed(worker):
    return "\n".join(worker.lines)


@pytest.fixture(scope="module")
def probed(toy_dataset, run_workers, tmp_path_factory):
    """The results of `probe` with one replica, on worker 0 and on worker 1."""
    folder = tmp_path_factory.mktemp("probed")
    results = [folder / f"{index}.npz" for index in range(WORKERS)]
    ended = run_workers(
        *((probe_worker, (toy_dataset, folder / "two", path), None) for path in results)
    )
    assert [worker.code for worker in ended] == [0, 0], ended
    one = probe(make_trainer(toy_dataset, folder / "one", make_strategy("one-device")))
    return [one, *(dict(np.load(path)) for path in results)]


@pytest.fixture(scope="module")
def undisturbed(toy_dataset, run_workers, tmp_path_factory):
    """The run folder of two workers that were not interrupted."""
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    ended = run_workers(*[train(toy_dataset, run)] * WORKERS)
    assert [worker.code for worker in ended] == [0, 0], ended
    return run


def with_prefix(found, prefix):
    return {name: value for name, value in found.items() if name.startswith(prefix)}


def log_of(run):
    lines = [json.loads(line) for line in (run / "train.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] != "start"]


def without_times(lines):
    times = ("source_tokens_per_second", "target_tokens_per_second", "seconds_left", "seconds")
    return [{k: v for k, v in line.items() if k not in times} for line in lines]


def test_two_workers_have_the_gradients_of_a_single_replica(probed):
    one, *workers = (with_prefix(found, "gradient-") for found in probed)
    assert {name.split("-")[1] for name in one} == {str(i) for i in range(len(probe_pairs()))}
    assert all(np.abs(gradient).max() > 0 for gradient in one.values())
    for worker in workers:
        assert worker.keys() == one.keys()
        for name, gradient in one.items():
            atol = 1e-5 * np.abs(gradient).max()
            np.testing.assert_allclose(worker[name], gradient, rtol=0, atol=atol, err_msg=name)


def test_two_workers_train_like_a_single_replica(probed):
    one, *workers = probed
    assert len(one["losses"]) >= 10
    for worker in workers:
        np.testing.assert_allclose(worker["losses"], one["losses"], rtol=1e-5)
        for name, weight in with_prefix(one, "weight-").items():
            np.testing.assert_allclose(worker[name], weight, rtol=0, atol=1e-4, err_msg=name)


def test_workers_end_with_the_same_weights(probed):
    _, first, second = (with_prefix(found, "weight-") for found in probed)
    assert first.keys() == second.keys()
    for name, weight in first.items():
        np.testing.assert_array_equal(weight, second[name], err_msg=name)


def test_each_pair_of_an_epoch_is_read_once_by_one_worker(probed, toy_dataset):
    first, second = (read_rows(found["rows"]) for found in probed[1:])
    assert {replica for replica, *_ in first} == {0}
    assert {replica for replica, *_ in second} == {1}
    assert count_pairs([*first, *second]) == count_dataset(toy_dataset)
    assert abs(len(first) - len(second)) <= len(probed[0]["losses"])  # at most one row per batch


def test_updates_of_workers_with_gpus_ask_for_nccl(toy_dataset, run_workers, tmp_path):
    results = [tmp_path / f"{index}.txt" for index in range(WORKERS)]
    ended = run_workers(
        *((trace_exchange, (toy_dataset, tmp_path / "run", path), None) for path in results)
    )
    assert [worker.code for worker in ended] == [0, 0], ended
    assert [{*path.read_text().split()} for path in results] == [{"nccl"}] * WORKERS


def test_two_workers_start_from_a_model_of_hugging_face(run_workers, tmp_path, monkeypatch):
    model = write_marian(tmp_path / "opus-mt-en-es")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "ours"))
    converted = fetch_model(model, engine=TENSORFLOW, report=print)

    def copy_vocabulary(folder):
        vocabularies = load_vocabularies(converted)
        for name in vocabularies.files:
            shutil.copy(converted / name, folder / name)
        return vocabularies

    (tmp_path / "dataset").mkdir()
    write_dataset(tmp_path / "dataset", train=60, validation=5, write=copy_vocabulary)
    arguments = [
        "train", "--strategy", "multi-worker", "--dataset", tmp_path / "dataset",
        "--run", tmp_path / "run", "--init-from", model, "--steps", "2", "--batch-tokens", "1024",
    ]  # fmt: skip
    # Both workers find the same empty cache, so one of them converts the model.
    cache = {"XDG_CACHE_HOME": str(tmp_path / "theirs")}
    call = train_worker, [[*map(str, arguments)]], None
    ended = run_workers(call, call, environment=cache)
    assert [worker.code for worker in ended] == [0, 0], ended
    assert "Starting from the weights of" in printed(ended[0])
    assert len(list((tmp_path / "theirs/tt/huggingface").glob("*/config.json"))) == 1


def test_run_is_logged_once_and_its_model_translates(undisturbed):
    log = log_of(undisturbed)
    steps = {
        kind: [line["step"] for line in log if line["kind"] == kind]
        for kind in ("train", "validation")
    }
    assert steps == {"train": [2, 4, 6, 8, 10, 12], "validation": [6, 12]}
    assert all(0 <= line["bleu"] <= 100 for line in log if line["kind"] == "validation")
    assert len(list((undisturbed / "tensorboard").iterdir())) == 1
    kept = json.loads((undisturbed / "checkpoints/checkpoints.json").read_text())
    assert kept["last"] == ["ckpt-4", "ckpt-8", LAST]
    assert json.loads((undisturbed / "config.json").read_text())["replicas"] == WORKERS
    translator = TensorFlowTranslator.load(undisturbed, decoding=Decoding(beam_size=1))
    (translation,), _ = translator.translate(translator.prepare(["one two three"]))
    assert set(translation.text.split()) <= set(DIGITS)


# The signal, the workers that receive it before a call of the method, the number of the call
# (counted from the last stop), and the step at which both workers stop. Ctrl-C in a terminal sends
# SIGINT to all processes.
STOPS = [
    ("SIGTERM", [1], "tt.model.training.step:TrainingStep.sums", 1, 6),
    ("SIGTERM", [0], "tt.model.engines.tensorflow_engine:TensorFlowTranslator.translate", 2, 6),
    # An update reports only earlier stop requests.
    ("SIGTERM", [1], "tt.model.training.step:TrainingStep.update", 1, 8),
    ("SIGINT", [0, 1], "tt.model.training.step:TrainingStep.update", 1, 10),
]
ENDS = {"SIGTERM": (143, "terminated"), "SIGINT": (130, "interrupted")}


def test_signals_stop_both_workers_and_they_resume(undisturbed, toy_dataset, run_workers, tmp_path):
    run = tmp_path / "run"
    for signal_name, told, method, call, step in STOPS:
        code, verb = ENDS[signal_name]
        hook = {"where": method, "call": call, "signals": [signal_name]}
        stopped = run_workers(
            *(train(toy_dataset, run, hook=hook if i in told else None) for i in range(WORKERS))
        )
        assert [worker.code for worker in stopped] == [code] * WORKERS, stopped
        for worker in stopped:
            assert f"tt: {verb} at step {step}; run" in printed(worker), method
        assert not (run / "model").exists()
        assert (log_of(run)[-1]["step"], log_of(run)[-1]["kind"]) == (step, "train")

    resumed = run_workers(*[train(toy_dataset, run)] * WORKERS)
    assert [worker.code for worker in resumed] == [0, 0], resumed
    assert all("Resuming at step 10" in printed(worker) for worker in resumed)
    assert without_times(log_of(run)) == without_times(log_of(undisturbed))
    found, expected = (
        tf.train.load_checkpoint(str(folder / "checkpoints" / LAST))
        for folder in (run, undisturbed)
    )
    types = expected.get_variable_to_dtype_map()
    assert types == found.get_variable_to_dtype_map()
    arrays = [name for name, dtype in types.items() if dtype == tf.float32]
    assert {name.split("/")[0] for name in arrays} == {"weights", "adam"}
    for name in arrays:
        np.testing.assert_array_equal(
            found.get_tensor(name), expected.get_tensor(name), err_msg=name
        )


@pytest.mark.parametrize("victim", [0, 1], ids=["the chief", "another"])
def test_lost_worker_stops_the_others(victim, toy_dataset, run_workers, tmp_path):
    # Each worker has its own folder, to show that only the chief writes.
    hook = {
        "where": "tt.model.training.step:TrainingStep.update", "call": 6, "signals": ["SIGKILL"]
    }  # fmt: skip
    ended = run_workers(
        *(
            train(toy_dataset, tmp_path / f"{i}/run", hook=hook if i == victim else None)
            for i in range(WORKERS)
        )
    )
    assert ended[victim].code == -signal.SIGKILL
    survivor = ended[1 - victim]
    assert survivor.code not in (0, -signal.SIGKILL), survivor
    assert [line["step"] for line in log_of(tmp_path / "0/run")] == [2, 4]
    assert (tmp_path / "0/run/checkpoints/ckpt-4.index").exists()
    assert not (tmp_path / "1").exists()
    assert survivor.code == 2
    (line,) = [line for line in survivor.lines if line.startswith("tt: error")]
    lost = r"the connection to a worker was lost \([^\n]*(abort|[Cc]onnect|[Uu]navailable)"
    assert re.search(lost, line), line
    assert 'File "' not in line
    assert "Traceback" not in printed(survivor)


def test_worker_without_memory_names_a_smaller_batch(toy_dataset, run_workers, tmp_path):
    _, arguments, _ = train(toy_dataset, tmp_path / "run")
    call = train_with_little_memory, [*arguments, 1, 24], None
    first, second = run_workers(call, call)
    assert [first.code, second.code] == [2, 2], (first, second)
    [line] = [line for line in second.lines if line.startswith("tt: error")]
    found = re.fullmatch(
        r"tt: error: out of memory at step 1 of 12, .* \(OOM when allocating tensor with .*\)\. "
        r"In a new --run, set --batch-tokens (\d+), which halves this batch, and "
        r"--effective-batch-size 128, which keeps the size of updates",
        line,
    )
    assert 16 <= int(found[1]) <= 32
    [line] = [line for line in first.lines if line.startswith("tt: error")]
    assert "Check the messages of all workers" in line


def test_workers_with_different_options_are_refused(toy_dataset, run_workers, tmp_path):
    run = tmp_path / "run"
    ended = run_workers(train(toy_dataset, run), train(toy_dataset, run, "--seed", "2"))
    assert [worker.code for worker in ended] == [2, 2], ended
    assert all("tt: error: " in printed(worker) for worker in ended)
    assert not (tmp_path / "run/model").exists()
