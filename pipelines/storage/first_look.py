"""A first look at Google Cloud Storage, which answers within seconds.

Its clients try again for two minutes, which is right in the middle of a job, and long for a user
who has no network or is not logged in.
"""

from __future__ import annotations

import functools
import re
import threading
from collections.abc import Iterable

from model.errors import ServiceError

SECONDS = 12.0  # of the whole look
_REQUEST_SECONDS = 5.0  # of a connection, and of an answer
_SCHEME = "gs://"
_BUCKET = re.compile(rf"{_SCHEME}(\w[\w.-]*)")


def look_first(paths: Iterable[str]) -> None:
    """Looks whether each bucket that paths, or names of corpora, are of answers; once in a process.

    Raises:
      ServiceError: Google Cloud Storage does not answer, or wants to know who asks.
    """
    buckets = {bucket for path in paths for bucket in _BUCKET.findall(path)}
    for bucket in sorted(buckets):
        _look(bucket)


@functools.cache
def _look(bucket: str) -> None:
    errors: list[Exception] = []

    def run() -> None:
        try:
            _ask(bucket)
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
        timeout = (_REQUEST_SECONDS, _REQUEST_SECONDS)
        next(iter(client.list_blobs(bucket, max_results=1, retry=None, timeout=timeout)), None)
    except (Forbidden, Unauthorized, google.auth.exceptions.InvalidOperation):
        try:
            google.auth.default()
        except google.auth.exceptions.GoogleAuthError as error:
            raise ServiceError(
                f"{_SCHEME}{bucket} wants to know who you are ({_reason(error)}): run `gcloud auth "
                "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
            ) from error
    except GoogleAPICallError:
        return  # it answers; what it answers to the user, its own look-up says
    except requests.exceptions.RequestException as error:
        raise _no_answer(bucket, _reason(error)) from error


def _no_answer(bucket: str, reason: str) -> ServiceError:
    return ServiceError(
        f"{_SCHEME}{bucket} does not answer ({reason}): check the network, and run the same "
        "command again"
    )


def _reason(error: Exception) -> str:
    return " ".join(str(error).split()).partition(". ")[0]
