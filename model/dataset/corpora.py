"""The corpora that a dataset was made of, compared with those asked for now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.folders.differences import first_few

# Keys of a corpus in dataset.json that its identity has, too.
HELD_OUT = "is_held_out"
WEIGHT = "weight"  # the share of its pairs that is kept, if not all are
_STATE = ("files", "text")  # of an identity: all else is chosen by the user


def compare_corpora(
    then: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]
) -> list[str]:
    """Returns a phrase for each of a few corpora that differ; [] where all are the same.

    Both are identities of sources, with whether they are held out; other keys count only if both
    have them.

    >>> one, two = ({"name": "a.tsv", "files": [], "columns": [0, n]} for n in (1, 2))
    >>> compare_corpora([one], [two])
    ['the corpus a.tsv has other columns']
    """
    before, after = _by_place(then), _by_place(now)
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
    identities: Iterable[Mapping[str, Any]],
) -> dict[tuple[bool, str, int], Mapping[str, Any]]:
    """Returns identities by what a user knows a corpus by, and which one of that it is."""
    count: Counter[tuple[bool, str]] = Counter()
    places = {}
    for identity in identities:
        place = (bool(identity.get(HELD_OUT)), _label(identity))
        places[*place, count[place]] = identity
        count[place] += 1
    return places


def _label(identity: Mapping[str, Any]) -> str:
    files = [str(file["path"]) for file in identity["files"]]
    name, where = str(identity["name"]), " + ".join(files)
    return name if name == where or not files or "dataset" in identity else f"{name} = {where}"


def _describe_change(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if then.get(WEIGHT) != now.get(WEIGHT):
        return f"had the weight {then.get(WEIGHT, 1):g} and has now {now.get(WEIGHT, 1):g}"
    different = [key for key in now if key != WEIGHT and then.get(key) != now[key]]
    if not different:
        return ""
    if set(different) & set(_STATE):
        return "has changed"
    return "has other columns" if different == ["columns"] else f"has another {different[0]}"
