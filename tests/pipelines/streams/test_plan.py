"""The size of batches of messages."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.streams.plan import MOST_SECONDS, BatchLimit


def test_a_fast_model_gets_full_batches_soon():
    limit = BatchLimit(1000)
    assert limit.messages == 64
    for expected in (256, 1000, 1000):
        limit.note(messages=limit.messages, seconds=0.01)
        assert limit.messages == expected


def test_a_model_that_takes_90_seconds_per_message_gets_single_messages():
    limit = BatchLimit(1000)
    limit.note(messages=64, seconds=64 * 90.0)
    assert limit.messages == 1
    limit.note(messages=1, seconds=90.0)
    assert limit.messages == 1


def test_small_batches_of_a_fast_model_do_not_lower_the_first_limit():
    limit = BatchLimit(1000)
    limit.note(messages=1, seconds=0.1)
    assert limit.messages == 64


@given(
    most=st.integers(1, 5000),
    batches=st.lists(st.tuples(st.integers(1, 5000), st.floats(0, 1e6)), min_size=1),
)
def test_a_batch_at_the_measured_speed_ends_in_time(most, batches):
    limit = BatchLimit(most)
    for messages, seconds in batches:
        limit.note(messages=messages, seconds=seconds)
        assert 1 <= limit.messages <= most
        assert limit.messages == 1 or limit.messages * seconds / messages <= MOST_SECONDS * 1.001
