"""Reading JSON files, and comparing the saved options of a folder with new ones."""

from __future__ import annotations

import dataclasses
import functools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import pydantic

_T = TypeVar("_T")

_MOST_BYTES = 64 << 20  # the vocabulary of a model for 200 languages has 6 MB
_LARGEST = 2**63 - 1
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def read_json(path: Path, kind: type[_T], *, has_large_numbers: bool = False) -> _T:
    """Return the content of a JSON file, which must have the type `kind`, such as dict.

    Args:
      path: The file.
      kind: The type.
      has_large_numbers: Accept integers beyond 64 bits.

    Raises:
      OSError: The file cannot be read.
      ValueError: The content is larger than 64 MB, is not JSON, has another type, or is not
        Unicode.
    """
    return parse_json(read_text(path), kind, has_large_numbers=has_large_numbers)


def read_text(path: Path) -> str:
    """Return the content of a text file without changing its line endings.

    Raises:
      OSError: The file cannot be read.
      ValueError: The content is larger than 64 MB, or not UTF-8.
    """
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES + 1)
    if len(content) > _MOST_BYTES:
        raise ValueError(f"it has more than {_MOST_BYTES >> 20} MB")
    return content.decode()


def parse_json(text: str | bytes, kind: type[_T], *, has_large_numbers: bool = False) -> _T:
    """Return the value of a JSON text, which must have the type `kind`, such as dict.

    Raises:
      ValueError: The text is not JSON, its value has another type, or it is not Unicode.
    """
    text = text if isinstance(text, str) else text.decode()
    if not text.strip():
        raise ValueError("it is empty")
    try:
        value = json.loads(text, parse_int=int if has_large_numbers else _parse_int)
    except json.JSONDecodeError as error:
        raise ValueError(f"line {error.lineno} is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    if not isinstance(value, kind):
        raise ValueError(f"it contains no JSON {'object' if kind is dict else kind.__name__}")
    if _SURROGATE.search(text):  # encode() raises if a surrogate has no partner
        json.dumps(value, ensure_ascii=False).encode()
    return value


def parse_fields(kind: type[_T], values: Any, *, has_others: bool = True) -> _T:
    """Create a dataclass from values that were read from JSON.

    Args:
      kind: The dataclass.
      values: The values.
      has_others: Ignore unknown fields.

    Raises:
      TypeError: A required value is missing, a value has another type than its field, or a field is
        unknown.
    """
    any_kind: Any = kind
    try:
        found: _T = _adapter(any_kind).validate_json(json.dumps(values), strict=True)
    except pydantic.ValidationError as error:
        raise TypeError(_describe_problem(error)) from error
    if not has_others:
        for name in values.keys() - {field.name for field in dataclasses.fields(any_kind)}:
            raise TypeError(f"`{name}` is unknown")
    return found


@functools.cache
def _adapter(kind: Any) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def _describe_problem(error: pydantic.ValidationError) -> str:
    [first, *_] = error.errors()
    place = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"`{place}` is missing"
    told = first["msg"].replace("Input should", "must").replace("dictionary", "object")
    return f"`{place}` {told}" if place else f"the content {told}"


def _parse_int(digits: str) -> int:
    if abs(number := int(digits)) > _LARGEST:
        raise ValueError(f"{digits[:20]}... is beyond 64 bits")
    return number


_FEW = 3


def describe_differences(
    saved: Mapping[str, Any], requested: Mapping[str, Any], *, ignored: Collection[str] = ()
) -> list[str]:
    """Return a phrase for each option that has changed.

    Args:
      saved: The saved options, which may be nested. A missing option counts as None.
      requested: The new options.
      ignored: Options that may change: dotted names such as `filters.min_letters`, or groups of
        options such as `filters`.

    >>> describe_differences({"filters": {"min_letters": 0.25}, "seed": 1},
    ...                      {"filters": {"min_letters": 0.3}, "seed": 1})
    ['`min_letters` was 0.25 and is now 0.3']
    """
    old, new = (dict(_flatten(json.loads(json.dumps(o)), ignored)) for o in (saved, requested))
    return [
        f"`{name.rpartition('.')[2]}` was {_show(old.get(name))} and is now {_show(new.get(name))}"
        for name in {**old, **new}
        if old.get(name) != new.get(name)
    ]


def first_few(found: Sequence[str], *, noun: str) -> list[str]:
    """Return the first three phrases and the number of the rest, if there are more than four.

    >>> first_few(["a has changed", "b is new", "c is new", "d is new", "e is gone"], noun="inputs")
    ['a has changed', 'b is new', 'c is new', '2 more inputs']
    """
    more = len(found) - _FEW
    return [*found[:_FEW], f"{more:,} more {noun}"] if more > 1 else list(found)


def _flatten(
    options: Mapping[str, Any], ignored: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of each option that is not ignored."""
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
