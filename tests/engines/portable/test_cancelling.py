"""Ctrl-C cancels a job on Beam's portable job service."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time

from apache_beam.portability.api import beam_job_api_pb2
from apache_beam.runners.portability.local_job_service import BeamJob, LocalJobServicer
from command_line import TEXTS, write_corpus
from interrupting import interrupt

GOES_ON = "; run the same command again to resume"


def test_ctrl_c_cancels_a_job_of_a_job_service(tmp_path, monkeypatch):
    states = []  # the states that the service gave the job

    def set_state(job, state):
        states.append(state)
        return original(job, state)

    original = BeamJob.set_state
    monkeypatch.setattr(BeamJob, "set_state", set_state)
    write_corpus(tmp_path, count=600_000)  # many seconds of work
    service = LocalJobServicer(tempfile.mkdtemp())
    port = service.start_grpc_server()
    beam = ("--runner=PortableRunner", "--environment_type=LOOPBACK")
    command = [sys.executable, "-m", "tt.cli.main", "preprocess", *TEXTS, "--", *beam]
    command.append(f"--job_endpoint=localhost:{port}")
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        seen = ""
        for seen in process.stderr:
            if seen.startswith("Job "):
                break
        assert "runs on PortableRunner" in seen
        start = time.monotonic()
        said = interrupt(process)
    seconds = time.monotonic() - start
    [name] = service._jobs
    assert process.returncode == 130
    assert said.splitlines()[-1] == f"tt: interrupted, and the job {name} is canceled{GOES_ON}"
    assert "Traceback" not in said
    assert seconds < 60
    assert beam_job_api_pb2.JobState.CANCELLED in states
    assert beam_job_api_pb2.JobState.DONE not in states
    service.stop()
    assert not (tmp_path / "dataset/dataset.json").exists()
