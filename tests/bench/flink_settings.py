"""Count the processes, models and tasks under each setting that tt adds for Flink.

    deploy/flink/install.sh
    python tests/bench/flink_settings.py run train.en.gz

The benchmark starts a session cluster of two task managers with two slots each on this machine. It
runs `tt translate-batch` with the settings of `pipelines/runners/flink.py`, and then with each
setting at Beam's default or at a value that a user might try. A program around `deploy/flink/boot`
counts the workers, the unit results name the processes that loaded a model, and Flink's REST
interface counts the tasks. Times are not measured.
"""

from __future__ import annotations

import argparse
import collections
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import flink_session

ROOT = Path(__file__).resolve().parents[2]
JAR = ROOT / ".cache/flink/jars/flink-job-server.jar"
CASES = {
    "as tt sets them": (),
    "one task per step (--parallelism=1)": ("--parallelism=1",),
    "no worker between stages (--environment_cache_millis=0)": ("--environment_cache_millis=0",),
    "a worker for each slot (--sdk_worker_parallelism=2)": ("--sdk_worker_parallelism=2",),
}


def write_boot(folder: Path) -> tuple[Path, Path]:
    """Write a program that logs its start and then starts a worker; return it and its log."""
    boot, log = folder / "boot", folder / "workers.log"
    log.touch()
    boot.write_text(f'#!/bin/sh\necho $$ >> "{log}"\nexec "{ROOT}/deploy/flink/boot" "$@"\n')
    boot.chmod(0o755)
    return boot, log


def count_tasks(url: str) -> int:
    """Return the number of tasks of the latest job, over all its steps."""
    with urllib.request.urlopen(f"{url}/jobs/overview", timeout=30) as reply:
        last = max(json.load(reply)["jobs"], key=lambda job: job["start-time"])
    return int(last["tasks"]["total"])


def translate(
    options: argparse.Namespace, *, url: str, folder: Path, flags: tuple[str, ...]
) -> str:
    """Run the job once; return a row of the table.

    Raises:
      SystemExit: The job failed.
    """
    folder.mkdir()
    boot, log = write_boot(folder)
    environment = json.dumps({"command": str(boot)})
    command = [
        str(Path(sys.executable).with_name("tt")), "translate-batch", str(options.table),
        "--model", options.model, "--output", str(folder / "out"),
        "--unit-rows", str(options.rows // options.units), "--beam-size", "1",
        "--runner", "flink", "--flink-master", url.removeprefix("http://"), "--",
        f"--flink_job_server_jar={JAR}", "--environment_type=PROCESS",
        f"--environment_config={environment}", *flags,
    ]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(ended.stderr)
    units: collections.Counter[int] = collections.Counter(
        json.loads(path.read_text())["worker"]["process"]
        for path in (folder / "out/_tt/units").rglob("*.json")
    )
    started = len(log.read_text().split())
    spread = " + ".join(map(str, sorted(units.values(), reverse=True)))
    return f"{started} | {len(units)} | {spread} | {count_tasks(url)} |"


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="Read the model from this run folder or model folder.")
    parser.add_argument("text", help="Translate this text, with one sentence per line.")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--units", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        options.table = folder / "in.parquet"
        opened = gzip.open if options.text.endswith(".gz") else open
        with opened(options.text, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in itertools.islice(file, options.rows)]
        pq.write_table(pa.table({"text": lines}), options.table, row_group_size=options.rows // 4)
        url = flink_session.start(folder / "cluster", slots=2)["url"]
        try:
            print("| | workers started | models loaded | units per worker | Flink tasks |")
            print("|---|---|---|---|---|")
            for number, (case, flags) in enumerate(CASES.items()):
                row = translate(options, url=url, folder=folder / str(number), flags=flags)
                print(f"| {case} | {row}", flush=True)
        finally:
            flink_session.stop(folder / "cluster")


if __name__ == "__main__":
    main()
