"""Cut texts into pieces that fit into a model: sentences, or parts of long sentences.

The functions return one list with the pieces and the white space between them. Joined, the strings
are exactly the text. Strings of white space are not translated; all other strings are pieces.
"""

from __future__ import annotations

import bisect
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import regex
import sentencex

from tt.model.text.languages import find_language
from tt.model.text.spans import Span
from tt.pipelines.texts.capitals import LOWER_WORD, TWO_CAPITALS

_SPACE = regex.compile(r"\s+")
LINE_BREAK = regex.compile(r"\r\n|[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")

_CLAUSE_END = regex.compile(
    r"[.?!,;:،؛؟…–—।\p{Sentence_Terminal}][\p{Pe}\p{Pf}\"']*(?=\s)"  # before white space, or
    r"|[，；：、。．！？｡､][\p{Pe}\p{Pf}]*"  # in a script without spaces
)

# Full stops that need no space after them, with closing quotation marks and brackets.
_STOP = r"[。！？｡][。！？｡…\p{Pe}\p{Pf}\"']*"
_UNSPACED_STOP = regex.compile(_STOP)
_INITIAL_END = regex.compile(r"(?:^|[\s\p{P}])(?!I\.)(?:\p{L}\.)+\s*$")  # "M." in "M. Dupont"
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
# An opener with the spaces and words around it.
_OPENING = {
    code: rf" (?:{'|'.join(words.split())}) {'' if code == 'de' else _LOWER}"
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
        f"(?<={_LOWER if code == 'de' else _LOWER_WORD} )(?!{_LETTERED})(?={opening[1:]})"
    )
    for code, opening in _OPENING.items()
}
# A text of letters, spaces, and marks that end no sentence, with at most one full stop at the end.
# Such a text is one sentence without protected spans. The syntax is RE2.
_PLAIN_LETTERS = (
    "A-Za-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0388-\u03ce\u0400-\u0481\u048a-\u04ff"
    "\u3041-\u3096\u30a1-\u30fa\u30fc\u4e00-\u9fa5"
)
_PLAIN_INSIDE = rf"[{_PLAIN_LETTERS} ,，、'’\"“”„«»()–—-]*"
_PLAIN = rf"^[{_PLAIN_LETTERS}](?:{_PLAIN_INSIDE}[{_PLAIN_LETTERS}])?[.!?。！？]?$"
# One or more list marks, or marks of Markdown headings and quotations. A mark before an operator,
# as in "> = 5 kg", belongs to a formula.
_LINE_MARKS = re.compile(r"\s*(?:(?:[-*+•‣◦▪▸►·●○■□–—]|>+|#{1,6})\s+)+(?=[^\s=/])")
_LONGEST_WINDOW = 4000  # characters for one call of sentencex
_CHARACTER = regex.compile(r"\X")  # a grapheme: a character with its combining marks

# Scripts without spaces between words, their punctuation, and full-width forms.
_UNSPACED = regex.compile(
    r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}"
    r"\u3000-\u303f\uff00-\uffef]"
)

_OPENING_TAG = regex.compile(r"<[A-Za-z]")

# sentencex 1.0 fails at some white space beyond ASCII, and loses blank lines of long texts. It
# therefore gets single lines, in which a plain space replaces each other white space character.
_PLAIN_SPACE = {i: " " for i in range(0x3001) if chr(i).isspace()}


def split_sentences(text: str, *, language: str = "") -> list[str]:
    r"""Cut a text into sentences and the white space between them.

    A line break also ends a sentence, unless the next line continues it in lower case.

    Args:
      text: Text of any length.
      language: Code of the language, whose abbreviations do not end a sentence. Without a code or
        without rules for the language, the rules of English apply.

    >>> split_sentences("Dr. Jones came.  She left.\n\nThe end ", language="en")
    ['Dr. Jones came.', '  ', 'She left.', '\n\n', 'The end', ' ']
    """
    known = find_language(language)
    code = known.primary if known else language
    parts: list[str] = []
    start = 0
    for space in _SPACE.finditer(text):
        breaks = len(LINE_BREAK.findall(space[0]))
        if breaks > 1 or (breaks == 1 and not text[space.end() : space.end() + 1].islower()):
            parts += [*_sentences_of_line(text[start : space.start()], code=code), space[0]]
            start = space.end()
    return parts + _sentences_of_line(text[start:], code=code)


def find_plain(
    texts: Sequence[str], *, language: str, may_have_capitals: bool = False
) -> list[bool]:
    """Return for each text whether it is clearly one sentence without spans and capitals.

    Args:
      texts: Texts of any length.
      language: Code of the language; see `split_sentences`.
      may_have_capitals: Whether texts in capitals are plain, too.

    >>> find_plain(["A man, a dog.", "Dr. Jones came.", "Go to {place}"], language="en")
    [True, False, False]
    """
    known = find_language(language)
    column = pa.array(texts, pa.large_string())
    plain = pc.match_substring_regex(column, _PLAIN)
    if not may_have_capitals:
        capitals, lower = (
            pc.match_substring_regex(column, each) for each in (TWO_CAPITALS, LOWER_WORD)
        )
        plain = pc.and_not(plain, pc.and_not(capitals, lower))
    if opening := _OPENING.get(known.primary if known else language):
        plain = pc.and_not(plain, pc.match_substring_regex(column, _LOWER + opening))
    found: list[bool] = plain.to_pylist()
    return found


def _sentences_of_line(line: str, *, code: str) -> list[str]:
    """Cut a line into its list marks, its sentences, and the white space between them."""
    marks = _LINE_MARKS.match(line)
    start = marks.end() if marks else 0
    parts = _split_off_space(line[:start])
    line = line[start:]
    start = 0
    # First cut at full stops that need no rules, because sentencex takes minutes for a megabyte of
    # Chinese.
    pieces = _cut_unspaced(line.translate(_PLAIN_SPACE))
    sentences = _correct_cuts(each for piece in pieces for each in _segment(piece, code=code))
    for sentence in (part for each in sentences for part in _cut_before_openers(each, code=code)):
        parts += _split_off_space(line[start : start + len(sentence)])
        start += len(sentence)
    return parts + _split_off_space(line[start:])


def _correct_cuts(sentences: Iterable[str]) -> Iterator[str]:
    """Undo cuts after initials and inside words, and cut after each stop like "。".

    A cut without white space on either side is inside a word, a number or a URL, unless the script
    has no spaces.
    """
    whole = ""
    for sentence in sentences:
        is_spaced = whole[-1:].isspace() or sentence[:1].isspace()
        is_inside = whole and not is_spaced and not _is_unspaced(whole, sentence)
        if is_inside or _INITIAL_END.search(whole[-_LONGEST_INITIALS:]):
            whole += sentence
            continue
        yield from _cut_unspaced(whole)
        whole = sentence
    yield from _cut_unspaced(whole)


def _cut_before_openers(text: str, *, code: str) -> list[str]:
    """Cut between sentences that have no mark between them."""
    found = _OPENING_CUT[code].finditer(text) if code in _OPENING_CUT else ()
    cuts = [0, *(each.start() for each in found), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts)]


def _cut_unspaced(text: str) -> list[str]:
    ends = [found.end() for found in _UNSPACED_STOP.finditer(text) if found.end() < len(text)]
    cuts = [0, *ends, len(text)]
    return [text[start:end] for start, end in itertools.pairwise(cuts) if start < end]


def _segment(line: str, *, code: str) -> Iterator[str]:
    """Yield the sentences of a line; a longer one than `_LONGEST_WINDOW` is cut at a space.

    The time of sentencex grows with the square of a line's length. It therefore gets a window of
    the line, and the last sentence of a window is the beginning of the next one.
    """
    start = 0
    while len(line) - start > _LONGEST_WINDOW:
        window = line[start : start + _LONGEST_WINDOW]
        sentences = _segment_window(window, code=code)[:-1]
        if not sentences:
            sentences = [window[: window.rfind(" ") + 1] or window]
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
        return [line]  # `cut_to_fit` cuts the line later if it is too long


def _split_off_space(text: str) -> list[str]:
    """Split off leading and trailing white space; return the parts that are not empty."""
    core = text.strip()
    if not core:
        return [text] if text else []
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


def cut_to_fit(
    texts: Sequence[Sequence[str]],
    *,
    fits: Callable[[list[str]], list[bool]],
    spans_of: Callable[[str], Sequence[Span]] = lambda piece: (),
    on_cut: Callable[[str, list[str]], None] = lambda piece, halves: None,
) -> list[list[str]]:
    """Halve pieces that are too long, until all pieces fit.

    Args:
      texts: The pieces of each text, and the white space between them.
      fits: Returns for each piece whether it is short enough; called once per distinct piece. A
        single character is never cut.
      spans_of: Returns the spans of a piece, which should not be cut.
      on_cut: Called with each piece that is cut, and its halves.

    Returns:
      For each text, its pieces and the white space between them; joined, they are the text.
    """
    halves: dict[str, list[str]] = {}  # the halves of each piece that does not fit
    seen: set[str] = set()
    new = distinct_pieces(part for parts in texts for part in parts)
    while new:
        seen.update(new)
        found = {
            piece: halve(piece, spans=spans_of(piece))
            for piece, does_fit in zip(new, fits(new), strict=True)
            if not does_fit and len(piece) > 1
        }
        halves.update(found)
        for piece, parts in found.items():
            on_cut(piece, parts)
        pieces = distinct_pieces(part for parts in found.values() for part in parts)
        new = [piece for piece in pieces if piece not in seen]

    def expand(part: str) -> list[str]:
        if part not in halves:
            return [part]
        return [smaller for half in halves[part] for smaller in expand(half)]

    return [[part for whole in parts for part in expand(whole)] for parts in texts]


def distinct_pieces(parts: Iterable[str]) -> list[str]:
    """Return the distinct parts that are not white space, in order."""
    return list(dict.fromkeys(part for part in parts if not part.isspace()))


def join_translations(parts: Sequence[str], texts: Sequence[str]) -> str:
    """Join the translations of the parts of a text.

    If only the translation's script has spaces between words, a space is added between pieces,
    except next to tags. If only the source's script has spaces, a single space between sentences is
    removed.

    Args:
      parts: Sentences, and the white space between them.
      texts: The translation of each part; white space is its own translation.

    >>> join_translations(["Hi.", " ", "Bye."], ["你好。", " ", "再见。"])
    '你好。再见。'
    >>> join_translations(["你好。", "再见。"], ["Hello.", "Bye."])
    'Hello. Bye.'
    """
    joined = ""
    for i, (part, text) in enumerate(zip(parts, texts, strict=True)):
        if i > 0 and joined and text:
            is_unspaced = _is_unspaced(joined, text)
            if (
                _is_unspaced(parts[i - 1], part)
                and not is_unspaced
                and not (_OPENING_TAG.match(parts[i - 1]) or part.startswith("</"))
                and not (joined[-1].isspace() or text[0].isspace())
            ):
                joined += " "
            elif joined.endswith(" ") and parts[i - 1] == " " and i > 1:
                is_needed = not (_UNSPACED.match(text[0]) and _UNSPACED.match(joined[-2:-1]))
                if not is_needed and not _UNSPACED.match(parts[i - 2][-1]):
                    joined = joined[:-1]
        joined += text
    return joined


def _is_unspaced(before: str, after: str) -> bool:
    """Return whether two adjacent texts meet in a script that has no spaces between words."""
    return bool(_UNSPACED.match(before[-1]) or _UNSPACED.match(after[0]))
