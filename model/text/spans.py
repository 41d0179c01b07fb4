"""Protected spans: URLs, tags, variables, code, prices, long numbers, emoji and user patterns.

A translation must contain the spans of its source unchanged. A model can get a span as a
placeholder, which is a single token.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import re
from collections.abc import Iterable
from typing import NamedTuple

import regex

from tt.model.errors import UserError, checked

# Placeholders replace the spans of a text in their order. Text that looks like a placeholder is
# protected as a span, so it cannot be confused with one.
BRACKET = "⟦"
PLACEHOLDERS = tuple(f"{BRACKET}{number}⟧" for number in range(1, 9))
PLACEHOLDER = re.compile(rf"{BRACKET}\d+⟧")  # also matches numbers above 8

_CODE = r"```.+?```|``[^\n]+?``|`[^`\n]+`"
# A tag has attributes with "=", or at most one other word: "if a <b then c> d" contains no tag.
_TAG = (
    r"</?[A-Za-z][\w:.-]*(?:\s+[^<>\s=]+)?\s*/?>|<[A-Za-z][\w:.-]*\s[^<>=]*=[^<>]*>"
    r"|<[!?][A-Za-z\[-][^<>]*>"
)
_ENTITY = r"&(?:[A-Za-z][A-Za-z0-9]{1,31}|\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6});"

# A URL ends before white space, quotation marks, letters of scripts without spaces, and punctuation
# of the sentence around it. A URL contains parentheses only in pairs.
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
# Units that look like words must follow the number directly, or not precede a word.
_SHORT_UNIT = r"(?:[lLWVJN]|ha|mi)(?![\p{Latin}\p{Greek}\p{Cyrillic}0-9])"
_LETTER = r"\p{Latin}\p{Greek}\p{Cyrillic}\p{Arabic}\p{Hebrew}\p{Devanagari}_"  # spaced scripts
_NOT_WITHIN = rf"(?<![{_LETTER}0-9.,])"
_GAP = r"[ \u00a0\u202f]?"
# The number of a product or an order: SKU-4711, A4-2024/B, AB1234.
_ITEM = (
    r"(?:(?=[0-9_/-]{0,20}[A-Z])(?=[A-Z_/-]{0,20}[0-9])"
    r"[A-Z0-9]{1,20}+(?:[-_/][A-Z0-9]{1,20}+){1,5}+|[A-Z]{1,6}[0-9]{3,})"
)
_FIGURE = (
    r"\+[0-9](?:[ ()./-]{0,2}[0-9]){6,14}(?![0-9])"  # +34 600 123 456
    # (030) 123 45 67
    rf"|{_NOT_WITHIN}(?<!-)\(?[0-9]{{2,5}}\)?(?:[ /-][0-9]{{2,5}}){{2,5}}"
    rf"(?![{_LETTER}0-9-]|[.,][0-9])"
    rf"|{_CURRENCY}{_GAP}{_NUMBER}(?:{_GAP}(?:[kKMB]|bn|mn)(?!\w))?"  # $5.20, EUR 10 M
    rf"|{_NOT_WITHIN}[-−+]?{_NUMBER}{_GAP}(?:{_CURRENCY}(?![\w{{])|{_UNIT})"  # 5 km/h, 20 €, -3 °C
    rf"|{_NOT_WITHIN}[-−+]?{_NUMBER}(?:{_SHORT_UNIT}|{_GAP}{_SHORT_UNIT}(?!\s*\w))"  # 5l, 10 W
    rf"|{_NOT_WITHIN}(?<!-){_ITEM}(?![{_LETTER}0-9]|-[{_LETTER}0-9])"
    # 12345, 1,234.50, 2024-11-22
    rf"|{_NOT_WITHIN}(?<![0-9][:/'’\u00a0\u202f-])[0-9](?:[.,:/'’\u00a0\u202f-]?[0-9]){{4,}}+(?![{_LETTER}])"
)

_PICTURE = r"\p{Extended_Pictographic}[\p{Emoji_Modifier}\ufe0e\ufe0f\u20e3\U000e0020-\U000e007f]*"
_EMOJI = rf"(?:{_PICTURE}(?:\u200d{_PICTURE})*|\p{{RI}}\p{{RI}}|[0-9\#*]\ufe0f?\u20e3)+"

_ALTERNATIVES = (  # in order of precedence, each with its group in `_GROUPS`
    (f"(?P<markup>{_TAG}|{_EMOJI})|{PLACEHOLDER.pattern}|{_CODE}|{_ENTITY}", "sign"),
    (_URL, "url"),
    (f"{_MAIL}|{_VARIABLE}", "sign"),
    (rf"(?=[-−+(0-9\p{{Sc}}A-Z])(?:{_FIGURE})", "figure"),
)
# A group can only match in texts that match its pattern here. Skipping groups saves time: a search
# for all groups takes five times as long as a search for figures.
_GROUPS = {
    "sign": re.compile("[<`&@{$%#©®\u203c-\U0010ffff]|:[a-z]"),
    "url": re.compile(r":/|www\.|mailto:|tel:|[a-z0-9]\.[a-z]"),
    "figure": re.compile("[0-9]"),
}

# This pattern matches every text with a span, and few other texts, so most texts need no search.
# Digits cover all figures, and a dot between letters covers domains. RE2 can parse the pattern.
MAYBE_SPAN = (
    "[<{`@&%$#⟦0-9\u00a9\u00ae\u203c\u2049\u20e3\u2122\u2139\u2190-\u21ff\u2300-\u27bf\u2900-\u2bff"
    "\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]|:[a-z]|:/|www\\.|[a-z0-9]\\.[a-z]"
)
_MAYBE_SPAN = re.compile(MAYBE_SPAN)
_LONGEST_SEARCH = 30  # seconds that a user's pattern may take for a text
_MATCHES_NOTHING = "matches an empty string"
_PROBE_SECONDS, _PROBE_LENGTH, _MOST_PROBES = 2, 200, 64  # limits for `describe_bad_pattern`


class TooLongToSearchError(Exception):
    """A text is so long that the search for its spans exceeds the memory of the regex library."""


class Span(NamedTuple):
    """A part of a text that must not change. Adjacent spans are merged into one."""

    start: int  # index of the first character in the text
    end: int  # index after the last character
    replacement: str  # text in the translation: the span itself, or the translation of a term
    # Whether the span consists of tags and emoji, which accompany words and are not words.
    is_markup: bool = False
    # For an inline tag that is removed before the translation and placed again: "open", "close" or
    # "void"; "space" for a tag that becomes a space; "" for spans that the model has to keep.
    role: str = ""


@checked
@dataclasses.dataclass(frozen=True, kw_only=True)
class Protection:
    """The parts of a text that must not change.

    Attributes:
      protect: Keep URLs, tags, variables, code, prices, long numbers and emoji unchanged.

        The full list: URLs, mail addresses, {x}, %s, $VAR, :name:, tags, entities, code in
        backquotes, emoji, prices, and numbers with a unit or with more than four digits.
      protect_regex: Also keep text that matches this Python regex unchanged; repeatable.
    """

    protect: bool = True
    protect_regex: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for pattern in self.protect_regex:
            if problem := describe_bad_pattern(pattern):
                raise UserError(
                    f"the pattern {pattern!r} of `protect_regex` {problem}. Change the pattern"
                )

    @property
    def is_on(self) -> bool:
        """Whether anything is protected."""
        return self.protect or bool(self.protect_regex)

    def find(self, text: str) -> list[Span]:
        """Return the spans of a text in order, without overlapping or adjacent spans.

        Raises:
          UserError: A pattern of the user matches an empty string, or takes too long.
          TooLongToSearchError: The text contains millions of characters, such as digits, that may
            belong to a single span.

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
    """Return a digest of the built-in patterns, which changes if they may find other spans."""
    groups = {name: pattern.pattern for name, pattern in _GROUPS.items()}
    patterns = repr((MAYBE_SPAN, _ALTERNATIVES, groups, regex.__version__))
    return hashlib.blake2b(patterns.encode(), digest_size=8).hexdigest()


def unite(text: str, spans: Iterable[Span]) -> list[Span]:
    """Merge spans that overlap or are adjacent; overlapping spans keep the text unchanged."""
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
    """Compile the alternatives of some groups; without groups, the pattern matches nothing."""
    chosen = [alternative for alternative, group in _ALTERNATIVES if group in groups]
    return regex.compile("|".join(chosen) or "(?!)", regex.DOTALL)


def _find_own(pattern: str, text: str) -> list[Span]:
    """Return the matches of a user's pattern as spans.

    Raises:
      UserError: The pattern matches an empty string, or takes too long.
    """
    try:
        matches = regex.finditer(pattern, text, timeout=_LONGEST_SEARCH)
        found = [Span(each.start(), each.end(), each[0]) for each in matches]
    except (TimeoutError, RecursionError, MemoryError) as error:
        raise UserError(
            f"the pattern {pattern!r} of `protect_regex` takes more than {_LONGEST_SEARCH} s for a "
            f"text with {len(text):,} characters. Write the pattern without nested repetitions. If "
            "the model stores the pattern, remove it from the model's config.json or about.json"
        ) from error
    if any(span.start == span.end for span in found):
        raise UserError(
            f"the pattern {pattern!r} of `protect_regex` {_MATCHES_NOTHING}. Replace * with +"
        )
    return found


@functools.cache
def describe_bad_pattern(pattern: str) -> str:
    """Return why a pattern of a user or a model cannot be used, or "" if it can be used.

    The function searches texts that repeat one character of the pattern. In these texts, patterns
    with nested repetitions are slower than other patterns by many orders of magnitude.

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
        return f"is not a regular expression ({reason})"
    return ""
