"""JSON of other programs, and the saved options of a folder compared with new ones."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic

_T = TypeVar("_T")

_MOST_BYTES = 64 << 20  # the vocabulary of a model of 200 languages has 6 MB
_LARGEST = 2**63 - 1
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path, kind: type[_T]) -> _T:
    """Return the content of a JSON file, which must be of one kind, such as a dict.

    Raises:
      OSError: The file cannot be read.
      ValueError: The content is larger than 64 MB, no JSON, not of that kind, or not Unicode.
    """
    return parse_json(read_text(path), kind)


def read_text(path: Path) -> str:
    """Return the content of a text file without changing its line ends.

    Raises:
      OSError: The file cannot be read.
      ValueError: The content is larger than 64 MB, or not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
    return content.decode()


def parse_json(text: str | bytes, kind: type[_T]) -> _T:
    """Return what a JSON text says, which must be of one kind, such as a dict.

    Raises:
      ValueError: The text is no JSON, not of that kind, or not Unicode.
    """
    text = text if isinstance(text, str) else text.decode()
    try:
        value = json.loads(text, parse_int=_parse_int)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, kind):
        raise ValueError(f"it is a {type(value).__name__}, not a {kind.__name__}")
    if _SURROGATE.search(text):  # half of a pair alone is no character, and cannot be written
        json.dumps(value, ensure_ascii=False).encode()
    return value


def parse_fields(kind: type[_T], values: Any) -> _T:
    """Return a dataclass of values that JSON had, without unknown fields.

    Raises:
      TypeError: A value is of another type than its field.
    """
    try:
        return pydantic.TypeAdapter(kind).validate_json(json.dumps(values), strict=True)
    except pydantic.ValidationError as error:
        [first, *_] = error.errors()
        place = ".".join(map(str, first["loc"])) or kind.__name__
        raise TypeError(f"{place}: {first['msg']}") from error


def _parse_int(digits: str) -> int:
    if abs(number := int(digits)) > _LARGEST:
        raise ValueError(f"{digits[:20]}... is beyond 64 bits")
    return number


_FEW = 3


def describe_differences(
    saved: Mapping[str, Any], asked: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> list[str]:
    """Return a phrase for each option that differs; [] if the same command would resume.

    Options may be nested. A missing option equals None. The `ignored` options may differ; a dotted
    name such as `filters.min_letters` stands for one of them, or for a whole part.

    >>> describe_differences({"filters": {"min_letters": 0.25}, "seed": 1},
    ...                      {"filters": {"min_letters": 0.3}, "seed": 1})
    ['`min_letters` was 0.25 and is now 0.3']
    """
    there, here = (dict(_flatten(json.loads(json.dumps(o)), ignored)) for o in (saved, asked))
    return [
        f"`{name.rpartition('.')[2]}` was {_show(there.get(name))} and is now "
        f"{_show(here.get(name))}"
        for name in {**there, **here}
        if there.get(name) != here.get(name)
    ]


def first_few(found: Sequence[str], *, noun: str) -> list[str]:
    """Returns the first of many phrases, and how many more things there are.

    >>> first_few(["a has changed", "b is new", "c is new", "d is new", "e is gone"], noun="inputs")
    ['a has changed', 'b is new', 'c is new', '2 more inputs']
    """
    more = len(found) - _FEW
    return [*found[:_FEW], f"{more:,} more {noun}"] if more > 1 else list(found)


def _flatten(
    options: Mapping[str, Any], ignored: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield dotted names with values, without the `ignored` ones."""
    for name, value in options.items():
        dotted = f"{prefix}{name}"
        if dotted in ignored:
            continue
        if isinstance(value, Mapping):
            yield from _flatten(value, ignored, f"{dotted}.")
        else:
            yield dotted, value


def _show(value: Any) -> str:
    if value is None:
        return "not set"
    if value in ("", []):
        return "empty"
    if isinstance(value, bool):
        return "on" if value else "off"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
