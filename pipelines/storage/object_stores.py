"""Object stores: one client of Amazon's S3 per process, and a first look at a bucket.

Clients try again for minutes, which is right in the middle of a job, and too long for a user who
has no network or is not logged in. So a first look tells within seconds.
"""

from __future__ import annotations

import copy
import functools
import importlib.util
import os
import re
import threading
import types
from collections.abc import Hashable, Iterable
from typing import Any

from tt.model.errors import ServiceError, UserError

_CONNECTIONS = 16  # that are kept open: as many as there are requests at once
SECONDS = 12.0  # of the whole look
_REQUEST_SECONDS = 5.0  # of a connection, and of an answer
_SCHEME = "gs://"
_AMAZON = "s3://"
_BUCKET = re.compile(rf"(?:{_SCHEME}|{_AMAZON})\w[\w.-]*")
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


def look_first(paths: Iterable[str]) -> None:
    """Looks whether each bucket that paths, or names of corpora, are of answers; once in a process.

    Raises:
      ServiceError: The store does not answer, or wants to know who asks.
      UserError: There is no such bucket of S3, or its client is not installed.
    """
    buckets = {bucket for path in paths for bucket in _BUCKET.findall(path)}
    for bucket in sorted(buckets):
        _look(bucket)


@functools.cache
def _look(bucket: str) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            (_ask_amazon if bucket.startswith(_AMAZON) else _ask)(bucket)
        except Exception as error:
            errors.append(error)

    # Names are looked up, and connections are tried for each address, without a limit of time.
    thread = threading.Thread(target=run, name="first look", daemon=True)
    thread.start()
    thread.join(SECONDS)
    if thread.is_alive():
        raise _no_answer(bucket, f"nothing within {SECONDS:g} s")
    if errors:
        raise errors[0]


def _ask(bucket: str) -> None:
    """Asks as nobody for a name of the bucket: even a refusal shows that somebody answers."""
    import google.auth
    import google.auth.exceptions
    import requests
    from google.api_core.exceptions import Forbidden, GoogleAPICallError, Unauthorized
    from google.cloud import storage  # type: ignore[import-untyped]

    try:
        client = storage.Client.create_anonymous_client()
        name = bucket.removeprefix(_SCHEME)
        timeout = (_REQUEST_SECONDS, _REQUEST_SECONDS)
        next(iter(client.list_blobs(name, max_results=1, retry=None, timeout=timeout)), None)
    except (Forbidden, Unauthorized, google.auth.exceptions.InvalidOperation):
        try:
            google.auth.default()
        except google.auth.exceptions.GoogleAuthError as error:
            raise ServiceError(
                f"{bucket} wants to know who you are ({_reason(error)}): run `gcloud auth "
                "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
            ) from error
    except GoogleAPICallError:
        return  # it answers; what it answers to the user, its own look-up says
    except requests.exceptions.RequestException as error:
        raise _no_answer(bucket, _reason(error)) from error


def _ask_amazon(bucket: str) -> None:
    """Asks by the user's keys, which may come from Beam's flags, for a name of the bucket."""
    if importlib.util.find_spec("boto3") is None:
        return  # what looks at a path says so
    from apache_beam.io.filesystems import FileSystems
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    options = FileSystems.get_filesystem(bucket)._options
    config = Config(
        connect_timeout=_REQUEST_SECONDS,
        read_timeout=_REQUEST_SECONDS,
        retries={"total_max_attempts": 1},
    )
    try:
        client = connect(options, config=config)
        client.list_objects_v2(Bucket=bucket.removeprefix(_AMAZON), MaxKeys=1)
    except NoCredentialsError as error:
        raise ServiceError(
            f"{bucket} wants to know who you are ({_reason(error)}): run `aws configure`, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchBucket":
            raise UserError(f"there is no bucket {bucket}: make it, or name another") from error
        raise ServiceError(
            f"{bucket} does not let you look into it ({_reason(error)}): check your keys, your "
            "rights there and the region"
        ) from error
    except (BotoCoreError, ValueError) as error:  # the latter of an address that is none
        raise _no_answer(bucket, _reason(error)) from error


def _no_answer(bucket: str, reason: str) -> ServiceError:
    return ServiceError(
        f"{bucket} does not answer ({reason}): check the network, and run the same command again"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]
