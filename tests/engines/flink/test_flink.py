"""Both jobs on a Flink cluster: the bytes of a local run, lost workers, and Ctrl-C."""

from __future__ import annotations

import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import TEXTS, run, write_corpus
from toy import toy_sentences

UNIT_ROWS = 2500  # enough to take a while on a fast machine, too
ROWS = 40 * UNIT_ROWS
GOES_ON = "; run the same command again to resume"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """A folder with a Parquet file of ROWS rows."""
    folder = tmp_path_factory.mktemp("table")
    texts = [source for source, _ in toy_sentences(ROWS, seed=7)]
    columns = {"id": range(ROWS), "text": texts}
    pq.write_table(pa.table(columns), folder / "in.parquet", row_group_size=4 * UNIT_ROWS)
    return folder


def translate(table, toy, output):
    return (
        "translate-batch", table / "in.parquet", "--model", toy.run, "--output", output,
        "--unit-rows", UNIT_ROWS,
    )  # fmt: skip


@pytest.fixture(scope="module")
def local(table, trained_toy):
    command = [*map(str, translate(table, trained_toy, table / "local"))]
    # A process like a worker, because TensorFlow has other settings in this process.
    subprocess.run([sys.executable, "-m", "tt.cli.main", *command], check=True, cwd=table)
    return read_outputs(table / "local")


def read_outputs(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.parquet"))}


def count_units(folder):
    return len(list(folder.glob("*.parquet")))


def wait_until(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end
        time.sleep(0.02)


def last_line(printed):
    assert "Traceback" not in printed
    return printed.splitlines()[-1]


def interrupt(process):
    """Press Ctrl-C until `tt` reports that it cancels its job; return its stderr until its end.

    A signal can be lost while gRPC's own code runs.
    """
    asked = threading.Event()

    def press():
        for _ in range(10):
            if process.poll() is not None:
                return
            os.killpg(process.pid, signal.SIGINT)
            if asked.wait(3):
                return

    presses = threading.Thread(target=press)
    presses.start()
    said = ""
    for line in process.stderr:
        said += line
        if line.startswith("Canceling "):
            asked.set()
    asked.set()
    presses.join()
    process.wait(timeout=120)
    return said


def test_preprocess_writes_the_bytes_of_a_local_run(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path, count=5_000)
    assert run("preprocess", *TEXTS, "--shards", "3", "--output", "local") == 0
    code, printed = cluster.run(
        "preprocess", *TEXTS, "--shards", "3", "--output", "flink", cwd=tmp_path
    )
    assert code == 0, printed
    here, there = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir() if path.is_file()}
        for name in ("local", "flink")
    )
    manifests = [json.loads(files.pop("dataset.json")) for files in (here, there)]
    assert [name for name in here if name.startswith("train-")]
    assert here.keys() == there.keys()
    for name in here:
        if not name.startswith("rejected-"):  # which contain absolute paths there
            assert here[name] == there[name], name
    for count in ("pairs_read", "pairs_kept"):
        assert manifests[0].get(count) == manifests[1].get(count)
    assert sorted(path.name for path in (tmp_path / "flink").iterdir() if path.is_dir()) == []


@pytest.mark.headline
def test_no_rows_are_lost_with_a_task_manager(cluster, table, trained_toy, local, tmp_path):
    output = tmp_path / "translated"
    process = cluster.start(*translate(table, trained_toy, output), cwd=tmp_path)
    wait_until(lambda: count_units(output) >= 4, process)
    before = {path.stem for path in output.glob("*.parquet")}
    os.kill(cluster.task_managers()[-1], signal.SIGKILL)
    cluster.add_task_manager()
    _, printed = process.communicate(timeout=600)
    assert process.returncode == 0, printed
    assert len(before) < len(local), "the job had already finished"
    assert read_outputs(output) == local
    manifest = json.loads((output / "_tt/manifest.json").read_text())
    assert manifest["rows"] == ROWS == sum(manifest["rows_by_status"]["text"].values())
    ids = [pq.read_table(path)["id"].to_pylist() for path in sorted(output.glob("*.parquet"))]
    assert [each for unit in ids for each in unit] == list(range(ROWS))
    workers = collections.Counter(
        json.loads(path.read_text())["worker"]["process"]
        for path in (output / "_tt/units").glob("*.json")
    )
    print(f"units by worker: {sorted(workers.values())}")
    assert len(workers) >= 2, "both task managers did work"
    assert not cluster.has_running_jobs()


def test_ctrl_c_cancels_a_job_and_a_detached_job_continues(
    cluster, table, trained_toy, local, tmp_path
):
    output = tmp_path / "translated"
    command = translate(table, trained_toy, output)
    process = cluster.start(*command, cwd=tmp_path)
    wait_until(lambda: count_units(output) >= 2, process)
    printed = interrupt(process)
    assert process.returncode == 130
    assert last_line(printed).startswith("tt: interrupted, and the job tt-translate-batch-")
    assert last_line(printed).endswith(f" is canceled{GOES_ON}")
    assert not cluster.has_running_jobs()
    assert count_units(output) < len(local)
    assert not (output / "_tt/manifest.json").exists()
    assert not (output / "_tt/job.json").exists()
    before = {json.loads(path.read_text())["run_id"]
              for path in (output / "_tt/units").glob("*.json")}  # fmt: skip

    code, printed = cluster.run(*command, "--detach", cwd=tmp_path)
    assert code == 0, printed
    name = cluster.wait_for_running_job()
    job = json.loads((output / "_tt/job.json").read_text())
    assert job["name"] == name
    assert last_line(printed) == (
        f"tt: the job {name} on FlinkRunner ({job['url']}) continues without this process. Run the "
        "same command later to see whether the job is finished"
    )
    code, printed = cluster.run(*command, cwd=tmp_path)
    assert code == 2
    assert last_line(printed) == (
        f"tt: error: the job {name} on FlinkRunner ({job['url']}) still runs for this folder. Wait "
        "for its end or cancel it, then run the same command again"
    )
    end = time.monotonic() + 300
    while cluster.has_running_jobs():
        assert time.monotonic() < end
        time.sleep(0.2)
    assert cluster.jobs()[name] == "FINISHED"
    assert read_outputs(output) == local
    # The units of one file are distributed to all workers, even without a kill.
    units = [json.loads(path.read_text()) for path in (output / "_tt/units").glob("*.json")]
    [run_id] = {unit["run_id"] for unit in units} - before
    shares = collections.Counter(
        unit["worker"]["process"] for unit in units if unit["run_id"] == run_id
    )
    print(f"units by worker: {sorted(shares.values())}")
    assert len(shares) == 2
    assert min(shares.values()) >= 5, "units that the canceled job had not done"
    code, printed = cluster.run(*command, cwd=tmp_path)
    assert code == 0
    assert "Already finished; nothing to do" in printed
