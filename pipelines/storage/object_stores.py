"""Share S3 clients within a process, and check quickly that a bucket answers.

Clients of object stores retry for minutes. That is right during a job, but too long for a user who
has no network or is not logged in. Therefore, `check_buckets` reports such problems within seconds.
"""

from __future__ import annotations

import concurrent.futures
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
from tt.model.long_work import call_in_thread

_CONNECTIONS = 16  # the maximum number of open connections, and thus of parallel requests
SECONDS = 12.0  # the time limit of a check
_REQUEST_SECONDS = 5.0  # the time limit of connecting, and of waiting for an answer
_SCHEME = "gs://"
_AMAZON = "s3://"
_BUCKET = re.compile(rf"(?:{_SCHEME}|{_AMAZON})\w[\w.-]*")
_lock = threading.Lock()
_clients: dict[Hashable, Any] = {}  # Beam's S3 clients, by process and options


def options_of_s3(options: Any) -> dict[str, Any]:
    """Return Beam's S3 options by name.

    Args:
      options: PipelineOptions, a dictionary, or None.
    """
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
    """Create a boto3 client for S3.

    Args:
      options: Beam's options; see `options_of_s3`.
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
    """Make Beam's S3 file system reuse its clients, and let it write empty objects.

    Creating a client takes 0.1 seconds, and each client opens its own connections.
    """
    from apache_beam.io.aws import s3io
    from apache_beam.io.aws.clients.s3 import boto3_client

    if boto3_client.boto3 is None:
        return
    kind = _client_class(boto3_client.Client)

    def find_client(options: Any) -> Any:
        from botocore.config import Config

        key = (os.getpid(), *options_of_s3(options).values())
        with _lock:
            if key not in _clients:
                config = Config(max_pool_connections=_CONNECTIONS)
                made = kind(options)
                made.client = connect(options, config=config)
                _clients[key] = made
            # A copy shares the connections, but not the state of the object that it reads.
            return copy.copy(_clients[key])

    s3io.boto3_client = types.SimpleNamespace(Client=find_client)


def _client_class(base: Any) -> Any:
    from apache_beam.io.aws.clients.s3.messages import UploadPartRequest

    class Client(base):  # type: ignore[misc]
        def complete_multipart_upload(self, request: Any) -> Any:
            """Finish an upload; add an empty part if there is none, because S3 requires a part."""
            if not request.parts:
                part = self.upload_part(
                    UploadPartRequest(request.bucket, request.object, request.upload_id, 1, b"")
                )
                request.parts = [{"ETag": part.etag, "PartNumber": part.part_number}]
            return super().complete_multipart_upload(request)

    return Client


def check_buckets(paths: Iterable[str]) -> None:
    """Check once per process that the bucket of each path answers.

    Args:
      paths: Paths, or names of corpora that contain paths. Only gs:// and s3:// are checked.

    Raises:
      ServiceError: The object store does not answer, requires a login, or denies access.
      UserError: An S3 bucket does not exist.
    """
    buckets = {bucket for path in paths for bucket in _BUCKET.findall(path)}
    for bucket in sorted(buckets):
        _check_bucket(bucket)


@functools.cache
def _check_bucket(bucket: str) -> None:
    check = _check_amazon if bucket.startswith(_AMAZON) else _check_google
    # A thread limits the total time: name resolution has no time limit, and the client tries every
    # address of a host.
    checked = call_in_thread(lambda: check(bucket), name="check bucket")
    concurrent.futures.wait([checked], timeout=SECONDS)
    if not checked.done():
        raise _no_answer(bucket, f"no response within {SECONDS:g} s")
    checked.result()


def _check_google(bucket: str) -> None:
    """List an object of a gs:// bucket without credentials; a refusal also counts as an answer."""
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
                f"{bucket} requires a login ({_reason(error)}). Run `gcloud auth "
                "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
            ) from error
    except GoogleAPICallError:
        return  # the bucket answers; a later access to its files reports the problem
    except requests.exceptions.RequestException as error:
        raise _no_answer(bucket, _reason(error)) from error


def _check_amazon(bucket: str) -> None:
    """List an object of an s3:// bucket with the user's keys, which may come from Beam's flags."""
    if importlib.util.find_spec("boto3") is None:
        return  # the first access to a path reports the missing package
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
            f"{bucket} requires a login ({_reason(error)}). Run `aws configure`, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except ClientError as error:
        if error.response["Error"]["Code"] == "NoSuchBucket":
            raise UserError(
                f"the bucket {bucket} does not exist. Create it, or choose another bucket"
            ) from error
        raise ServiceError(
            f"{bucket} denies access ({_reason(error)}). Check your keys, your permissions and the "
            "region"
        ) from error
    except (BotoCoreError, ValueError) as error:  # ValueError: the endpoint is not a valid URL
        raise _no_answer(bucket, _reason(error)) from error


def _no_answer(bucket: str, reason: str) -> ServiceError:
    return ServiceError(
        f"{bucket} does not answer ({reason}). Check the network, and run the same command again"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]
