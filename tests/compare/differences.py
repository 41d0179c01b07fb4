"""The differences between the results of two programs, and the list of those that are meant.

The results of a case are `{file: {place: value}}`; `reading.py` reads them. A difference is one
place of one file. `explained.toml` lists the differences that are meant:

    [[difference]]
    cases = ["formats"]
    file = "out/a-00000-of-00001.parquet"
    place = "row 3, translation_status"
    before = "ok"
    after = "copied"
    reason = "A number is not translated any more."

A place that only one program has lacks `before` or `after`. Each entry must have a reason, and must
occur in each of its cases. `make compare` prints unexplained differences in the same form.

An entry for many differences with the same reason has their number in each case (`count`), but no
values. Its `file` and `place` are patterns, in which * stands for any text:

    [[difference]]
    cases = ["help"]
    file = "*.out"
    place = "line *"
    count = 12
    reason = "The help has a new option."

If the bytes of a dataset change, an entry `[[dataset]]` with `cases`, `folder` and `reason` makes
`make compare` compare the pairs of the dataset instead; see `datasets.py`.
"""

from __future__ import annotations

import dataclasses
import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

Places = dict[str, str]
Results = dict[str, Places]  # by file
LINE = "line "  # how the places of a text begin


@dataclasses.dataclass(frozen=True)
class Difference:
    """A place with different values. A value is None if this program lacks the place."""

    case: str
    file: str
    place: str
    before: str | None
    after: str | None


def compare_results(case: str, before: Results, after: Results) -> list[Difference]:
    """Return the differences between the results of a case."""
    found = []
    for file in sorted({*before, *after}):
        if file not in before or file not in after:
            there = ["exists" if file in each else None for each in (before, after)]
            found.append(Difference(case, file, "file", *there))
            continue
        old, new = before[file], after[file]
        is_text = all(place.startswith(LINE) for place in (*old, *new))
        places = _compare_lines(old, new) if is_text else _compare_places(old, new)
        found += [Difference(case, file, *each) for each in places]
    return found


def _compare_places(before: Places, after: Places) -> Iterator[tuple[str, str | None, str | None]]:
    for place in dict.fromkeys([*before, *after]):
        old, new = before.get(place), after.get(place)
        if old != new:
            yield place, old, new


def _compare_lines(before: Places, after: Places) -> Iterator[tuple[str, str | None, str | None]]:
    """Align the lines, so that an added line does not change the numbers of all later lines."""
    old, new = [*before.values()], [*after.values()]
    matcher = difflib.SequenceMatcher(a=old, b=new, autojunk=False)
    for tag, start, end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            continue
        for i in range(max(end - start, new_end - new_start)):
            number = f"{LINE}{start + i + 1}" if start + i < end else f"after {LINE}{end}, {i + 1}"
            yield (
                number,
                old[start + i] if start + i < end else None,
                new[new_start + i] if new_start + i < new_end else None,
            )


def explain(
    differences: Iterable[Difference], entries: Iterable[Mapping[str, Any]], *, cases: Iterable[str]
) -> tuple[list[Difference], list[str]]:
    """Return the differences that no entry explains, and what is wrong with the entries.

    Args:
      differences: All differences.
      entries: The entries of the list.
      cases: The cases that were run; entries of other cases count as right.
    """
    left = dict.fromkeys(differences)
    ran, wrong = set(cases), []
    for entry in entries:
        if not entry.get("reason", "").strip():
            wrong.append(f"An entry has no reason: {dict(entry)}")
        for case in ran.intersection(entry["cases"]):
            if "count" in entry:
                found = [each for each in left if each.case == case and _matches(entry, each)]
                if len(found) != entry["count"]:
                    wrong.append(f"This entry explains {len(found)} differences of {case}: {entry}")
                left = {each: None for each in left if each not in found}
                continue
            before, after = entry.get("before"), entry.get("after")
            difference = Difference(case, entry["file"], entry["place"], before, after)
            if difference in left:
                del left[difference]
            else:
                wrong.append(f"This difference does not occur, or is listed twice: {difference}")
    return list(left), wrong


def _matches(entry: Mapping[str, Any], difference: Difference) -> bool:
    return all(
        re.fullmatch(re.escape(entry[name]).replace(r"\*", ".*"), getattr(difference, name))
        for name in ("file", "place")
    )


def as_toml(differences: Iterable[Difference]) -> str:
    """Return differences as entries of `explained.toml`, with equal ones in one entry."""
    cases: dict[tuple[Any, ...], list[str]] = {}
    for each in differences:
        cases.setdefault((each.file, each.place, each.before, each.after), []).append(each.case)
    blocks = []
    for (file, place, before, after), names in cases.items():
        entry = {"cases": names, "file": file, "place": place, "before": before, "after": after}
        lines = [f"{key} = {_quote(value)}" for key, value in entry.items() if value is not None]
        blocks.append("\n".join(["[[difference]]", *lines, 'reason = ""']))
    return "\n\n".join(blocks)


def _quote(value: Any) -> str:
    # JSON's strings are strings of TOML, except for a delete character, which TOML escapes.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
