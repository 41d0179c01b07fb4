"""What a job of tt wants of Flink is added where no flag says otherwise."""

from __future__ import annotations

import re

import pytest
from flink_stand_in import FlinkStandIn

from model.errors import UserError
from pipelines.runners.flink import with_settings


@pytest.fixture
def flink():
    stand_in = FlinkStandIn(slots=6, task_managers=2)
    yield stand_in
    stand_in.stop()


def added(given, **options):
    arguments = with_settings(given, **{"job": "j", "shares_model": True} | options)
    assert arguments[: len(given)] == given
    return dict(argument.split("=", 1) for argument in arguments[len(given) :])


def test_a_cluster_is_used_whole(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    found = added(given)
    assert re.fullmatch(r"tt-j-[0-9a-f]{8}", found.pop("--job_name"))
    assert found == {
        "--environment_cache_millis": "600000",
        "--sdk_worker_parallelism": "1",  # whose threads share a model
        "--flink_version": "1.19",
        "--parallelism": "6",
        "--experiments": "disable_logging_submission_environment",
    }
    assert added(given, shares_model=False)["--sdk_worker_parallelism"] == "3"
    theirs = ["--parallelism=2", "--sdk_worker_parallelism=5", "--job_name=mine",
              "--environment_cache_millis=1", "--flink_version=1.20",
              "--experiments=disable_logging_submission_environment"]  # fmt: skip
    assert added([*given, *theirs]) == {}


def test_job_takes_only_the_available_slots(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    flink.overview["slots-available"] = 2
    arguments = with_settings(given, job="j", shares_model=False)
    assert "--parallelism=2" in arguments
    assert "--sdk_worker_parallelism=3" in arguments  # the free slots may be of one task manager
    flink.overview["slots-available"] = 0
    arguments = with_settings(given, job="j", shares_model=False)
    assert "--parallelism=6" in arguments  # the job waits for other jobs to end
    assert "--parallelism" not in added([*given, "--parallelism=4"])


def test_other_runners_get_nothing_and_a_job_server_is_not_passed_over(flink):
    assert added(["--runner=FnApiRunner"]) == {}
    assert added([]) == {}
    for where in (["--flink_master=[local]"], ["--flink_master=h:1", "--job_endpoint=h:2"], []):
        found = added(["--runner=FlinkRunner", *where], shares_model=False)
        assert found["--sdk_worker_parallelism"] == "0"
        assert not {"--parallelism", "--flink_version"} & found.keys()


def test_clusters_that_cannot_do_it_are_refused(flink):
    given = ["--runner=FlinkRunner", f"--flink_master={flink.address}"]
    flink.overview.update({"slots-total": 0, "slots-available": 0, "taskmanagers": 0})
    with pytest.raises(UserError, match=r"has no task slots: start task managers, or say behind"):
        added(given)
    assert added([*given, "--parallelism=8"])["--flink_version"] == "1.19"
    flink.overview["flink-version"] = "3.1.0"
    with pytest.raises(UserError, match=r"is Flink 3\.1\.0, and this Beam knows 1\.19, 1\.20, "):
        added(given)
