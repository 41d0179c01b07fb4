"""Start an Apache Kafka broker with its own controller (KRaft) on 127.0.0.1.

`tests/support/kafka/install.sh` installs Kafka into .cache/kafka. A folder contains the messages,
the log, and `broker.json` with the addresses and the process. If the folder already has them, the
same broker starts again, with its messages and addresses.

The broker has a second address with TLS and SASL. `client.properties` is the `--kafka-config` for
that address: it has a user with a password, and the broker's certificate.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import subprocess
import sys
import time
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Any

import java_processes
from java_processes import HOST, free_ports, is_there

KAFKA = Path(__file__).parents[2] / ".cache/kafka"
USER = "tt"
_MECHANISM = "SCRAM-SHA-512"
_LISTENER = "listener.name.sasl_ssl"  # the prefix of settings for the second address
_START_SECONDS = 90
_STOP_SECONDS = 20
_COMMAND = b"kafka.Kafka"


def start(folder: Path, *, settings: dict[str, Any] | None = None) -> dict[str, Any]:
    """Start a broker, and wait until it answers.

    Args:
      folder: Folder for messages, the log, settings and `broker.json`.
      settings: Further settings of the broker, by Kafka's names.

    Returns:
      The content of `broker.json`: the addresses without (`address`) and with TLS and SASL
      (`secure_address`), and the ID of the process.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if (folder / "broker.json").exists():
        broker = _read(folder)
    else:
        plain, secure, controller = free_ports(3)
        broker = {"address": f"{HOST}:{plain}", "secure_address": f"{HOST}:{secure}"}
        password = secrets.token_hex(16)
        _make_certificate(folder, password=password)
        _write_settings(
            folder, {**_settings(folder, plain, secure, controller, password), **(settings or {})}
        )
        _format(folder, password=password)
    broker["process"] = _start_java(folder)
    (folder / "broker.json").write_text(json.dumps(broker))
    try:
        _wait(folder, broker)
    except BaseException:
        stop(folder)
        raise
    return broker


def _settings(
    folder: Path, plain: int, secure: int, controller: int, password: str
) -> dict[str, Any]:
    listeners = f"PLAINTEXT://{HOST}:{plain},SASL_SSL://{HOST}:{secure}"
    return {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": (
            "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "log.dirs": folder / "messages",
        "auto.create.topics.enable": "false",
        # There are no other brokers, and no other members of a group to wait for.
        "offsets.topic.replication.factor": 1,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        "group.initial.rebalance.delay.ms": 0,
        "log.cleaner.dedupe.buffer.size": 4_194_304,
        f"{_LISTENER}.ssl.keystore.type": "PKCS12",
        f"{_LISTENER}.ssl.keystore.location": folder / "key.p12",
        f"{_LISTENER}.ssl.keystore.password": password,
        f"{_LISTENER}.sasl.enabled.mechanisms": _MECHANISM,
        f"{_LISTENER}.{_MECHANISM.lower()}.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
    }


def _make_certificate(folder: Path, *, password: str) -> None:
    """Create the broker's key and certificate, and the settings for clients."""
    store = ["-keystore", str(folder / "key.p12"), "-storepass:env", "PASSWORD", "-alias", "broker"]
    environment = os.environ | {"PASSWORD": password}
    make = [
        "keytool", "-genkeypair", *store, "-storetype", "PKCS12", "-keyalg", "RSA", "-keysize",
        "2048", "-validity", "3650", "-dname", "CN=localhost", "-ext", f"SAN=IP:{HOST}",
    ]  # fmt: skip
    _run(make, env=environment)
    certificate = _run(["keytool", "-exportcert", "-rfc", *store], env=environment)
    (folder / "certificate.pem").write_text(certificate)
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": _MECHANISM,
        "sasl.username": USER,
        "sasl.password": password,
        "ssl.ca.location": folder / "certificate.pem",
    }
    _write_properties(folder / "client.properties", client)


def _write_settings(folder: Path, settings: dict[str, Any]) -> None:
    _write_properties(folder / "server.properties", settings)


def _write_properties(path: Path, settings: dict[str, Any]) -> None:
    path.touch(mode=0o600)  # before the password is written
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))


def _format(folder: Path, *, password: str) -> None:
    """Create the folder of messages, with the user."""
    cluster = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    _run(
        [
            *_java(), "kafka.tools.StorageTool", "format",
            f"--cluster-id={cluster}",  # one argument, because an ID may begin with a dash
            "--config", str(folder / "server.properties"),
            "--add-scram", f"{_MECHANISM}=[name={USER},password={password}]",
        ]
    )  # fmt: skip


def _run(command: list[str], *, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        lines = (done.stdout + done.stderr).strip().splitlines()
        sys.exit(f"{command[0]} failed: {lines[-1] if lines else 'no output'}")
    return done.stdout


def _java() -> list[str]:
    logging = "-Dorg.slf4j.simpleLogger"
    return [
        "java", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"{logging}.showDateTime=true", f"{logging}.dateTimeFormat=HH:mm:ss,SSS",
        f"{logging}.showThreadName=false", f"{logging}.defaultLogLevel=warn",
        f"{logging}.log.kafka.server=info", "-cp", f"{KAFKA}/lib/*",
    ]  # fmt: skip


def _start_java(folder: Path) -> int:
    with (folder / "broker.log").open("ab") as out:
        process = subprocess.Popen(
            [*_java(), "kafka.Kafka", str(folder / "server.properties")],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
        )
    return process.pid


def _wait(folder: Path, broker: dict[str, Any]) -> None:
    """Wait until a broker listens at all its addresses."""
    end = time.monotonic() + _START_SECONDS
    for name in ("address", "secure_address"):
        host, _, port = broker[name].rpartition(":")
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, int(port)), 5):
                break
            if time.monotonic() > end or not is_there(
                broker["process"], command=_COMMAND, is_new=True
            ):
                sys.exit(f"the broker has not started. See {folder}/broker.log")
            time.sleep(0.1)


def stop(folder: Path) -> None:
    """End the process of a broker, if it still runs; the folder stays."""
    java_processes.end([_read(folder)["process"]], command=_COMMAND, seconds=_STOP_SECONDS)


def _read(folder: Path) -> dict[str, Any]:
    return dict(json.loads((folder / "broker.json").read_text()))
