"""Compare the figures in a sentence with the figures in its translation.

A figure is a number in digits. Languages write figures differently, so `find_figures` gives each
figure all values that it may have. A figure may also become a word, such as "two", or a date may
become "22 November".
"""

from __future__ import annotations

import functools
import itertools
import math
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from tt.model.text.languages import find_language
from tt.model.text.spans import BRACKET

_SPACES = "\u00a0\u202f\u2009 "
_GROUPS = rf"\d{{1,3}}(?:[.,'’٬{_SPACES}]\d{{3}})+(?!\d)"
# A figure with thousands separators, a plain number with a fraction, or several numbers such as a
# date. The digit of a placeholder is not a figure.
_FIGURE = re.compile(
    rf"(?<!{BRACKET})(?<!\d)(?<!\d[.,])(?:"
    rf"(?P<groups>{_GROUPS})(?P<fraction>[.,٫]\d+)?(?![\d])"
    r"|(?P<parts>\d+(?:[-/:.]\d+){2,}(?!\d))"
    r"|(?P<clock>\d{1,2}[:h]\d{2}(?!\d))"  # German also writes "6.30 Uhr"
    r"|(?P<plain>\d+)(?:[.,٫](?P<rest>\d+))?)"
)
_SEPARATORS = re.compile(r"[^\d]")
_HALF_DAY = re.compile(r"(?<![^\W\d_])[ap]\.?\s?m\b|Uhr|o'clock|点|時", re.IGNORECASE)
_MAGNITUDES = re.compile(
    r"(?:hundred|thousand|million|billion|hundert|tausend|milli|cent|mille?\b|mil\b|miljo|тысяч"
    r"|миллион|миллиард|млн|тыс|[百千万亿萬億]|\b(?:k|m|bn|mio|mrd)\b)",
    re.IGNORECASE,
)
# Parts of words for numbers above twelve, by language.
_LARGE_WORDS = {
    "en": r"(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twent|thirt|fort|fift|sixt|sevent|eight"
          r"|ninet)(?:y|ie)|hundred|thousand|million|billion|dozen",
    "de": r"(?:drei|vier|fünf|sech|sieb|acht|neun)zehn|zwanzig|drei(?:ß|ss)ig|(?:vier|fünf|sech"
          r"|sieb|acht|neun)zig|hundert|tausend|million|milliard|dutzend",
    "fr": r"treiz|quatorz|quinz|seiz|vingt|trent|quarant|cinquant|soixant|\bcent(?:s|ain|ièm)?"
          r"|\bmill|douzain",
    "es": r"trece|catorce|quince|dieci|veint|treint|cuarent|cincuent|sesent|setent|ochent|novent"
          r"|\bcien|ciento|\bmil(?:es)?\b|millon|millón|docena",
    "it": r"tredici|quattordic|quindic|sedic|diciass|diciott|diciann|\bvent[iuo]|trent|quarant"
          r"|cinquant|sessant|settant|ottant|novant|\bcent[oi]|\bmill?[ae]|milion|miliard|dozzin",
    "pt": r"treze|(?:c|qu)atorze|quinze|dezess|dezoit|dezan|dezen|\bvint|trint|quarent|cinquent"
          r"|sessent|setent|oitent|novent|\bcem\b|\bcento|\bmil\b|milh|dúzia",
    "nl": r"dertien|veertien|(?:vijf|zes|zeven|acht|negen)tien|twintig|dertig|veertig|vijftig"
          r"|zestig|zeventig|tachtig|negentig|honderd|duizend|miljo|miljard|dozijn",
    "ru": r"надцат|дцат|сорок|десят|девянос|\bст[ао]\b|сот|тысяч|миллион|миллиард|дюжин",
    "zh": r"[十廿卅百千万萬亿億]",
}  # fmt: skip
_HALVES = re.compile(r"\b(?:halb|half|halbe|half-past|demie|media|mezza|полов)|半", re.IGNORECASE)
_DECADE = re.compile(r"\d0(?:['’]?s\b|er\b|年代|-х|-e\b)|décenn|années|años|anni\b|anos\b")
_FACTORS = {10.0**power for power in (2, 3, 4, 6, 8, 9)}
# Languages that write fractions with a point and thousands with a comma.
_DECIMAL_POINTS = "en zh ja ko th he hi bn ta te ur ms sw tl"
_HALF_DAY_HOURS = 12
_CENTURY = 100
_FIRST_YEAR = 1000  # of decades that are written with two digits
_MOST_MONTHS = 12  # and the largest number that may be a word
_SMALL = frozenset(map(str, range(_MOST_MONTHS + 1)))
_MOST_PAIRS = 10_000  # the maximum number of pairs of figures that are compared one by one
_NUMBER_WORDS = {
    "en": "zero one two three four five six seven eight nine ten eleven twelve",
    "de": "null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf",
    "fr": "zéro un deux trois quatre cinq six sept huit neuf dix onze douze",
    "es": "cero un dos tres cuatro cinco seis siete ocho nueve diez once doce",
    "it": "zero un due tre quattro cinque sei sette otto nove dieci undici dodici",
    "pt": "zero um dois três quatro cinco seis sete oito nove dez onze doze",
    "nl": "nul een twee drie vier vijf zes zeven acht negen tien elf twaalf",
    "ru": "ноль один два три четыре пять шесть семь восемь девять десять одиннадцать двенадцать",
    "zh": "零 一 二 三 四 五 六 七 八 九 十 十一 十二",
}
# Other words for the same numbers, by language: forms, ordinals, and words such as "both".
_MORE_WORDS = {
    "en": {0: "no", 1: "first once single", 2: "second twice both couple pair", 3: "third",
           4: "fourth", 5: "fifth", 6: "sixth", 7: "seventh", 8: "eighth", 9: "ninth", 10: "tenth",
           12: "dozen"},
    "de": {0: "kein", 1: "eins erst einmal", 2: "zwo zweit beide paar", 3: "dritt", 7: "siebt",
           8: "acht", 12: "dutzend"},
    "fr": {1: "une premi", 2: "second deuxi", 9: "neuv"},
    "es": {1: "una primer", 2: "segund ambos", 3: "tercer", 4: "cuart", 5: "quint", 6: "sext"},
    "it": {1: "una prim", 2: "second entrambi", 3: "terz"},
    "pt": {1: "uma primeir", 2: "duas segund ambos", 3: "terceir"},
    "nl": {1: "één eerst", 2: "beide"},
    "ru": {1: "одна одно одну перв", 2: "две двое втор", 3: "трое трёх трех трет", 4: "четвер"},
    "zh": {2: "两 兩 双"},
}  # fmt: skip


class Figure(NamedTuple):
    """A figure in a text.

    Attributes:
      values: The values that the figure may have, as strings without zeros at the end.
      is_in_date: Whether the figure is a part of a date or a time.
    """

    values: frozenset[str]
    is_in_date: bool = False


def find_figures(text: str, *, language: str = "") -> list[Figure]:
    """Return the figures of a text.

    Args:
      text: The text.
      language: The code of its language, which decides whether "1,250" can be a fraction; "" if it
        is unknown.

    >>> [sorted(figure.values) for figure in find_figures("1.250 € on 22.11.2024")]
    [['1.25', '1250'], ['22'], ['11'], ['2024']]
    """
    if not text.isascii():
        text = "".join(str(unicodedata.decimal(c)) if c.isdecimal() else c for c in text)
    grouping = _grouping_mark(language)
    found: list[Figure] = []
    for each in _FIGURE.finditer(text):
        if each["parts"]:
            parts = re.split(r"[-/:.]", each["parts"])
            found += [Figure(frozenset({_plain(part)}), is_in_date=True) for part in parts]
        elif each["clock"]:
            found.append(Figure(frozenset({_plain(*re.split("[:h]", each["clock"]))})))
        elif each["groups"]:
            fraction = each["fraction"] or ""
            found.append(Figure(_grouped(each["groups"], fraction, grouping=grouping)))
        else:
            rest = each["rest"] or ""
            values = frozenset({_plain(each["plain"], rest)})
            is_month = text[each.end() : each.end() + 1] == "月"
            found.append(Figure(values, is_in_date=is_month))
    return found


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

    A number up to twelve may be a word on either side.

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
    lost, added = _unmatched(
        find_figures(source, language=source_language),
        find_figures(text, language=target_language),
    )
    if lost and added and _HALF_DAY.search(source + text):
        lost, added = _without_pairs(lost, added, are_same=_differ_by_half_a_day)
    if lost and added and _MAGNITUDES.search(source + text):
        lost, added = _without_pairs(lost, added, are_same=_differ_by_a_word)
    if lost and added and _DECADE.search(source + text):
        lost, added = _without_pairs(lost, added, are_same=_are_same_decade)
    # A figure that was replaced by another figure did not become a word above twelve.
    allows_large = not (lost and added)
    return _may_be_words(
        lost, text, language=target_language, allows_large=allows_large
    ) and _may_be_words(added, source, language=source_language, allows_large=allows_large)


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


def _differ_by_half_a_day(a: float, b: float) -> bool:
    return math.isclose(abs(a - b), _HALF_DAY_HOURS)


def _differ_by_a_word(a: float, b: float) -> bool:
    """Return whether a word such as "million" can make two figures equal."""
    return min(a, b) > 0 and max(a, b) / min(a, b) in _FACTORS


def _are_same_decade(a: float, b: float) -> bool:
    """Return whether figures such as 1980 and 80 may be the same decade."""
    short, year = sorted((a, b))
    return short < _CENTURY < _FIRST_YEAR <= year and year % _CENTURY == short


def _may_be_words(
    figures: Iterable[Figure], text: str, *, language: str, allows_large: bool
) -> bool:
    """Return whether each figure may be a word in a text.

    Args:
      figures: The figures.
      text: The text.
      language: The code of its language; "" if it is unknown.
      allows_large: Whether figures above twelve and half hours may be words.
    """
    rest = [each for each in set(figures) if not _is_small_word(each, text, language=language)]
    if not (rest and allows_large):
        return not rest
    has_half = _HALVES.search(text) is not None
    has_large = _large_words(language).search(text) is not None
    return all(
        (has_half and any(value.endswith(".3") for value in figure.values))
        or (has_large and any(v.isdigit() and v not in _SMALL for v in figure.values))
        for figure in rest
    )


def _is_small_word(figure: Figure, text: str, *, language: str) -> bool:
    """Return whether a figure up to twelve may be a word in a text."""
    small = [int(value) for value in figure.values if value in _SMALL]
    if small and figure.is_in_date:  # the name of a month
        return True
    return any(_words(language)[value].search(text) for value in small)


def _codes(language: str) -> list[str]:
    """Return the code of a language whose number words are known, or all codes."""
    known = find_language(language)
    return [known.primary] if known and known.primary in _NUMBER_WORDS else list(_NUMBER_WORDS)


@functools.cache
def _large_words(language: str) -> re.Pattern[str]:
    """Return a pattern for words above twelve, in a language or in all known languages."""
    return re.compile("|".join(_LARGE_WORDS[code] for code in _codes(language)), re.IGNORECASE)


@functools.cache
def _words(language: str) -> list[re.Pattern[str]]:
    """Return a pattern for each number from 0 to 12, in a language or in all known languages."""
    patterns, codes = [], _codes(language)
    for value in range(_MOST_MONTHS + 1):
        words = [_NUMBER_WORDS[each].split()[value] for each in codes]
        words += [w for each in codes for w in _MORE_WORDS.get(each, {}).get(value, "").split()]
        spaced = "|".join(
            re.escape(word) for word in words if word.isalpha() and ord(word[0]) < 0x3000
        )
        unspaced = "|".join(word for word in words if ord(word[0]) >= 0x3000)
        alternatives = [rf"(?<!\w)(?:{spaced})"] if spaced else []
        alternatives += [unspaced] if unspaced else []
        patterns.append(re.compile("|".join(alternatives), re.IGNORECASE))
    return patterns
