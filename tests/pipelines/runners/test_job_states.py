"""Dataflow and job services are asked whether a job still runs."""

from __future__ import annotations

import types

import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from google.cloud import dataflow

from pipelines.runners.job_states import RunnerJob, new_job


@pytest.fixture
def client(monkeypatch):
    """Stands for Dataflow's client, and keeps what it is asked."""
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
    [("RUNNING", True), ("PENDING", True), ("QUEUED", True), ("CANCELLING", True), ("DONE", False),
     ("FAILED", False), ("CANCELLED", False), ("DRAINED", False)],
)  # fmt: skip
def test_dataflow_is_asked_by_the_id(client, state, is_running):
    client.state = dataflow.JobState[f"JOB_STATE_{state}"]
    assert job_on_dataflow(id="7").is_running() is is_running
    [asked] = client.asked
    assert (asked.project_id, asked.location, asked.job_id) == ("p", "r", "7")
    assert client.made[0]["transport"] is None
    assert client.made[0]["client_options"].api_endpoint == "dataflow.googleapis.com"


def test_dataflow_is_asked_by_the_name_of_a_job_whose_id_never_came(client):
    here = "--dataflow_endpoint=http://localhost:1"
    assert job_on_dataflow(here).is_running()
    assert not job_on_dataflow(here, name="tt-2").is_running()
    assert client.asked[0].filter == dataflow.ListJobsRequest.Filter.ACTIVE
    assert client.made[0]["transport"] == "rest", "as a stand-in speaks no gRPC"
