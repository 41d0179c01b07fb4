"""Finds what no translation may change: URLs, tags, variables, code, prices, long numbers, emoji.

A span that a model shall carry over is given to it as a placeholder, a token of its own.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import regex

from tt.model.errors import UserError, accept_one_string

# What stands for the spans of a text, in their order. No text has them as they are: a text that
# seems to is a span itself.
BRACKET = "⟦"
PLACEHOLDERS = tuple(f"{BRACKET}{number}⟧" for number in range(1, 9))
PLACEHOLDER = re.compile(rf"{BRACKET}\d+⟧")  # what looks like one, whatever its number

_CODE = r"```.+?```|``[^\n]+?``|`[^`\n]+`"
# A tag has attributes with "=", or at most one other word: "if a <b then c> d" is none.
_TAG = (
    r"</?[A-Za-z][\w:.-]*(?:\s+[^<>\s=]+)?\s*/?>|<[A-Za-z][\w:.-]*\s[^<>=]*=[^<>]*>"
    r"|<[!?][A-Za-z\[-][^<>]*>"
)
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});"

# A URL ends before white space, quotation marks, letters of scripts without spaces, and
# punctuation that a sentence goes on with; brackets belong to it in pairs.
_URL_END = r"\s<>\"`“”„«»()\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\u3000-\u303f\uff00-\uffef"
_IN_BRACKETS = rf"\([^{_URL_END}]*+\)"
_URL_REST = rf"(?:{_IN_BRACKETS}|[^{_URL_END}])*(?:{_IN_BRACKETS}|[^{_URL_END}.,;:!?…'’\]}}*_])"
_DOMAIN = r"(?<![\w.@-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.){1,8}"
_URL = (
    rf"(?<![A-Za-z])(?:[a-z][a-z0-9+.-]{{1,15}}://|www\.|mailto:|tel:\+?(?=[0-9])){_URL_REST}"
    rf"|{_DOMAIN}(?:com|org|net|edu|gov|info|io|dev|[a-z]{{2}}(?=/))(?:/{_URL_REST})?(?![\w@-])"
)
_MAIL = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63})+"

_VARIABLE = (
    r"\$?\{\{[^{}\n]{0,64}\}\}|[$\#]?\{[^{}\n]{0,64}\}"  # {{x}}, {x}, ${x}, #{x}
    r"|\$[A-Za-z_]\w*"  # $VAR
    r"|%\(\w+\)[-+\#0]*[0-9]*(?:\.[0-9]+)?[sdifuxXeEgGcr]"  # %(name)s
    r"|(?<![0-9%])%(?:[0-9]{1,2}\$)?[-+\#0]*[0-9]*(?:\.[0-9]+)?(?:hh?|ll?|[zjtLq])?[sdifuxXeEgGcp@]"
    r"(?!\p{L})"  # %s, %5.2f, %1$s
    r"|(?<![0-9%])%[0-9]{1,2}(?![\w%])|(?<![0-9%])%[A-Z_]{2,}%"  # %1, %PATH%
    r"|(?<![\w:]):[a-z][\w+-]{0,63}:(?![\w:])"  # :name:
)

_NUMBER = r"[0-9]{1,30}(?:[.,:/'’\u00a0\u202f-][0-9]{1,30}){0,9}"
_CURRENCY = r"(?:\p{Sc}|(?:USD|EUR|GBP|CHF|JPY|CNY|INR|RUB|AUD|CAD)(?![A-Za-z]))"
_UNIT = (
    r"(?:%(?!\()|[‰°′″]|°[CF]|℃|℉|k?m/[hs]|(?:[kcmµμnd]?m|[kmµμ]?g|[cdm][lL])[²³]?|mph|[kMG]W|kWh"
    r"|[km]V|mA|m?Ah|[kMGT]?Hz|dB|[hkM]?Pa|mbar|psi|[kKMGTP]i?B|[kMG]?bit(?:/s)?|[kMG]bps|px|pt"
    r"|dpi|fps|rpm|kcal|kJ|kN|Nm|lbs?|oz|ft|min|[mµμn]s|h)(?![\p{Latin}\p{Greek}\p{Cyrillic}0-9])"
)
# Units that look like words: at the number itself, or where no word follows.
_SHORT_UNIT = r"(?:[lLWVJN]|ha|mi)(?![\p{Latin}\p{Greek}\p{Cyrillic}0-9])"
_LETTER = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Devanagari}_"  # spaced scripts
_NOT_WITHIN = rf"(?<![{_LETTER}0-9.,])"
_GAP = r"[ \u00a0\u202f]?"
_FIGURE = (
    r"\+[0-9](?:[ ()./-]{0,2}[0-9]){6,14}(?![0-9])"  # +34 600 123 456
    # (030) 123 45 67
    rf"|{_NOT_WITHIN}(?<!-)\(?[0-9]{{2,5}}\)?(?:[ /-][0-9]{{2,5}}){{2,5}}"
    rf"(?![{_LETTER}0-9-]|[.,][0-9])"
    rf"|{_CURRENCY}{_GAP}{_NUMBER}(?:{_GAP}(?:[kKMB]|bn|mn)(?!\w))?"  # $5.20, EUR 10 M
    rf"|{_NOT_WITHIN}[-−+]?{_NUMBER}{_GAP}(?:{_CURRENCY}(?![\w{{])|{_UNIT})"  # 5 km/h, 20 €, -3 °C
    rf"|{_NOT_WITHIN}[-−+]?{_NUMBER}(?:{_SHORT_UNIT}|{_GAP}{_SHORT_UNIT}(?!\s*\w))"  # 5l, 10 W
    # 12345, 1,234.50, 2024-11-22
    rf"|{_NOT_WITHIN}(?<![0-9][:/'’\u00a0\u202f-])[0-9](?:[.,:/'’\u00a0\u202f-]?[0-9]){{4,}}+(?![{_LETTER}])"
)

_PICTURE = r"\p{Extended_Pictographic}[\p{Emoji_Modifier}\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f]*"
_EMOJI = rf"(?:{_PICTURE}(?:\u200d{_PICTURE})*|\p{{RI}}\p{{RI}}|[0-9\#*]\ufe0f?\u20e3)+"

_ALTERNATIVES = (  # in their order, with the group of `_GROUPS` that each belongs to
    (f"(?P<markup>{_TAG}|{_EMOJI})|{PLACEHOLDER.pattern}|{_CODE}|{_ENTITY}", "sign"),
    (_URL, "url"),
    (f"{_MAIL}|{_VARIABLE}", "sign"),
    (rf"(?=[-−+(0-9\p{{Sc}}A-Z])(?:{_FIGURE})", "figure"),
)
# What every text has in which an alternative of the group finds something: to look for all of them
# takes five times as long as for figures alone.
_GROUPS = {
    "sign": re.compile("[<`&@{$%#©®\u203c-\U0010ffff]|:[a-z]"),
    "url": re.compile(r":/|www\.|mailto:|tel:|[a-z0-9]\.[a-z]"),
    "figure": re.compile("[0-9]"),
}

# Finds something in every text that has a span, and little else: most texts need no closer look.
# Digits stand for all figures, a dot between letters for domains. It is RE2's syntax as well.
MAYBE_SPAN = (
    "[<{`@&%$#⟦0-9\u00a9\u00ae\u203c\u2049\u20e3\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]|:[a-z]|:/|www\\.|[a-z0-9]\\.[a-z]"
)
_MAYBE_SPAN = re.compile(MAYBE_SPAN)
_LONGEST_SEARCH = 30  # seconds that a user's pattern may search a text
_MATCHES_NOTHING = "matches where there is no character"
_PROBE_SECONDS, _PROBE_LENGTH, _MOST_PROBES = 2, 200, 64  # of a pattern of a model


class TooLongToSearchError(Exception):
    """A text is so long that finding its spans takes more memory than the library has."""


class Span(NamedTuple):
    """A part of a text that must not change; touching ones are one."""

    start: int  # index of its first character in the text
    end: int  # index behind its last
    replacement: str  # what stands for it in the translation: itself, or the term of a glossary
    # Whether it is tags and emoji alone: they stand beside words, and are none.
    is_markup: bool = False


@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection:
    """What of a text must not change.

    Attributes:
      protect: Keep URLs, mail addresses, {x}, %s, $VAR, :name:, tags, entities, code in backquotes,
        emoji, prices, numbers with a unit or of more than four digits as they are.
      protect_regex: Regular expression, in Python's syntax, of more that is kept as it is;
        repeatable.
    """

    protect: bool = True
    protect_regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        accept_one_string(self)
        for pattern in self.protect_regex:
            if problem := describe_bad_pattern(pattern):
                raise UserError(f"`protect_regex` has {pattern!r}, which {problem}. Change it")

    @property
    def is_on(self) -> bool:
        """Whether anything is protected."""
        return self.protect or bool(self.protect_regex)

    def find(self, text: str) -> list[Span]:
        """Return the spans of a text, in order; none overlaps or touches another.

        Raises:
          UserError: A pattern of the user's matches where nothing is, or takes too long.
          TooLongToSearchError: The text has millions of characters, such as digits, that may all
            belong to one span.

        >>> text = "See <b>{name}</b>, 5 km away."
        >>> [span.replacement for span in Protection().find(text)]
        ['<b>{name}</b>', '5 km']
        """
        found = [span for pattern in self.protect_regex for span in _find_own(pattern, text)]
        if self.protect and _MAYBE_SPAN.search(text):
            try:
                groups = tuple(name for name, pattern in _GROUPS.items() if pattern.search(text))
                found += [
                    Span(each.start(), each.end(), each[0], is_markup=each.lastgroup == "markup")
                    for each in _compile_groups(groups).finditer(text)
                ]
            except MemoryError as error:
                raise TooLongToSearchError(
                    f"a text of {len(text):,} characters is too long to find its protected spans"
                ) from error
        return unite(text, found) if len(found) > 1 else found


def digest_patterns() -> str:
    """Returns what changes whenever the spans of a text may be others, patterns of users apart."""
    groups = {name: pattern.pattern for name, pattern in _GROUPS.items()}
    patterns = repr((MAYBE_SPAN, _ALTERNATIVES, groups, regex.__version__))
    return hashlib.blake2b(patterns.encode(), digest_size=8).hexdigest()


def unite(text: str, spans: Iterable[Span]) -> list[Span]:
    """Makes one span of those that overlap or touch; of those that overlap, the text is kept."""
    united: list[Span] = []
    for span in sorted(spans):
        if span.start == span.end:
            continue
        if not united or span.start > united[-1].end:
            united.append(span)
            continue
        last = united.pop()
        start, end = last.start, max(last.end, span.end)
        touches = span.start == last.end
        replacement = last.replacement + span.replacement if touches else text[start:end]
        united.append(Span(start, end, replacement, last.is_markup and span.is_markup))
    return united


@functools.cache
def _compile_groups(groups: tuple[str, ...]) -> regex.Pattern[str]:
    """Compiles the alternatives of some groups; those of none find nothing."""
    chosen = [alternative for alternative, group in _ALTERNATIVES if group in groups]
    return regex.compile("|".join(chosen) or "(?!)", regex.DOTALL)


def _find_own(pattern: str, text: str) -> list[Span]:
    """Find what a user's pattern matches.

    Raises:
      UserError: The pattern matches where nothing is, or takes too long.
    """
    try:
        matches = regex.finditer(pattern, text, timeout=_LONGEST_SEARCH)
        found = [Span(each.start(), each.end(), each[0]) for each in matches]
    except (TimeoutError, RecursionError, MemoryError) as error:
        raise UserError(
            f"`protect_regex` must take less than {_LONGEST_SEARCH} s for a text; {pattern!r} does "
            f"not for one of {len(text):,} characters: write it without nested repetitions, or, if "
            "the model remembers it, remove it from the model's config.json or about.json"
        ) from error
    if any(span.start == span.end for span in found):
        raise UserError(f"`protect_regex` has {pattern!r}, which {_MATCHES_NOTHING}: write + for *")
    return found


@functools.cache
def describe_bad_pattern(pattern: str) -> str:
    """Say why a pattern of a user or a model cannot be used; return "" if it can.

    The pattern searches texts that repeat one character of the pattern. In such texts a pattern
    with nested repetitions takes longer than any other one, by many orders of magnitude.

    >>> describe_bad_pattern("ACME-[0-9]+"), describe_bad_pattern("(a|a)+$")
    ('', 'takes too long for a short text')
    """
    try:
        compiled = regex.compile(pattern)
        characters = dict.fromkeys([*"aA0 ", *pattern])
        for character in list(characters)[:_MOST_PROBES]:
            for text in ("", character * _PROBE_LENGTH, f"{character * _PROBE_LENGTH}{BRACKET}"):
                matches = compiled.finditer(text, timeout=_PROBE_SECONDS)
                if any(each.start() == each.end() for each in matches):
                    return _MATCHES_NOTHING
    except (TimeoutError, MemoryError):
        return "takes too long for a short text"
    except (regex.error, RecursionError, OverflowError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        return f"is no regular expression ({reason})"
    return ""
