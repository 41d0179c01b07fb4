"""A missing network or login is reported within seconds, and jobs take addresses to workers."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import pickle
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run

from tt.model.errors import ServiceError, UserError
from tt.model.storage import stores
from tt.model.storage.stores import StorageOptions, check_buckets

pytestmark = pytest.mark.slow

ERROR = "<Error><Code>{}</Code><Message>no</Message></Error>"


class Storage(http.server.BaseHTTPRequestHandler):
    """A server that gives the same answer to each request."""

    asked: list[str]
    status: int
    content: str
    seconds: float

    def do_GET(self):
        self.asked.append(self.path)
        time.sleep(self.seconds)
        body = self.content.encode()
        with contextlib.suppress(OSError):  # the client has closed the connection
            self.send_response(self.status)
            self.send_header("content-type", "application/xml")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_PUT = do_GET  # noqa: N815

    def log_message(self, *arguments):
        pass


@pytest.fixture
def storage(tmp_path, monkeypatch):
    """Return a function that starts a server for all stores and returns the list of its requests.

    The server answers each request with the given status and error after the given seconds.
    """
    stores._check_bucket.cache_clear()
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "AZURE_", "CLOUDSDK_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")  # a machine on Google Cloud would be logged in
    servers = []

    def start(status, code=None, seconds=0.0):
        content = ERROR.format(code) if code else "<ListBucketResult></ListBucketResult>"
        settings = {"asked": [], "status": status, "seconds": seconds, "content": content}
        handler = type("Handler", (Storage,), settings)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("STORAGE_EMULATOR_HOST", "AWS_ENDPOINT_URL"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        return settings["asked"]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()
    stores._make.cache_clear()
    stores._check_bucket.cache_clear()


def test_each_bucket_is_checked_once(storage):
    asked = storage(200)
    for _ in range(2):
        check_buckets(["a.tsv", "hdfs://c/d", "web=gs://one/a.en+gs://two/a.de", "gs://one"])
    assert [path.partition("?")[0] for path in asked] == ["/one", "/two"]


def test_a_missing_login_a_missing_bucket_and_other_errors_have_their_own_lines(
    storage, tmp_path, monkeypatch
):
    cases = {
        ("gs://a", 401, "AuthenticationRequired"): "gs://a cannot be read or written: your account "
        "has no permission (AuthenticationRequired: no). Check your login, ask the owner for "
        "access, or choose another path",
        ("gs://b", 404, "NoSuchBucket"): "the bucket gs://b does not exist. Create it, or choose "
        "another bucket",
        ("gs://c", 503, "Busy"): "gs://c does not answer (Busy: no). Check the network, and run "
        "the same command again",
        ("s3://d", 301, "PermanentRedirect"): "s3://d is in another region",
    }
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "a")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "b")
    for (bucket, status, code), line in cases.items():
        asked = storage(status, code)
        with pytest.raises(UserError) as raised:
            check_buckets([f"{bucket}/file"])
        assert str(raised.value).startswith(line)
        assert len(asked) == 1, "the request is not repeated"


def test_keys_come_from_the_files_of_aws_configure(storage, tmp_path, monkeypatch):
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws/credentials").write_text(
        "[default]\naws_access_key_id = ONE\naws_secret_access_key = s\n"
        "[work]\naws_access_key_id = TWO\naws_secret_access_key = s\n"
    )
    (tmp_path / ".aws/config").write_text(
        "[profile work]\nregion = eu-central-1\nendpoint_url = http://overruled:1\n"
    )
    sent = []
    monkeypatch.setattr(
        Storage, "do_GET", lambda self: sent.append(self.headers["authorization"]), raising=True
    )
    storage(200)
    for profile in (None, "work"):
        if profile:
            monkeypatch.setenv("AWS_PROFILE", profile)
        stores._make.cache_clear()
        stores._check_bucket.cache_clear()
        with contextlib.suppress(ServiceError):  # the server closes the connection
            check_buckets(["s3://bucket"])
    assert "Credential=ONE/" in sent[0]
    assert "Credential=TWO/" in sent[-1]
    assert "/eu-central-1/s3/" in sent[-1]
    (tmp_path / ".aws/config").write_text("[profile sso]\nsso_session = corporate\n")
    monkeypatch.setenv("AWS_PROFILE", "sso")
    monkeypatch.setattr(stores.importlib.util, "find_spec", lambda name: None)
    stores._make.cache_clear()
    stores._check_bucket.cache_clear()
    with pytest.raises(
        UserError, match=r"by a program or a role, which needs boto3: .*pip install"
    ):
        check_buckets(["s3://bucket"])


def test_a_bucket_that_does_not_answer_is_an_error_within_seconds(storage, monkeypatch):
    storage(200, seconds=3)
    monkeypatch.setattr(stores, "_CHECK_SECONDS", 0.5)
    with pytest.raises(ServiceError, match=r"^gs://b does not answer \(.*\. Check the network"):
        check_buckets(["gs://b/a"])


def test_a_job_takes_addresses_but_no_secrets_to_a_worker(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "a secret")
    sent = pickle.dumps(StorageOptions.of_this_process())
    assert b"a secret" not in sent
    monkeypatch.delenv("AWS_ENDPOINT_URL")
    received = pickle.loads(sent)
    assert os.environ["AWS_ENDPOINT_URL"] == "http://127.0.0.1:9"
    assert received == StorageOptions.of_this_process()


def test_a_flag_of_beams_own_file_systems_is_refused(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.tsv").write_text("a dog\tein Hund\n")
    flags = ("--", "--s3_endpoint_url=http://127.0.0.1:1")
    assert run("preprocess", "a.tsv", "--output", "o", *flags) == 2
    assert "so the flag --s3_endpoint_url has no effect. Set variables" in last_error(capsys)


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
    storage(403, "AccessDenied")
    user = {"type": "authorized_user", "client_id": "i", "client_secret": "s", "refresh_token": "t",
            "token": "t", "expiry": "2099-01-01T00:00:00Z"}  # fmt: skip
    (tmp_path / "key.json").write_text(json.dumps(user))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "key.json"))
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
    assert line.startswith("tt: error: gs://b")
    assert " cannot be read or written: your account has no permission (AccessDenied: no). " in line
    assert sorted(path.name for path in tmp_path.iterdir()) == before
