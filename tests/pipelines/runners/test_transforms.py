"""A worker of other versions than the submitter's ends a job before it has done anything."""

from __future__ import annotations

import re
import socket
import sys

import apache_beam as beam
import pytest
from apache_beam.testing.util import assert_that, equal_to

from tt.model.errors import UserError
from tt.pipelines.runners.failures import find_user_error
from tt.pipelines.runners.runner import make_pipeline
from tt.pipelines.runners.transforms import Spread, check_versions, check_worker, versions_here


def test_versions_are_compared():
    here = versions_here()
    assert here["Beam"] == beam.__version__
    assert here["Python"] == f"{sys.version_info.major}.{sys.version_info.minor}"
    assert re.fullmatch(r"\d+\.\d+\.\d+", here["tt"])
    check_versions(here)
    there = here | {"tt": "7.0", "Python": "2.7"}
    with pytest.raises(UserError) as told:
        check_versions(there)
    assert str(told.value) == (
        f"the worker on {socket.gethostname()} has tt {here['tt']} where the job was submitted by "
        f"7.0 and Python {here['Python']} where the job was submitted by 2.7: give it the same "
        "versions, as by an image of deploy/Dockerfile built from what submits the job"
    )


def test_elements_pass_a_worker_that_is_alike_and_no_other():
    with make_pipeline([]) as pipeline:
        passed = pipeline | beam.Create([1, 2]) | beam.Map(check_worker, versions=versions_here())
        assert_that(passed, equal_to([1, 2]))
    pipeline = make_pipeline([])
    other = versions_here() | {"tt": "7.0"}
    _ = pipeline | beam.Create([1]) | beam.Map(check_worker, versions=other)
    with pytest.raises(Exception, match=r"submitted by 7\.0") as raised:
        pipeline.run().wait_until_finish()
    assert isinstance(find_user_error(raised.value), UserError)


def test_what_is_spread_stays_as_it_is():
    """Elements of one name, too."""
    with make_pipeline([]) as pipeline:
        spread = pipeline | beam.Create(["ab", "ac", "b", "b"]) | Spread(key=lambda text: text[0])
        assert_that(spread, equal_to(["ab", "ac", "b", "b"]))
