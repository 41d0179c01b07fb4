"""Apache Kafka and streams, for the tests of streams."""

from __future__ import annotations

import functools

import pytest
from commands import Child
from streaming import run_stream


@pytest.fixture(scope="session")
def kafka(tmp_path_factory):
    """Apache Kafka on this machine; each test makes its own topics."""
    from apache_kafka import running

    yield from running(tmp_path_factory.mktemp("kafka"))


@pytest.fixture
def own_kafka(tmp_path):
    """Apache Kafka that a test may kill."""
    from apache_kafka import running

    yield from running(tmp_path / "kafka")


@pytest.fixture
def start():
    """Start streams, and kill all streams that a test leaves running."""
    children = []

    def start(options, **settings):
        child = Child(functools.partial(run_stream, **settings), options)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill_group()
