"""Paths as users give them: a file:// URL is the local path that it names."""

from __future__ import annotations

import re
import urllib.parse
from pathlib import Path
from typing import Any

from model.errors import UserError

# Also inside a corpus, where it may follow a name or another path.
_URL = re.compile(r"(?P<before>^|[=+])file:(?://(?P<host>[^/=+]*))?(?=/)")
_NO_PATHS = {"user_symbol"}


def plain_paths(parameters: dict[str, Any]) -> dict[str, Any]:
    """Makes local paths of the file:// URLs among a command's parameters.

    Raises:
      UserError: One names another machine.
    """
    return {
        name: value if name in _NO_PATHS else _plain(value) for name, value in parameters.items()
    }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, Path):  # which has made one slash of two
        return Path(plain_path(str(value)))
    return plain_path(value) if isinstance(value, str) else value


def plain_path(text: str) -> str:
    """Makes local paths of the file:// URLs that a text begins with or joins as a corpus does.

    Raises:
      UserError: One names another machine.

    >>> plain_path("file:///data/a%20b.tsv"), plain_path("n=file:///a.en+file:///a.de")
    ('/data/a b.tsv', 'n=/a.en+/a.de')
    """
    hosts = {found["host"] for found in _URL.finditer(text)}
    if others := hosts - {None, "", "localhost"}:
        raise UserError(
            f"{text} is on another machine, {min(others)}: a file:// URL names a local path, as in "
            "file:///data/a.tsv"
        )
    return urllib.parse.unquote(_URL.sub(r"\g<before>", text)) if hosts else text
