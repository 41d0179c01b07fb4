"""Google Cloud Storage in this process, which counts all requests.

The objects are in gcp-storage-emulator's memory, and this module serves them. Like the real store,
it serves many clients at the same time, and drops an upload whose client was killed. The emulator's
own server would store a shorter object. Unlike the real store, a listing always has one page, and
preconditions are ignored
in the JSON interface of Google's own client. `xml_api` has the interface that `tt` uses.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import http.server
import io
import json
import logging
import re
import socket
import socketserver
import threading
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path

import xml_api
from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import Router
from gcp_storage_emulator.storage import Storage

logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)  # it warns about each batch
logging.getLogger("api.object").setLevel(logging.CRITICAL)

# Kinds of requests by method and path; the first match counts.
_KINDS = (
    ("batch", "POST", r"/batch/.*"),
    ("upload", "POST|PUT", r"/upload/.*"),
    ("media", "GET", r"/download/.*"),
    ("copy", "POST", r".*/(rewriteTo|copyTo)/.*"),
    ("list", "GET", r".*/b/[^/]+/o"),
    ("object", "GET", r".*/o/.+"),
    ("delete", "DELETE", r".*/o/.+"),
    ("bucket", "GET|POST", r".*/b(/[^/]+)?"),
)
_XML_KINDS = {
    "GET": "media", "HEAD": "object", "PUT": "upload", "POST": "upload", "DELETE": "delete",
}  # fmt: skip
_GATHER_SECONDS = 10.0  # to wait for further requests
# The emulator's own links to content do not escape the slashes in a name.
_OBJECT = re.compile(r".*/b/(?P<bucket>[^/]+)/o/(?P<name>.+?)(/(rewriteTo|copyTo)/.*)?")


@dataclasses.dataclass(frozen=True)
class Request:
    """A request of a client."""

    kind: str  # "list", "object" (metadata), "media" (content), "upload", "delete", "batch", ...
    path: str  # "gs://bucket/name" of the requested object, or ""
    received: int  # bytes in its body
    served: int  # bytes in the body of the answer


class ObjectStore:
    """A store with one bucket that records its requests.

    Attributes:
      url: The address of the store, as STORAGE_EMULATOR_HOST needs it.
      bucket: The path of its bucket, "gs://bucket".
      requests: Requests since the last call of `wipe` or `forget`.
      most_at_once: Largest number of concurrent requests.
      delay: Shortest duration of each request in seconds, which makes concurrent requests visible.
      min_at_once: Number of concurrent requests to wait for before serving content. With this
        number, the requests of a slow client also overlap.
      on_request: Called with the number of each request when it arrives. If it returns False, the
        store does not answer the request.
    """

    bucket = "gs://bucket"

    def __init__(self) -> None:
        # Protects the counts, and the emulator's storage, which has no lock. Requests notify it.
        self._lock = threading.Condition(threading.Lock())
        self.storage = _MemoryStorage(use_memory_fs=True)
        self._xml = xml_api.XmlApi(self.storage)
        self._server = _Server(("127.0.0.1", 0), functools.partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._in_progress = 0
        self.wipe()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wipe(self) -> None:
        """Delete all objects, and forget all requests."""
        with self._lock:
            self.storage.wipe()
            create_bucket(self.bucket.removeprefix("gs://"), self.storage)
            # Otherwise the emulator keeps deleted objects.
            self.storage.buckets[self.bucket.removeprefix("gs://")]["softDeletePolicy"] = {
                "retentionDurationSeconds": "0"
            }
        self.delay = 0.0
        self.min_at_once = 0
        self.on_request: Callable[[int], bool] | None = None
        self.forget()

    def forget(self) -> None:
        """Forget the requests so far."""
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._arrived = 0

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
        self._server.server_close()

    def count(self, kind: str | None = None, *, under: str = "") -> int:
        """Count requests, optionally of one kind, for objects whose path starts with `under`."""
        return len(self._about(kind, under))

    def counts(self) -> dict[str, int]:
        """Count requests by kind."""
        return dict(collections.Counter(request.kind for request in self.requests))

    def served(self, *, under: str = "") -> int:
        """Return the bytes of content served from objects whose path starts with `under`."""
        return sum(request.served for request in self._about("media", under))

    def objects(self, under: str = "") -> dict[str, bytes]:
        """Return the content of objects whose path starts with `under`, without a request."""
        with self._lock:
            found = {
                f"gs://{bucket}/{name}": self.storage.get_file(bucket, name)
                for bucket, names in self.storage.objects.items()
                for name in names
            }
        return {path: content for path, content in sorted(found.items()) if path.startswith(under)}

    def _about(self, kind: str | None, under: str) -> list[Request]:
        return [
            request
            for request in self.requests
            if kind in (None, request.kind) and request.path.startswith(under)
        ]

    def begin(self) -> bool:
        """Record that a request is in progress; return whether to answer it."""
        with self._lock:
            self._in_progress += 1
            self.most_at_once = max(self.most_at_once, self._in_progress)
            self._lock.notify_all()
            self._arrived += 1
            return self.on_request is None or self.on_request(self._arrived)

    def end(self) -> None:
        """Record that a request has ended."""
        with self._lock:
            self._in_progress -= 1

    def answer(self, handler: _Handler, body: bytes) -> bytes:
        """Return the complete answer to a request, with head and body, and count the request."""
        url = urllib.parse.urlsplit(handler.path)
        named = xml_api.parse(handler.path)
        kind = _XML_KINDS[handler.command] if named else _find_kind(handler.command, url.path)
        if named and handler.command == "GET" and not named[1]:
            kind = "list"
        time.sleep(self.delay)
        with self._lock:
            if kind == "media":
                self._lock.wait_for(lambda: self.most_at_once >= self.min_at_once, _GATHER_SECONDS)
            if named:
                path = "gs://" + "/".join(named) if named[1] else ""
                answer = self._xml.answer(handler.command, handler.path, handler.headers, body)
            else:
                path = self._find_object(url, body)
                answer = handler.route(body)
            served = len(answer.partition(b"\r\n\r\n")[2])
            self.requests.append(Request(kind, path, len(body), served))
        return answer

    def _find_object(self, url: urllib.parse.SplitResult, body: bytes) -> str:
        query = urllib.parse.parse_qs(url.query)
        if found := _OBJECT.fullmatch(url.path):
            return f"gs://{found['bucket']}/{urllib.parse.unquote(found['name'])}"
        if "upload_id" in query:  # a part of an upload that has already begun
            begun = self.storage.resumable.get(query["upload_id"][0])
            return f"gs://{begun['bucket']}/{begun['name']}" if begun else ""
        if "uploadType" in query:
            bucket = url.path.split("/b/")[1].partition("/")[0]
            described = re.search(rb'"name": *("(?:[^"\\]|\\.)*")', body)
            name = query["name"][0] if "name" in query else described and json.loads(described[1])
            return f"gs://{bucket}/{name}"
        return ""


SECRET = "the-secret-of-a-user"


def write_key(folder: Path) -> Path:
    """Write the key file of a user with a login for years, so that no client requests a token."""
    user = {
        "type": "authorized_user",
        "client_id": "id",
        "client_secret": SECRET,
        "refresh_token": SECRET,
        "token": SECRET,
        "expiry": "2099-01-01T00:00:00Z",
    }
    path = folder / "user.json"
    path.write_text(json.dumps(user))
    return path


def _find_kind(method: str, path: str) -> str:
    for kind, methods, pattern in _KINDS:
        if method in methods.split("|") and re.fullmatch(pattern, path):
            return kind
    return f"{method} {path}"


class _MemoryStorage(Storage):
    def _write_config_to_file(self) -> None:
        """Write nothing. The emulator would write the list of all objects with each object."""


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(http.server.BaseHTTPRequestHandler):
    """A connection; the emulator's `Router` reads from and writes to memory."""

    protocol_version = "HTTP/1.1"

    def __init__(self, store: ObjectStore, *arguments: object) -> None:
        self._store = store
        self.storage = store.storage  # for the emulator
        super().__init__(*arguments)

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length)
        if len(body) < length:  # the client was killed
            self.close_connection = True
            return
        try:
            if not self._store.begin():
                self.close_connection = True
                return
            answer = self._store.answer(self, body)
        finally:
            self._store.end()
        try:
            self.wfile.write(answer)
        except OSError:  # the client was killed
            self.close_connection = True

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def route(self, body: bytes) -> bytes:
        """Let the emulator answer."""
        streams = self.rfile, self.wfile
        self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
        try:
            Router(self).handle(self.command)
            return self.wfile.getvalue()
        finally:
            self.rfile, self.wfile = streams

    def log_message(self, *arguments: object) -> None:
        """Log nothing."""
