"""Flag suspicious translations with pure functions of a sentence and its translation.

A flag means that a person should check the translation, which may still be right. `Thresholds`
contains all thresholds, and `Limits` contains the usual values of the model.
"""

from __future__ import annotations

import difflib
import functools
import itertools
import operator
import re
import unicodedata
from collections.abc import Sequence

import regex

from tt.pipelines.texts import limits as flags
from tt.pipelines.texts.figures import has_same_figures
from tt.pipelines.texts.limits import THRESHOLDS, Limits
from tt.pipelines.texts.symbols import has_lost_symbols

_END = frozenset(".!?。！？｡।؟۔")
_INSIDE = frozenset(",;:-–—(，、；：،")
_CLOSERS = "\"'”’“»«)]』」 "

_UNCASED = regex.compile(r"\p{Lo}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ADDRESS = re.compile(r"[/@:=<>{}%`\\_|]\S|\S\.[^\W_]")  # marks a URL, file name or code

_TOKEN = re.compile(r"\w+")
_CHARACTERS_LOOP = re.compile(
    rf"(\S{{1,{THRESHOLDS.loop_characters}}}?)\1{{{THRESHOLDS.loop_character_times - 1},}}"
)
# The scripts of languages that use several scripts.
SCRIPTS = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}


def flag_sentence(
    source: str,
    translation: str,
    *,
    limits: Limits,
    source_tokens: int = 0,
    target_tokens: int = 0,
    score: float = 0.0,
) -> tuple[str, ...]:
    """Return the flags of a sentence's translation.

    Args:
      source: The sentence.
      translation: The translation by the model.
      limits: The usual values of the model.
      source_tokens: Number of source tokens without BOS and EOS; 0 if unknown.
      target_tokens: Number of target tokens without EOS; 0 if unknown.
      score: Log-probability of the translation, including EOS.

    >>> flag_sentence("Come home.", "Komm nach nach nach nach Hause.", limits=Limits())
    ('repeats',)
    >>> flag_sentence("It costs 250 euros.", "It costs 250 euros.", limits=Limits())
    ('copy',)
    """
    found = []
    if has_loop(translation, source=source):
        found.append(flags.REPEATS)
    if is_copy(translation, source=source):
        found.append(flags.COPY)
    is_counted = source_tokens > 0 and target_tokens > 0
    if is_counted and limits.usual and limits.shortest and limits.longest:
        ratio = target_tokens / source_tokens
        is_far = abs(target_tokens - limits.usual * source_tokens) >= THRESHOLDS.length_slack
        if (ratio < limits.shortest and is_far) or (
            ratio < limits.without_end * limits.usual and has_lost_end(translation, source=source)
        ):
            found.append(flags.SHORT)
        if ratio > limits.longest and is_far:
            found.append(flags.LONG)
    script = limits.target_script
    if script and has_other_script(translation, source=source, script=script):
        found.append(flags.WRONG_SCRIPT)
    if not has_same_figures(translation, source=source, **limits.languages):
        found.append(flags.NUMBER)
    if has_lost_symbols(
        translation, source=source, source_language=limits.source_language, target_script=script
    ):
        found.append(flags.SYMBOLS)
    least = limits.least_score
    if least is not None and target_tokens > 0 and score / (target_tokens + 1) < least:
        found.append(flags.LOW_SCORE)
    return tuple(found)


def find_lost_ends(sources: Sequence[str], targets: Sequence[str]) -> list[bool]:
    """Return the result of `has_lost_end` for many pairs of sentences.

    >>> find_lost_ends(["A dog.", "A dog"], ["Ein Hund", "Ein Hund"])
    [True, False]
    """
    return [
        target[-1:] not in _END and has_lost_end(target, source=source)
        for source, target in zip(sources, targets, strict=True)
    ]


def has_lost_end(text: str, *, source: str) -> bool:
    """Return whether the source ends with a sentence mark, but the translation does not.

    The result is true only if the translation ends with a word, or with a mark that occurs inside
    sentences, such as a comma. Closing quotation marks and brackets are ignored.

    >>> has_lost_end("Ein Mann mit", source="A man with a dog.")
    True
    """
    last = text.rstrip(_CLOSERS)[-1:]
    if last.isalnum() or last in _INSIDE:
        source = source.rstrip(_CLOSERS)
        return source[-1:] in _END and not source.endswith("..")
    return False


def has_no_end(text: str) -> bool:
    """Return whether a text does not end like a sentence, not even before a closing bracket.

    >>> has_no_end("a red ball (small)"), has_no_end("She said: “Go!”"), has_no_end("Wait…")
    (True, False, False)
    """
    last = next((c for c in reversed(text) if c not in _CLOSERS and c.isprintable()), ".")
    return last not in _END and last != "…"


def is_copy(text: str, *, source: str) -> bool:
    """Return whether a sentence was not translated; copied names and numbers do not count.

    Some models normalize texts to NFKC or to lower case, so these differences do not count.

    >>> is_copy("Tom laughed.", source="Tom laughed.")
    True
    >>> is_copy("Barack Obama, New York", source="Barack Obama, New York")
    False
    """
    if not text.isascii() or not source.isascii():
        text, source = (unicodedata.normalize("NFKC", each) for each in (text, source))
    own = set(text.casefold().split())
    if 2 * len(own.intersection(source.casefold().split())) < len(own):
        return False
    words, known = (_words(each)[: THRESHOLDS.compared_words] for each in (text, source))
    folded, folded_known = ([word.casefold() for word in each] for each in (words, known))
    matcher = difflib.SequenceMatcher(None, folded_known, folded, autojunk=False)
    blocks = matcher.get_matching_blocks()
    # The case of the source shows which words are names.
    same = [word for block in blocks for word in known[block.a : block.a + block.size]]
    letters = sum(map(len, words))
    if sum(map(len, same)) < THRESHOLDS.copied_share * letters:
        return False
    is_whole = folded == folded_known and text[-1:] in _END and len(words) > 1
    lower = sum(word[0].islower() for word in same)
    return (
        lower >= (1 if is_whole else THRESHOLDS.copied_words)
        or len(_UNCASED.findall("".join(same))) >= THRESHOLDS.copied_letters
    )


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(each for each in text.split() if not _ADDRESS.search(each)))


def has_loop(text: str, *, source: str) -> bool:
    """Return whether words or characters repeat in a loop that the source does not have.

    >>> has_loop("und der Hund und der Hund und der Hund", source="and the dog")
    True
    >>> has_loop("Das ist sehr, sehr, sehr gut.", source="That is good.")
    False
    """
    words = text.split()
    if _may_loop(words) and (longest := _loop(text)) and longest > _loop(source):
        return True
    least = THRESHOLDS.loop_character_times - 1  # repeated characters in the shortest loop
    long = [word for word in words if len(word) >= THRESHOLDS.loop_length]
    long = [word for word in long if len(word) - len(set(word)) >= least]
    return any(map(_has_characters_loop, long)) and not _has_characters_loop(source)


def _may_loop(words: Sequence[str]) -> bool:
    """Return whether words may loop, by a fast test that tolerates one comma inside the loop."""
    repeated = len(words) - len(set(words))
    return repeated >= _LEAST[0][1] and any(
        repeated >= least and sum(map(operator.eq, words[period:], words)) >= least
        for period, least in _LEAST
    )


def _loop(text: str) -> int:
    """Return the number of words in the longest loop; 0 if there is no loop."""
    words = _TOKEN.findall(text.lower())
    longest = 0
    for period in range(1, min(THRESHOLDS.longest_loop, len(words) // 2) + 1):
        least = period * (_times(period) - 1)
        run = 0  # consecutive words that equal the words one period before
        for is_same in map(operator.eq, words[period:], words):
            run = run + 1 if is_same else 0
            if run >= least:
                longest = max(longest, run + period)
    return longest


def _times(period: int) -> int:
    """Return the minimum number of repetitions that makes a loop of `period` words."""
    if period == 1:
        return THRESHOLDS.loop_word_times
    return 2 if period >= THRESHOLDS.doubled_words else THRESHOLDS.loop_times


# For each period, the minimum number of words that equal the words one period before. One word is
# subtracted, because a comma may make it look different.
_LEAST = [(p, p * (_times(p) - 1) - 1) for p in range(1, THRESHOLDS.longest_loop + 1)]


def _has_characters_loop(text: str) -> bool:
    return any(any(map(str.isalpha, found[1])) for found in _CHARACTERS_LOOP.finditer(text))


def has_other_script(text: str, *, source: str, script: str) -> bool:
    """Return whether words in another script than the target's are not in the source either.

    >>> has_other_script("Sie mag 狗狗", source="She likes dogs", script="Latin")
    True
    >>> has_other_script("Он купил iPhone", source="He bought an iPhone", script="Cyrillic")
    False
    """
    if not (words := _foreign_word(script).findall(text)):
        return False
    # A search for each word would take quadratic time, so the words are compared by their pairs of
    # characters.
    known = {*source, *map("".join, itertools.pairwise(source))}
    foreign = sum(
        len(word)
        for word in words
        if not known.issuperset(map("".join, itertools.pairwise(word)) if word[1:] else word)
    )
    if foreign < THRESHOLDS.foreign_letters:
        return False
    return foreign >= THRESHOLDS.foreign_share * sum(map(str.isalpha, text))


@functools.cache
def _foreign_word(script: str) -> regex.Pattern[str]:
    names = (*SCRIPTS.get(script, (script,)), "Common", "Inherited")
    own = "".join(rf"\p{{{name}}}" for name in names)
    return regex.compile(rf"[\p{{L}}--[{own}]]+", regex.V1)
