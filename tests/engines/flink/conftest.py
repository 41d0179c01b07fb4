"""A Flink session cluster with two task managers on this machine."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import flink_session
import pytest

ROOT = Path(__file__).parents[3]
JAR = ROOT / ".cache/flink/jars/flink-job-server.jar"
ENDED = ("FINISHED", "CANCELED", "FAILED")


@dataclasses.dataclass
class Cluster:
    """A running cluster."""

    folder: Path
    url: str

    @property
    def arguments(self):
        """The flags with which `tt` runs a job on this cluster."""
        environment = json.dumps({"command": str(ROOT / "deploy/flink/boot")})
        return [
            "--runner", "flink", "--flink-master", self.url.removeprefix("http://"), "--",
            f"--flink_job_server_jar={JAR}", "--environment_type=PROCESS",
            f"--environment_config={environment}",
        ]  # fmt: skip

    def ask(self, path):
        with urllib.request.urlopen(f"{self.url}/{path}", timeout=30) as reply:
            return json.load(reply)

    def jobs(self):
        """Return the states of all jobs by name."""
        return {job["name"]: job["state"] for job in self.ask("jobs/overview")["jobs"]}

    def wait_for_running_job(self):
        """Wait until the only unfinished job runs; return its name."""
        end = time.monotonic() + 60
        while True:
            [(name, state)] = [each for each in self.jobs().items() if each[1] not in ENDED]
            if state == "RUNNING":
                return name
            assert time.monotonic() < end, state
            time.sleep(0.1)

    def has_running_jobs(self):
        return any(state not in ENDED for state in self.jobs().values())

    def task_managers(self):
        """Return the process IDs of all task managers that were started."""
        return json.loads((self.folder / "cluster.json").read_text())["task_managers"]

    def add_task_manager(self):
        flink_session.add(self.folder)

    def cancel(self, job):
        """Cancel a job as its page does, and wait until it has ended."""
        url = f"{self.url}/jobs/{job}?mode=cancel"
        urllib.request.urlopen(urllib.request.Request(url, method="PATCH"), timeout=30).close()
        end = time.monotonic() + 60
        while self.ask(f"jobs/{job}")["state"] not in ENDED:
            assert time.monotonic() < end
            time.sleep(0.2)

    def start(self, *arguments, cwd, more=()):
        """Start `tt` with a job on this cluster, in its own process group; `more` is for Beam."""
        command = [
            sys.executable,
            "-m",
            "tt.cli.main",
            *map(str, arguments),
            *self.arguments,
            *more,
        ]
        return subprocess.Popen(
            command, cwd=cwd, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    def run(self, *arguments, cwd, more=()):
        """Run `tt` with a job on this cluster; return its exit code and its output."""
        process = self.start(*arguments, cwd=cwd, more=more)
        _, printed = process.communicate(timeout=600)
        return process.returncode, printed


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"Flink and Beam's job server need {program}, which is not installed")
    if not JAR.exists():
        pytest.fail(f"{JAR} does not exist: run `make test-flink`")
    folder = tmp_path_factory.mktemp("flink")
    yield Cluster(folder, flink_session.start(folder)["url"])
    flink_session.stop(folder)
