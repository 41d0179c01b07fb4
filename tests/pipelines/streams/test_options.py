"""The options and addresses of a stream."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.pipelines.streams.options import KafkaTopic, PubsubName, StreamOptions, parse_address

NAME = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
BROKER = st.builds(
    lambda host, port: f"{host}:{port}",
    st.text("ab1.-_", min_size=1, max_size=9) | st.just("[::1]"),
    st.integers(1, 65_535),
)


@given(brokers=st.lists(BROKER, min_size=1, max_size=3), topic=NAME)
def test_kafka_addresses_round_trip(brokers, topic):
    text = f"kafka://{','.join(brokers)}/{topic}"
    found = parse_address(text, name="`input`")
    assert isinstance(found, KafkaTopic)
    assert str(found) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "http://a:1/t", "kafka://", "kafka://a:1", "kafka://a:1/",
        "kafka://a/t", "kafka://a:0/t", "kafka://a:1,/t", "kafka://a:1/t/u",
        "kafka://a:1/.", "kafka://a:1/t u", f"kafka://a:1/{'t' * 250}", "kafka://a:١/t",
        "KAFKA://a:1/t", "kafka://a:1/t\n",
    ],
)  # fmt: skip
def test_invalid_kafka_addresses_are_refused(text):
    with pytest.raises(UserError, match="`input`") as refused:
        parse_address(text, name="`input`")
    assert f"Received: {text}" in str(refused.value)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UserError, match="kafka_config") as refused:
        parse_address("kafka://me:hush@a:1/t", name="`input`")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["pubsub://my-project/titles", "pubsub://example.com:my-project/a.b_c~d+e%f-1"]
)
def test_pubsub_addresses_round_trip(text):
    assert isinstance(parse_address(text, name="`input`"), PubsubName)
    assert str(parse_address(text, name="`input`")) == text


@pytest.mark.parametrize(
    "text",
    [
        "pubsub://", "pubsub://my-project", "pubsub://my-project/", "pubsub://my-project/in/out",
        "pubsub://My-Project/in", "pubsub://p/in", "pubsub://my-project/ab", "pubsub://my-project/1in",
        "pubsub://my-project/google", "pubsub://my-project/in out", "pubsub:/my-project/in",
        "pubsub://projects/my-project/topics/in", "http://host/in", "",
    ],
)  # fmt: skip
def test_invalid_pubsub_addresses_are_refused(text):
    with pytest.raises(UserError, match="`input`") as refused:
        parse_address(text, name="`input`")
    assert f"Received: {text}" in str(refused.value)


@pytest.mark.parametrize("text", ["inbox", "inbox/*.parquet", "/data/in", "gs://bucket/in", "a:b"])
def test_the_error_for_a_folder_names_the_command_for_folders(text):
    with pytest.raises(UserError, match="use `tt translate-batch --watch 30s`"):
        parse_address(text, name="`input`")


GIVEN = {"input": "kafka://a:1/in", "output": "kafka://a:1/out", "group": "g"}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"output": "kafka://a:1/in"}, "translated again"),
        ({"dead_letter": "kafka://a:1/in"}, "same topic as `input`"),
        ({"dead_letter": "kafka://a:1/out"}, "same topic as `output`"),
        ({"dead_letter": "dead"}, "`dead_letter` must be kafka://"),
        ({"group": ""}, "`group` is missing"),
        ({"group": None}, "`group` is missing"),
        ({"output": "pubsub://project/translated"}, "must all be Kafka topics"),
        ({"dead_letter": "pubsub://project/failed"}, "must all be Kafka topics"),
        ({"fields": ("a..b",)}, "names separated by dots"),
        ({"fields": ("",)}, "names separated by dots"),
        ({"fields": ("a", "a")}, "a twice"),
        ({"max_latency": 0.0}, "`max_latency`"),
        ({"max_latency": float("nan")}, "`max_latency`"),
        ({"max_latency": 61.0}, "`max_latency`"),
        ({"max_batch": 0}, "`max_batch`"),
        ({"metrics_port": 0}, "`metrics_port`"),
        ({"metrics_port": 65_536}, "`metrics_port`"),
        ({"metrics_address": "0.0.0.0"}, "`metrics_address` 0.0.0.0 needs `metrics_port`"),
        ({"delivery": "at-most-once"}, "`delivery` must be one of exactly-once, at-least-once"),
    ],
)
def test_wrong_kafka_options_are_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**GIVEN, **fields})


def test_topics_with_the_same_name_on_other_brokers_differ():
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
        ({"dead_letter": "pubsub://project/translated"}, "same topic as `output`"),
        (
            {"output": "pubsub://project"},
            "`output` must be kafka://HOST:PORT/TOPIC or pubsub://PROJECT/NAME",
        ),
    ],
)
def test_wrong_pubsub_options_are_refused(fields, said):
    with pytest.raises(UserError, match=said):
        StreamOptions(**{**PUBSUB, **fields})


def test_a_subscription_and_a_topic_may_have_the_same_name():
    options = StreamOptions(**{**PUBSUB, "output": "pubsub://project/titles"})
    assert options.source.subscription == "projects/project/subscriptions/titles"
    assert options.target.topic == "projects/project/topics/titles"
