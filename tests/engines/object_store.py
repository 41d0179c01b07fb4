"""Google Cloud Storage in this process, with all that is asked of it counted.

The objects are gcp-storage-emulator's, in memory; this module serves them. It does so to many
clients at once, as the real one, and drops an upload whose client was killed in the middle of it,
which the emulator's own server takes for a shorter object. Unlike the real one's, a listing has
one page, whatever its length, and preconditions are not looked at.
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

from gcp_storage_emulator.handlers.buckets import create_bucket
from gcp_storage_emulator.server import Router
from gcp_storage_emulator.storage import Storage

logging.getLogger("gcp_storage_emulator").setLevel(logging.CRITICAL)  # it warns of each batch
logging.getLogger("api.object").setLevel(logging.CRITICAL)

# Kinds of requests by method and path, the first that fits.
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
_GATHER_SECONDS = 10.0  # after which no more are waited for
# The emulator's own links to content have the slashes of a name as they are.
_OBJECT = re.compile(r".*/b/(?P<bucket>[^/]+)/o/(?P<name>.+?)(/(rewriteTo|copyTo)/.*)?")


@dataclasses.dataclass(frozen=True)
class Request:
    """A request that a client made."""

    kind: str  # "list", "object" (metadata), "media" (content), "upload", "delete", "batch", ...
    path: str  # "gs://bucket/name" of the object that it is about; else ""
    received: int  # bytes of its body
    served: int  # bytes of the answer's body


class ObjectStore:
    """A store with one bucket, and what was asked of it.

    Attributes:
      url: Where it listens, as STORAGE_EMULATOR_HOST wants it.
      bucket: Its bucket, "gs://bucket".
      requests: Requests since it was emptied or `forget` was called.
      most_at_once: The most requests that were answered at one time.
      delay: Seconds that each request takes at least, so that it shows what is asked at once.
      gathers: As many requests at once are waited for before content is served, so that those of a
        slow client meet.
      meets: Is told of each request as it comes, by its number; one that it does not let pass is
        not answered.
    """

    bucket = "gs://bucket"

    def __init__(self) -> None:
        # Of the emulator's storage, which has none, and of counts; told of each request.
        self._lock = threading.Condition(threading.Lock())
        self.storage = _MemoryStorage(use_memory_fs=True)
        self._server = _Server(("127.0.0.1", 0), functools.partial(_Handler, self))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._under_work = 0
        self.wipe()
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def wipe(self) -> None:
        """Deletes all objects, and forgets all requests."""
        with self._lock:
            self.storage.wipe()
            create_bucket(self.bucket.removeprefix("gs://"), self.storage)
            # Else the emulator keeps what was deleted.
            self.storage.buckets[self.bucket.removeprefix("gs://")]["softDeletePolicy"] = {
                "retentionDurationSeconds": "0"
            }
        self.delay = 0.0
        self.gathers = 0
        self.meets: Callable[[int], bool] | None = None
        self.forget()

    def forget(self) -> None:
        """Forgets the requests so far."""
        self.requests: list[Request] = []
        self.most_at_once = 0
        self._met = 0

    def stop(self) -> None:
        """Ends the server."""
        self._server.shutdown()
        self._server.server_close()

    def count(self, kind: str | None = None, *, under: str = "") -> int:
        """Counts requests, of one kind if it is named, about objects whose path begins so."""
        return len(self._about(kind, under))

    def counts(self) -> dict[str, int]:
        """Counts requests by kind."""
        return dict(collections.Counter(request.kind for request in self.requests))

    def served(self, *, under: str = "") -> int:
        """Returns the bytes that were served of the content of objects whose path begins so."""
        return sum(request.served for request in self._about("media", under))

    def served_by_object(self) -> dict[str, int]:
        """Returns the bytes that were served of each object's content, by path."""
        found: collections.Counter[str] = collections.Counter()
        for request in self._about("media", ""):
            found[request.path] += request.served
        return dict(found)

    def objects(self, under: str = "") -> dict[str, bytes]:
        """Returns the content of the objects whose path begins so, by path, without a request."""
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
        """Takes note that a request is under work; returns whether it is to be answered."""
        with self._lock:
            self._under_work += 1
            self.most_at_once = max(self.most_at_once, self._under_work)
            self._lock.notify_all()
            self._met += 1
            return self.meets is None or self.meets(self._met)

    def end(self) -> None:
        """Takes note that a request is not under work any more."""
        with self._lock:
            self._under_work -= 1

    def answer(self, handler: _Handler, body: bytes) -> bytes:
        """Returns the whole answer to a request, head and body, and counts it."""
        url = urllib.parse.urlsplit(handler.path)
        kind = _find_kind(handler.command, url.path)
        time.sleep(self.delay)
        with self._lock:
            if kind == "media":
                self._lock.wait_for(lambda: self.most_at_once >= self.gathers, _GATHER_SECONDS)
            path = self._find_object(url, body)
            answer = handler.route(body)
            served = len(answer.partition(b"\r\n\r\n")[2])
            self.requests.append(Request(kind, path, len(body), served))
        return answer

    def _find_object(self, url: urllib.parse.SplitResult, body: bytes) -> str:
        query = urllib.parse.parse_qs(url.query)
        if found := _OBJECT.fullmatch(url.path):
            return f"gs://{found['bucket']}/{urllib.parse.unquote(found['name'])}"
        if "upload_id" in query:  # a part of an upload, which was begun before
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
    """Writes the key file of a user who is logged in for years, so that nobody asks for a token."""
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
        """Writes nothing: the emulator would write the list of all objects with each of them."""


class _Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True
    request_queue_size = 128


class _Handler(http.server.BaseHTTPRequestHandler):
    """One connection; the emulator's `Router` reads and writes it by way of memory."""

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
        if len(body) < length:  # its sender was killed
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
        except OSError:  # who asked was killed
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _answer  # noqa: N815

    def route(self, body: bytes) -> bytes:
        """Has the emulator answer."""
        streams = self.rfile, self.wfile
        self.rfile, self.wfile = io.BytesIO(body), io.BytesIO()
        try:
            Router(self).handle(self.command)
            return self.wfile.getvalue()
        finally:
            self.rfile, self.wfile = streams

    def log_message(self, *arguments: object) -> None:
        """Keeps silent."""
