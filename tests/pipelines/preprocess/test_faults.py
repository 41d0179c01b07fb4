"""Killed jobs and full disks lose no finished work, and leave no dataset that looks finished."""

import gzip
import os
import random
import signal
import subprocess
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Child
from corpora import TWO_THREADS, digest, sentence, write_pairs
from preprocess_jobs import make_dataset

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest

PAIRS_A_SOURCE = 800  # three sources, 24 units of 100
KILLS_A_PHASE = 2  # of five


class Job:
    """Runs the same job for each dataset, each time in another folder."""

    def __init__(self, corpora):
        self._corpora = corpora

    def start(self, output, *, beam=TWO_THREADS, function=make_dataset, **options):
        """Start the job in a child process."""
        return Child(function, self._corpora, output, beam, **options)

    def run(self, output, **options):
        """Run the job to its end; return its exit code and its report."""
        ended = self.start(output, **options).wait()
        return ended.code, ended.result


def make_sources(folder):
    """Write three sources of different kinds with duplicates, also across files, and bad pairs."""
    chooser = random.Random(3)
    pool = [(sentence(i), sentence(i)[::-1]) for i in range(1500)]
    pool[::50] = [("", "leer")] * 30
    parts = [chooser.choices(pool, k=PAIRS_A_SOURCE) for _ in range(3)]
    write_pairs(folder, parts[0])
    (folder / "b.tsv.gz").write_bytes(
        gzip.compress("".join(f"{s}\t{t}\n" for s, t in parts[1]).encode(), mtime=0)
    )
    sources, targets = zip(*parts[2], strict=True)
    table = pa.table({"source": sources, "target": targets})
    pq.write_table(table, folder / "c.parquet", row_group_size=100)
    return [f"{folder}/corpus.en+{folder}/corpus.de", f"{folder}/b.tsv.gz", f"{folder}/c.parquet"]


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    return Job(make_sources(tmp_path_factory.mktemp("corpora")))


@pytest.fixture(scope="module")
def undisturbed(job, tmp_path_factory):
    """The files of an undisturbed run, its duration in seconds, and its manifest."""
    output = tmp_path_factory.mktemp("undisturbed") / "data"
    began = time.monotonic()
    assert job.run(output) == (0, {"error": "", "encoded": 24})
    return digest(output), time.monotonic() - began, DatasetManifest.load(output)


# Files that exist from the beginning of each phase, and the phase's approximate share of the time.
PHASES = {
    "starting": ("_work/*/run.json", 0.1),
    "cutting": ("_work/*/chunk-*", 0.1),
    "training the vocabulary": ("_work/*/units-002.json", 0.3),
    "encoding": ("_work/*/spill-*", 0.1),
    "merging": ("_work/*/shard-*", 0.01),
}


def wait_for(output, pattern, *, seconds):
    """Wait until a file exists or the dataset is finished."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if list(output.glob(pattern)) or (output / MANIFEST_FILE).exists():
            return
        time.sleep(0.002)


@pytest.mark.parametrize("phase", list(PHASES))
def test_same_command_finishes_a_killed_job(job, undisturbed, tmp_path, phase):
    expected, seconds, manifest = undisturbed
    pattern, share = PHASES[phase]
    kills, latest = 0, share * seconds
    for seed in range(5 * KILLS_A_PHASE):
        if kills == KILLS_A_PHASE:
            break
        chooser = random.Random(f"{phase} {seed}")
        output = tmp_path / f"killed{seed}"
        child = job.start(output)
        wait_for(output, pattern, seconds=20 * seconds)
        time.sleep(chooser.random() * latest)
        child.kill_group()  # The job may have finished already.
        code = child.wait().code
        assert code in (-signal.SIGKILL, 0)
        kills += code != 0
        latest /= 1 if code else 2  # The kill came too late, so the machine is faster now.
        if (output / MANIFEST_FILE).exists():  # A dataset with a manifest must be complete.
            assert {path.name for path in output.glob("*-of-*")} <= set(expected)
            assert DatasetManifest.load(output) == manifest
        assert all("-of-" in path.name for path in output.glob("*.tfrecord"))
        units = len(list(output.glob("_work/*/spill-???-?????")))

        is_finished = (output / MANIFEST_FILE).exists()
        code, report = job.run(output)
        assert (code, report["error"]) == (0, "")
        # Finished units are not encoded again.
        assert report["encoded"] == (0 if is_finished else 24 - units)
        assert digest(output) == expected
        assert DatasetManifest.load(output) == manifest
        assert not (output / "_work").exists()
    assert kills == KILLS_A_PHASE


def test_same_command_finishes_a_job_with_killed_worker_processes(job, undisturbed, tmp_path):
    expected, seconds, manifest = undisturbed
    processes = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    output = tmp_path / "data"
    child = job.start(output, beam=processes)
    wait_for(output, "_work/*/spill-*", seconds=30 * seconds)
    child.kill_group()
    assert child.wait().code == -signal.SIGKILL
    assert list(output.glob("_work/*/spill-*"))
    assert not (output / MANIFEST_FILE).exists()
    assert job.run(output, beam=processes)[0] == 0
    assert digest(output) == expected
    assert DatasetManifest.load(output) == manifest


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 200 KB; without the right to mount it, the test is skipped."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=200k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.parametrize("share", [0.05, 0.5, 0.99])
def test_full_disk_loses_nothing(job, undisturbed, tmp_path, share):
    """A limit on the size of files replaces a full disk. Each share makes another file fail."""
    expected, _, manifest = undisturbed
    output = tmp_path / "data"
    limit = int(share * max(max(split.shard_sizes) for split in manifest.splits.values()))
    code, report = job.run(output, file_limit=limit)
    assert code == 0
    assert report["error"].startswith("DiskFullError: ")
    assert "File too large. Free some space and run the same command again" in report["error"]
    assert "\n" not in report["error"]
    assert not (output / MANIFEST_FILE).exists()
    assert not list(output.rglob("*.tmp"))
    assert job.run(output)[0] == 0
    assert digest(output) == expected
    assert DatasetManifest.load(output) == manifest
