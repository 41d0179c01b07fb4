"""Settings of Kafka's clients, whose values are secrets, and their errors in one line."""

import functools
import sys

import pytest
from confluent_kafka import KafkaError

from model.errors import ServiceError, UserError
from pipelines.streams.kafka import clients
from pipelines.streams.kafka.clients import (
    explain_error,
    explain_silence,
    is_passing,
    make_consumer,
    make_producer,
    read_settings,
    starts_at_end,
)

SECRET = "hush-hush"


def write(tmp_path, text):
    path = tmp_path / "kafka.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_what_is_not_installed_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    with pytest.raises(UserError, match="-m pip install"):
        clients.check_installed()


def test_settings_are_read_with_comments_and_spaces(tmp_path):
    text = f"# TLS\n\nsecurity.protocol = SASL_SSL\r\nsasl.password={SECRET}=#1\n"
    found = {"security.protocol": "SASL_SSL", "sasl.password": f"{SECRET}=#1"}
    assert read_settings(write(tmp_path, text)) == found
    assert read_settings(None) == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"sasl.password {SECRET}", "line 1: not NAME=VALUE"),
        (f"group.id={SECRET}", "must not have group.id: the group is `group`"),
        (f"bootstrap.servers={SECRET}", "must not have bootstrap.servers"),
        (f"enable.auto.commit={SECRET}", "must not have enable.auto.commit"),
        (f"sasl.password={SECRET}\nsasl.password={SECRET}", "has sasl.password twice"),
        (f"auto.offset.reset={SECRET}", "must be earliest or latest"),
        (b"\xff" + SECRET.encode(), "not UTF-8"),
    ],
)
def test_wrong_settings_are_refused_without_their_values(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as refused:
        read_settings(write(tmp_path, text))
    assert SECRET not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_settings(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"no.such.setting={SECRET}", "no.such.setting"),
        (f"security.protocol={SECRET}", "security.protocol"),
        (f"socket.timeout.ms={SECRET}", "socket.timeout.ms"),
        (f"sasl.jaas.config={SECRET}", "Java's names are others"),
    ],
)
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_what_librdkafka_does_not_take_is_told_without_its_value(tmp_path, text, said, kind):
    config = write(tmp_path, text)
    make = functools.partial(make_consumer, group="g") if kind == "consumer" else make_producer
    with pytest.raises(UserError, match=said) as refused:
        make("127.0.0.1:1", config=config, note=print)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_a_setting_of_the_other_kind_of_client_is_left_out(tmp_path):
    config = write(tmp_path, "linger.ms=7\nfetch.wait.max.ms=9\nauto.offset.reset=latest\n")
    make_consumer("127.0.0.1:1", group="g", config=config, note=print).close()
    make_producer("127.0.0.1:1", config=config, note=print)
    assert clients._of_kind(read_settings(config), leave_out=clients._PRODUCERS) == {
        "fetch.wait.max.ms": "9", "auto.offset.reset": "latest"
    }  # fmt: skip


@pytest.mark.parametrize(("value", "expected"), [("latest", True), ("smallest", False)])
def test_where_a_new_group_begins(value, expected):
    assert starts_at_end({"auto.offset.reset": value}) == expected
    assert not starts_at_end({})


def test_errors_that_pass_are_told_from_those_that_stay():
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.NOT_COORDINATOR):
        assert is_passing(KafkaError(code))
    for code in (KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        assert not is_passing(KafkaError(code))
    assert not is_passing(KafkaError(KafkaError._TRANSPORT, "gone", fatal=True))


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (KafkaError._AUTHENTICATION, UserError, "do not know this user"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, UserError, "work with a topic"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, UserError, "the group of `group`"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UserError, "is gone"),
        (KafkaError._MSG_TIMED_OUT, ServiceError, "goes on from what is committed"),
        (KafkaError.INVALID_RECORD, ServiceError, "INVALID_RECORD"),
    ],
)
def test_an_error_has_a_line(code, kind, said):
    found = explain_error(KafkaError(code), brokers="a:1")
    assert type(found) is kind
    assert said in str(found)
    assert "a:1" in str(found)


def test_silence_is_explained_by_what_the_client_says():
    silence = KafkaError(KafkaError._TRANSPORT)
    told = str(explain_silence([silence], brokers="a:1", config=None))
    assert "no Kafka broker answers at a:1 within 10 s" in told
    assert "give `kafka_config`" in told
    tls = explain_silence([silence, KafkaError(KafkaError._SSL)], brokers="a:1", config="f")
    assert "TLS" in str(tls)
    unknown = KafkaError(KafkaError._AUTHENTICATION)
    assert "sasl." in str(explain_silence([silence, unknown], brokers="a:1", config="f"))
