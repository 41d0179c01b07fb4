"""Cut texts into sentences, and sentences that are too long for a model into parts.

The functions return one list with the pieces and the white space between them. Joined, the strings
are exactly the text. Strings of white space are not translated; all other strings are pieces.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Iterable, Iterator, Sequence

import regex
import sentencex

from tt.model.text.languages import find_language
from tt.model.text.spans import Span

_SPACE = regex.compile(r"\s+")
LINE_BREAK = regex.compile(r"\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")

_CLAUSE_END = regex.compile(
    r"[.?!,;:،؛؟…–—।\p{Sentence_Terminal}][\p{Pe}\p{Pf}\"']*(?=\s)"  # before white space, or
    r"|[，；：、。．！？｡､][\p{Pe}\p{Pf}]*"  # in a script without spaces
)

# Full stops that need no rules and no space after them, with closing quotation marks and brackets.
# "។ល។" means "etc." in Khmer.
_STOP = regex.compile(r"(?:[。！？｡៕།༎]|។(?!ល។))[。！？｡៕།༎។…\p{Pe}\p{Pf}\"']*")
_WITHOUT_STOP = re.compile(r"[\w ,'’-]*+.?")  # such a line has at most a stop at its end
_JOINED_STOPS = "።፧؟।॥"  # full stops after which a space may be missing
_INITIAL_END = regex.compile(r"(?:^|[\s\p{P}])(?!I\.)(?:\p{L}\.)+$")  # "M." in "M. Dupont"
_LONGEST_INITIALS = 32  # characters

# Capitalized words that start a sentence even without a mark before them, as in captions: "a child
# in the water Three people sit ...". In English and French, the words before and after an opener
# must be in lower case. German nouns are capitalized, so German has fewer openers and no condition
# for the next word. The rules wrongly cut 18 of 429,112 lines with one sentence.
_OPENERS = {
    "en": "A An The This These That Those Two Three Four Five Six Several Some Many There He She "
    "It They We His Her Their My Our Your Its",
    "fr": "Un Une Des Le La Les Deux Trois Quatre Plusieurs Il Elle Ils Elles Ce Cette Ces On Nous "
    "Vous Son Sa Ses",
    "de": "Ein Eine Einige Zwei Drei Mehrere Er Es Wir Dieser Diese Dieses",
}
_LOWER = "[a-zà-ÿ]"
# An opener with the spaces around it.
_OPENING = {
    code: re.compile(rf" (?:{'|'.join(words.split())}) {'' if code == 'de' else _LOWER}")
    for code, words in _OPENERS.items()
}
_LOWER_WORD = rf"(?<![\w-]){_LOWER}{{2,}}"
# Between these words, "A" is a letter, not an article: "vitamin A deficiency", "plan A is".
_LETTERED = (
    r"(?<=\b(?:an|the|and|or|between|no|vitamin|hepatitis|influenza|type|class|grade|plan|group"
    r"|series|part|section|figure|appendix|option|team|level|size|schedule|model|phase|point|item"
    r"|category|exhibit|side|zone|column|row|table|annex|division|letter|application)s? )A "
    r"|A (?:to|and|or|is|was|are|has|minor|major)\b"
)
_OPENING_CUT = {
    code: regex.compile(
        f"(?<={_LOWER if code == 'de' else _LOWER_WORD} )(?!{_LETTERED})(?={opening.pattern[1:]})"
    )
    for code, opening in _OPENING.items()
}
# One or more list marks, or marks of Markdown headings and quotations. A mark before an operator,
# as in "> = 5 kg", belongs to a formula.
_LINE_MARKS = re.compile(r"\s*(?:(?:[-*+•‣◦▪▸►·●○■□–—]|>+|#{1,6})\s+)+(?=[^\s=/])")
# The time of sentencex grows with the square of a text's length, most of all with these full stops.
# A text that is longer than a window is therefore cut in windows.
_SLOW_STOP = re.compile("[։؟۔።፧။]")
_SLOW_WINDOW, _LONGEST_WINDOW = 1000, 4000  # characters for one call of sentencex
# In longer white space, sentencex ends no sentence, or two. Tags are white space here.
_MOST_SPACES = " " * 20
_LONG_SPACE = re.compile(f"(?<={_MOST_SPACES}) +")
_CHARACTER = regex.compile(r"\X")  # a grapheme: a character with its combining marks

# Scripts without spaces between words, their punctuation, and full-width forms.
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\u3000-\u303f\uff00-\uffef]"
)

# Contains all characters after which a space may be missing.
_MAYBE_UNSPACED = re.compile(f"[{_JOINED_STOPS}\u0e00-\u1fff\u2e80-\U0010ffff]")

_OPENING_TAG = regex.compile(r"<[A-Za-z]")

# sentencex 1.0 fails at some white space beyond ASCII, and loses blank lines of long texts. It
# therefore gets single lines, in which a plain space replaces each other white space character.
_PLAIN_SPACE = {i: " " for i in range(0x3001) if chr(i).isspace()}


def split_sentences(text: str, *, language: str = "") -> list[str]:
    r"""Cut a text into sentences and the white space between them.

    A line break also ends a sentence, unless the next line continues it in lower case. The time is
    proportional to the length of the text.

    Args:
      text: Text of any length.
      language: Code of the language, whose abbreviations do not end a sentence. Without a code or
        without rules for the language, the rules of English apply.

    >>> split_sentences("Dr. Jones came.  She left.\n\nThe end ", language="en")
    ['Dr. Jones came.', '  ', 'She left.', '\n\n', 'The end', ' ']
    """
    known = find_language(language)
    code = known.primary if known else language
    if text.splitlines() == [text]:
        return _split_line(text, code=code)
    parts: list[str] = []
    start = 0
    for space in _SPACE.finditer(text):
        breaks = len(LINE_BREAK.findall(space[0]))
        if breaks > 1 or (breaks == 1 and not text[space.end() : space.end() + 1].islower()):
            parts += [*_split_line(text[start : space.start()], code=code), space[0]]
            start = space.end()
    return parts + _split_line(text[start:], code=code)


def _split_line(line: str, *, code: str) -> list[str]:
    """Cut a line into its list marks, its sentences, and the white space between them."""
    marks = _LINE_MARKS.match(line)
    first = start = marks.end() if marks else 0
    parts = _split_off_space(line[:first])
    shown = line[first:]
    if not shown.isprintable():  # it may contain white space other than " "
        shown = shown.translate(_PLAIN_SPACE)
    long_spaces: list[tuple[int, int]] = []
    if _MOST_SPACES in shown:
        long_spaces = [found.span() for found in _LONG_SPACE.finditer(shown)][::-1]
    removed = 0  # spaces between `first` and `start` that `_find_cuts` did not receive
    for cut in _find_cuts(_LONG_SPACE.sub("", shown) if long_spaces else shown, code=code):
        while long_spaces and long_spaces[-1][0] <= cut + removed:
            before, after = long_spaces.pop()
            removed += after - before
        end = first + cut + removed
        for part in _split_off_space(line[start:end]):
            if parts and parts[-1].isspace() and part.isspace():
                parts[-1] += part
            else:
                parts.append(part)
        start = end
    return parts


def _find_cuts(line: str, *, code: str) -> list[int]:
    """Return the ends of the sentences of a line."""
    is_one = len(line) <= _LONGEST_WINDOW and _WITHOUT_STOP.fullmatch(line)
    cuts = [len(line)] if is_one else _find_stops(line, code=code)
    if code in _OPENING and _OPENING[code].search(line):
        openers = (found.start() for found in _OPENING_CUT[code].finditer(line))
        return sorted({*cuts, *openers})
    return cuts


def _find_stops(line: str, *, code: str) -> list[int]:
    """Return the ends of the sentences that end with a stop, and of the line."""
    # Stops that need no rules are found first, because sentencex needs more time for them.
    ends = [] if line.isascii() else [found.end() for found in _STOP.finditer(line)]
    cuts: list[int] = []
    start = 0
    for end in dict.fromkeys([*ends, len(line)]):
        place = start
        for sentence in _segment(line[start:end], code=code):
            place += len(sentence)
            if place < end and _ends_sentence(line, start, place):
                cuts.append(place)
                start = place
        cuts.append(end)
        start = end
    return cuts


def _ends_sentence(line: str, start: int, end: int) -> bool:
    """Return whether a sentence really ends where sentencex cuts it.

    A cut without white space on either side is inside a word, a number or a URL, unless the script
    has no spaces. A cut after initials is inside a name.
    """
    before, after = line[end - 1], line[end]
    if not (before.isspace() or after.isspace()):
        return before in _JOINED_STOPS or _is_unspaced(before, after)
    last = line[max(start, end - _LONGEST_INITIALS) : end].rstrip()
    is_initial = last.endswith(".") and not last[-3:-2].isalnum() and _INITIAL_END.search(last)
    return not is_initial


def _segment(line: str, *, code: str) -> Iterator[str]:
    """Yield the sentences of a line; a sentence longer than all windows is cut at a space.

    The last sentence of a window is the beginning of the next window.
    """
    start = 0
    shortest = _SLOW_WINDOW if _SLOW_STOP.search(line) else _LONGEST_WINDOW
    while len(line) - start > shortest:
        for size in (shortest, _LONGEST_WINDOW):
            window = line[start : start + size]
            if sentences := _segment_window(window, code=code)[:-1]:
                break
        sentences = sentences or [window[: window.rfind(" ") + 1] or window]
        yield from sentences
        start += sum(map(len, sentences))
    yield from _segment_window(line[start:], code=code)


def _segment_window(line: str, *, code: str) -> list[str]:
    try:
        return list(sentencex.segment(code, line))
    except BaseException as error:
        # A panic in Rust code is a BaseException, and cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        return [line]  # it is cut later if it is too long


def _split_off_space(text: str) -> list[str]:
    """Split off leading and trailing white space; return the parts that are not empty."""
    core = text.strip()
    if len(core) == len(text):
        return [text] if text else []
    if not core:
        return [text]
    start = text.index(core)
    return [part for part in (text[:start], core, text[start + len(core) :]) if part]


def halve(text: str, *, spans: Sequence[Span] = ()) -> list[str]:
    """Cut a text of several characters into two halves, and white space between them if any.

    The cut is after a clause that ends in the middle half of the text. Without such a clause, it is
    at the white space closest to the middle, then after any clause, then between two characters.
    The cut is inside a span only if there is no other place.

    >>> halve("if it rains, we stay"), halve("one two three"), halve("abcd")
    (['if it rains,', ' ', 'we stay'], ['one two', ' ', 'three'], ['ab', 'cd'])
    """
    starts, ends = [span.start for span in spans], [span.end for span in spans]

    def cuts(places: Iterable[int]) -> list[int]:
        return [
            i
            for i in places
            if 0 < i < len(text) and bisect.bisect_left(starts, i) == bisect.bisect(ends, i)
        ]

    clauses = cuts(match.end() for match in _CLAUSE_END.finditer(text))
    found = (
        [i for i in clauses if len(text) <= 4 * i <= 3 * len(text)]
        or cuts(match.start() for match in _SPACE.finditer(text))
        or clauses
        or cuts(match.end() for match in _CHARACTER.finditer(text))
        or [len(text) // 2]
    )
    cut = min(found, key=lambda i: abs(2 * i - len(text)))
    return [part for half in (text[:cut], text[cut:]) for part in _split_off_space(half)]


def join_translations(parts: Sequence[str], translations: Sequence[str]) -> str:
    """Join the translations of pieces, with the white space between them.

    If only the translation's script has spaces between words, a space is added between pieces,
    except next to tags. If only the source's script has spaces, a single space between sentences is
    removed.

    Args:
      parts: The pieces, and the white space between them.
      translations: The translation of each part; white space is its own translation.

    >>> join_translations(["Hi.", " ", "Bye."], ["你好。", " ", "再见。"])
    '你好。再见。'
    >>> join_translations(["你好。", "再见。"], ["Hello.", "Bye."])
    'Hello. Bye.'
    """
    joined = "".join(translations)
    if not _MAYBE_UNSPACED.search(f"{''.join(parts)}{joined}"):
        return joined
    joined = ""
    for i, (part, text) in enumerate(zip(parts, translations, strict=True)):
        if i > 0 and joined and text:
            before = parts[i - 1]
            if (
                (_is_unspaced(before, part) or before[-1] in _JOINED_STOPS)
                and not _is_unspaced(joined, text)
                and not (_OPENING_TAG.match(before) or part.startswith("</"))
                and not (joined[-1].isspace() or text[0].isspace())
            ):
                joined += " "
            elif joined.endswith(" ") and before == " " and i > 1:
                is_needed = not (_UNSPACED.match(text[0]) and _UNSPACED.match(joined[-2:-1]))
                if not is_needed and not _UNSPACED.match(parts[i - 2][-1]):
                    joined = joined[:-1]
        joined += text
    return joined


def _is_unspaced(before: str, after: str) -> bool:
    """Return whether two adjacent texts meet in a script that has no spaces between words."""
    return bool(_UNSPACED.match(before[-1]) or _UNSPACED.match(after[0]))
