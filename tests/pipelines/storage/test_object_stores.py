"""A missing network or login is reported within seconds."""

from __future__ import annotations

import contextlib
import http.server
import json
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.internal.gcp import auth
from command_line import last_error, run

from tt.model.errors import ServiceError
from tt.pipelines.storage import object_stores
from tt.pipelines.storage.object_stores import check_buckets

pytestmark = pytest.mark.slow


class Storage(http.server.BaseHTTPRequestHandler):
    """A server that imitates Google Cloud Storage as far as `check_buckets` needs it."""

    asked: list[str]
    status: int
    seconds: float

    def do_GET(self):
        self.asked.append(self.path.partition("?")[0])
        time.sleep(self.seconds)
        body = json.dumps({"error": {"message": "no"}} if self.status != 200 else {}).encode()
        with contextlib.suppress(OSError):  # the client has closed the connection
            self.send_response(self.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """Return a function that starts a storage server and returns the list of its requests.

    The server answers each request with the given status after the given seconds.
    """
    object_stores._check_bucket.cache_clear()
    for name in ("GOOGLE_APPLICATION_CREDENTIALS", "CLOUDSDK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # a machine on Google Cloud would be logged in
    servers = []

    def start(status, seconds=0.0):
        settings = {"asked": [], "status": status, "seconds": seconds}
        handler = type("Handler", (Storage,), settings)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://127.0.0.1:{server.server_port}")
        return settings["asked"]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
    object_stores._check_bucket.cache_clear()


def listed(asked):
    """Return the requests without those for traces, which the client sends in its own thread."""
    return [path for path in asked if path.endswith("/o")]


def test_each_bucket_is_checked_once(storage):
    asked = storage(200)
    for _ in range(2):
        check_buckets(["a.tsv", "hdfs://c/d", "web=gs://one/a.en+gs://two/a.de", "gs://one"])
    assert listed(asked) == ["/storage/v1/b/one/o", "/storage/v1/b/two/o"]


@pytest.mark.parametrize("status", [404, 503])
def test_other_errors_are_not_reported_before_the_first_access(storage, status):
    asked = storage(status)
    check_buckets(["gs://b/a"])
    assert len(listed(asked)) == 1, "the request is not repeated"


def test_the_error_for_a_missing_login_says_how_to_log_in(storage, tmp_path, monkeypatch):
    storage(401)
    wants = r"^gs://b requires a login \(Your default .* not found\)\. Run `gcloud auth "
    with pytest.raises(ServiceError, match=wants):
        check_buckets(["gs://b/a"])
    user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t"}
    (tmp_path / "key.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    check_buckets(["gs://b/a"])


def test_a_bucket_that_does_not_answer_is_an_error_within_seconds(storage, monkeypatch):
    storage(200, seconds=3)
    monkeypatch.setattr(object_stores, "_REQUEST_SECONDS", 0.5)
    with pytest.raises(ServiceError, match=r"^gs://b does not answer \(.*Read timed out.*\. Check"):
        check_buckets(["gs://b/a"])
    monkeypatch.setattr(object_stores, "_REQUEST_SECONDS", 60)
    monkeypatch.setattr(object_stores, "SECONDS", 0.5)
    with pytest.raises(
        ServiceError, match=r"^gs://c does not answer \(no response within 0\.5 s\)"
    ):
        check_buckets(["gs://c/a"])


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_commands_report_a_missing_network_within_15_seconds(
    storage, capsys, tmp_path, monkeypatch, command
):
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", "http://127.0.0.1:1")  # no server listens there
    monkeypatch.chdir(tmp_path)
    pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
    arguments = {
        "preprocess": ("gs://b/a.tsv", "--output", "o"),
        "translate-batch": ("in.parquet", "--model", "gs://b/m", "--output", "o"),
    }[command]
    start = time.monotonic()
    assert run(command, *arguments) == 2
    assert time.monotonic() - start < 15
    assert "gs://b does not answer (" in (line := last_error(capsys))
    assert line.endswith("). Check the network, and run the same command again")
    assert [path.name for path in tmp_path.iterdir()] == ["in.parquet"]


@pytest.mark.parametrize("command", ["translate-batch", "train", "output"])
def test_a_bucket_without_permission_is_a_one_line_error(
    storage, capsys, tmp_path, monkeypatch, command
):
    """The user is logged in, but has no permission in the bucket."""
    storage(403)
    user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t",
            "token": "t", "expiry": "2099-01-01T00:00:00Z"}  # fmt: skip
    (tmp_path / "key.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
    monkeypatch.setattr(auth._Credentials, "_credentials_init", False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a dog\tein Hund\n" * 50)
    pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
    before = sorted(path.name for path in tmp_path.iterdir())
    arguments = {
        "translate-batch": (
            "translate-batch",
            "in.parquet",
            "--model",
            "gs://b/m",
            "--output",
            "o",
        ),
        "train": ("train", "--dataset", "gs://b/dataset"),
        "output": ("preprocess", "a.tsv", "--output", "gs://b/o"),
    }[command]
    start = time.monotonic()
    assert run(*arguments) == 2
    seconds = time.monotonic() - start
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert seconds < 20
    line = printed.splitlines()[-1]
    begin, end = {
        "train": ("gs://b/dataset/dataset.json cannot be read: 403", "permission to read it"),
    }.get(command, ("gs://b/", "your account has no permission to read it. Ask its owner for"))
    assert line.startswith(f"tt: error: {begin}")
    assert end in line
    assert sorted(path.name for path in tmp_path.iterdir()) == before
