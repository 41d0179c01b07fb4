"""Clients of Pub/Sub, and their errors told in one line.

With PUBSUB_EMULATOR_HOST they are those of an emulator, as Google's own clients are:
https://cloud.google.com/pubsub/docs/emulator
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from model.errors import ServiceError, UserError

if TYPE_CHECKING:
    from google.pubsub_v1 import PublisherClient, SubscriberClient

ANSWER_SECONDS = 10.0  # that the service has at the start
_EMULATOR = "PUBSUB_EMULATOR_HOST"
_LARGEST = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def make_subscriber() -> SubscriberClient:
    """Makes a client that reads.

    Raises:
      UserError: There are no credentials.
    """
    from google.pubsub_v1 import SubscriberClient
    from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcTransport

    if host := os.environ.get(_EMULATOR):
        return SubscriberClient(transport=SubscriberGrpcTransport(channel=_open(host), host=host))
    with_credentials()
    return SubscriberClient()


def make_publisher() -> PublisherClient:
    """Makes a client that writes: each call sends what it is given, and nothing later.

    Raises:
      UserError: There are no credentials.
    """
    from google.pubsub_v1 import PublisherClient
    from google.pubsub_v1.services.publisher.transports import PublisherGrpcTransport

    if host := os.environ.get(_EMULATOR):
        return PublisherClient(transport=PublisherGrpcTransport(channel=_open(host), host=host))
    with_credentials()
    return PublisherClient()


def with_credentials() -> None:
    """Checks that Google knows who asks.

    Raises:
      UserError: It does not.
    """
    import google.auth
    import google.auth.exceptions

    try:
        google.auth.default()
    except google.auth.exceptions.GoogleAuthError as error:
        raise UserError(
            f"Pub/Sub wants to know who you are ({_reason(error)}): run `gcloud auth "
            "application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from None


def is_passing(error: Exception) -> bool:
    """Says whether the same request may succeed later."""
    import google.auth.exceptions
    from google.api_core import exceptions

    passing = (
        exceptions.Aborted, exceptions.Cancelled, exceptions.GatewayTimeout,  # deadline exceeded
        exceptions.InternalServerError, exceptions.ServiceUnavailable, exceptions.TooManyRequests,
        exceptions.Unknown, exceptions.RetryError, google.auth.exceptions.TransportError,
    )  # fmt: skip
    return isinstance(error, passing)


def describe_trouble(error: Exception) -> str:
    """Returns what to tell of an error after which the same request is made again."""
    return f"no answer of Pub/Sub ({type(error).__name__}: {_reason(error)})"


def explain_error(error: Exception, *, name: str, path: str) -> UserError:
    """Returns what to tell the user.

    Args:
      error: What a client raised.
      name: What the user calls it, "`output` (pubsub://my-project/titles)".
      path: What Pub/Sub calls it, "projects/my-project/topics/titles".
    """
    from google.api_core import exceptions

    kind = path.split("/")[-2].removesuffix("s")
    if isinstance(error, exceptions.NotFound):
        return UserError(
            f"{name} is not there: create it by `gcloud pubsub {kind}s create`, or name another "
            f"{kind}. Received: {path}"
        )
    if isinstance(error, exceptions.PermissionDenied):
        return UserError(
            f"{name} is not yours to use ({_reason(error)}): a stream needs the roles "
            "pubsub.subscriber, pubsub.publisher and pubsub.viewer"
        )
    if is_passing(error):
        return ServiceError(
            f"Pub/Sub does not answer for {name} ({_reason(error)}): check the network, and run "
            "the same command again"
        )
    return ServiceError(f"Pub/Sub refused the request for {name}: {_reason(error)}")


def _open(host: str) -> object:
    import grpc

    return grpc.insecure_channel(host, options=_LARGEST)


def _reason(error: Exception) -> str:
    found = getattr(error, "message", None) or str(error)
    return " ".join(str(found).split()).partition(". ")[0] or type(error).__name__
