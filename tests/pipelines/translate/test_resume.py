"""Resuming translation jobs that were killed or had no disk space."""

import csv
import gzip
import json
import random
import re
import signal
import time

import pytest
from commands import Child
from slow_translation import translate_slowly
from translation_jobs import manifest, output_bytes, read_all, unit_statistics, without_run, write

KILLS = {"parquet": 10, "texts": 4}
UNITS = 40


class Job:
    """A job that can run with different output folders."""

    def __init__(self, source):
        self._source = str(source)

    def start(self, output, **options):
        """Start the job in a child process."""
        return Child(translate_slowly, self._source, str(output), **options)

    def run(self, output, **options):
        """Run the job to its end; return its exit code and its report."""
        ended = self.start(output, **options).wait()
        return ended.code, ended.result


@pytest.fixture(scope="module", params=["parquet", "texts"])
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def source(kind, tmp_path_factory):
    """Two partitions of 900 and 300 rows (40 units) with repeated texts, nulls and random bytes."""
    folder = tmp_path_factory.mktemp("source")
    chooser = random.Random(1)
    for year, rows in ((2024, 900), (2025, 300)):
        texts = [chooser.choice([None, "", *map(str, range(20))]) for _ in range(rows)]
        noise = [chooser.randbytes(200) for _ in range(rows)]
        path = folder / f"year={year}/part.parquet"
        write(path, {"text": texts, "noise": noise})
        if kind == "texts":  # the same rows, in files without random access
            path.unlink()
            table = {"text": texts, "noise": [each.hex() for each in noise]}
            (write_csv_gz if year == 2024 else write_jsonl)(path.with_suffix(""), table)
    return folder


def write_csv_gz(path, table):
    with gzip.open(f"{path}.csv.gz", "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


def write_jsonl(path, table):
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    path.with_suffix(".jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))


@pytest.fixture(scope="module")
def job(source):
    return Job(source)


@pytest.fixture(scope="module")
def undisturbed(job, tmp_path_factory):
    """The output files, the duration and the manifest of a run without kills."""
    output = tmp_path_factory.mktemp("undisturbed") / "out"
    assert job.run(output)[0] == 0  # the first run warms the file cache
    output = output.with_name("again")
    began = time.monotonic()
    assert job.run(output) == (0, {"error": "", "reused_units": 0})
    seconds = time.monotonic() - began
    files = output_bytes(output)
    assert len(files) == UNITS
    return files, seconds, without_run(manifest(output))


def finished_units(output):
    """Return the modification times of finished output files by name."""
    return {
        unit["output_path"]: (output / unit["output_path"]).stat().st_mtime_ns
        for unit in unit_statistics(output)
    }


def wait_for_a_unit(output, *, known, seconds):
    """Wait until the job or a unit that is not among the `known` units is finished."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline and not (output / "_tt/manifest.json").exists():
        if len(list(output.glob("_tt/units/*/*.json"))) > len(known):
            return
        time.sleep(0.005)


def test_a_job_that_is_killed_repeatedly_gives_the_same_bytes_as_without_kills(
    kind, job, undisturbed, tmp_path
):
    expected, seconds, expected_manifest = undisturbed
    chooser = random.Random(7)
    kills = killed_at_work = killed_while_writing = jobs = 0
    output = tmp_path / "0"
    while True:
        before = finished_units(output)
        child = job.start(output)
        if kills < KILLS[kind]:
            # Alternate between a kill at any time of the run and a kill soon after a new unit.
            share = 1.0 if kills % 2 else 0.2
            if share < 1:
                wait_for_a_unit(output, known=before, seconds=20 * seconds)
            time.sleep(chooser.uniform(0, share * seconds))
            child.kill_group()  # has no effect if the job has already ended
        ended = child.wait()
        now = output_bytes(output)
        assert {name: expected[name] for name in now} == now  # no file is incomplete
        after = finished_units(output)
        assert {name: after[name] for name in before} == before
        if ended.code == -signal.SIGKILL:
            kills += 1
            killed_at_work += len(before) < len(after) < UNITS
            killed_while_writing += any(output.glob("_tt/*.tmp"))
            continue
        assert (ended.code, ended.result) == (0, {"error": "", "reused_units": len(before)})
        assert now == expected
        assert without_run(manifest(output)) == expected_manifest
        assert not list(output.rglob("*.tmp"))
        assert not list(output.rglob("*.arrow"))
        if kills == KILLS[kind]:
            break
        jobs += 1
        output = tmp_path / str(jobs)
    assert kills == KILLS[kind]
    assert killed_at_work >= (3 if kind == "parquet" else 1)
    assert killed_while_writing >= (1 if kind == "parquet" else 0)


@pytest.mark.parametrize("limit", [500, 5_000])
def test_a_full_disk_is_a_clear_error_and_the_job_resumes(job, undisturbed, tmp_path, limit):
    """A limit on the file size simulates a full disk, and each limit affects other files."""
    expected, _, expected_manifest = undisturbed
    output = tmp_path / "out"
    code, report = job.run(output, file_limit=limit)
    assert code == 0
    assert report["error"].startswith("DiskFullError: ")
    # SQLite does not say why it could not write the index of the job's memory.
    reason = r"(File too large|disk I/O error)\. Free some space(,| and run the same command again)"
    assert re.search(reason, report["error"])
    assert "\n" not in report["error"]
    assert not (output / "_tt/manifest.json").exists()
    assert not list(output.rglob("*.tmp"))
    now = output_bytes(output)
    assert {name: expected[name] for name in now} == now
    assert job.run(output)[0] == 0
    assert output_bytes(output) == expected
    assert without_run(manifest(output)) == expected_manifest
    assert read_all(output).num_rows == 1200
