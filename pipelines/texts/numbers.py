"""Compare the numbers of a sentence with the numbers of its translation.

Languages write numbers in digits differently, so `find_numbers` gives each number all values that
it may have. Only if the numbers in digits differ, the package text2num
(https://github.com/allo-media/text2num-rs, MIT) reads number words such as "twenty-two".
"""

from __future__ import annotations

import bisect
import collections
import functools
import itertools
import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from text_to_num import alpha2digit

from tt.model.text.languages import find_language
from tt.model.text.spans import BRACKET, Span

_SPACES = "\u00a0\u202f\u2009 "
_GROUPS = rf"\d{{1,3}}(?:[.,'’٬{_SPACES}]\d{{3}}|[.,] 000)+(?!\d)"
# A number with thousands separators, a plain number with a fraction, or several numbers such as a
# date. The digits of placeholders, "m2" and "m3" are not numbers.
_NUMBER = re.compile(
    rf"(?=\d)(?<!{BRACKET})(?<!\d)(?<!\d[.,])(?!(?:(?<=\bm)|(?<=[ckd]m))[23](?!\d))(?:"
    rf"(?P<groups>{_GROUPS})(?P<fraction>[.,٫]\d+)?(?![\d])"
    r"|(?P<parts>\d+(?P<mark>[-/:.])\d+(?:(?P=mark)\d+)+(?!\d))"
    # German also writes "6.30 Uhr".
    r"|(?P<clock>\d{1,2}(?:[:hH点點时時]| Uhr | h | heures? )\d{2}(?!\d)(?:[.,]\d+)?)"
    r"|(?P<plain>\d+)(?:[.,٫](?P<rest>\d+))?)"
)
_DIGIT = re.compile(r"\d")
_DIGITS = re.compile(r"\d+")
_AFTERNOON = re.compile(r"\s?p\.?\s?m\b", re.IGNORECASE)
_DECADE = re.compile(r"(?<=0)(?:['’]?s\b|\s?er\b|-[ех]|年代)")
# A number with such a character before or after it does not count things, so that the article "ein"
# cannot replace it: "F1", "1:0", "1%".
_NO_COUNT = re.compile(r"\A[A-Za-z(:$€£-]\d|\d[%:€)\"]\Z")
_CURRENCY = r"[$€£¥￥₽₹]"
# The text between two numbers of a range or a list, which may share a word such as "million".
_CONNECTOR = re.compile(
    r"\s*(?:[-–—/~～\s]+|[至到和或]|"
    r"(?:to|and|or|bis|auf|und|oder|à|et|ou|a|y|e|o|до|и|или|tot|en|of)\b)"
    rf"\s*{_CURRENCY}?\s*"
)
_LONGEST_CONNECTOR = 10  # characters
# Words that multiply the number before them, by language and power of ten.
_MAGNITUDES = {
    "en": {2: r"hundred", 3: r"thousand", 6: r"million|mln\b|mn\b",
           9: r"billion|milliard|bn\b", 12: r"trillion|tn\b"},
    "de": {2: r"hundert", 3: r"tausend|Tsd", 6: r"Million|Mio|Mill\.", 9: r"Milliard|Mrd",
           12: r"Billion|Bio\."},
    "fr": {3: r"mille\b|milliers?", 6: r"million", 9: r"milliard|Mds?\b", 12: r"billion"},
    "es": {3: r"mil\b|miles\b", 6: r"mill[oó]n|mill\.", 12: r"bill[oó]n"},
    "it": {3: r"mila\b|mille|migliaia", 6: r"milion|mln\b", 9: r"miliard|mld\b", 12: r"bilion"},
    "pt": {3: r"mil\b|milhares", 6: r"milh(?:ão|ões)", 9: r"bilh|mil milh", 12: r"trilh"},
    "nl": {2: r"honderd", 3: r"duizend", 6: r"miljoen|mln\b", 9: r"miljard|mrd\b", 12: r"biljoen"},
    "ru": {2: r"сот(?:ен|ни|ня)\b", 3: r"тысяч|тыс\b", 6: r"миллион|млн\b", 9: r"миллиард|млрд\b",
           12: r"триллион|трлн\b"},
    "zh": {1: r"十", 2: r"百", 3: r"千", 4: r"[万萬]", 8: r"[亿億]"},
}  # fmt: skip
# Abbreviations that can also be units: "20 m" is 20 million or 20 meters.
_DOUBTFUL = {3: r"k\b", 6: r"m\b", 9: r"b\b"}
# Beginnings of words that text2num does not read, by language. It reads no Russian and Chinese.
_WORDS = {
    **dict.fromkeys(("fr", "es", "it", "pt"), ""),
    "en": "0 no 1 first once single 2 second twice both couple pair dioxide 3 third 12 dozen",
    "de": "0 kein 1 ein erst 2 zwei zwo beide paar 3 drei drit 4 vier 5 fünf 6 sech 7 sieb 8 acht "
    "9 neun 10 zehn jahrzehnt 11 elf 12 zwölf dutzend",
    "nl": "1 eerst 2 twee beide 3 drie 4 vier 5 vijf 6 zes 7 zeven 8 acht 9 negen 10 tien",
    "ru": "0 ноль 1 один одна одно одну перв 2 два две двое втор 3 три трое трёх трех трет "
    "4 четыр четвер 5 пят 6 шест 7 сем седьм 8 восем 9 девят 10 десят 11 одиннадцат 12 двенадцат",
    "zh": "2 双",
}
# Places in words at which text2num needs a space: "three-year", "zwanzigjährig".
_INSIDE = re.compile(
    r"-|(?:(?<=zig|ßig|tig)|(?<=zehn)|(?<=hundert|honderd)|(?<=tausend|duizend))(?=\w)",
    re.IGNORECASE,
)
_LARGE_RUSSIAN = re.compile(r"дцат|сорок|десят|девянос|\bст[ао]\b|сот|тысяч|милли|дюжин", re.I)
_HAN_DIGITS = {han: digit for digit, han in enumerate("零一二三四五六七八九")} | {"两": 2, "〇": 0}
_HAN_UNITS = {"十": 10, "百": 100, "千": 1000, "万": 10**4, "萬": 10**4, "亿": 10**8, "億": 10**8}
_HAN_NUMBER = re.compile(f"[{''.join([*_HAN_DIGITS, *_HAN_UNITS])}]{{1,20}}")
_HALF = re.compile(
    r"\b(?:anderthalb|halb|hälfte|half|halves|demi|moitié|medi[ao]|mitad|met[àa]|mezz[ao]|helft"
    r"|полов|полтор)|半",
    re.IGNORECASE,
)
# The numbers that a word for a half may replace, as in "half an hour" and "half past five".
_HALVES, _HALF_ENDS = ("0.5", "1.5", "30", "50"), (".3", ".5")
# A number that `find_numbers` reads as other numbers: "½", "1/2", ".5", "a quarter" or "2 dozen".
_FRACTION = re.compile(
    r"[¼-¾⅐-⅞]|\d\s?/\s?\d|(?<!\w)[.,]\d|\b(?:dozen|dutzend|do[cz]ena|douzaine|dozzina|дюжин)"
    r"|viertel|quarter|cuart|quart|четверт|kwart|四分之|刻",
    re.IGNORECASE,
)
_MOST_READ = 5_000  # characters for text2num, whose time grows with their square
_THOUSAND = 3  # as a power of ten
_HALF_DAY = 12  # hours
# Languages that write fractions with a point and thousands with a comma.
_DECIMAL_POINTS = "en zh ja ko th he hi bn ta te ur ms sw tl"
_SMALL = frozenset(map(str, range(13)))  # the numbers that may be months
_OTHER_MARKS = str.maketrans(".,", ",.")
_MOST_REPLACEMENTS = 16  # replacements of a wrong number that are tried


Languages = tuple[str, str]  # codes of the source and target language; "" if unknown


class Number(NamedTuple):
    """A number in the digits of a text.

    Attributes:
      values: The values that the number may have, as strings without zeros at the end.
      is_in_date: Whether the number is a part of a date.
      is_count: Whether the number may count things.
    """

    values: frozenset[str]
    is_in_date: bool = False
    is_count: bool = True


@functools.lru_cache(32)  # the flags and a repair compare the same text several times
def find_numbers(text: str, *, language: str = "") -> tuple[Number, ...]:
    """Return the numbers of a text.

    Args:
      text: The text.
      language: The code of its language, which decides whether "1,250" can be a fraction; "" if it
        is unknown.

    >>> [sorted(number.values) for number in find_numbers("1.250 € on 22.11.2024")]
    [['1.25', '1250'], ['22'], ['11'], ['2024']]
    >>> [sorted(number.values) for number in find_numbers("2.5 million dogs", language="en")]
    [['2500000']]
    """
    text = _with_ascii_digits(text)
    numbers: list[Number] = []
    before: tuple[frozenset[str], int, int] | None = None  # value, power, end of the last number
    for found in _NUMBER.finditer(text):
        start, end = found.span()
        if found["parts"]:
            parts = _DIGITS.findall(found["parts"])
            numbers += [Number(frozenset({_plain(part)}), is_in_date=True) for part in parts]
            if found["mark"] != ":" and len(parts[0]) <= len(parts[-1]) == 2:  # as in "22.11.24"
                years = {f"19{parts[-1]}", f"20{parts[-1]}"}
                numbers[-1] = numbers[-1]._replace(values=numbers[-1].values | years)
            before = None
            continue
        plain, values, power = _read_number(found, text, language=language)
        if (
            before
            and start - before[2] <= _LONGEST_CONNECTOR
            and _CONNECTOR.fullmatch(text, before[2], start)
        ):
            values |= _complete_years(before[0], found[0])
            if not before[1]:  # as in "5-10 million" or "50-100.000"
                is_thousands = any(value.endswith("000") for value in values)
                shared = power or (_THOUSAND if is_thousands else 0)
                more = {_shift(value, shared) for value in before[0]}
                numbers[-1] = numbers[-1]._replace(values=numbers[-1].values | more)
        around = text[max(start - 1, 0) : end + 1]
        numbers.append(Number(values, around[-1] == "月", _NO_COUNT.search(around) is None))
        before = (plain, power, end)
    return tuple(numbers)


def _read_number(
    found: re.Match[str], text: str, *, language: str
) -> tuple[frozenset[str], frozenset[str], int]:
    """Return the values of the digits, all values, and the power of ten of the words after them."""
    power, is_certain = 0, False
    if found["clock"]:
        hours, *rest = _DIGITS.findall(found["clock"])
        plain = frozenset({_plain(hours, "".join(rest))})
    else:
        if found["groups"]:
            plain = _grouped(found["groups"], found["fraction"] or "", language=language)
        else:
            plain = frozenset({_plain(found["plain"], found["rest"] or "")})
        power, is_certain, _ = _find_magnitude(text, found.end(), language=language)
    values = frozenset(_shift(value, power) for value in plain)
    if not (is_certain and language):
        values |= plain
    if _AFTERNOON.match(text, found.end()):
        times = (value.partition(".") for value in values)
        values |= {f"{int(h) + _HALF_DAY}{dot}{m}" for h, dot, m in times if int(h) < _HALF_DAY}
    if _DECADE.match(text, found.end()):
        values |= {f"19{value}" for value in values if len(value) == 2}
    return plain, values, power


def _with_ascii_digits(text: str) -> str:
    if text.isascii() or "".join(filter(str.isdigit, text)).isascii():
        return text
    return "".join(str(unicodedata.digit(c)) if c.isdigit() else c for c in text)


@functools.cache
def _codes(language: str) -> tuple[str, ...]:
    """Return the code of a language whose number words are known, or all codes."""
    known = find_language(language)
    return (known.primary,) if known and known.primary in _WORDS else tuple(_WORDS)


@functools.cache
def _magnitudes(language: str) -> re.Pattern[str]:
    """Return a pattern for words that multiply, whose group is named by the power of ten."""
    powers = collections.defaultdict[str, list[str]](list)
    for code in _codes(language):
        for power, words in _MAGNITUDES[code].items():
            powers[f"certain{power}"].append(words)
    for power, word in _DOUBTFUL.items():
        powers[f"unclear{power}"].append(word)
    groups = "|".join(f"(?P<{name}>{'|'.join(words)})" for name, words in powers.items())
    # As in "5 € million" and in "20多万".
    return re.compile(rf"[\s-]?(?:{_CURRENCY}\s?)?[多余餘]?(?:{groups})", re.IGNORECASE)


def _find_magnitude(text: str, place: int, *, language: str) -> tuple[int, bool, int]:
    """Return the power of ten of the words at a place, whether it is certain, and their end.

    >>> _find_magnitude("5 hundred million dogs", 1, language="en")
    (8, True, 17)
    >>> _find_magnitude("5 m", 1, language="en")
    (6, False, 3)
    """
    total, is_certain = 0, True
    while (found := _magnitudes(language).match(text, place)) and (name := found.lastgroup):
        place = found.end()
        total, is_certain = total + int(name[7:]), is_certain and name.startswith("certain")
    return total, is_certain and total > 0, place


def _complete_years(years: frozenset[str], digits: str) -> set[str]:
    """Return the values of the second year in a range such as "1985-87" or "1999-00"."""
    if len(digits) != 2:
        return set()
    known = [year for year in years if len(year) == 4 and year.isdigit()]
    return {f"{int(year[:2]) + (digits < year[2:])}{digits}" for year in known}


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


def _grouped(groups: str, fraction: str, *, language: str) -> frozenset[str]:
    parts = _DIGITS.findall(groups)
    values = {_plain("".join(parts), fraction[1:])}
    mark = groups[len(parts[0])]
    if not fraction and len(parts) == 2 and mark in ".," and mark != _grouping_mark(language):
        values.add(_plain(*parts))
    return frozenset(values)


def _plain(whole: str, rest: str = "") -> str:
    whole, rest = whole.lstrip("0") or "0", rest.rstrip("0")
    return f"{whole}.{rest}" if rest else whole


def _count_words(text: str, *, language: str) -> collections.Counter[str]:
    """Count the values of the number words of a text."""
    rest, start = [], 0
    for found in _NUMBER.finditer(text):
        rest.append(text[start : found.start()])
        start = _find_magnitude(text, found.end(), language=language)[-1]
    text = " / ".join([*rest, text[start:]])
    split = _INSIDE.sub(" ", text[:_MOST_READ])
    counts = collections.Counter(str(_read_han(each)) for each in _HAN_NUMBER.findall(text))
    for code in _codes(language):
        counts |= {value: len(word.findall(text)) for value, word in _word_patterns(code).items()}
        if code not in ("ru", "zh"):
            read = find_numbers(alpha2digit(split, code, threshold=0), language=code)
            counts |= collections.Counter(value for number in read for value in number.values)
    return counts


@functools.cache
def _word_patterns(code: str) -> dict[str, re.Pattern[str]]:
    """Return a pattern for the words of each number."""
    words = [group.split() for group in re.split(r" (?=\d)", _WORDS[code]) if group]
    return {
        value: re.compile(rf"(?<!\w)(?:{'|'.join(own)})", re.IGNORECASE) for value, *own in words
    }


def _read_han(text: str) -> int:
    """Return the value of a Chinese number.

    >>> _read_han("三百二十五"), _read_han("十二万"), _read_han("二〇一七")
    (325, 120000, 2017)
    """
    total = section = digit = 0
    if not _HAN_UNITS.keys() & text:
        return int("".join(str(_HAN_DIGITS[han]) for han in text))
    for han in text:
        if han in _HAN_DIGITS:
            digit = _HAN_DIGITS[han]
        elif (unit := _HAN_UNITS[han]) < 10**4:
            section, digit = section + (digit or 1) * unit, 0
        else:
            total, section, digit = (total + section + digit) * unit, 0, 0
    return total + section + digit


def compare_numbers(
    text: str, *, source: str, languages: Languages = ("", "")
) -> tuple[list[Number], list[Number]]:
    """Return the source's numbers that a translation lost, and the numbers that it added.

    A number that is in digits on one side may be a word, a month or a fraction on the other side.

    Args:
      text: The translation.
      source: The source.
      languages: The codes of the languages of source and translation; "" if unknown.

    >>> compare_numbers("Nummer 488.", source="Number 480.")[0][0].values
    frozenset({'480'})
    """
    if not _DIGIT.search(source) and not _DIGIT.search(text):  # as in most sentences
        return [], []
    ours, theirs = languages
    lost, added = _unmatched(
        find_numbers(source, language=ours), find_numbers(text, language=theirs)
    )
    if not (lost or added):
        return lost, added
    is_replaced = bool(lost and added)  # by another number, and not by a fraction
    # A word that both sides have explains no number.
    words, read = _count_words(source, language=ours), _count_words(text, language=theirs)
    lost, added = _without_words(lost, read - words), _without_words(added, words - read)
    if lost and added:  # a number that was replaced by another number became no month either
        return lost, added
    return (
        _without_halves(lost, text, is_replaced=is_replaced),
        _without_halves(added, source, is_replaced=is_replaced),
    )


def _without_words(numbers: Iterable[Number], words: collections.Counter[str]) -> list[Number]:
    return [
        each
        for each in numbers
        if words.keys().isdisjoint(each.values) or ("1" in each.values and not each.is_count)
    ]


def has_same_numbers(text: str, *, source: str, languages: Languages = ("", "")) -> bool:
    """Return whether `compare_numbers` finds no difference.

    >>> has_same_numbers("Es kostet 1.250,5 Euro.", source="It costs 1,250.50 euros.")
    True
    >>> has_same_numbers("Nummer 488.", source="Number 480.")
    False
    >>> has_same_numbers("Zwei Hunde.", source="2 dogs.", languages=("en", "de"))
    True
    """
    return not any(compare_numbers(text, source=source, languages=languages))


def _without_halves(numbers: list[Number], text: str, *, is_replaced: bool) -> list[Number]:
    """Remove numbers that may be a month, a half or a large Russian number in a text."""
    rest = [each for each in numbers if not (each.is_in_date and _SMALL & each.values)]
    if is_replaced or not rest:
        return rest
    if _HALF.search(text):
        rest = [each for each in rest if not any(map(_is_half, each.values))]
    if _LARGE_RUSSIAN.search(text):
        rest = [each for each in rest if not any(map(str.isdigit, each.values - _SMALL))]
    return rest


def _is_half(value: str) -> bool:
    return value in _HALVES or value.endswith(_HALF_ENDS)


def has_fraction(text: str) -> bool:
    """Return whether a text may contain a number that `find_numbers` does not understand.

    >>> has_fraction("1½ inch"), has_fraction("half past 9"), has_fraction("1.5 inches")
    (True, True, False)
    """
    return bool(_FRACTION.search(text) or _HALF.search(text))


def replace_wrong_number(text: str, *, source: str, languages: Languages = ("", "")) -> str | None:
    """Return a translation with one wrong number replaced by the source's number, or None.

    The result is None if one replacement does not make all numbers right, or if a text has a
    fraction, whose translation may be right.

    Args:
      text: The translation, with wrong numbers.
      source: The source.
      languages: The codes of the languages of source and translation; "" if unknown.

    >>> replace_wrong_number("Nummer 488.", source="Number 480.")
    'Nummer 480.'
    >>> replace_wrong_number("Nummer 5 5 55.", source="Number 50.")
    """
    ours, theirs = [*_NUMBER.finditer(source)], [*_NUMBER.finditer(text)]
    if len(ours) * len(theirs) > _MOST_REPLACEMENTS or has_fraction(f"{source}\n{text}"):
        return None
    marks = {*map(_grouping_mark, languages)}
    has_other_marks = "" not in marks and len(marks) > 1
    near_first = sorted(
        itertools.product(enumerate(ours), enumerate(theirs)), key=lambda p: abs(p[0][0] - p[1][0])
    )
    for (_, own), (_, other) in near_first:
        number = _with_ascii_digits(own[0])
        if has_other_marks and not own["parts"]:
            number = number.translate(_OTHER_MARKS)
        replaced = text[: other.start()] + number + text[other.end() :]
        if has_same_numbers(replaced, source=source, languages=languages):
            return replaced
    return None


def protect_numbers(text: str, spans: Sequence[Span]) -> list[Span]:
    """Return spans for the numbers of a text that are not in words, in addition to its other spans.

    >>> [span.replacement for span in protect_numbers("Number 50, {x1}", [Span(11, 15, "{x1}")])]
    ['50', '{x1}']
    """
    starts, ends = [span.start for span in spans], [span.end for span in spans]
    found = [
        Span(each.start(), each.end(), each[0])
        for each in _NUMBER.finditer(text)
        if bisect.bisect_left(starts, each.end()) == bisect.bisect_right(ends, each.start())
        and not text[max(0, each.start() - 1) : each.start()].isalpha()
        and not text[each.end() : each.end() + 1].isalpha()
    ]
    return sorted([*spans, *found])


def _unmatched(
    ours: Iterable[Number], theirs: Iterable[Number]
) -> tuple[list[Number], list[Number]]:
    """Return the numbers of each side that have no partner on the other side."""
    partners: dict[str, list[int]] = {}
    theirs = list(theirs)
    for index, number in enumerate(theirs):
        for value in number.values:
            partners.setdefault(value, []).append(index)
    lost, taken = [], set[int]()
    for number in ours:
        for value in sorted(number.values):  # the order of a set differs between processes
            places = partners.get(value, [])
            while places and places[-1] in taken:
                places.pop()
            if places:
                taken.add(places.pop())
                break
        else:
            lost.append(number)
    return lost, [each for index, each in enumerate(theirs) if index not in taken]
