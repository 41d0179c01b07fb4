"""Clients of Amazon's S3: one a process, where Beam makes one for each look-up."""

from __future__ import annotations

import copy
import functools
import os
import threading
import types
from collections.abc import Hashable
from typing import Any

_CONNECTIONS = 16  # that are kept open: as many as there are requests at once
_lock = threading.Lock()
_clients: dict[Hashable, Any] = {}  # Beam's, by process and options


def options_of_s3(options: Any) -> dict[str, Any]:
    """Returns Beam's options of S3 by their names, of whatever Beam holds them in."""
    from apache_beam.options.pipeline_options import PipelineOptions, S3Options

    names = (
        "access_key_id", "secret_access_key", "session_token", "endpoint_url", "region_name",
        "api_version", "verify", "disable_ssl",
    )  # fmt: skip
    if not isinstance(options, PipelineOptions):
        return {name: (options or {}).get(f"s3_{name}") for name in names}
    view = options.view_as(S3Options)
    return {name: getattr(view, f"s3_{name}") for name in names}


def connect(options: Any, *, config: Any) -> Any:
    """Makes a client of boto3's.

    Args:
      options: Beam's, with those of S3.
      config: A `botocore.config.Config`.
    """
    import boto3

    given = options_of_s3(options)
    return boto3.session.Session().client(
        "s3",
        config=config,
        use_ssl=not given["disable_ssl"],
        **{name: given[name] for name in ("verify", "endpoint_url", "region_name", "api_version")},
        aws_access_key_id=given["access_key_id"],
        aws_secret_access_key=given["secret_access_key"],
        aws_session_token=given["session_token"],
    )


@functools.cache
def share_clients() -> None:
    """Has Beam's file system of S3 use one client for the same options, and write empty objects.

    To make one takes a tenth of a second, and each has connections of its own.
    """
    from apache_beam.io.aws import s3io
    from apache_beam.io.aws.clients.s3 import boto3_client

    if boto3_client.boto3 is None:
        return
    kind = _kind_of_client(boto3_client.Client)

    def find_client(options: Any) -> Any:
        key = (os.getpid(), *options_of_s3(options).values())
        with _lock:
            if key not in _clients:
                _clients[key] = _make(kind, options)
            return copy.copy(_clients[key])  # what it is reading is each one's own

    s3io.boto3_client = types.SimpleNamespace(Client=find_client)


def _kind_of_client(base: Any) -> Any:
    from apache_beam.io.aws.clients.s3.messages import UploadPartRequest

    class Client(base):  # type: ignore[misc]
        def complete_multipart_upload(self, request: Any) -> Any:
            """Ends an upload; without a part, which S3 refuses, it gets one of no bytes."""
            if not request.parts:
                part = self.upload_part(
                    UploadPartRequest(request.bucket, request.object, request.upload_id, 1, b"")
                )
                request.parts = [{"ETag": part.etag, "PartNumber": part.part_number}]
            return super().complete_multipart_upload(request)

    return Client


def _make(kind: Any, options: Any) -> Any:
    from botocore.config import Config

    made = kind(options)
    made.client = connect(options, config=Config(max_pool_connections=_CONNECTIONS))
    return made
