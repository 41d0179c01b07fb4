"""The corpora that a dataset was made of, compared with those asked for now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.folders.differences import first_few

# Keys of a corpus in dataset.json that its identity has, too.
HELD_OUT = "is_held_out"
WEIGHT = "weight"  # the share of its pairs that is kept, if not all are
_STATE = ("files", "text")
_CHOICES = {
    "kind": "another kind",
    "dataset": "another dataset",
    "split": "another split",
    "directory": "another directory",
    "columns": "other columns",
    "encoding": "another encoding",
}
_OTHER_FILES = {"dataset", "split", "directory"}  # choices that imply other files


def compare_corpora(
    then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Returns a phrase for each of a few corpora that differ; [] where all are the same.

    Both are identities of sources, with whether they are held out; that counts only if all of them
    say so. Keys that are no part of an identity do not count, and one that is missing on one side
    is a difference.

    >>> one, two = ({"name": "a.tsv", "files": [], "columns": [0, n]} for n in (1, 2))
    >>> compare_corpora([one], [two])
    ['the corpus a.tsv has other columns']
    """
    knows_held_out = all(HELD_OUT in identity for identity in (*then, *now))
    before, after = (_by_place(those, knows_held_out=knows_held_out) for those in (then, now))
    found = []
    for place in {**before, **after}:
        old, new = before.get(place), after.get(place)
        if old is None or new is None:
            became = "is new" if old is None else "is gone"
        elif not (became := _describe_change(old, new)):
            continue
        found.append(f"the {'held-out ' if place[0] else ''}corpus {place[1]} {became}")
    if not found and list(before) != list(after):
        return ["the corpora are in another order"]
    return first_few(found, noun="corpora")


def _by_place(
    identities: Iterable[Mapping[str, Any]], *, knows_held_out: bool
) -> dict[tuple[bool, str, int], Mapping[str, Any]]:
    """Returns identities by what a user knows a corpus by, and which one of that it is."""
    count: Counter[tuple[bool, str]] = Counter()
    places = {}
    for identity in identities:
        place = (knows_held_out and bool(identity[HELD_OUT]), _label(identity))
        places[*place, count[place]] = identity
        count[place] += 1
    return places


def _label(identity: Mapping[str, Any]) -> str:
    files = [str(file["path"]) for file in identity["files"]]
    name, where = str(identity["name"]), " + ".join(files)
    return name if name == where or not files or "dataset" in identity else f"{name} = {where}"


def _describe_change(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    keys = (*_STATE, *_CHOICES, WEIGHT)
    different = {key for key in keys if then.get(key) != now.get(key)}
    has = [words for key, words in _CHOICES.items() if key in different]
    if WEIGHT in different:
        has.append(f"the weight {now.get(WEIGHT, 1):g} instead of {then.get(WEIGHT, 1):g}")
    if different & set(_STATE) and not different & _OTHER_FILES:
        return f"has changed and has {_join(has)}" if has else "has changed"
    return f"has {_join(has)}" if has else ""


def _join(items: Sequence[str]) -> str:
    """Returns a list in words.

    >>> _join(["a"]), _join(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    *others, last = items
    return f"{', '.join(others)} and {last}" if others else last
