"""Settings of Kafka clients, whose values are secret, and errors of the clients."""

import sys

import pytest
from confluent_kafka import KafkaError

from tt.model.errors import GoneError, ServiceError, UserError
from tt.pipelines.streams import kafka_clients as clients
from tt.pipelines.streams.kafka_clients import Cluster, is_gone, is_transient, read_settings

SECRET = "hush-hush"


def write(tmp_path, text):
    path = tmp_path / "kafka.properties"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


def test_a_missing_client_gives_the_install_command(monkeypatch):
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
        (f"sasl.password {SECRET}", "line 1: a setting must be NAME=VALUE"),
        (f"group.id={SECRET}", "must not have group.id, which tt sets itself"),
        (f"bootstrap.servers={SECRET}", "must not have bootstrap.servers"),
        (f"enable.auto.commit={SECRET}", "must not have enable.auto.commit"),
        (f"auto.offset.reset={SECRET}", "must be earliest or latest"),
        (b"\xff" + SECRET.encode(), "not UTF-8"),
    ],
)
def test_errors_about_settings_do_not_contain_their_values(tmp_path, text, said):
    with pytest.raises(UserError, match=said) as refused:
        read_settings(write(tmp_path, text))
    assert SECRET not in str(refused.value)


def test_a_missing_settings_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="cannot be read: No such file"):
        read_settings(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"no.such.setting={SECRET}", "no.such.setting"),
        (f"security.protocol={SECRET}", "security.protocol"),
        (f"socket.timeout.ms={SECRET}", "socket.timeout.ms"),
        (f"sasl.jaas.config={SECRET}", "settings of Java's client differ"),
    ],
)
@pytest.mark.parametrize("kind", ["consumer", "producer"])
def test_settings_that_librdkafka_refuses_are_named_without_their_values(
    tmp_path, text, said, kind
):
    cluster = Cluster("127.0.0.1:1", write(tmp_path, text))
    with pytest.raises(UserError, match=said) as refused:
        cluster.consumer("g", note=print) if kind == "consumer" else cluster.producer()
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__suppress_context__


def test_settings_for_other_kinds_of_clients_are_ignored(tmp_path, capfd):
    text = "linger.ms=7\nfetch.wait.max.ms=9\nauto.offset.reset=latest\n"
    cluster = Cluster("127.0.0.1:1", write(tmp_path, text))
    cluster.consumer("g", note=lambda error: None).close()
    cluster.producer()
    assert capfd.readouterr() == ("", "")


def test_temporary_and_lasting_errors_are_distinguished():
    for code in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError.NOT_COORDINATOR):
        assert is_transient(KafkaError(code))
    for code in (KafkaError._AUTHENTICATION, KafkaError.TOPIC_AUTHORIZATION_FAILED):
        assert not is_transient(KafkaError(code))
    assert not is_transient(KafkaError(KafkaError._TRANSPORT, "gone", fatal=True))


@pytest.mark.parametrize(
    ("code", "kind", "said"),
    [
        (KafkaError._AUTHENTICATION, UserError, "do not know this user"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, UserError, "use a topic"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, UserError, "join `group`"),
        (KafkaError.INCONSISTENT_GROUP_PROTOCOL, UserError, "Choose another `group`"),
        (KafkaError.FENCED_INSTANCE_ID, UserError, "the same `instance_id`"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, GoneError, "no longer have a topic"),
        (KafkaError._MSG_TIMED_OUT, ServiceError, "resumes at the committed offsets"),
        (KafkaError.INVALID_RECORD, ServiceError, "INVALID_RECORD"),
    ],
)
def test_explained_errors_name_the_problem_and_the_brokers(code, kind, said):
    found = Cluster("a:1").explain(KafkaError(code))
    assert type(found) is kind
    assert said in str(found)
    assert "a:1" in str(found)
    assert is_gone(KafkaError(code)) == (code == KafkaError.UNKNOWN_TOPIC_OR_PART)


def test_missing_answers_are_explained_by_client_errors():
    silence = KafkaError(KafkaError._TRANSPORT)
    told = str(Cluster("a:1")._explain_no_answer([silence]))
    assert "no Kafka broker answers at a:1 within 10 s" in told
    assert "set `kafka_config`" in told
    with_config = Cluster("a:1", "f")
    tls = with_config._explain_no_answer([silence, KafkaError(KafkaError._SSL)])
    assert "TLS" in str(tls)
    unknown = with_config._explain_no_answer([silence, KafkaError(KafkaError._AUTHENTICATION)])
    assert "sasl." in str(unknown)
