"""The settings of a job on a Flink cluster, and queries and requests to the cluster."""

from __future__ import annotations

import re
import types

import pytest
from apache_beam.runners.runner import PipelineState
from flink_stand_in import FlinkStandIn

from tt.model.errors import ServiceError, UserError
from tt.pipelines.runners import flink as flink_module
from tt.pipelines.runners.beam_options import parse_arguments
from tt.pipelines.runners.flink import (
    FlinkCluster,
    FlinkJob,
    FlinkResult,
    find_cluster,
    with_settings,
)

FLINK = "--runner=FlinkRunner"


@pytest.fixture
def flink():
    stand_in = FlinkStandIn(slots=6, task_managers=2)
    yield stand_in
    stand_in.stop()


def added(given, **options):
    arguments = with_settings(given, **{"job": "j", "shares_model": True} | options)
    assert arguments[: len(given)] == given
    return dict(argument.split("=", 1) for argument in arguments[len(given) :])


def test_a_job_uses_the_whole_cluster(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    found = added(given)
    assert re.fullmatch(r"tt-j-[0-9a-f]{8}", found.pop("--job_name"))
    assert found == {
        "--environment_cache_millis": "600000",
        "--sdk_worker_parallelism": "1",  # the threads of a worker share a model
        "--flink_version": "1.19",
        "--parallelism": "6",
        "--experiments": "disable_logging_submission_environment",
    }
    assert added(given, shares_model=False)["--sdk_worker_parallelism"] == "3"
    theirs = ["--parallelism=2", "--sdk_worker_parallelism=5", "--job_name=mine",
              "--environment_cache_millis=1", "--flink_version=1.20",
              "--experiments=disable_logging_submission_environment"]  # fmt: skip
    assert added([*given, *theirs]) == {}


def test_a_job_uses_only_the_available_slots(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    flink.overview["slots-available"] = 2
    arguments = with_settings(given, job="j", shares_model=False)
    assert "--parallelism=2" in arguments
    assert "--sdk_worker_parallelism=3" in arguments  # a task manager may have all free slots
    flink.overview["slots-available"] = 0
    arguments = with_settings(given, job="j", shares_model=False)
    assert "--parallelism=6" in arguments  # the job waits for other jobs to end
    assert "--parallelism" not in added([*given, "--parallelism=4"])


def test_other_runners_and_job_services_get_no_cluster_settings(flink):
    assert added(["--runner=FnApiRunner"]) == {}
    assert added([]) == {}
    for where in (["--flink_master=[local]"], ["--flink_master=h:1", "--job_endpoint=h:2"], []):
        found = added(["--runner=FlinkRunner", *where], shares_model=False)
        assert found["--sdk_worker_parallelism"] == "0"
        assert not {"--parallelism", "--flink_version"} & found.keys()


def test_clusters_without_slots_or_with_a_wrong_version_are_refused(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    flink.overview.update({"slots-total": 0, "slots-available": 0, "taskmanagers": 0})
    with pytest.raises(UserError, match=r"has no task slots\. Start task managers, or set the"):
        added(given)
    assert added([*given, "--parallelism=8"])["--flink_version"] == "1.19"
    flink.overview["flink-version"] = "3.1.0"
    with pytest.raises(UserError, match=r"--flink_version: invalid choice: '3\.1'"):
        parse_arguments(with_settings([*given, "--parallelism=8"], job="j", shares_model=True))


def test_the_cluster_is_found_in_beams_flags():
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
def test_a_missing_cluster_gives_a_one_line_error(flink, address):
    address = address.replace("STAND-IN", flink.address)
    with pytest.raises(ServiceError) as told:
        FlinkCluster(f"http://{address}").overview()
    assert str(told.value).startswith(f"there is no Flink cluster at http://{address} (")
    assert str(told.value).endswith(
        "). Start it, or set `flink_master` to the HOST:PORT of its job manager's page"
    )


def test_the_state_on_the_cluster_overrides_the_job_server(flink, monkeypatch):
    monkeypatch.setattr(flink_module, "_SUBMIT_SECONDS", 0.1)
    server = types.SimpleNamespace(_job_id="a_1", state=PipelineState.RUNNING)

    def cancel():
        server.state = PipelineState.CANCELLED

    server.cancel = cancel
    result = FlinkResult(server, cluster=FlinkCluster(f"http://{flink.address}"), name="a")
    assert result.state == PipelineState.RUNNING
    result.cancel()  # before the cluster has the job
    assert result.state == PipelineState.CANCELLED
    flink.add("a", "RUNNING")
    assert result.state == PipelineState.RUNNING, "the job still runs on Flink"
    result.cancel()
    assert result.state == PipelineState.CANCELLED
    for theirs, ours in (("FINISHED", "DONE"), ("FAILED", "FAILED"), ("CANCELLING", "RUNNING")):
        flink.jobs[0]["state"] = theirs
        assert result.state == ours
