"""The job of a folder is stored in a file, and no second job starts while it runs."""

from __future__ import annotations

import json
import types

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from command_line import TEXTS, last_error, run, write_corpus
from flink_stand_in import FlinkStandIn
from google.cloud import dataflow

from tt.model.errors import ServiceError, UserError
from tt.pipelines.runners.job_file import JobFile, JobNote, RunnerJob, new_job


@pytest.fixture
def flink():
    stand_in = FlinkStandIn()
    yield stand_in
    stand_in.stop()


def flink_job(flink):
    return new_job(
        PipelineOptions([f"--flink_master={flink.address}", "--job_name=tt-1"]),
        runner="FlinkRunner",
    )


def test_jobs_that_end_with_this_process_are_not_stored():
    def place(runner, *arguments):
        job = new_job(PipelineOptions([*arguments, "--job_name=n"]), runner=runner)
        return job and job.place

    assert place("FnApiRunner") is None
    assert place("PortableRunner", "--job_endpoint=embed") is None
    assert place("FlinkRunner") is None
    assert place("FlinkRunner", "--flink_master=[local]") is None
    assert place("FlinkRunner", "--flink_master=h:1") == {"flink_master": "h:1"}
    for runner in ("FlinkRunner", "PortableRunner"):
        assert place(runner, "--job_endpoint=h:2") == {"job_endpoint": "h:2"}
    assert place("DataflowRunner", "--project=p", "--region=r", "--no_auth") == {
        "project": "p", "region": "r", "no_auth": True,
        "dataflow_endpoint": "https://dataflow.googleapis.com",
    }  # fmt: skip


def test_a_job_is_stored_while_it_may_run(flink, tmp_path):
    file = JobFile(str(tmp_path))
    file.check_no_job_runs()
    with JobNote(flink_job(flink), file=file) as note:
        assert file.read() == flink_job(flink)
        note.set_id("the ID of the job server")
        assert file.read() == flink_job(flink), "Flink knows the job by its name"
    assert file.read() is None
    with pytest.raises(RuntimeError), JobNote(flink_job(flink), file=file):
        raise RuntimeError
    assert file.read() is None, "the cluster does not have the job"
    flink.add("tt-1", "RUNNING")
    with pytest.raises(RuntimeError), JobNote(flink_job(flink), file=file):
        raise RuntimeError
    with pytest.raises(UserError) as refused:
        file.check_no_job_runs()
    assert str(refused.value) == (
        "the job tt-1 on FlinkRunner still runs for this folder. Wait for its end or cancel it, "
        "then run the same command again"
    )
    flink.jobs[0]["state"] = "FAILED"
    file.check_no_job_runs()


def test_jobs_of_other_runners_are_stored_with_their_id(tmp_path):
    file = JobFile(str(tmp_path))
    job = RunnerJob(runner="PortableRunner", name="n", place={"job_endpoint": "127.0.0.1:1"})
    with JobNote(job, file=file) as note:
        note.set_id("7")
        assert file.read().describe() == "7 on PortableRunner"
    with JobNote(None, file=file) as note:
        note.set_id("7")
        assert file.read() is None
    with JobNote(job, file=None):
        assert file.read() is None


def test_a_runner_that_does_not_answer_is_reported(flink, tmp_path):
    file = JobFile(str(tmp_path))
    file.write(flink_job(flink))
    flink.stop()
    with pytest.raises(ServiceError) as refused:
        file.check_no_job_runs()
    assert str(refused.value) == (
        "the job tt-1 on FlinkRunner may still write to the folder, but its runner does not "
        f"answer: there is no Flink cluster at http://{flink.address} (ConnectionError). Start it, "
        "or set `flink_master` to the HOST:PORT of its job manager's page. If the job has ended, "
        f"delete {file.path} and run the same command again"
    )
    job = RunnerJob(
        runner="PortableRunner", name="n", id="7", place={"job_endpoint": "127.0.0.1:1"}
    )
    file.write(job)
    message = r"no job service answers at 127.0.0.1:1\. If the job has"
    with pytest.raises(ServiceError, match=message):
        file.check_no_job_runs()
    (tmp_path / "job.json").write_text('{"runner": 1')
    with pytest.raises(UserError, match=r"/job.json is damaged\. Check that no job runs "):
        file.check_no_job_runs()


@pytest.mark.slow
def test_commands_refuse_to_detach_local_jobs_and_missing_clusters(
    flink, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    assert run("preprocess", *TEXTS, "--detach") == 2
    assert last_error(capsys) == (
        "tt: error: --detach needs a job that does not depend on this process, but FnApiRunner "
        "works in it. Remove --detach, or choose a --runner on other machines"
    )
    portable = ("--", "--runner=PortableRunner", "--environment_type=LOOPBACK")
    assert run("preprocess", *TEXTS, "--detach", *portable, "--job_endpoint=127.0.0.1:1") == 2
    assert "but PortableRunner works in it" in last_error(capsys)
    assert not (tmp_path / "dataset").exists()

    arguments = ("--runner", "flink", "--flink-master", flink.address)
    image = ("--worker-image", "image")
    flink.stop()
    assert run("preprocess", *TEXTS, *arguments, *image) == 2
    assert last_error(capsys).startswith(
        f"tt: error: there is no Flink cluster at http://{flink.address} (ConnectionError). "
    )
    assert not (tmp_path / "dataset").exists()


@pytest.mark.slow
def test_a_second_run_is_refused_during_the_first_run(flink, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    flink.add("tt-1", "RUNNING")
    (tmp_path / "dataset/_work").mkdir(parents=True)
    JobFile("dataset/_work").write(flink_job(flink))
    assert run("preprocess", *TEXTS) == 2
    assert last_error(capsys).startswith(
        "tt: error: the job tt-1 on FlinkRunner still runs for this folder. "
    )
    flink.jobs[0]["state"] = "FINISHED"
    assert run("preprocess", *TEXTS) == 0
    assert json.loads((tmp_path / "dataset/dataset.json").read_text())
    assert not (tmp_path / "dataset/_work").exists()


@pytest.fixture
def client(monkeypatch):
    """A fake for Dataflow's client that records its requests."""
    found = types.SimpleNamespace(state=dataflow.JobState.JOB_STATE_RUNNING, asked=[], made=[])

    class Client:
        def __init__(self, **options):
            found.made.append(options)

        def get_job(self, request, timeout, retry):
            found.asked.append(request)
            return dataflow.Job(current_state=found.state)

        def list_jobs(self, request, timeout, retry):
            found.asked.append(request)
            return [dataflow.Job(name="tt-1")]

    monkeypatch.setattr(dataflow, "JobsV1Beta3Client", Client)
    return found


def job_on_dataflow(*arguments, **changed):
    options = PipelineOptions(
        ["--project=p", "--region=r", "--no_auth", "--job_name=tt-1", *arguments]
    )
    job = new_job(options, runner="DataflowRunner")
    return RunnerJob(**vars(job) | changed)


@pytest.mark.parametrize(
    ("state", "is_running"),
    [("RUNNING", True), ("CANCELLING", True), ("DONE", False), ("FAILED", False)],
)  # fmt: skip
def test_dataflow_jobs_are_found_by_their_id(client, state, is_running):
    client.state = dataflow.JobState[f"JOB_STATE_{state}"]
    assert job_on_dataflow(id="7").is_running() is is_running
    [asked] = client.asked
    assert (asked.project_id, asked.location, asked.job_id) == ("p", "r", "7")
    assert client.made[0]["transport"] is None
    assert client.made[0]["client_options"].api_endpoint == "dataflow.googleapis.com"


def test_dataflow_jobs_without_an_id_are_found_by_their_name(client):
    here = "--dataflow_endpoint=http://localhost:1"
    assert job_on_dataflow(here).is_running()
    assert not job_on_dataflow(here, name="tt-2").is_running()
    assert client.asked[0].filter == dataflow.ListJobsRequest.Filter.ACTIVE
    assert client.made[0]["transport"] == "rest", "a stand-in has no gRPC"
