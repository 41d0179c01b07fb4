"""The options that a folder was made with, compared with the options asked for now."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

_FEW = 3

# Describes how a whole field differs, given its two values (None where it is missing).
Describe = Callable[[Any, Any], Iterable[str]]


def describe_differences(
    saved: Mapping[str, Any],
    asked: Mapping[str, Any],
    *,
    words: Mapping[str, str | Describe] | None = None,
    ignored: Collection[str] = (),
) -> list[str]:
    """Returns a phrase for each option that differs; [] where the same command would continue.

    Options may be nested; a dotted name such as `filters.min_letters` stands for one of them, or
    for a whole part. A missing option equals None. `ignored` may differ. `words` has, by dotted
    name, what a message calls an option if that is not its last part, or a function that describes
    how the two values differ, for values that tell a user nothing, such as digests.

    >>> describe_differences({"filters": {"min_letters": 0.25}, "seed": 1},
    ...                      {"filters": {"min_letters": 0.3}, "seed": 1})
    ['`min_letters` was 0.25 and is now 0.3']
    """
    words = words or {}
    stops = {*ignored, *(name for name, word in words.items() if callable(word))}
    there, here = (dict(_flatten(json.loads(json.dumps(o)), stops)) for o in (saved, asked))
    found: list[str] = []
    for name in {**there, **here}:
        before, now = there.get(name), here.get(name)
        if name in ignored or before == now:
            continue
        word = words.get(name, name.rpartition(".")[2])
        if callable(word):
            found += word(before, now)
        else:
            found.append(f"`{word}` was {_show(before)} and is now {_show(now)}")
    return found


def first_few(found: Sequence[str], *, noun: str) -> list[str]:
    """Returns the first of many phrases, and how many more things there are.

    >>> first_few(["a has changed", "b is new", "c is new", "d is new", "e is gone"], noun="inputs")
    ['a has changed', 'b is new', 'c is new', '2 more inputs']
    """
    more = len(found) - _FEW
    return [*found[:_FEW], f"{more:,} more {noun}"] if more > 1 else list(found)


def _flatten(
    options: Mapping[str, Any], stops: Collection[str], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yields dotted names with values; nothing below a name in `stops` is looked into."""
    for name, value in options.items():
        dotted = f"{prefix}{name}"
        if isinstance(value, Mapping) and dotted not in stops:
            yield from _flatten(value, stops, f"{dotted}.")
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
