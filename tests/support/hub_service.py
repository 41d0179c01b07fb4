"""A stand-in for the hub of Hugging Face on this machine, with the requests that downloads need."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import json
import re
import threading
import urllib.parse
from pathlib import Path

COMMIT = "1234567890abcdef1234567890abcdef12345678"
_RESOLVE = re.compile(r"/(?P<name>[^/]+/[^/]+)/resolve/(?P<revision>[^/]+)/(?P<file>.+)")
_INFO = re.compile(
    r"/api/models/(?P<name>[^/]+/[^/]+)(?:/(?P<kind>revision|tree)/(?P<revision>.+))?"
)


class Hub:
    """The models of the stand-in, and the requests that it received.

    Attributes:
      models: The folder of each model, by its name.
      gated: The names of gated models, which need the token "secret".
      requests: Methods and paths, in order.
      cut: The number of bytes after which the next download of a file breaks, by file name.
      is_down: Whether each request fails with the status 503.
    """

    def __init__(self) -> None:
        self.models: dict[str, Path] = {}
        self.gated: set[str] = set()
        self.requests: list[str] = []
        self.cut: dict[str, int] = {}
        self.is_down = False
        self.url = ""


@contextlib.contextmanager
def running_hub():
    """Yield a hub that listens on the loopback interface."""
    hub = Hub()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            _answer(self, hub)

        def do_HEAD(self):
            _answer(self, hub)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler, hub):
    url = urllib.parse.urlsplit(handler.path)
    hub.requests.append(f"{handler.command} {url.path}")
    if hub.is_down:
        return _send(handler, 503, b"down")
    if url.path == "/api/models":
        wanted = urllib.parse.parse_qs(url.query)
        author = wanted.get("author", [""])[0]
        found = [{"id": name} for name in hub.models if name.startswith(f"{author}/")]
        return _send_json(handler, found)
    info, file = _INFO.fullmatch(url.path), _RESOLVE.fullmatch(url.path)
    found = info or file
    if found is None or found["name"] not in hub.models:
        return _fail(handler, 404, "RepoNotFound")
    if found["revision"] not in (None, "main", COMMIT):
        return _fail(handler, 404, "RevisionNotFound")
    is_allowed = handler.headers.get("Authorization") == "Bearer secret"
    folder = hub.models[found["name"]]
    if file is not None and found["name"] in hub.gated and not is_allowed:
        return _fail(handler, 401, "GatedRepo")
    if file is not None:
        return _send_file(handler, hub, folder / file["file"])
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if info["kind"] == "tree":
        sizes = {name: (folder / name).stat().st_size for name in names}
        tree = [
            {"type": "file", "path": name, "size": size, "oid": _etag(folder / name)}
            for name, size in sizes.items()
        ]
        return _send_json(handler, tree)
    siblings = [{"rfilename": name} for name in names]
    return _send_json(handler, {"id": found["name"], "sha": COMMIT, "siblings": siblings})


def _send_file(handler, hub, path):
    if not path.is_file():
        return _fail(handler, 404, "EntryNotFound")
    content = path.read_bytes()
    headers = {"ETag": f'"{_etag(path)}"', "X-Repo-Commit": COMMIT, "Accept-Ranges": "bytes"}
    status, first = 200, 0
    if matched := re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", "")):
        status, first = 206, int(matched[1])
        headers["Content-Range"] = f"bytes {first}-{len(content) - 1}/{len(content)}"
    cut = hub.cut.pop(path.name, None) if handler.command == "GET" else None
    return _send(handler, status, content[first:], headers, cut=cut)


def _etag(path):
    return hashlib.sha1(path.read_bytes()).hexdigest()


def _send_json(handler, content):
    _send(handler, 200, json.dumps(content).encode(), {"Content-Type": "application/json"})


def _fail(handler, status, code):
    _send(handler, status, b"", {"X-Error-Code": code, "X-Error-Message": code})


def _send(handler, status, content, headers=None, *, cut=None):
    handler.send_response(status)
    for name, value in {**(headers or {}), "Content-Length": len(content)}.items():
        handler.send_header(name, str(value))
    handler.end_headers()
    if handler.command == "GET":
        handler.wfile.write(content[:cut])
        handler.wfile.flush()
    if cut is not None:
        handler.close_connection = True
        handler.connection.close()
