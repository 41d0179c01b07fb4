"""Jobs on this machine: what their threads send each other arrives whole."""

from __future__ import annotations

import time

import apache_beam as beam
import pytest

from pipelines.runners.runner import make_pipeline, run_pipeline


class Slow:
    """Takes longer to be written than Beam's workers wait until they send what there is."""

    def __init__(self, number):
        self.number = number

    def __getstate__(self):
        time.sleep(1.3)
        return vars(self)


@pytest.mark.slow
def test_an_element_that_takes_long_to_write_arrives_whole(tmp_path):
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
