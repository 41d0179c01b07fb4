"""The first step of every job checks the versions of its worker; `Spread` keeps all elements."""

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
        f"the worker on {socket.gethostname()} has tt {here['tt']} instead of 7.0 and Python "
        f"{here['Python']} instead of 2.7. Install the versions of the machine that submits "
        "the job, for example with an image that you build there from deploy/Dockerfile"
    )


def test_elements_pass_only_workers_with_the_same_versions():
    with make_pipeline([]) as pipeline:
        passed = pipeline | beam.Create([1, 2]) | beam.Map(check_worker, versions=versions_here())
        assert_that(passed, equal_to([1, 2]))
    pipeline = make_pipeline([])
    other = versions_here() | {"tt": "7.0"}
    _ = pipeline | beam.Create([1]) | beam.Map(check_worker, versions=other)
    with pytest.raises(Exception, match=r"instead of 7\.0") as raised:
        pipeline.run().wait_until_finish()
    assert isinstance(find_user_error(raised.value), UserError)


def test_spread_keeps_all_elements():
    """Elements with the same name are kept, too."""
    with make_pipeline([]) as pipeline:
        spread = pipeline | beam.Create(["ab", "ac", "b", "b"]) | Spread(key=lambda text: text[0])
        assert_that(spread, equal_to(["ab", "ac", "b", "b"]))
