"""The options of a stream."""

import pytest

from model.errors import UserError
from pipelines.streams.options import StreamOptions

GIVEN = {"input": "kafka://a:1/in", "output": "kafka://a:1/out", "group": "g"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"output": "kafka://a:1/in"}, "translated again"),
        ({"dead_letter": "kafka://a:1/in"}, "topic of `input`"),
        ({"dead_letter": "kafka://a:1/out"}, "topic of `output`"),
        ({"dead_letter": "dead"}, "`dead_letter` must be a topic"),
        ({"group": ""}, "`group` is empty"),
        ({"fields": ("a..b",)}, "names with dots"),
        ({"fields": ("",)}, "names with dots"),
        ({"fields": ("a", "a")}, "a twice"),
        ({"max_latency": 0.0}, "`max_latency`"),
        ({"max_latency": float("nan")}, "`max_latency`"),
        ({"max_latency": 61.0}, "`max_latency`"),
        ({"max_batch": 0}, "`max_batch`"),
        ({"metrics_port": 0}, "`metrics_port`"),
        ({"metrics_port": 65_536}, "`metrics_port`"),
    ],
)
def test_a_wrong_option_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**GIVEN, **fields})


def test_topics_of_one_name_at_other_brokers_are_others():
    options = StreamOptions(**{**GIVEN, "output": "kafka://b:1/in"})
    assert options.source != options.target
    assert options.failed is None
