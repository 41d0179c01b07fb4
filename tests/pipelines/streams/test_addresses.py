"""Addresses of topics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import UserError
from pipelines.streams.addresses import Folder, KafkaTopic, PubsubName, parse_address

NAME = st.text("abcXYZ019._-", min_size=1, max_size=20).filter(lambda name: name not in (".", ".."))
BROKER = st.builds(
    lambda host, port: f"{host}:{port}",
    st.text("ab1.-_", min_size=1, max_size=9) | st.just("[::1]"),
    st.integers(1, 65_535),
)


@given(brokers=st.lists(BROKER, min_size=1, max_size=3), topic=NAME)
def test_an_address_is_read_and_written_alike(brokers, topic):
    text = f"kafka://{','.join(brokers)}/{topic}"
    assert str(KafkaTopic.parse(text, name="`input`")) == text


@pytest.mark.parametrize(
    "text",
    [
        "", "titles", "inbox/", "http://a:1/t", "kafka://", "kafka://a:1", "kafka://a:1/",
        "kafka://a/t", "kafka://a:0/t", "kafka://a:65536/t", "kafka://a:1,/t", "kafka://a:1/t/u",
        "kafka://a:1/.", "kafka://a:1/t u", f"kafka://a:1/{'t' * 250}", "kafka://a:١/t",
        "KAFKA://a:1/t", "kafka://a:1/t\n",
    ],
)  # fmt: skip
def test_another_text_is_refused_in_a_line_that_names_it(text):
    with pytest.raises(UserError, match="`input`") as refused:
        KafkaTopic.parse(text, name="`input`")
    assert f"Received: {text}" in str(refused.value)


def test_a_password_is_refused_and_not_repeated():
    with pytest.raises(UserError, match="kafka_config") as refused:
        KafkaTopic.parse("kafka://me:hush@a:1/t", name="`input`")
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    "text", ["pubsub://my-project/titles", "pubsub://example.com:my-project/a.b_c~d+e%f-1"]
)
def test_an_address_of_pubsub_is_read_and_written_alike(text):
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
def test_another_text_is_no_address(text):
    with pytest.raises(UserError, match="`input`") as refused:
        parse_address(text, name="`input`")
    assert f"Received: {text}" in str(refused.value)


@pytest.mark.parametrize("text", ["inbox", "inbox/*.parquet", "/data/in", "gs://bucket/in", "a:b"])
def test_a_path_is_a_folder(text):
    assert parse_address(text, name="`input`") == Folder(text)
