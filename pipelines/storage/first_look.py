"""A first look at Google Cloud Storage and at Amazon's S3, which answers within seconds.

Their clients try again for minutes, which is right in the middle of a job, and long for a user
who has no network or is not logged in.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import threading
from collections.abc import Iterable

from model.errors import ServiceError, UserError
from pipelines.storage.amazon import connect
from pipelines.storage.paths import file_systems

SECONDS = 12.0  # of the whole look
_REQUEST_SECONDS = 5.0  # of a connection, and of an answer
_SCHEME = "gs://"
_AMAZON = "s3://"
_BUCKET = re.compile(rf"(?:{_SCHEME}|{_AMAZON})\w[\w.-]*")


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
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

    options = file_systems().get_filesystem(bucket)._options
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
