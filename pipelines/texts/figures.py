"""Compare the figures in a sentence with the figures in its translation.

A figure is a number in digits. Languages write figures differently, so `find_figures` gives each
figure all values that it may have. A figure may also become a word, such as "two", or a date may
become "22 November".
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tt.model.text.languages import find_language
from tt.model.text.spans import BRACKET, Span
from tt.pipelines.texts.number_words import (
    CURRENCY,
    LARGEST_SMALL,
    find_magnitude,
    find_romans,
    large_words,
    small_words,
)

_SPACES = "\u00a0\u202f\u2009 "
_GROUPS = rf"\d{{1,3}}(?:[.,'’٬{_SPACES}]\d{{3}}|[.,] 000)+(?!\d)"
# A figure with thousands separators, a plain number with a fraction, or several numbers such as a
# date. The digit of a placeholder is not a figure.
_FIGURE = re.compile(
    rf"(?<!{BRACKET})(?<!\d)(?<!\d[.,])(?:"
    rf"(?P<groups>{_GROUPS})(?P<fraction>[.,٫]\d+)?(?![\d])"
    r"|(?P<parts>\d+(?P<mark>[-/:.])\d+(?:(?P=mark)\d+)+(?!\d))"
    # German also writes "6.30 Uhr".
    r"|(?P<clock>\d{1,2}(?:[:hH点點时時]| Uhr | h | heures? )\d{2}(?!\d)(?:[.,]\d+)?)"
    r"|(?P<plain>\d+)(?:[.,٫](?P<rest>\d+))?)"
)
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d+")
_SEPARATORS = re.compile(r"[^\d]")
_HALF_DAY = re.compile(r"(?<![^\W\d_])[ap]\.?\s?m\b|Uhr|o'clock|点|時", re.IGNORECASE)
# The text between two figures of a range or a list, which may share a word such as "million".
_CONNECTOR = re.compile(
    r"\s*(?:[-–—/~～\s]+|[至到和或]|"
    r"(?:to|and|or|bis|auf|und|oder|à|et|ou|a|y|e|o|до|и|или|tot|en|of)\b)"
    rf"\s*{CURRENCY}?\s*"
)
_LONGEST_CONNECTOR = 10  # characters
_HALVES = re.compile(
    r"\b(?:anderthalb|halb|hälfte|half|halves|demi|moitié|medi[ao]|mitad|met[àa]|mezz[ao]|helft"
    r"|полов|полтор)|半",
    re.IGNORECASE,
)
_QUARTERS = re.compile(r"viertel|quarter|cuart|quart|четверт|kwart|四分之|刻", re.IGNORECASE)
# The figures that a word for a half or a quarter may replace. A value that starts with a point is
# the end of such a figure.
_FRACTIONS = {
    _HALVES: ("0.5", "1.5", "30", "50", ".3", ".5"),
    _QUARTERS: ("15", "25", "45", "75", ".15", ".45", ".25", ".75"),
}
# The part of "m2", "km3" or "CO2" before the digit. Other texts write this digit as "²" or a word.
_UNIT = re.compile(r"(?:\b[kcdm]?m|CO)$")
_LONGEST_UNIT = 3  # characters
# A number that `find_figures` reads as other numbers: "½", "1/2", ".5" or "2 dozen".
_FRACTION = re.compile(
    r"[¼-¾⅐-⅞]|\d\s?/\s?\d|(?<!\w)[.,]\d|\b(?:dozen|dutzend|do[cz]ena|douzaine|dozzina|дюжин)",
    re.IGNORECASE,
)
_THOUSAND = 3  # as a power of ten
_DECADE = re.compile(r"\d0(?:['’]?s\b|er\b|年代|-х|-e\b)|décenn|années|años|anni\b|anos\b")
# Languages that write fractions with a point and thousands with a comma.
_DECIMAL_POINTS = "en zh ja ko th he hi bn ta te ur ms sw tl"
_HALF_DAY_HOURS = 12
_CENTURY = 100
_FIRST_YEAR = 1000  # of decades that are written with two digits
_SMALL = frozenset(map(str, range(LARGEST_SMALL + 1)))
_OTHER_MARKS = str.maketrans(".,", ",.")
_MOST_REPLACEMENTS = 16  # replacements of a wrong figure that are tried
_MOST_PAIRS = 10_000  # the maximum number of pairs of figures that are compared one by one


class Figure(NamedTuple):
    """A figure in a text.

    Attributes:
      values: The values that the figure may have, as strings without zeros at the end.
      is_in_date: Whether the figure is a part of a date.
      is_time: Whether the figure is a time of day.
    """

    values: frozenset[str]
    is_in_date: bool = False
    is_time: bool = False


def find_figures(text: str, *, language: str = "") -> list[Figure]:
    """Return the figures of a text.

    Args:
      text: The text.
      language: The code of its language, which decides whether "1,250" can be a fraction; "" if it
        is unknown.

    >>> [sorted(figure.values) for figure in find_figures("1.250 € on 22.11.2024")]
    [['1.25', '1250'], ['22'], ['11'], ['2024']]
    >>> [sorted(figure.values) for figure in find_figures("2.5 million dogs", language="en")]
    [['2500000']]
    """
    text = _with_ascii_digits(text)
    found: list[Figure] = []
    before: _Number | None = None  # the previous number, which can belong to the same range
    for each in _FIGURE.finditer(text):
        if each["parts"]:
            parts = _DIGITS.findall(each["parts"])
            found += [Figure(frozenset({_plain(part)}), is_in_date=True) for part in parts]
            if each["mark"] != ":" and len(parts[0]) <= len(parts[-1]) == 2:  # as in "22.11.24"
                years = frozenset({f"19{parts[-1]}", f"20{parts[-1]}"})
                found[-1] = found[-1]._replace(values=found[-1].values | years)
            before = None
        elif each["clock"]:
            hours, *rest = _DIGITS.findall(each["clock"])
            found.append(Figure(frozenset({_plain(hours, "".join(rest))}), is_time=True))
            before = None
        elif not _is_exponent(each, text):
            number = _read_number(each, text, language=language)
            values = number.values
            if before is not None and _is_connector(text[before.end : each.start()]):
                found[-1] = found[-1]._replace(
                    values=found[-1].values | _share_magnitude(before, number)
                )
                values |= _complete_year(before, each[0])
            found.append(Figure(values, is_in_date=text[each.end() : each.end() + 1] == "月"))
            before = number
    return found


def _with_ascii_digits(text: str) -> str:
    if text.isascii():
        return text
    return "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)


class _Number(NamedTuple):
    """A number in a text.

    Attributes:
      plain: The values of its digits.
      power: The power of ten of the words after it, such as "million".
      values: The values with these words, and also without them if they may be a unit.
      end: The end of its digits.
    """

    plain: frozenset[str]
    power: int
    values: frozenset[str]
    end: int


def _read_number(found: re.Match[str], text: str, *, language: str) -> _Number:
    if found["groups"]:
        grouping = _grouping_mark(language)
        plain = _grouped(found["groups"], found["fraction"] or "", grouping=grouping)
    else:
        plain = frozenset({_plain(found["plain"], found["rest"] or "")})
    power, is_certain = find_magnitude(text, found.end(), language=language)
    values = frozenset(_shift(value, power) for value in plain)
    if not (is_certain and language):
        values |= plain
    return _Number(plain, power, values, found.end())


def _is_exponent(found: re.Match[str], text: str) -> bool:
    """Return whether a figure belongs to a unit such as "m2", which other texts write as "m²"."""
    start = found.start()
    return found[0] in ("2", "3") and bool(
        _UNIT.search(text[max(0, start - _LONGEST_UNIT) : start])
    )


def _is_connector(text: str) -> bool:
    return len(text) <= _LONGEST_CONNECTOR and _CONNECTOR.fullmatch(text) is not None


def _share_magnitude(before: _Number, number: _Number) -> frozenset[str]:
    """Return further values of a number in a range such as "5-10 million" or "50-100.000"."""
    if before.power:
        return frozenset()
    is_thousands = any(value.endswith("000") for value in number.values)
    power = number.power or (_THOUSAND if is_thousands else 0)
    return frozenset(_shift(value, power) for value in before.plain)


def _complete_year(before: _Number, digits: str) -> frozenset[str]:
    """Return the values of the second year in a range such as "1985-87"."""
    if not re.fullmatch(r"\d{2}", digits):
        return frozenset()
    return frozenset(
        str(int(year[:2]) + (digits < year[2:])) + digits  # "1999-00" ends in the next century
        for year in before.plain
        if re.fullmatch(r"\d{4}", year)
    )


def _shift(value: str, power: int) -> str:
    """Multiply a value by a power of ten.

    >>> _shift("2.5", 6)
    '2500000'
    """
    whole, _, rest = value.partition(".")
    return _plain(whole + rest[:power].ljust(power, "0"), rest[power:])


@functools.cache
def _grouping_mark(language: str) -> str:
    """Return the mark that separates thousands in a language; "" if the language is unknown."""
    known = find_language(language)
    if known is None:
        return ""
    return "," if known.primary in _DECIMAL_POINTS.split() else "."


def _grouped(groups: str, fraction: str, *, grouping: str) -> frozenset[str]:
    digits, parts = _SEPARATORS.sub("", groups), _SEPARATORS.split(groups)
    values = {_plain(digits, fraction[1:])}
    mark = groups[len(parts[0])]
    may_be_fraction = mark in ".," and mark != grouping
    if not fraction and len(parts) == 2 and may_be_fraction:
        values.add(_plain(*parts))
    return frozenset(values)


def _plain(whole: str, rest: str = "") -> str:
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def has_same_figures(
    text: str, *, source: str, source_language: str = "", target_language: str = ""
) -> bool:
    """Return whether a translation has exactly the figures of its source.

    On either side, a figure may also be a number word, a Roman numeral, a month, a decade or
    another way to write a time.

    Args:
      text: The translation.
      source: The source.
      source_language: The code of the source language; "" if it is unknown.
      target_language: The code of the target language; "" if it is unknown.

    >>> has_same_figures("Es kostet 1.250,5 Euro.", source="It costs 1,250.50 euros.")
    True
    >>> has_same_figures("Nummer 488.", source="Number 480.")
    False
    >>> has_same_figures("Zwei Hunde.", source="2 dogs.", target_language="de")
    True
    """
    if not _DIGIT.search(source) and not _DIGIT.search(text):  # as in most sentences
        return True
    lost, added = _unmatched(
        find_figures(source, language=source_language),
        find_figures(text, language=target_language),
    )
    if lost and added and _HALF_DAY.search(f"{source}\n{text}"):
        lost, added = _without_pairs(lost, added, are_same=_differ_by_half_a_day)
    if lost and added and _DECADE.search(f"{source}\n{text}"):
        lost, added = _without_pairs(lost, added, are_same=_are_same_decade)
    lost = _without_romans(lost, text, language=target_language)
    added = _without_romans(added, source, language=source_language)
    # A figure that was replaced by another figure did not become a word above twelve.
    allows_large = not (lost and added)
    lost = _without_small_words(lost, text, language=target_language)
    added = _without_small_words(added, source, language=source_language)
    if lost and added:  # A replaced figure did not become the name of a month either.
        return False
    return _may_be_words(
        lost, text, language=target_language, allows_large=allows_large
    ) and _may_be_words(added, source, language=source_language, allows_large=allows_large)


def has_fraction(text: str) -> bool:
    """Return whether a text may contain a number that `find_figures` does not understand.

    >>> has_fraction("1½ inch"), has_fraction("half past 9"), has_fraction("1.5 inches")
    (True, True, False)
    """
    return any(pattern.search(text) for pattern in (_FRACTION, _HALVES, _QUARTERS))


def replace_wrong_figure(
    text: str, *, source: str, source_language: str = "", target_language: str = ""
) -> str | None:
    """Return a translation with one wrong figure replaced by the source's figure, or None.

    The result is None if one replacement does not make all figures right, or if a text has a
    fraction, whose translation may be right.

    Args:
      text: The translation, with wrong figures.
      source: The source.
      source_language: The code of the source language; "" if it is unknown.
      target_language: The code of the target language; "" if it is unknown.

    >>> replace_wrong_figure("Nummer 488.", source="Number 480.")
    'Nummer 480.'
    >>> replace_wrong_figure("Nummer 5 5 55.", source="Number 50.")
    """
    ours, theirs = [*_FIGURE.finditer(source)], [*_FIGURE.finditer(text)]
    if len(ours) * len(theirs) > _MOST_REPLACEMENTS or has_fraction(f"{source}\n{text}"):
        return None
    marks = {_grouping_mark(source_language), _grouping_mark(target_language)}
    has_other_marks = "" not in marks and len(marks) > 1
    near_first = sorted(
        itertools.product(enumerate(ours), enumerate(theirs)), key=lambda p: abs(p[0][0] - p[1][0])
    )
    for (_, own), (_, other) in near_first:
        figure = _with_ascii_digits(own[0])
        if has_other_marks and not own["parts"]:
            figure = figure.translate(_OTHER_MARKS)
        replaced = text[: other.start()] + figure + text[other.end() :]
        if has_same_figures(
            replaced,
            source=source,
            source_language=source_language,
            target_language=target_language,
        ):
            return replaced
    return None


def protect_figures(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return spans for the figures of a text that are not in words, in addition to its other spans.

    >>> [span.replacement for span in protect_figures("Number 50, {x1}", [Span(11, 15, "{x1}")])]
    ['50', '{x1}']
    """
    starts, ends = [span.start for span in spans], [span.end for span in spans]
    found = [
        Span(each.start(), each.end(), each[0])
        for each in _FIGURE.finditer(text)
        if bisect.bisect_left(starts, each.end()) == bisect.bisect_right(ends, each.start())
        and not text[max(0, each.start() - 1) : each.start()].isalpha()
        and not text[each.end() : each.end() + 1].isalpha()
    ]
    return sorted([*spans, *found])


def _unmatched(
    ours: Iterable[Figure], theirs: Iterable[Figure]
) -> tuple[list[Figure], list[Figure]]:
    """Return the figures of each side that have no partner on the other side."""
    partners: dict[str, list[int]] = {}
    theirs = list(theirs)
    for index, figure in enumerate(theirs):
        for value in figure.values:
            partners.setdefault(value, []).append(index)
    lost, taken = [], set[int]()
    for figure in ours:
        for value in sorted(figure.values):  # the order of a set differs between processes
            places = partners.get(value, [])
            while places and places[-1] in taken:
                places.pop()
            if places:
                taken.add(places.pop())
                break
        else:
            lost.append(figure)
    return lost, [each for index, each in enumerate(theirs) if index not in taken]


def _without_pairs(
    lost: Sequence[Figure], added: Sequence[Figure], *, are_same: Callable[[float, float], bool]
) -> tuple[list[Figure], list[Figure]]:
    """Remove pairs of figures whose values have a relation, in short lists."""
    if len(lost) * len(added) > _MOST_PAIRS:
        return list(lost), list(added)
    left, rest = list(added), []
    for figure in lost:
        for place, each in enumerate(left):
            pairs = itertools.product(map(float, figure.values), map(float, each.values))
            if any(itertools.starmap(are_same, pairs)):
                del left[place]
                break
        else:
            rest.append(figure)
    return rest, left


def _without_romans(figures: list[Figure], text: str, *, language: str) -> list[Figure]:
    """Remove figures that a text writes as Roman numerals."""
    romans = find_romans(text, language=language) if figures else set()
    return [each for each in figures if not romans & each.values]


def _differ_by_half_a_day(a: float, b: float) -> bool:
    return math.isclose(abs(a - b), _HALF_DAY_HOURS)


def _are_same_decade(a: float, b: float) -> bool:
    """Return whether figures such as 1980 and 80 may be the same decade."""
    short, year = sorted((a, b))
    return short < _CENTURY < _FIRST_YEAR <= year and year % _CENTURY == short


def _without_small_words(figures: list[Figure], text: str, *, language: str) -> list[Figure]:
    """Remove figures up to twelve that are words in a text."""
    small = _SMALL & {value for figure in figures for value in figure.values}
    words = small_words(language)
    found = {value for value in small if words[int(value)].search(text)}
    return [each for each in figures if not found & each.values]


def _may_be_words(
    figures: Iterable[Figure], text: str, *, language: str, allows_large: bool
) -> bool:
    """Return whether each figure may be a month, a fraction or a word above twelve in a text.

    Args:
      figures: The figures.
      text: The text.
      language: The code of its language; "" if it is unknown.
      allows_large: Whether fractions and words above twelve are possible.
    """
    rest = [each for each in figures if not (each.is_in_date and _SMALL & each.values)]
    if not (rest and allows_large):
        return not rest
    endings = [e for pattern, each in _FRACTIONS.items() if pattern.search(text) for e in each]
    decimals = tuple(each for each in endings if each.startswith("."))
    has_large = large_words(language).search(text) is not None
    return all(
        any(value in endings or value.endswith(decimals) for value in figure.values)
        or (has_large and (figure.is_time or any(map(_is_large, figure.values))))
        for figure in rest
    )


def _is_large(value: str) -> bool:
    return value.isdigit() and value not in _SMALL
