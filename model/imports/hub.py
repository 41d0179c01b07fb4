"""Download models from the hub of Hugging Face, and read their licenses.

`huggingface_hub` downloads the files and keeps them in its own cache. It respects `HF_HOME`,
`HF_ENDPOINT`, `HF_TOKEN` and `HF_HUB_OFFLINE`, and continues interrupted downloads.
"""

from __future__ import annotations

import contextlib
import difflib
import errno
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tt.model.errors import DiskFullError, ServiceError, UserError, first_line
from tt.model.imports.huggingface import (
    CARD,
    CONFIG,
    check_configuration,
    choose_weights,
    files_of,
    shards_in,
)

PREFIX = "hf:"
_ADDRESS = re.compile(r"(?P<repository>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")
_DEFAULT_REVISION = "main"
_SIMILAR = 0.6  # the least similarity of a suggested name, from 0 to 1
_NON_COMMERCIAL = re.compile(r"-nc(?:-|$)|non-?commercial", re.IGNORECASE)


class Address(NamedTuple):
    """The address of a model on the hub.

    Attributes:
      repository: The repository, such as "Helsinki-NLP/opus-mt-en-es".
      revision: A branch, a tag or a commit; None for the main branch.
    """

    repository: str
    revision: str | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the revision is a commit, so that the files never change."""
        return self.revision is not None and bool(_COMMIT.fullmatch(self.revision))

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + (f"@{self.revision}" if self.revision else "")


class Snapshot(NamedTuple):
    """The downloaded files of a model.

    Attributes:
      folder: The folder with the files, in the cache of `huggingface_hub`.
      address: The address with the commit of the files.
    """

    folder: Path
    address: Address


def parse_address(model: str) -> Address | None:
    """Return the address of a model on the hub, or None for a path.

    Raises:
      UserError: The address is incomplete.

    >>> parse_address("hf:Helsinki-NLP/opus-mt-en-es@main")
    Address(repository='Helsinki-NLP/opus-mt-en-es', revision='main')
    >>> parse_address("opus-mt-en-es")
    """
    if not model.startswith(PREFIX):
        return None
    found = _ADDRESS.fullmatch(model.removeprefix(PREFIX))
    if found is None:
        raise UserError(
            f"a model on the hub must have the form hf:ORG/NAME or hf:ORG/NAME@REVISION. "
            f"Received: {model}"
        )
    return Address(found["repository"], found["revision"])


def download(address: Address, *, report: Callable[[str], object]) -> Snapshot:
    """Download the files of a model that `tt` needs, unless the cache contains them.

    Without a network, the cache must contain the revision.

    Args:
      address: The address of the model.
      report: Receives a line before a download.

    Raises:
      UserError: The hub has no such model, `tt` does not support it, or the user has no access.
      ServiceError: The hub does not answer, and the cache does not contain the model.
      DiskFullError: The disk is full.
    """
    from huggingface_hub import (
        HfApi,
        hf_hub_download,
        snapshot_download,
        try_to_load_from_cache,
    )
    from huggingface_hub import errors as hub_errors
    from huggingface_hub.utils.tqdm import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    revision = address.revision or _DEFAULT_REVISION
    with _explained(address):
        try:
            info = HfApi().model_info(address.repository, revision=revision)
        except hub_errors.OfflineModeIsEnabled:
            return _cached(address, revision)
        except Exception as error:
            if not _is_network_problem(error):
                raise
            with contextlib.suppress(hub_errors.LocalEntryNotFoundError):
                found = _cached(address, revision)
                report(f"The hub does not answer, so tt uses {found.address} from the cache")
                return found
            raise ServiceError(
                f"{address} cannot be downloaded, and is not in the cache: {first_line(error)}. "
                "Check the network, and try again"
            ) from error
        commit = str(info.sha)
        names = [each.rfilename for each in info.siblings or ()]
        weights = choose_weights(names, model=str(address))
        if CONFIG not in names:
            raise UserError(f"{address} has no {CONFIG}. Choose another model")
        if try_to_load_from_cache(address.repository, weights, revision=commit) is None:
            report(f"Downloading {Address(address.repository, commit)}")

        def fetch(name: str) -> Path:
            return Path(hf_hub_download(address.repository, name, revision=commit))

        # Check the architecture before the download of all weights.
        check_configuration(json.loads(fetch(CONFIG).read_bytes()), model=str(address))
        shards = shards_in(fetch(weights)) if weights.endswith(".json") else []
        wanted = [*files_of(names), weights, *shards]
        # With the name of a branch, the library also stores its commit, for use without a network.
        folder = Path(
            snapshot_download(address.repository, revision=revision, allow_patterns=wanted)
        )
    return Snapshot(folder, Address(address.repository, folder.name))


def _cached(address: Address, revision: str) -> Snapshot:
    """Return the files in the cache.

    Raises:
      LocalEntryNotFoundError: The cache does not contain the revision.
      UserError: The cache contains only a part of the files.
    """
    from huggingface_hub import snapshot_download

    folder = Path(snapshot_download(address.repository, revision=revision, local_files_only=True))
    names = [path.name for path in folder.iterdir()]
    weights = choose_weights(names, model=str(address))
    needed = [CONFIG, *(shards_in(folder / weights) if weights.endswith(".json") else ())]
    if missing := [name for name in needed if name not in names]:
        raise UserError(f"the download of {address} is incomplete: {missing[0]} is missing")
    return Snapshot(folder, Address(address.repository, folder.name))


@contextlib.contextmanager
def _explained(address: Address) -> Iterator[None]:
    """Turn the errors of `huggingface_hub` into errors with a fix."""
    from huggingface_hub import errors as hub_errors

    try:
        yield
    except (UserError, ServiceError):
        raise
    except hub_errors.GatedRepoError as error:
        raise UserError(
            f"{address} is a gated model. Accept its conditions on its page, and set HF_TOKEN to "
            "your token"
        ) from error
    except hub_errors.RevisionNotFoundError as error:
        raise UserError(
            f"{address.repository} has no revision {address.revision!r}. Choose a branch, a tag or "
            "a commit of this model"
        ) from error
    except hub_errors.RepositoryNotFoundError as error:
        raise UserError(
            f"the hub has no model {address.repository}, or it is private. {_suggest(address)}"
        ) from error
    except hub_errors.LocalEntryNotFoundError as error:
        raise UserError(
            f"{address} is not in the cache, and HF_HUB_OFFLINE forbids a download. Unset "
            "HF_HUB_OFFLINE, or choose a model in the cache"
        ) from error
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise DiskFullError(
                f"the disk is full, so {address} cannot be downloaded. Free some space, or set "
                "HF_HOME to a folder with free space"
            ) from error
        raise ServiceError(
            f"{address} cannot be downloaded: {first_line(error)}. Check the network, and try again"
        ) from error
    except Exception as error:  # the library's HTTP errors, and errors of its transports
        raise ServiceError(
            f"{address} cannot be downloaded: {first_line(error)}. Check the network, and try again"
        ) from error


def _is_network_problem(error: Exception) -> bool:
    """Return whether the hub did not answer, or had a problem of its own."""
    from huggingface_hub import errors as hub_errors

    if isinstance(error, hub_errors.HfHubHTTPError):
        response = getattr(error, "response", None)
        return response is None or response.status_code >= 500
    return not isinstance(error, hub_errors.HFValidationError)


def _suggest(address: Address) -> str:
    """Return advice with the most similar name in the same organization, if there is one."""
    from huggingface_hub import HfApi

    organization, _, name = address.repository.partition("/")
    names: list[str] = []
    with contextlib.suppress(Exception):  # a suggestion must not hide the first error
        words = re.split(r"[-_.]", name)
        found = HfApi().list_models(author=organization, search=words[0], limit=1000)
        names = [model.id for model in found]
    close = difflib.get_close_matches(address.repository, names, n=1, cutoff=_SIMILAR)
    return f"Choose an existing model, such as {PREFIX}{close[0]}" if close else "Check its name"


def read_license(folder: Path) -> str:
    """Return the license in the front matter of a model's README.md, or "" if there is none."""
    try:
        text = (folder / CARD).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return ""
    matched = re.match(r"---\r?\n(.*?)\r?\n---\s", text, re.DOTALL)
    try:
        values: Any = yaml.safe_load(matched[1]) if matched else {}
    except yaml.YAMLError:
        return ""
    if not isinstance(values, dict):
        return ""
    name = values.get("license_name") if values.get("license") == "other" else values.get("license")
    return first_line(ValueError(name)) if isinstance(name, str) else ""


def is_non_commercial(license_name: str) -> bool:
    """Return whether a license excludes commercial use, according to its name."""
    return bool(_NON_COMMERCIAL.search(license_name))


def describe_license(license_name: str) -> str:
    """Return a line about a license, with a warning if it excludes commercial use.

    >>> describe_license("apache-2.0")
    'license: apache-2.0'
    >>> describe_license("cc-by-nc-4.0")
    'license: cc-by-nc-4.0, which does not allow commercial use'
    >>> describe_license("")
    'license: the model names none'
    """
    if not license_name:
        return "license: the model names none"
    limit = ", which does not allow commercial use" if is_non_commercial(license_name) else ""
    return f"license: {license_name}{limit}"
