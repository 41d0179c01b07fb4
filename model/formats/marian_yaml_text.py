"""YAML of other programs, without aliases: nine lines with them can make a billion values."""

from __future__ import annotations

from typing import Any

import yaml

# What PyYAML raises for a text that is no YAML, or for a value that does not fit its tag.
_WRONG = (
    yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, RecursionError,
    OverflowError,
)  # fmt: skip


def parse_yaml(text: str | bytes, *, all_strings: bool = False) -> Any:
    """Return what a YAML text says.

    Args:
      text: The text.
      all_strings: Whether all scalars are strings; else "no" is false and "1" is a number.

    Raises:
      ValueError: The text is no YAML, is nested too deeply, or has an alias.
    """
    try:
        _refuse_aliases(text)
        loader = _BASE if all_strings else yaml.SafeLoader
        return yaml.load(text, Loader=loader)
    except _WRONG as error:
        raise ValueError(" ".join(str(error).split()) or type(error).__name__) from error


_BASE: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


def _refuse_aliases(text: str | bytes) -> None:
    if "*" not in (text if isinstance(text, str) else text.decode("latin-1")):
        return
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(
                f"it has an alias, *{event.anchor}, in line {event.start_mark.line + 1}"
            )
