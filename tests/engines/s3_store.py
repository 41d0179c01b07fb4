"""Amazon's S3 in this process: moto's, with one bucket."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import boto3
from moto.server import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import make_server

logging.getLogger("werkzeug").setLevel(logging.WARNING)  # it tells of each request

_DENIED = b"<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"


class S3Store:
    """A store with one bucket.

    Attributes:
      bucket: Its bucket, "s3://bucket".
      arguments: Flags of Beam's with which a job reaches it.
      environment: Variables with which Amazon's client does not look for an account elsewhere.
      requests: Requests since it was emptied.
      meets: Is told of each request as it comes, by its number.
      denied: Methods of HTTP that nobody has the right to, as "PUT".
    """

    bucket = "s3://bucket"

    def __init__(self) -> None:
        self._application = DomainDispatcherApplication(create_backend_app)
        self.requests = 0
        self.meets: Callable[[int], object] = lambda number: None
        self.denied: tuple[str, ...] = ()
        self._lock = threading.Lock()
        self._server = make_server("127.0.0.1", 0, self._answer, threaded=True)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self.environment = {
            "AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_EC2_METADATA_DISABLED": "true",
        }  # fmt: skip
        self.arguments = (
            f"--s3_endpoint_url={self.url}", "--s3_access_key_id=id",
            "--s3_secret_access_key=secret", "--s3_region_name=us-east-1", "--s3_disable_ssl",
        )  # fmt: skip
        self._client = boto3.client(
            "s3", endpoint_url=self.url, aws_access_key_id="id", aws_secret_access_key="secret",
            region_name="us-east-1",
        )  # fmt: skip
        self._client.create_bucket(Bucket="bucket")

    def _answer(self, environment, start_response):
        with self._lock:
            self.requests += 1
            number = self.requests
        self.meets(number)
        if environment["REQUEST_METHOD"] in self.denied:
            start_response("403 Forbidden", [("Content-Type", "application/xml")])
            return [_DENIED]
        return self._application(environment, start_response)

    def objects(self, under: str = "") -> dict[str, bytes]:
        """Returns the content of the objects whose path begins so, by path."""
        found = {}
        for page in self._client.get_paginator("list_objects_v2").paginate(Bucket="bucket"):
            for each in page.get("Contents", ()):
                path = f"{self.bucket}/{each['Key']}"
                if path.startswith(under):
                    answer = self._client.get_object(Bucket="bucket", Key=each["Key"])
                    found[path] = answer["Body"].read()
        return dict(sorted(found.items()))

    def wipe(self) -> None:
        """Deletes all objects, forgets all requests, and grants all rights."""
        self.denied = ()
        for path in self.objects():
            self._client.delete_object(Bucket="bucket", Key=path.removeprefix(f"{self.bucket}/"))
        self.requests = 0

    def stop(self) -> None:
        """Ends the server."""
        self._server.shutdown()
