"""Clients of object stores, with the settings and logins of the user.

A client retries failed requests for minutes. That is right during a job, but too long for a user
who has no network or is not logged in. Therefore, `check_buckets` reports such problems within
seconds.
"""

from __future__ import annotations

import configparser
import contextlib
import dataclasses
import datetime
import errno
import functools
import importlib.util
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tt.model.errors import ServiceError, UserError, first_line
from tt.model.extras import pip_install
from tt.model.storage.paths import scheme_of, split_path

if TYPE_CHECKING:
    from obstore.store import ObjectStore

# Variables that tell where a store is and which account it belongs to, but not how to log in. A job
# takes them to its workers.
_ADDRESSES = (
    "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL",
    "AWS_SKIP_SIGNATURE", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "AWS_REQUEST_PAYER",
    "STORAGE_EMULATOR_HOST", "GOOGLE_SKIP_SIGNATURE",
    "AZURE_STORAGE_ACCOUNT_NAME", "AZURE_ENDPOINT", "AZURE_SKIP_SIGNATURE",
)  # fmt: skip
_LOGINS = {
    "s3": "Run `aws configure`, or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "Run `gcloud auth application-default login`, or set GOOGLE_APPLICATION_CREDENTIALS",
    "az": "Set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
    "abfss": "Set AZURE_STORAGE_ACCOUNT_KEY, or AZURE_STORAGE_SAS_TOKEN",
}
# Settings in a profile of `aws configure`, and the variables that overrule them.
_PROFILE: dict[str, tuple[str, ...]] = {
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint_url": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    **dict.fromkeys(("aws_access_key_id", "aws_secret_access_key", "aws_session_token"), ()),
}
_LOGIN_PROGRAMS = {"sso_session", "sso_start_url", "role_arn", "credential_process"}
_CHECK_SECONDS = 5.0  # the time limit of connecting, and of waiting for an answer
_BUCKET = re.compile(r"(?:s3|gs|az|abfss)://\w[\w.@-]*")
_CODE = re.compile(r"<Code>(.+?)</Code>(?:.*?<Message>(.+?)</Message>)?", re.DOTALL)
_NO_BUCKET = re.compile("NoSuchBucket|ContainerNotFound|bucket does not exist")
_NO_RIGHT = re.compile(r"\b40[13] |AccessDenied|Forbidden|necessary privileges")
_NO_LOGIN = re.compile(r"/latest/(api|meta-data)|[Mm]issing ?[Cc]redential")


@dataclasses.dataclass(frozen=True)
class StorageOptions:
    """The addresses of object stores, without secrets, as a part of a job.

    A worker that unpickles a job sets the variables of the user who started it, so that all
    programs in the worker find the same stores. Workers log in with their own accounts.

    Attributes:
      variables: Names and values of environment variables.
    """

    variables: tuple[tuple[str, str], ...]

    @classmethod
    def of_this_process(cls) -> StorageOptions:
        """Return the addresses in the environment of this process."""
        return cls(tuple((name, os.environ[name]) for name in _ADDRESSES if os.environ.get(name)))

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        os.environ.update(self.variables)


@contextlib.contextmanager
def open_store(path: str) -> Iterator[tuple[ObjectStore, str]]:
    """Yield the client of a remote path's bucket, which threads may share, and the path's key.

    Raises:
      OSError, UserError: A request in the block failed; see `explain`.
    """
    root, key = split_path(path)
    store = _make(root, StorageOptions.of_this_process(), os.getpid())
    with explain(path):
        yield store, key


@functools.lru_cache
def _make(root: str, options: StorageOptions, process: int, *, is_check: bool = False) -> Any:
    seconds = datetime.timedelta(seconds=_CHECK_SECONDS)
    settings: dict[str, Any] = {
        "client_options": {
            "allow_http": True,  # only an address that begins with http:// uses it
            "connect_timeout": seconds,
            "timeout": seconds if is_check else datetime.timedelta(minutes=10),
        }
    }
    if is_check:
        settings["retry_config"] = {"max_retries": 0}
    with explain(root):
        return MAKERS[scheme_of(root)](root, settings)


def _make_amazon(root: str, settings: dict[str, Any]) -> ObjectStore:
    from obstore.store import S3Store

    profile = {} if "AWS_ACCESS_KEY_ID" in os.environ else _read_profile()
    for name, variables in _PROFILE.items():
        if name in profile and not os.environ.keys() & set(variables):
            settings[name] = profile[name]
    if "aws_access_key_id" not in profile and profile.keys() & _LOGIN_PROGRAMS:
        if importlib.util.find_spec("boto3") is None:
            raise UserError(
                "the profile in ~/.aws/config logs in by a program or a role, which needs boto3: "
                f"{pip_install('boto3')}"
            )
        from obstore.auth.boto3 import Boto3CredentialProvider

        settings["credential_provider"] = Boto3CredentialProvider()
    return S3Store(root.removeprefix("s3://"), **settings)


def _read_profile() -> dict[str, str]:
    """Return the settings of the user's profile in the files of `aws configure`."""
    profile = os.environ.get("AWS_PROFILE", "default")
    home = Path.home() / ".aws"
    parser = configparser.RawConfigParser()
    parser.read(
        [
            os.environ.get("AWS_CONFIG_FILE", home / "config"),
            os.environ.get("AWS_SHARED_CREDENTIALS_FILE", home / "credentials"),
        ]
    )
    sections = (f"profile {profile}", profile)
    return {k: v for name in sections if name in parser for k, v in parser[name].items()}


def _make_google(root: str, settings: dict[str, Any]) -> ObjectStore:
    import google.auth
    from google.auth.exceptions import DefaultCredentialsError
    from google.auth.transport.requests import Request
    from obstore.store import GCSStore

    try:
        account: Any = google.auth.default(
            scopes=["https://www.googleapis.com/auth/devstorage.read_write"]
        )[0]
    except DefaultCredentialsError:
        settings["skip_signature"] = True  # a public bucket needs no login

    def log_in() -> dict[str, Any]:
        if not account.valid:
            account.refresh(Request())
        expiry = account.expiry
        return {
            "token": account.token,
            "expires_at": expiry and expiry.replace(tzinfo=datetime.UTC),
        }

    if "skip_signature" not in settings:
        settings["credential_provider"] = log_in
    if "STORAGE_EMULATOR_HOST" in os.environ:
        settings["base_url"] = os.environ["STORAGE_EMULATOR_HOST"]
    return GCSStore(root.removeprefix("gs://"), **settings)


def _make_azure(root: str, settings: dict[str, Any]) -> ObjectStore:
    from obstore.store import from_url

    return from_url(root, **settings)  # type: ignore[return-value]


# Functions that make a client, by scheme; each gets the root of a path, and settings of `obstore`.
MAKERS: dict[str, Callable[[str, dict[str, Any]], ObjectStore]] = {
    "s3": _make_amazon, "gs": _make_google, "az": _make_azure, "abfss": _make_azure,
}  # fmt: skip


@contextlib.contextmanager
def explain(path: str) -> Iterator[None]:
    """Run the block; turn errors of an object store into errors that a user understands.

    Raises:
      EOFError: The object ends before the requested bytes.
      FileNotFoundError: The object does not exist.
      FileExistsError: An object that should be new exists, or somebody has replaced the object.
      NotImplementedError: The store does not know conditional requests.
      ServiceError: The store does not answer, requires a login, or denies access.
      UserError: The bucket does not exist, or is in another region.
    """
    from obstore.exceptions import BaseError

    try:
        yield
    except (BaseError, OSError, ValueError) as error:  # a writer raises OSError for any problem
        raise _explain(path, error) from error


def _explain(path: str, error: Exception) -> Exception:
    from obstore import exceptions

    is_missing = isinstance(error, FileNotFoundError | exceptions.NotFoundError)
    # A ValueError means that no object can have such a name, for example a//b.
    if isinstance(error, ValueError) or (is_missing and not _NO_BUCKET.search(str(error))):
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    if isinstance(error, exceptions.AlreadyExistsError | exceptions.PreconditionError):
        return FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if isinstance(error, exceptions.NotSupportedError):
        return NotImplementedError(str(error))
    text = str(error).partition("Debug source:")[0]
    if re.search(" 416 |Wanted range", str(error)):
        return EOFError(f"{path} ends before the first byte of the requested range")
    code = _CODE.search(text)
    reason = ": ".join(filter(None, code.groups())) if code else first_line(text)
    bucket = split_path(path)[0]
    if _NO_LOGIN.search(text):
        return ServiceError(
            f"{bucket} requires a login (tt found no keys). {_LOGINS[scheme_of(path)]}"
        )
    if "invalid path" in text:
        return UserError(
            f"{path} contains an object with an empty name between slashes ({reason}), which tt "
            "cannot read. Rename the object, or choose another folder"
        )
    if _NO_BUCKET.search(text):
        return UserError(f"the bucket {bucket} does not exist. Create it, or choose another bucket")
    if re.search("PermanentRedirect|AuthorizationHeaderMalformed|configured region", text):
        return UserError(f"{bucket} is in another region ({reason}). Set AWS_REGION to its region")
    if _NO_RIGHT.search(text):
        return ServiceError(
            f"{path} cannot be read or written: your account has no permission ({reason}). Check "
            "your login, ask the owner for access, or choose another path"
        )
    return ServiceError(
        f"{bucket} does not answer ({reason}). Check the network, and run the same command again"
    )


def check_buckets(paths: Iterable[str]) -> None:
    """Check once per process that the bucket of each path answers.

    Args:
      paths: Paths, or names of corpora that contain paths.

    Raises:
      ServiceError: The object store does not answer, requires a login, or denies access.
      UserError: A bucket does not exist.
    """
    for root in sorted({root for path in paths for root in _BUCKET.findall(path)}):
        _check_bucket(root, StorageOptions.of_this_process())


@functools.cache
def _check_bucket(root: str, options: StorageOptions) -> None:
    with explain(root):
        store = _make(root, options, os.getpid(), is_check=True)
        next(iter(store.list(chunk_size=1)), None)
