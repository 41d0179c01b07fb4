"""Trainings that are killed, stopped, or out of disk space resume without any difference.

All runs use the same command, with the same data and options. However often a run was stopped and
restarted, its files must in the end equal the files of an undisturbed run.
"""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import h5py
import numpy as np
import pytest
import tensorflow as tf
from commands import Child, run_tt
from toy import write_dataset

from tt.model.training.checkpoints import INDEX_FILE
from tt.model.training.run_folder import LOG_FILE

STEPS = 24
# An update has two batches, and an epoch has 31 batches. All features of a run are switched on.
OPTIONS = {
    "preset": "tiny", "encoder-layers": 1, "decoder-layers": 1, "d-model": 16,
    "heads": 2, "d-ff": 32, "dropout": 0.2, "attention-dropout": 0.2, "steps": STEPS,
    "batch-tokens": 128, "effective-batch-size": 256,
    "peak-learning-rate": 0.01, "warmup-steps": 20, "clip-norm": 0.5, "log-every": 1,
    "save-every": 4, "validate-every": 6, "score-every": 12, "score-sentences": 300,
    "keep-best": 2, "average": "last",
}  # fmt: skip
# Endings of the names of values that differ between two runs.
TIMES = ("_per_second", "seconds_left", "seconds")


def error_of(ended):
    """Return the line of a user error, and check that only reports come before it."""
    assert ended.code == 2, ended
    *above, line = ended.lines
    assert line.startswith("tt: error: ")
    reports = (
        "Strategy ", "5,632 parameters, ", "Resuming at ", "step ", "About ",
        "at step ",  # printed after a minute without a report, possible on a busy machine
    )  # fmt: skip
    assert all(other.startswith(reports) for other in above), ended
    return line


class Command:
    """The training command that all tests run, each with its own run folder."""

    def __init__(self, dataset):
        self._dataset = dataset

    def start(self, run, **hook):
        """Start the command in a child process; `hook` has the arguments of `hooks.set_hook`."""
        options = {"dataset": self._dataset, "run": run, **OPTIONS}
        arguments = ["train", *(f"--{name}={value}" for name, value in options.items())]
        return Child(run_tt, arguments, hook=hook or None)

    def run(self, run, **hook):
        """Run the command until its process ends."""
        return self.start(run, **hook).wait()

    def finish(self, run):
        """Run the command to the last step, and check that it succeeds."""
        ended = self.run(run)
        assert ended.code == 0, ended
        assert ended.lines[-1].startswith("Model: "), ended
        return ended


def map_two(function, cases):
    """Call a function with each case, two at a time, because a run uses about one core."""
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(function, cases))


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    folder = tmp_path_factory.mktemp("toy") / "dataset"
    write_dataset(folder, train=500, validation=300)
    return folder


@pytest.fixture(scope="module")
def command(dataset):
    return Command(dataset)


@dataclasses.dataclass(frozen=True)
class Undisturbed:
    """A run without interruptions: its folder, and the result of `read_results`."""

    folder: Path
    results: dict


@pytest.fixture(scope="module")
def undisturbed(command, tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed") / "run"
    command.finish(folder)
    results = read_results(folder)
    # Check that the run contains everything that the tests compare.
    steps = [line["step"] for line in results["log"] if line["kind"] == "train"]
    assert steps == list(range(1, STEPS + 1))
    validations = [line for line in results["log"] if line["kind"] == "validation"]
    assert [line["step"] for line in validations] == [6, 12, 18, 24]
    assert ["bleu" in line for line in validations] == [False, True, False, True]
    assert results["index"]["last"] == ["ckpt-16", "ckpt-20", "ckpt-24"]
    assert len(results["index"]["best"]) == 2
    state = results["states"]["ckpt-24"]
    assert (state["step"], state["batches"], state["position"][0]) == (24, 48, 1)  # epoch 1
    parts = {name.split("/")[0] for name in results["checkpoints"]["ckpt-24"]}
    assert {"weights", "adam"} <= parts
    assert not results["left over"]
    return Undisturbed(folder, results)


def read_results(run):
    """Return all results of a run except times, by their kind."""
    index = json.loads((run / "checkpoints" / INDEX_FILE).read_text())
    named = {name: read_checkpoint(run, name) for name in {*index["last"], *index["best"]}}
    states = {name: tensors.pop("state") for name, tensors in named.items() if "state" in tensors}
    return {
        "log": [without_times(line) for line in read_log(run)],
        "index": index,
        "files": sorted(path.name for path in (run / "checkpoints").iterdir()),
        "checkpoints": named,
        "states": states,
        "models": {name: read_model(run / name) for name in ("model", "best_model")},
        "events": read_events(run),
        "left over": [
            path.name
            for path in run.rglob("*")
            if path.name.startswith(".") or "tmp" in path.name or "temp" in path.name
        ],
    }


def read_log(run):
    """Return the reports in the log, without the lines of starts, whose number varies."""
    lines = [json.loads(line) for line in (run / LOG_FILE).read_text().splitlines()]
    assert lines[0]["kind"] == "start"
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds), "seconds continue from the last line that was kept"
    return [line for line in lines if line["kind"] != "start"]


def without_times(values):
    return {name: value for name, value in values.items() if not name.endswith(TIMES)}


def read_checkpoint(run, name):
    """Return the tensors of a checkpoint as bytes, and its state as a dict."""
    reader = tf.train.load_checkpoint(str(run / "checkpoints" / name))
    tensors = {}
    for key in reader.get_variable_to_shape_map():
        value = reader.get_tensor(key)
        if key.startswith("state/"):
            tensors["state"] = json.loads(value)
            tensors["state"]["meter"].pop("seconds", None)
        else:
            tensors[key] = np.asarray(value).tobytes()
    return tensors


def read_model(folder):
    """Return the weights and the other files of an exported model as bytes."""
    weights = folder / "model.weights.h5"
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path != weights}
    with h5py.File(weights) as file:
        file.visititems(
            lambda name, item: found.update(
                {name: item[()].tobytes()} if isinstance(item, h5py.Dataset) else {}
            )
        )
    return found


def read_events(run):
    """Return all values in TensorBoard's files, as a set, because resumed runs repeat some."""
    found = set()
    for path in (run / "tensorboard").iterdir():
        records = tf.data.TFRecordDataset(str(path)).as_numpy_iterator()
        with contextlib.suppress(tf.errors.DataLossError):  # the last record may be incomplete
            for record in records:
                event = tf.compat.v1.Event.FromString(record)
                found |= {
                    (value.tag, event.step, value.tensor.SerializeToString(deterministic=True))
                    for value in event.summary.value
                    if not value.tag.endswith(TIMES)
                }
    return found


def assert_same(run, undisturbed):
    """Assert that a run has the same results as the undisturbed run, part by part."""
    found, expected = read_results(run), undisturbed.results
    for part in expected:
        if part in ("checkpoints", "models"):
            assert found[part].keys() == expected[part].keys()
            for name, values in expected[part].items():
                assert found[part][name].keys() == values.keys(), name
                differing = [key for key in values if found[part][name][key] != values[key]]
                assert not differing, f"{name}: {len(differing)} of {len(values)} differ"
        else:
            assert found[part] == expected[part], part


def named_checkpoints(run):
    try:
        index = json.loads((run / "checkpoints" / INDEX_FILE).read_text())
    except FileNotFoundError:
        return set()
    return {*index["last"], *index["best"], *([index["stop"]] if index["stop"] else [])}


# Each case sends SIGTERM before a call of a function, and names the checkpoint that follows:
# stop-<batches>-<step of the last validation>. An update has two batches, and an update that is
# half done is repeated. The cases of a list apply to one run in this order. The calls are therefore
# counted from the last stop.
TERMINATIONS = [
    {
        "accumulating an update": (
            "tt.model.training.step:TrainingStep.accumulate",
            10,
            "stop-18-6",
        ),
        "between updates": ("tt.model.training.step:TrainingStep.update", 4, "stop-26-12"),
        "shortly before the end": (
            "tt.model.training.step:TrainingStep.accumulate",
            10,
            "stop-44-18",
        ),
    },
    {
        "translating a validation": (
            "tt.model.engines.tensorflow_engine:TensorFlowTranslator.translate",
            1,
            "stop-24-6",
        ),
        "translating the last validation": (
            "tt.model.engines.tensorflow_engine:TensorFlowTranslator.translate",
            3,
            "stop-48-18",
        ),
    },
]


@pytest.fixture(scope="module")
def terminated(command, tmp_path_factory):
    """Return the folders of terminated runs, and the ends of their commands by moment."""
    folder = tmp_path_factory.mktemp("terminated")
    found = {}

    def stop_and_finish(number):
        run = folder / f"run{number}"
        for moment, (where, call, checkpoint) in TERMINATIONS[number].items():
            found[moment] = command.run(run, where=where, call=call)
            assert checkpoint in named_checkpoints(run)
        command.finish(run)
        return run

    return map_two(stop_and_finish, range(len(TERMINATIONS))), found


@pytest.mark.parametrize("moment", [moment for moments in TERMINATIONS for moment in moments])
def test_terminated_run_saves_and_reports_the_step(terminated, moment):
    ended = terminated[1][moment]
    (batches,) = [
        int(moments[moment][2].split("-")[1]) for moments in TERMINATIONS if moment in moments
    ]
    print(f"SIGTERM while {moment}: {ended.seconds:.1f} s")
    assert ended.code == 143
    assert ended.seconds < 30
    assert ended.lines[-1] == (
        f"tt: terminated at step {batches // 2}; run the same command again to resume"
    )
    assert sum(line.startswith("tt: ") for line in ended.lines) == 1


def test_terminated_runs_resume_identically(terminated, undisturbed):
    for run in terminated[0]:
        assert_same(run, undisturbed)


# Each case sends SIGINT before a call of a function, and names the step and the checkpoint at which
# the run stops. The cases apply to one run in this order. A started export is always finished, and
# after the last export the run ends anyway.
INTERRUPTIONS = {
    "starting": ("tt.model.training.validation:Validator.check", 1, 0, None),
    "accumulating an update": ("tt.model.training.step:TrainingStep.accumulate", 2, 1, "stop-2-0"),
    "exporting the best": ("tt.model.training.checkpoints:save_model", 1, 6, "stop-12-6"),
    "validating": ("tt.model.training.validation:Validator.score", 1, 12, "stop-24-6"),
    "translating": (
        "tt.model.engines.tensorflow_engine:TensorFlowTranslator.translate",
        1,
        12,
        "stop-24-6",
    ),
}


def test_ctrl_c_saves_and_reports_the_step(command, undisturbed, tmp_path):
    run = tmp_path / "run"
    for moment, (where, call, step, checkpoint) in INTERRUPTIONS.items():
        ended = command.run(run, where=where, call=call, signals=["SIGINT"])
        assert ended.code == 130, moment
        assert ended.seconds < 30
        assert "Saving, then stopping; press Ctrl-C again to stop at once" in ended.lines
        assert ended.lines[-1] == (
            f"tt: interrupted at step {step}; run the same command again to resume"
        )
        if checkpoint is None:
            assert not named_checkpoints(run)
        else:
            assert checkpoint in named_checkpoints(run), moment
    command.finish(run)
    assert_same(run, undisturbed)
    # The run is finished, so the command only exports the model again.
    ended = command.run(
        run, where="tt.model.training.checkpoints:save_model", call=1, signals=["SIGINT"]
    )
    assert (ended.code, ended.lines[-1]) == (
        130,
        f"tt: interrupted at step {STEPS}; run the same command again to resume",
    )
    assert_same(run, undisturbed)


def test_second_ctrl_c_stops_immediately(command, undisturbed, tmp_path):
    run, step = tmp_path / "run", "tt.model.training.step:TrainingStep.update"
    # Pretend that the update takes a minute.
    ended = command.run(run, where=step, call=6, signals=["SIGINT", "SIGINT"], seconds=60)
    assert ended.code == 130
    assert ended.seconds < 20
    assert ended.lines[-1] == (
        "tt: stopped at once; run the same command again to resume from the last checkpoint"
    )
    assert named_checkpoints(run) == {"ckpt-4"}
    command.finish(run)
    assert_same(run, undisturbed)


# From a call of a function on, `files` can grow by at most `room` bytes. The cases of a list apply
# to one run in this order. The calls are therefore counted from the last stop.
WRITE = "tt.model.training.checkpoints:Checkpoints.write"
NO_ROOM = [
    {
        "vocabulary": {"where": "tt.model.training.run_folder:RunFolder.claim", "room": 100_000},
        "log": {
            "where": "tt.model.training.reports:RunLog.write",
            "call": 6,  # the first call writes the line of the start
            "files": LOG_FILE,
            "room": 100,
        },
        # The first call writes the best weights of step 6.
        "second checkpoint": {"where": WRITE, "call": 2, "room": 50_000},
    },
    {
        "best weights": {"where": WRITE, "call": 2, "room": 10_000},
        "exported weights": {"where": "tt.model.formats.weights:_reserve", "room": 40_000},
        "events": {
            "where": "tt.model.training.reports:Reporter.tell",
            "call": 3,
            "files": "tensorboard/*",
            "room": 100,
        },
        "final export": {
            "where": "tt.model.training.checkpoints:save_model",
            "call": 4,
            "room": 100_000,
        },
    },
]


@pytest.fixture(scope="module")
def out_of_room(command, undisturbed, tmp_path_factory):
    """Return the run folder, the end of the command, and a copy of the folder for each case."""
    folder = tmp_path_factory.mktemp("out_of_room")
    found = {}

    def fill_and_finish(number):
        run = folder / f"run{number}"
        for name, hook in NO_ROOM[number].items():
            files = {"files": f"{run}/{hook['files']}"} if "files" in hook else {}
            ended = command.run(run, **{"call": 1, **hook, **files})
            shutil.copytree(run, folder / name)
            found[name] = (run, ended, folder / name)
        command.finish(run)

    map_two(fill_and_finish, range(len(NO_ROOM)))
    return found


@pytest.mark.parametrize("case", [name for cases in NO_ROOM for name in cases])
def test_simulated_full_disk_gives_a_one_line_error(out_of_room, case):
    run, ended, snapshot = out_of_room[case]
    line = error_of(ended)
    if case == "vocabulary":
        assert line.startswith(f"tt: error: {run}/vocabulary/")
        assert line.endswith("Free some space and run the same command again to resume")
    else:
        assert line.startswith(f"tt: error: the disk of {run} is full (")
        assert line.endswith("Free some space; the same command resumes from the last checkpoint")
    assert_only_whole_checkpoints(snapshot)


def assert_only_whole_checkpoints(run):
    """Assert that all checkpoints in the index are readable, and no other files exist."""
    files = [path.name for path in (run / "checkpoints").glob("*[0-9]*")]
    assert not [name for name in files if "temp" in name]
    for name in {*named_checkpoints(run), *(file.split(".")[0] for file in files)}:
        assert read_checkpoint(run, name)


def test_runs_resume_identically_after_a_full_disk(out_of_room, undisturbed):
    _, _, snapshot = out_of_room["second checkpoint"]
    assert "ckpt-4" in named_checkpoints(snapshot)
    assert not list((snapshot / "checkpoints").glob("ckpt-8*"))
    _, _, snapshot = out_of_room["log"]
    assert not (snapshot / LOG_FILE).read_text().endswith("\n")  # the last line is incomplete
    for run in {run for run, _, _ in out_of_room.values()}:
        assert_same(run, undisturbed)


@pytest.fixture
def small_disk(tmp_path):
    """The mount point of a file system with 900 KB; skips the test without root rights."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=900k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_real_full_disk_gives_a_one_line_error(command, undisturbed, small_disk):
    run = small_disk / "run"
    line = error_of(command.run(run))
    assert line.startswith(f"tt: error: the disk of {run} is full (")
    assert "No space left on device" in line
    assert_only_whole_checkpoints(run)
    assert "ckpt-4" in named_checkpoints(run)
    subprocess.run(["mount", "-o", "remount,size=20m", str(small_disk)], check=True)
    command.finish(run)
    assert_same(run, undisturbed)
