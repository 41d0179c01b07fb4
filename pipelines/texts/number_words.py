"""Words for numbers, by language: "two", "million", "thirty", "half"."""

from __future__ import annotations

import functools
import re

from tt.model.text.languages import find_language

CURRENCY = r"[$€£¥￥₽₹]"
LARGEST_SMALL = 12  # the largest number whose word is known exactly
# Words that multiply the figure before them, by language. The key is the power of ten.
_MAGNITUDES = {
    "en": {2: r"hundred", 3: r"thousand", 6: r"million|mln\b|mn\b",
           9: r"billion|milliard|bn\b", 12: r"trillion|tn\b"},
    "de": {2: r"hundert", 3: r"tausend|Tsd", 6: r"Million|Mio|Mill\.", 9: r"Milliard|Mrd",
           12: r"Billion|Bio\."},
    "fr": {3: r"mille\b|milliers?", 6: r"million", 9: r"milliard|Mds?\b",
           12: r"billion"},
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
# Parts of words for numbers above twelve, by language.
_LARGE_WORDS = {
    "en": r"(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twent|thirt|fort|fift|sixt|sevent|eight"
          r"|ninet)(?:y|ie)|hundred|thousand|million|billion|dozen",
    "de": r"(?:drei|vier|fünf|sech|sieb|acht|neun)zehn|zwanzig|drei(?:ß|ss)ig|(?:vier|fünf|sech"
          r"|sieb|acht|neun)zig|hundert|tausend|million|milliard|dutzend|(?-i:\bM(?:io|rd)\b)",
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
           8: "acht", 10: "jahrzehnt", 12: "dutzend"},
    "fr": {1: "une premi", 2: "second deuxi", 9: "neuv"},
    "es": {1: "una primer", 2: "segund ambos", 3: "tercer", 4: "cuart", 5: "quint", 6: "sext"},
    "it": {1: "una prim", 2: "second entrambi", 3: "terz"},
    "pt": {1: "uma primeir", 2: "duas segund ambos", 3: "terceir"},
    "nl": {1: "één eerst", 2: "beide"},
    "ru": {1: "одна одно одну перв", 2: "две двое втор", 3: "трое трёх трех трет", 4: "четвер"},
    "zh": {2: "两 兩 双"},
}  # fmt: skip
_TENS, _UNITS = ("", "X", "XX"), ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
_ROMANS = {tens + unit: str(10 * ten + one) for ten, tens in enumerate(_TENS)
           for one, unit in enumerate(_UNITS) if tens + unit}  # fmt: skip
_ROMAN = re.compile(r"(?<![^\W_])[IVX]+(?![^\W_])")


def known_codes(language: str) -> list[str]:
    """Return the code of a language whose number words are known, or all codes."""
    known = find_language(language)
    return [known.primary] if known and known.primary in _NUMBER_WORDS else list(_NUMBER_WORDS)


@functools.cache
def large_words(language: str) -> re.Pattern[str]:
    """Return a pattern for words above twelve, in a language or in all known languages."""
    words = "|".join(_LARGE_WORDS[code] for code in known_codes(language))
    # A word after a figure belongs to this figure.
    not_behind = rf"(?<!\d)(?<!\d[\s-])(?<!\d\s{CURRENCY}\s)"
    return re.compile(f"{not_behind}(?:{words})", re.IGNORECASE)


@functools.cache
def small_words(language: str) -> list[re.Pattern[str]]:
    """Return a pattern for each number from 0 to 12, in a language or in all known languages."""
    patterns, codes = [], known_codes(language)
    for value in range(LARGEST_SMALL + 1):
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


@functools.cache
def _magnitudes(language: str) -> list[tuple[int, re.Pattern[str], bool]]:
    """Return (power of ten, pattern, whether it is certain) for each word that multiplies."""
    spaced = rf"[\s-]?(?:{CURRENCY}\s?)?"  # as in "5 € million"
    found = [
        (power, (r"\s?[多余餘]?" if code == "zh" else spaced) + f"(?:{pattern})", True)
        for code in known_codes(language)
        for power, pattern in _MAGNITUDES[code].items()
    ]
    found += [(power, f"{spaced}(?:{pattern})", False) for power, pattern in _DOUBTFUL.items()]
    return [
        (power, re.compile(pattern, re.IGNORECASE), is_certain)
        for power, pattern, is_certain in found
    ]


def find_magnitude(text: str, place: int, *, language: str) -> tuple[int, bool]:
    """Return the power of ten of the words at a place, and whether they certainly multiply.

    >>> find_magnitude("5 hundred million dogs", 1, language="en")
    (8, True)
    >>> find_magnitude("5 m", 1, language="en")
    (6, False)
    """
    total, is_certain = 0, True
    while True:
        for power, pattern, certain in _magnitudes(language):
            if (found := pattern.match(text, place)) is not None:
                total, is_certain, place = total + power, is_certain and certain, found.end()
                break
        else:
            return total, is_certain and total > 0


def find_romans(text: str, *, language: str) -> set[str]:
    """Return the values of the Roman numerals in a text, up to 29.

    In English, "I" counts only in "World War I", because it is usually a pronoun.

    >>> sorted(find_romans("Henry VIII and World War II", language="en"))
    ['2', '8']
    """
    has_pronoun = "en" in known_codes(language)
    return {
        _ROMANS[each[0]]
        for each in _ROMAN.finditer(text)
        if each[0] in _ROMANS
        and not (has_pronoun and each[0] == "I" and not text.endswith("War ", 0, each.start()))
    }
