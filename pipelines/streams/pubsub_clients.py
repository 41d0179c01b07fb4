"""Credentials for Pub/Sub, and errors of its clients in one line."""

from __future__ import annotations

import os

from model.errors import ServiceError, UserError

ANSWER_SECONDS = 10.0  # for the service's answers before a run


def check_credentials() -> None:
    """Check that Google knows the user. Emulators need no credentials.

    Raises:
      UserError: There are no credentials.
    """
    import google.auth
    import google.auth.exceptions

    if os.environ.get("PUBSUB_EMULATOR_HOST"):
        return
    try:
        google.auth.default()
    except google.auth.exceptions.GoogleAuthError as error:
        raise UserError(
            f"Pub/Sub needs credentials ({_reason(error)}). Run `gcloud auth application-default "
            "login`, or set GOOGLE_APPLICATION_CREDENTIALS"
        ) from None


def explain_error(error: Exception, *, name: str, path: str) -> UserError:
    """Return what to tell the user.

    Args:
      error: The exception of a client.
      name: The name that the user knows, "`output` (pubsub://my-project/titles)".
      path: The name that Pub/Sub uses, "projects/my-project/topics/titles".
    """
    from google.api_core import exceptions

    kind = path.split("/")[-2].removesuffix("s")
    if isinstance(error, exceptions.NotFound):
        return UserError(
            f"{name} does not exist. Create it by `gcloud pubsub {kind}s create`, or choose "
            f"another {kind}. Received: {path}"
        )
    if isinstance(error, exceptions.PermissionDenied):
        return UserError(
            f"you have no right to use {name} ({_reason(error)}). A stream needs the roles "
            "pubsub.subscriber, pubsub.publisher and pubsub.viewer"
        )
    if isinstance(error, exceptions.ServerError | exceptions.RetryError | exceptions.Cancelled):
        return ServiceError(
            f"Pub/Sub does not answer for {name} ({_reason(error)}). Check the network, and run "
            "the same command again"
        )
    return ServiceError(f"Pub/Sub refused the request for {name}: {_reason(error)}")


def _reason(error: Exception) -> str:
    found = getattr(error, "message", None) or str(error)
    return " ".join(str(found).split()).partition(". ")[0] or type(error).__name__
