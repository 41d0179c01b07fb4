"""The XML interface of Google Cloud Storage, for `object_store.ObjectStore`.

`tt` uses this interface, and Beam and Google's own client use the one that gcp-storage-emulator
knows. Both see the same objects. https://cloud.google.com/storage/docs/xml-api/overview
"""

from __future__ import annotations

import datetime
import email.utils
import itertools
import re
import urllib.parse
from http import HTTPStatus
from typing import Any
from xml.sax.saxutils import escape

from gcp_storage_emulator.exceptions import NotFound

_PATH = re.compile(r"/(?P<bucket>[a-z][\w.-]*)(/(?P<name>.*))?")
_OTHER = {"b", "batch", "download", "storage", "upload", "resumable", "token"}


def parse(path: str) -> tuple[str, str] | None:
    """Return the bucket and the object of a request's path; None for another interface."""
    found = _PATH.fullmatch(urllib.parse.urlsplit(path).path)
    if found is None or found["bucket"] in _OTHER:
        return None
    return found["bucket"], urllib.parse.unquote(found["name"] or "")


class XmlApi:
    """Answers requests with the objects of an emulator's storage.

    Args:
      storage: The storage.
    """

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self._uploads: dict[str, dict[int, bytes]] = {}
        self._numbers = itertools.count(1)

    def answer(self, method: str, url: str, headers: Any, body: bytes) -> bytes:
        """Return the complete answer to a request."""
        bucket, name = parse(url) or ("", "")
        query = dict(urllib.parse.parse_qsl(urllib.parse.urlsplit(url).query, True))
        if bucket not in self._storage.buckets:
            return _reply(HTTPStatus.NOT_FOUND, _error("NoSuchBucket"))
        try:
            if not name:
                return _reply(HTTPStatus.OK, self._list(bucket, query))
            if method in ("GET", "HEAD"):
                return self._read(bucket, name, headers.get("range"), has_body=method == "GET")
            if method == "DELETE":
                if "uploadId" in query:
                    self._uploads.pop(query["uploadId"])
                else:
                    self._storage.delete_file(bucket, name)
                return _reply(HTTPStatus.NO_CONTENT)
            return self._write(bucket, name, query, headers, body)
        except NotFound:
            return _reply(HTTPStatus.NOT_FOUND, _error("NoSuchKey"))

    def _list(self, bucket: str, query: dict[str, str]) -> bytes:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
        folders, entries = set(), []
        for name, found in sorted(self._storage.objects.get(bucket, {}).items()):
            rest = name.removeprefix(prefix)
            if not name.startswith(prefix):
                continue
            if delimiter and delimiter in rest:
                folders.add(prefix + rest.partition(delimiter)[0] + delimiter)
                continue
            entries.append(
                f"<Contents><Key>{escape(name)}</Key><Size>{found['size']}</Size>"
                f'<ETag>"{_tag(found)}"</ETag><LastModified>{found["updated"]}</LastModified>'
                "</Contents>"
            )
        entries += [
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        ]
        return f"<ListBucketResult>{''.join(entries)}</ListBucketResult>".encode()

    def _read(self, bucket: str, name: str, wanted: str | None, *, has_body: bool) -> bytes:
        found = self._storage.get_file_obj(bucket, name)
        content = self._storage.get_file(bucket, name)
        status, headers = HTTPStatus.OK, _headers(found)
        if wanted:
            begin, _, end = wanted.removeprefix("bytes=").partition("-")
            first, last = int(begin), min(int(end or len(content)), len(content) - 1)
            if first >= len(content):
                return _reply(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, _error("InvalidRange"))
            headers["content-range"] = f"bytes {first}-{last}/{len(content)}"
            status, content = HTTPStatus.PARTIAL_CONTENT, content[first : last + 1]
        headers["content-length"] = str(len(content))
        return _reply(status, content if has_body else b"", headers)

    def _write(
        self, bucket: str, name: str, query: dict[str, str], headers: Any, body: bytes
    ) -> bytes:
        if "uploads" in query:
            number = str(next(self._numbers))
            self._uploads[number] = {}
            answer = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId>"
            return _reply(HTTPStatus.OK, f"{answer}</InitiateMultipartUploadResult>".encode())
        if "partNumber" in query:
            self._uploads[query["uploadId"]][int(query["partNumber"])] = body
            return _reply(HTTPStatus.OK, b"", {"etag": f'"{query["partNumber"]}"'})
        expected = headers.get("x-goog-if-generation-match")
        current = self._storage.objects.get(bucket, {}).get(name)
        if expected is not None and expected != (current["generation"] if current else "0"):
            return _reply(HTTPStatus.PRECONDITION_FAILED, _error("PreconditionFailed"))
        if "uploadId" in query:
            parts = self._uploads.pop(query["uploadId"])
            body = b"".join(parts[number] for number in sorted(parts))
        generation = str(int(current["generation"]) + 1 if current else next(self._numbers))
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        found = {
            "kind": "storage#object", "name": name, "bucket": bucket, "size": str(len(body)),
            "generation": generation, "metageneration": "1", "updated": now, "timeCreated": now,
            "contentType": "application/octet-stream",
        }  # fmt: skip
        self._storage.create_file(bucket, name, body, found)
        done = f'<CompleteMultipartUploadResult><ETag>"{_tag(found)}"</ETag>'
        text = f"{done}</CompleteMultipartUploadResult>".encode() if "uploadId" in query else b""
        return _reply(HTTPStatus.OK, text, _headers(found))


def _tag(found: dict[str, Any]) -> str:
    return f"{found['generation']}-{found['size']}"


def _headers(found: dict[str, Any]) -> dict[str, str]:
    changed = datetime.datetime.fromisoformat(found["updated"])
    return {
        "etag": f'"{_tag(found)}"',
        "x-goog-generation": found["generation"],
        "last-modified": email.utils.format_datetime(changed, usegmt=True),
    }


def _error(code: str) -> bytes:
    return f"<Error><Code>{code}</Code><Message>The stand-in says so.</Message></Error>".encode()


def _reply(status: HTTPStatus, body: bytes = b"", headers: dict[str, str] | None = None) -> bytes:
    sent = {"content-length": str(len(body)), "content-type": "application/xml", **(headers or {})}
    lines = [f"HTTP/1.1 {status.value} {status.phrase}", *(f"{k}: {v}" for k, v in sent.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body
