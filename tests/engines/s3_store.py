"""A stand-in for Amazon S3 in this process, by moto, with one bucket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it logs each request

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class S3Store:
    """A store with one bucket.

    Attributes:
      bucket: The path of its bucket, "s3://bucket".
      environment: Variables of a user with an account at this store.
      requests: Number of requests since the last call of `wipe`.
      on_request: Called with the number of each request when it arrives.
      denied: HTTP methods that are denied, such as "PUT".
    """

    bucket = "s3://bucket"

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self.requests = 0
        self.on_request: Callable[[int], object] = lambda number: None
        self.denied: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": self.url,
        }  # fmt: skip
        self._client = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="id", aws_secret_access_key="secret",
            region_name="us-east-1",
        )  # fmt: skip
        self._client.create_bucket(Bucket="bucket")

    def _answer(self, environment, start_response):
        with self._lock:
            self.requests += 1
            number = self.requests
        self.on_request(number)
        if environment["REQUEST_METHOD"] in self.denied:
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED]
        return self._application(environment, start_response)

    def objects(self, under: str = "") -> dict[str, bytes]:
        """Return the content by path of objects whose path starts with `under`."""
        found = {}
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
            for each in page.get("Contents", ()):
                path = f"{self.bucket}/{each['Key']}"
                if path.startswith(under):
                    answer = self._client.get_object(Bucket="bucket", Key=each["Key"])
                    found[path] = answer["Body"].read()
        return dict(sorted(found.items()))

    def wipe(self) -> None:
        """Delete all objects, forget all requests, and allow all methods."""
        self.denied = ()
        for path in self.objects():
            self._client.delete_object(Bucket="bucket", Key=path.removeprefix(f"{self.bucket}/"))
        self.requests = 0

    def stop(self) -> None:
        """Stop the server."""
        self._server.shutdown()
