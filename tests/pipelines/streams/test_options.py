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
        ({"dead_letter": "dead"}, "must be of one kind"),
        ({"group": ""}, "`group` is missing"),
        ({"group": None}, "`group` is missing"),
        ({"output": "pubsub://project/translated"}, "must be of one kind"),
        ({"dead_letter": "pubsub://project/failed"}, "must be of one kind"),
        ({"fields": ("a..b",)}, "names with dots"),
        ({"fields": ("",)}, "names with dots"),
        ({"fields": ("a", "a")}, "a twice"),
        ({"max_latency": 0.0}, "`max_latency`"),
        ({"max_latency": float("nan")}, "`max_latency`"),
        ({"max_latency": 61.0}, "`max_latency`"),
        ({"max_batch": 0}, "`max_batch`"),
        ({"metrics_port": 0}, "`metrics_port`"),
        ({"metrics_port": 65_536}, "`metrics_port`"),
        ({"metrics_address": "0.0.0.0"}, "`metrics_address` needs `metrics_port`"),
        ({"delivery": "at-most-once"}, "`delivery` must be one of exactly-once, at-least-once"),
    ],
)
def test_a_wrong_option_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**GIVEN, **fields})


def test_topics_of_one_name_at_other_brokers_are_others():
    options = StreamOptions(**{**GIVEN, "output": "kafka://b:1/in"})
    assert options.source != options.target
    assert options.failed is None


PUBSUB = {"input": "pubsub://project/titles", "output": "pubsub://project/translated"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"group": "g"}, "`group` is only for Kafka"),
        ({"kafka_config": "file"}, "`kafka_config` is only for Kafka"),
        ({"instance_id": "a"}, "`instance_id` is only for Kafka"),
        ({"delivery": "at-least-once"}, "`delivery` is only for Kafka"),
        ({"dead_letter": "pubsub://project/translated"}, "topic of `output`"),
        ({"output": "pubsub://project"}, "`output` must name a project"),
    ],
)
def test_a_wrong_option_of_pubsub_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**PUBSUB, **fields})


def test_a_subscription_may_have_the_name_of_a_topic():
    options = StreamOptions(**{**PUBSUB, "output": "pubsub://project/titles"})
    assert options.source.subscription == "projects/project/subscriptions/titles"
    assert options.target.topic == "projects/project/topics/titles"


FOLDERS = {"input": "inbox", "output": "outbox"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"group": "g"}, "`group` is only for Kafka"),
        ({"dead_letter": "failed"}, "`dead_letter` is for messages"),
        ({"max_latency": 1.0}, "`max_latency` is for messages"),
        ({"max_batch": 7}, "`max_batch` is for messages"),
        ({"poll": 0.0}, "`poll` must be more than 0"),
        ({"poll": float("nan")}, "`poll` must be more than 0"),
    ],
)
def test_a_wrong_option_of_a_folder_is_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**FOLDERS, **fields})


def test_messages_are_not_looked_for_by_time():
    with pytest.raises(UserError, match="`poll` is for folders"):
        StreamOptions(**GIVEN, poll=1.0)
