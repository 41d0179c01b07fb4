"""A Flink cluster says what runs there, and ends it; what is no cluster is told of in one line."""

from __future__ import annotations

import types

import pytest
from apache_beam.runners.runner import PipelineState
from flink_stand_in import FlinkStandIn

from model.errors import ServiceError
from pipelines.runners import flink_cluster
from pipelines.runners.flink_cluster import FlinkCluster, FlinkJob, FlinkResult, find_cluster

FLINK = "--runner=FlinkRunner"


@pytest.fixture
def flink():
    stand_in = FlinkStandIn()
    yield stand_in
    stand_in.stop()


def test_flags_name_a_cluster_or_none():
    for master in ("host:8081", "http://host:8081", " http://host:8081/ "):
        assert find_cluster([FLINK, f"--flink_master={master}"]) == FlinkCluster("http://host:8081")
    assert find_cluster([FLINK, "--flink_master=https://h/f"]) == FlinkCluster("https://h/f")
    for arguments in ([FLINK], [FLINK, "--flink_master=[local]"], ["--flink_master=host:8081"]):
        assert find_cluster(arguments) is None


def test_jobs_are_found_by_their_name(flink):
    cluster = FlinkCluster(f"http://{flink.address}")
    assert cluster.find_job("a") is None
    flink.add("a", "FAILED", start=1)
    flink.add("a", "RUNNING", start=3)
    flink.add("b", "RUNNING", start=4)
    job = cluster.find_job("a")
    assert job == FlinkJob("id-1", "RUNNING")
    assert not job.has_ended
    assert cluster.page(job) == f"http://{flink.address}/#/job/running/id-1/overview"
    cluster.cancel(job)
    assert cluster.find_job("a").has_ended
    assert not cluster.find_job("b").has_ended


@pytest.mark.parametrize("address", ["127.0.0.1:1", "STAND-IN/else"])
def test_what_is_no_cluster_is_told_of_in_one_line(flink, address):
    address = address.replace("STAND-IN", flink.address)
    with pytest.raises(ServiceError) as told:
        FlinkCluster(f"http://{address}").overview()
    assert str(told.value).startswith(f"there is no Flink cluster at http://{address} (")
    assert str(told.value).endswith(
        "): start it, or name the address of its job manager's page, HOST:PORT"
    )


def test_a_job_ends_in_the_cluster_whatever_the_job_server_says(flink, monkeypatch):
    monkeypatch.setattr(flink_cluster, "_SUBMIT_SECONDS", 0.1)
    server = types.SimpleNamespace(_job_id="a_1", state=PipelineState.RUNNING)

    def cancel():
        server.state = PipelineState.CANCELLED

    server.cancel = cancel
    result = FlinkResult(server, cluster=FlinkCluster(f"http://{flink.address}"), name="a")
    assert result.state == PipelineState.RUNNING
    result.cancel()  # before the cluster has it
    assert result.state == PipelineState.CANCELLED
    flink.add("a", "RUNNING")
    assert result.state == PipelineState.RUNNING, "Flink goes on with it"
    result.cancel()
    assert result.state == PipelineState.CANCELLED
    for theirs, ours in (("FINISHED", "DONE"), ("FAILED", "FAILED"), ("CANCELLING", "RUNNING")):
        flink.jobs[0]["state"] = theirs
        assert result.state == ours
