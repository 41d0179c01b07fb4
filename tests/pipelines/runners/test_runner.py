"""Jobs on this machine: elements arrive complete, and log filters end with the job."""

from __future__ import annotations

import logging
import threading
import time

import apache_beam as beam
import pytest

from tt.model.errors import UserError
from tt.pipelines.runners import failures
from tt.pipelines.runners.runner import make_pipeline, run_pipeline


class Slow:
    """An element that takes longer to encode than Beam's workers wait before they send data."""

    def __init__(self, number):
        self.number = number

    def __getstate__(self):
        time.sleep(1.3)
        return vars(self)


@pytest.mark.slow
def test_elements_that_are_slow_to_encode_arrive_complete(tmp_path):
    def write(group):
        key, values = group
        (tmp_path / key).write_text(f"{sorted(value.number for value in values)}")

    pipeline = make_pipeline(["--direct_num_workers=2", "--direct_running_mode=multi_threading"])
    (
        pipeline
        | beam.Create(range(4))
        | beam.Reshuffle()
        | beam.Map(lambda number: ("ab"[number % 2], Slow(number)))
        | beam.GroupByKey()
        | beam.Map(write)
    )
    run_pipeline(pipeline)
    assert (tmp_path / "a").read_text() == "[0, 2]"
    assert (tmp_path / "b").read_text() == "[1, 3]"


def fail(number):
    raise UserError(f"number {number} is refused")


def failing_pipeline():
    pipeline = make_pipeline([])
    _ = pipeline | beam.Create([1]) | beam.Map(fail)
    return pipeline


def test_user_errors_of_later_pipelines_are_logged(caplog):
    with pytest.raises(UserError, match="number 1 is refused"):
        run_pipeline(failing_pipeline())
    assert "is refused" not in caplog.text
    with pytest.raises(Exception, match="number 1 is refused"):
        failing_pipeline().run()
    assert "number 1 is refused" in caplog.text


def test_overlapping_jobs_have_separate_log_filters(caplog):
    logger = logging.getLogger("apache_beam.runners.worker.sdk_worker")
    before = list(logger.filters)
    second_began, first_ended = threading.Event(), threading.Event()

    def first():
        with failures.user_errors_unlogged():
            assert second_began.wait(60)
        first_ended.set()

    thread = threading.Thread(target=first)
    thread.start()
    with failures.user_errors_unlogged():
        second_began.set()
        assert first_ended.wait(60)
        logger.error("tt.model.errors.UserError: no model")
        logger.error("the machine is at fault")
        assert [record.message for record in caplog.records] == ["the machine is at fault"]
    thread.join(60)
    assert logger.filters == before
    logger.error("tt.model.errors.UserError: no model")
    assert len(caplog.records) == 2


def test_a_detached_flink_job_needs_a_permanent_folder_for_its_packages(tmp_path):
    arguments = ["--runner=FlinkRunner", "--flink_master=host:8081", "--environment_config=image"]
    packages = [*arguments, "--extra_package=tt.whl"]
    with pytest.raises(UserError, match=r"Set --artifacts_dir=FOLDER after --"):
        make_pipeline(packages, detach=True)
    make_pipeline(packages)
    make_pipeline(arguments, detach=True)
    make_pipeline([*packages, f"--artifacts_dir={tmp_path}"], detach=True)
