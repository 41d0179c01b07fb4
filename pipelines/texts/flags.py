"""The flags of suspicious translations: their names, order, rules and limits.

A flag means that a person should check the translation. To add a flag, write a rule and add a line
to `TABLE`. A threshold without a reference comes from `tests/bench/flags.py`: it finds the most
damaged translations while it flags almost no human translations (docs/benchmarks.md).
"""

from __future__ import annotations

import collections
import dataclasses
import difflib
import functools
import itertools
import operator
import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import regex

from tt.model.dataset.manifest import RATIO_STEPS, ratio_of_place
from tt.model.errors import require, require_one_of
from tt.model.formats.model_card import About, TrainingData
from tt.model.text.languages import find_language
from tt.pipelines.texts.numbers import compare_numbers
from tt.pipelines.texts.symbols import find_lost_symbol, fold

# The statuses of translations that training can use. `tt preprocess` rejects rows of a translated
# table with any other status, and `tt back-translate` leaves them out.
TRANSLATED = ("ok", "from_memory")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """The usual values of a model's translations, from its training; None or "" if unknown."""

    target_script: str = ""  # `Language.script` of the target language
    source_language: str = ""  # codes of the languages
    target_language: str = ""
    shortest: float | None = None  # minimum number of target tokens per source token
    usual: float | None = None  # median number of target tokens per source token
    longest: float | None = None  # maximum number of target tokens per source token
    without_end: float = 0.6  # minimum share of `usual` without a full stop
    least_score: float | None = None  # minimum of the mean log-probability per token
    least_cosine: float | None = None  # minimum of the similarity of a text and its translation

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of the source and target language."""
        return self.source_language, self.target_language

    @classmethod
    def of(cls, about: About) -> Limits:
        """Return the limits from a model card."""
        ratios, language = about.data.length_ratios, find_language(about.data.target_language)
        shortest, usual, longest = (ratios.get(name) for name in (_SHORTEST, "50%", _LONGEST))
        return cls(
            target_script=language.script if language else "",
            source_language=about.data.source_language,
            target_language=about.data.target_language,
            shortest=shortest and shortest / _HALF_STEP,
            usual=usual,
            longest=longest and longest * _HALF_STEP,
            without_end=_without_end(about.data, usual) if usual else cls.without_end,
            least_score=about.token_scores.get(_SCORE),
            least_cosine=about.data.least_cosine,
        )


class Sentence(NamedTuple):
    """A sentence and its translation, both as the model sees them, with placeholders.

    Attributes:
      source: The sentence.
      translation: The translation by the model.
      limits: The usual values of the model.
      source_tokens: Number of source tokens without BOS and EOS; 0 if unknown.
      target_tokens: Number of target tokens without EOS; 0 if unknown.
      score: Log-probability of the translation, including EOS.
      is_complete: Whether the search did not stop at the length limit.
      unknown: The characters of the source that the vocabulary lacks.
      has_same_numbers: Whether the translation is known to have the same numbers.
    """

    source: str
    translation: str
    limits: Limits = Limits()
    source_tokens: int = 0
    target_tokens: int = 0
    score: float = 0.0
    is_complete: bool = True
    unknown: Collection[str] = ()
    has_same_numbers: bool = False


class WholeText(NamedTuple):
    """A text and its translation, without structure, tags and code."""

    source: str
    translation: str
    limits: Limits = Limits()


# `repeats`, words: a sequence of at most `_LONGEST_LOOP` words must occur this many times in a row.
# Three times corresponds to threshold 2 of OpusFilter's RepetitionFilter. A single word must occur
# four times ("no, no, no" is fine), and a sequence of at least `_DOUBLED_WORDS` words only twice.
_LOOP_TIMES, _LOOP_WORD_TIMES, _LONGEST_LOOP, _DOUBLED_WORDS = 3, 4, 12, 5
# `repeats`, characters: a word of at least `_LOOP_LENGTH` characters repeats a sequence of at most
# 8 characters, including a letter, at least `_LOOP_CHARACTER_TIMES` times.
_LOOP_LENGTH, _LOOP_CHARACTER_TIMES = 10, 5
_CHARACTERS_LOOP = re.compile(rf"(\S{{1,8}}?)\1{{{_LOOP_CHARACTER_TIMES - 1},}}")
_TOKEN = re.compile(r"\w+")


def _find_loop(sentence: Sentence) -> str:
    text = sentence.translation
    words = text.split()
    if _may_loop(words) and (longest := _loop(text)) and longest > _loop(sentence.source):
        return f"{longest} words"
    for word in words:
        if (
            len(word) >= _LOOP_LENGTH
            and len(word) - len(set(word)) >= _LOOP_CHARACTER_TIMES - 1
            and max(collections.Counter(word).values()) >= _LOOP_CHARACTER_TIMES
            and (loop := _characters_loop(word))
        ):
            return "" if _characters_loop(sentence.source) else loop
    return ""


def _may_loop(words: Sequence[str]) -> bool:
    """Return whether words may loop, by a fast test that tolerates one comma inside the loop."""
    repeated = len(words) - len(set(words))
    if repeated < _LEAST[0][1]:
        return False
    pairs = len(words) - 1 - len({*itertools.pairwise(words)})  # repeated pairs of words
    return any(
        repeated >= least <= pairs + 2 and sum(map(operator.eq, words[period:], words)) >= least
        for period, least in _LEAST
    )


def _loop(text: str) -> int:
    """Return the number of words in the longest loop; 0 if there is no loop."""
    words = _TOKEN.findall(text.lower())
    longest = 0
    for period in range(1, min(_LONGEST_LOOP, len(words) // 2) + 1):
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
        return _LOOP_WORD_TIMES
    return 2 if period >= _DOUBLED_WORDS else _LOOP_TIMES


# For each period, the minimum number of words that equal the words one period before. One word is
# subtracted, because a comma may make it look different.
_LEAST = [(period, period * (_times(period) - 1) - 1) for period in range(1, _LONGEST_LOOP + 1)]


def _characters_loop(text: str) -> str:
    """Return the repeated characters of a text, or an empty string."""
    return next((f[1] for f in _CHARACTERS_LOOP.finditer(text) if any(map(str.isalpha, f[1]))), "")


# `copy`: words of the source, in their order, contain at least `_COPIED_SHARE` of the translation's
# letters. In addition, at least `_COPIED_WORDS` of them start in lower case, because names do not,
# or they contain at least `_COPIED_LETTERS` letters without case. One word in lower case is enough
# if the whole sentence is the same and ends with a full stop.
_COPIED_WORDS, _COPIED_SHARE, _COPIED_LETTERS = 3, 0.8, 5
_COMPARED_WORDS = 200  # the time grows with their square
_UNCASED = regex.compile(r"\p{Lo}")
_WORD = re.compile(r"[^\W\d_]{2,}")
_ADDRESS = re.compile(r"[/@:=<>{}%`\\_|]\S|\S\.[^\W_]")  # marks a URL, file name or code


def _find_copy(sentence: Sentence) -> str:
    # Some models normalize texts to NFKC or to lower case, so these differences do not count.
    text, source = fold(sentence.translation), fold(sentence.source)
    own = set(text.casefold().split())
    if 2 * len(own.intersection(source.casefold().split())) < len(own):
        return ""
    words, known = (_words(each)[:_COMPARED_WORDS] for each in (text, source))
    folded, folded_known = ([word.casefold() for word in each] for each in (words, known))
    matcher = difflib.SequenceMatcher(None, folded_known, folded, autojunk=False)
    blocks = matcher.get_matching_blocks()
    # The case of the source shows which words are names.
    same = [word for block in blocks for word in known[block.a : block.a + block.size]]
    if sum(map(len, same)) < _COPIED_SHARE * sum(map(len, words)):
        return ""
    is_whole = folded == folded_known and text[-1:] in _END and len(words) > 1
    lower = sum(word[0].islower() for word in same)
    is_copy = (
        lower >= (1 if is_whole else _COPIED_WORDS)
        or len(_UNCASED.findall("".join(same))) >= _COPIED_LETTERS
    )
    return f"{len(same)} of {len(words)} words" if is_copy else ""


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(each for each in text.split() if not _ADDRESS.search(each)))


# `short` and `long`: quantiles of target tokens per source token in the training pairs, and the
# minimum difference from the median length in tokens, because the ratios of names vary widely.
_SHORTEST, _LONGEST, _LENGTH_SLACK = "0.01%", "99.99%", 5
_HALF_STEP = 2 ** (0.5 / RATIO_STEPS)  # factor from the middle of a histogram bin to its edge
# `short` also flags a translation that lacks the full stop of its source, and is shorter than a
# share of the median length. Each model has the largest share, from `Limits.without_end` to 1, with
# which at most `_PAIRS_WITHOUT_END` of 10,000 training pairs would be flagged. `_UNSEEN_PAIRS` is
# added to the number of flagged pairs, because finding no such pair among N pairs is compatible
# with a rate of 3 in N (rule of three, Hanley and Lippman-Hand 1983).
_PAIRS_WITHOUT_END, _UNSEEN_PAIRS = 3, 3
_END = frozenset(".!?。！？｡।؟۔")
_INSIDE = frozenset(",;:-–—(，、；：،")
_CLOSERS = "\"'”’“»«)]』」 "


def _without_end(data: TrainingData, usual: float) -> float:
    """Return the share of the median length below which almost no training pair lacks its end."""
    import numpy as np  # imported here because it would slow down the help of commands

    least = Limits.without_end
    if not data.lost_end_ratios:
        return least  # the dataset did not count them
    most = _PAIRS_WITHOUT_END * data.pairs // 10_000 - _UNSEEN_PAIRS
    below = np.cumsum(data.lost_end_ratios)
    # The first bin at which the sum has too many pairs.
    place = int(np.searchsorted(below, most, side="right"))
    if place == len(below):
        return 1.0 if most >= 0 else least
    share = ratio_of_place(place) / _HALF_STEP / usual
    return min(max(share, least), 1.0)


def _find_short(sentence: Sentence) -> str:
    limits = sentence.limits
    if not (limits.usual and limits.shortest and sentence.source_tokens > 0):
        return ""
    ratio = sentence.target_tokens / sentence.source_tokens
    if 0 < ratio < limits.shortest and _is_far(sentence):
        return f"{ratio:.2f} tokens per source token, below {limits.shortest:.2f}"
    least = limits.without_end * limits.usual
    if 0 < ratio < least and has_lost_end(sentence.translation, source=sentence.source):
        return f"{ratio:.2f} tokens per source token without a full stop, below {least:.2f}"
    return ""


def _find_long(sentence: Sentence) -> str:
    longest, tokens = sentence.limits.longest, sentence.source_tokens
    if not longest or sentence.target_tokens <= longest * tokens or not tokens:
        return ""
    ratio = sentence.target_tokens / tokens
    is_long = _is_far(sentence)
    return f"{ratio:.2f} tokens per source token, above {longest:.2f}" if is_long else ""


def _is_far(sentence: Sentence) -> bool:
    """Return whether the length of a translation differs clearly from the usual length."""
    usual = (sentence.limits.usual or 0.0) * sentence.source_tokens
    return usual > 0 and abs(sentence.target_tokens - usual) >= _LENGTH_SLACK


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


# `wrong_script`: minimum number and share of letters in another script.
_FOREIGN_LETTERS, _FOREIGN_SHARE = 2, 0.2
# The scripts of languages that use several scripts.
_SCRIPTS = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}


def _find_other_script(sentence: Sentence) -> str:
    text, source, script = sentence.translation, sentence.source, sentence.limits.target_script
    if not script or (script == "Latin" and text.isascii()):
        return ""
    if not (words := _foreign_word(script).findall(text)):
        return ""
    # A search for each word would take quadratic time, so the words are compared by their pairs of
    # characters.
    known = {*source, *map("".join, itertools.pairwise(source))}
    foreign = [
        word
        for word in words
        if not known.issuperset(map("".join, itertools.pairwise(word)) if word[1:] else word)
    ]
    letters = sum(map(len, foreign))
    is_wrong = letters >= max(_FOREIGN_LETTERS, _FOREIGN_SHARE * sum(map(str.isalpha, text)))
    return f"{letters} letters" if is_wrong else ""


@functools.cache
def _foreign_word(script: str) -> regex.Pattern[str]:
    names = (*_SCRIPTS.get(script, (script,)), "Common", "Inherited")
    own = "".join(rf"\p{{{name}}}" for name in names)
    return regex.compile(rf"[\p{{L}}--[{own}]]+", regex.V1)


def _find_wrong_numbers(sentence: Sentence) -> str:
    if sentence.has_same_numbers:
        return ""
    lost, added = compare_numbers(
        sentence.translation, source=sentence.source, languages=sentence.limits.languages
    )
    if not (lost or added):
        return ""
    sides = (("lost", lost), ("added", added))
    return "; ".join(
        f"{name} {', '.join(min(each.values) for each in numbers)}"
        for name, numbers in sides
        if numbers
    )


def _find_symbol(sentence: Sentence) -> str:
    for character in sentence.unknown:
        if character not in sentence.translation:
            return character
    return find_lost_symbol(
        sentence.translation,
        source=sentence.source,
        source_language=sentence.limits.source_language,
        target_script=sentence.limits.target_script,
    )


_SCORE = "0.1%"  # `low_score`: quantile of the mean log-probability in the validation split


def _find_low_score(sentence: Sentence) -> str:
    least, tokens = sentence.limits.least_score, sentence.target_tokens
    if least is None or tokens <= 0 or (mean := sentence.score / (tokens + 1)) >= least:
        return ""
    return f"{mean:.2f} per token, below {least:.2f}"


def _find_unfinished(sentence: Sentence) -> str:
    return "" if sentence.is_complete else f"{sentence.target_tokens} tokens"


def _find_wrong_languages(texts: Sequence[WholeText]) -> list[str]:
    # Imported here because the detectors would slow down the help of commands.
    from tt.pipelines.texts.languages import OTHER, compare_language

    return [
        code if compare_language(each.translation, code=code) == OTHER else ""
        for each in texts
        for code in [each.limits.target_language]
    ]


def _find_unrelated(texts: Sequence[WholeText]) -> list[str]:
    from tt.pipelines.texts.similarity import cosines

    judged = [each for each in texts if each.limits.least_cosine is not None]
    found = cosines([each.source for each in judged], [each.translation for each in judged])
    cosine = dict(zip(map(id, judged), found.tolist(), strict=True))
    return [
        f"cosine {cosine[id(each)]:.2f}" if cosine.get(id(each), least) < least else ""
        for each in texts
        for least in [each.limits.least_cosine or 0.0]
    ]


SentenceRule = Callable[[Sentence], str]
TextRule = Callable[[Sequence[WholeText]], list[str]]


class Flag(NamedTuple):
    """A flag. A rule returns the evidence in a few words, or "" if it finds none.

    Attributes:
      name: The name.
      limit: The threshold, as the documentation shows it.
      sentence_rule: The rule for a sentence, or None.
      text_rule: The rule for several whole texts, or None. `translate_texts` sets flags without
        a rule.
    """

    name: str
    limit: str = ""
    sentence_rule: SentenceRule | None = None
    text_rule: TextRule | None = None


REPEATS, COPY, SHORT, LONG, NUMBER = "repeats", "copy", "short", "long", "number"
WRONG_SCRIPT, WRONG_SOURCE, WRONG_LANGUAGE = "wrong_script", "wrong_source", "wrong_language"
UNRELATED, SYMBOLS, PIECES, TAGS = "unrelated", "symbols", "pieces", "tags"
INCOMPLETE, LOW_SCORE = "incomplete", "low_score"
TABLE = (
    Flag(REPEATS, "see below", _find_loop),
    Flag(COPY, f"{_COPIED_SHARE:.0%} of its letters", _find_copy),
    Flag(SHORT, f"below the {_SHORTEST} quantile of training pairs", _find_short),
    Flag(LONG, f"above the {_LONGEST} quantile of training pairs", _find_long),
    Flag(WRONG_SCRIPT, f"{_FOREIGN_SHARE:.0%} of its letters", _find_other_script),
    Flag(WRONG_SOURCE, "details"),
    Flag(WRONG_LANGUAGE, "the same", text_rule=_find_wrong_languages),
    Flag(UNRELATED, "0.1% quantile", text_rule=_find_unrelated),
    Flag(NUMBER, "each number in digits", _find_wrong_numbers),
    Flag(SYMBOLS, "see below", _find_symbol),
    Flag(PIECES),  # a sentence was cut around its protected spans, because the model lost them
    Flag(TAGS),  # the place of an inline tag in the translation is uncertain
    Flag(INCOMPLETE, "", _find_unfinished),
    Flag(LOW_SCORE, f"below the {_SCORE} quantile", _find_low_score),
)
FLAGS = tuple(flag.name for flag in TABLE)
DEFAULT_FLAGS = tuple(name for name in FLAGS if name != UNRELATED)  # which is slow
_SENTENCE_RULES = [(flag.name, flag.sentence_rule) for flag in TABLE if flag.sentence_rule]
_TEXT_RULES = [(flag.name, flag.text_rule) for flag in TABLE if flag.text_rule]


def read_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the flags that a user names, in the order of `FLAGS`; "none" means no flags.

    Raises:
      UserError: A flag does not exist, or "none" is combined with other flags.

    >>> read_names(["short,copy"])
    ('copy', 'short')
    """
    given = [part.strip() for name in names for part in name.split(",")]
    for name in given:
        require_one_of("`flags`", name, (*FLAGS, "none"))
    require(
        "none" not in given or len(given) == 1,
        "`flags=none` cannot be combined with other flags",
        ", ".join(given),
    )
    return tuple(flag for flag in FLAGS if flag in given)


def flag_sentence(sentence: Sentence) -> dict[str, str]:
    """Return the flags of a sentence's translation, each with its evidence.

    >>> flag_sentence(Sentence("Come home.", "Komm nach nach nach nach Hause."))
    {'repeats': '4 words'}
    >>> flag_sentence(Sentence("It costs 250 euros.", "Es kostet 520 Euro."))
    {'number': 'lost 250; added 520'}
    """
    return {name: why for name, rule in _SENTENCE_RULES if (why := rule(sentence))}


def flag_texts(texts: Sequence[WholeText], *, names: Collection[str]) -> list[dict[str, str]]:
    """Return the flags of whole texts among the named flags, each with its evidence.

    >>> text = WholeText("The dog sleeps all day.", "Der Hund schläft den ganzen Tag.")
    >>> flag_texts([text], names=FLAGS)
    [{}]
    """
    flags: list[dict[str, str]] = [{} for _ in texts]
    for name, rule in _TEXT_RULES:
        if name in names:
            for own, why in zip(flags, rule(texts), strict=True):
                if why:
                    own[name] = why
    return flags
