"""Cut texts into segments: structure, white space, sentences and texts in attributes.

A segment is an occurrence: two equal sentences of a text are two segments, with separate results.
Joined, the segments of a text are the text; only texts in attributes lie inside other segments.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import regex

from tt.model.engines.translator import Hypothesis, Input
from tt.model.text.glossary import Glossary
from tt.model.text.spans import Protection, Span
from tt.pipelines.texts import tags
from tt.pipelines.texts.capitals import Capitals
from tt.pipelines.texts.inline_tags import Tag
from tt.pipelines.texts.markup.entities import PLAIN_MARKS
from tt.pipelines.texts.markup.formats import Format
from tt.pipelines.texts.markup.regions import Block, Role
from tt.pipelines.texts.sentences import LINE_BREAK, halve, split_sentences

LETTER = regex.compile(r"\p{L}")  # letters of all scripts
_MOST_EXACT = 8  # spans that a model without placeholders may copy by itself
_LONGEST_EXACT = 100  # characters of such a span
_CAPITAL_NOUNS = ("de", "lb")  # languages that begin all nouns with a capital
_LONG_LINE = 50  # characters; a line break after such a line probably ends no sentence
_BREAK = regex.compile(r"<br\b| *\\?[\r\n]", regex.IGNORECASE)


class Kind(enum.Enum):
    """What a segment is."""

    STRUCTURE = "structure"  # markup between blocks, which stays as it is
    SPACE = "space"
    SENTENCE = "sentence"  # a sentence, a part of one, or a protected span between sentences
    ATTRIBUTE = "attribute"  # a text in an attribute of an inline tag, inside a sentence


class Masked(NamedTuple):
    """A segment as the model receives it, and everything that its translation gets back.

    Attributes:
      text: The text for the model.
      replacements: The text that replaces each placeholder in the translation.
      exact: The spans that stay in the text. The translation must contain each equally often.
      tags: The inline tags that were removed from the text.
      wraps: The line breaks that are spaces in the text, with their indices in the text.
      entities: The HTML entity of each character that must be encoded again.
      capitals: How the segment uses capitals, if the text is in lower case instead.
    """

    text: str
    replacements: tuple[str, ...] = ()
    exact: tuple[str, ...] = ()
    tags: tuple[Tag, ...] = ()
    wraps: tuple[tuple[int, str], ...] = ()
    entities: Mapping[str, str] = {}
    capitals: Capitals | None = None

    @property
    def is_bare(self) -> bool:
        """Whether the model receives the segment as it is."""
        return self[1:] == _BARE

    @property
    def words(self) -> str:
        """The text for the model, without the spans in it."""
        text = self.text
        for span in self.exact:
            text = text.replace(span, " ")
        return text


_BARE = Masked("")[1:]


@dataclasses.dataclass(slots=True, eq=False)
class Segment:
    """An occurrence of a part of a text, and its translation as far as it is known.

    Attributes:
      start: Index of its first character in the text.
      text: Its characters.
      kind: What it is.
      spans: Its tags, protected spans and terms, with their places in the segment.
      is_quoted: Whether it is the value of an attribute, between quotation marks.
      is_fragment: Whether it comes from a sentence that was cut around its spans.
      capitals: The capitals of the sentence from which a fragment comes.
      masked: The segment as the model receives it; None if the model does not get it.
      source: The input of the model; None if the model does not translate the segment.
      error: The reason if the model cannot prepare the segment.
      kept: The translation of a segment that the model does not translate; None if that is the
        segment with its spans.
      is_corrected: Whether `kept` is a human translation.
      is_truncated: Whether the model translates only the beginning.
      is_unended: Whether the translation must not end with an added full stop.
      has_same_numbers: Whether the best translation is known to have the same numbers.
      made: The best translation as the model gave it.
      hypotheses: The translations, best first, with everything that the model did not receive.
      flags: The flags of the best one, judged as the model saw it, each with its evidence.
      is_clear: Whether the places of all tags are clear.
    """

    start: int
    text: str
    kind: Kind = Kind.SENTENCE
    spans: Sequence[Span] = ()
    is_quoted: bool = False
    is_fragment: bool = False
    capitals: Capitals | None = None
    masked: Masked | None = None
    source: Input | None = None
    error: str = ""
    kept: str | None = None
    is_corrected: bool = False
    is_truncated: bool = False
    is_unended: bool = False
    has_same_numbers: bool = False
    made: str = ""
    hypotheses: Sequence[Hypothesis] = ()
    flags: Mapping[str, str] = dataclasses.field(default_factory=dict)
    is_clear: bool = True

    @property
    def end(self) -> int:
        """The index after its last character in the text."""
        return self.start + len(self.text)

    @property
    def is_worded(self) -> bool:
        """Whether it may need the model: it is neither structure nor white space nor kept."""
        return self.kept is None and (self.kind is Kind.SENTENCE or self.kind is Kind.ATTRIBUTE)

    @property
    def is_span(self) -> bool:
        """Whether the segment is a single span."""
        return len(self.spans) == 1 and self.spans[0].end - self.spans[0].start == len(self.text)

    @property
    def kept_spans(self) -> list[Span]:
        """The spans that a translation has to keep: all but the inline tags."""
        return [span for span in self.spans if not span.role]

    @property
    def has_terms(self) -> bool:
        """Whether the glossary replaces a part of the segment."""
        return any(each.replacement != self.text[each.start : each.end] for each in self.kept_spans)

    @property
    def shown(self) -> str:
        """The segment as the model receives it."""
        return self.text if self.masked is None else self.masked.text

    @property
    def words(self) -> str:
        """The segment as the model receives it, without protected spans."""
        return self.text if self.masked is None else self.masked.words

    @property
    def has_letters(self) -> bool:
        """Whether the segment has letters outside of its spans."""
        return LETTER.search(self.words) is not None

    def is_long(self, most_tokens: int) -> bool:
        """Return whether the input exceeds a number of tokens, including BOS and EOS."""
        return self.source is not None and self.source.length + 2 > most_tokens and self.has_letters

    def divide(self, parts: Sequence[str], *, is_fragment: bool = False) -> list[Segment]:
        """Return the segments of the parts of this segment; joined, the parts are the segment."""
        starts = itertools.accumulate(map(len, parts), initial=0)
        return [
            Segment(
                self.start + start,
                part,
                Kind.SPACE if part.isspace() else self.kind,
                spans=tags.spans_within(self.spans, start, start + len(part)),
                is_quoted=self.is_quoted,
                is_fragment=self.is_fragment or is_fragment,
            )
            for start, part in zip(starts, parts, strict=False)
        ]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rules:
    """How to treat texts, for one model and its options.

    Attributes:
      language: Code of the source language.
      protection: The parts of a text that must not change.
      glossary: The glossary, if there is one.
      most_spans: How many spans of a sentence the model can place.
      restores_capitals: Whether sentences in capitals are translated in lower case.
      knows: Returns whether the vocabulary contains a character.
      choose_case: Chooses one of two forms of a word, in lower case and with a capital.
    """

    language: str
    protection: Protection
    glossary: Glossary | None
    most_spans: int
    restores_capitals: bool
    knows: Callable[[str], bool]
    choose_case: Callable[[tuple[str, str]], str]

    @property
    def has_capital_nouns(self) -> bool:
        """Whether the language begins all nouns with a capital."""
        return self.language.partition("-")[0] in _CAPITAL_NOUNS

    def can_place(self, text: str, spans: Sequence[Span]) -> bool:
        """Return whether the model can get a sentence with these spans as a whole.

        A model without placeholders may copy a few short spans by itself.
        """
        return len(spans) <= self.most_spans or (
            len(spans) <= _MOST_EXACT
            and all(
                span.replacement == text[span.start : span.end]
                and span.end - span.start <= _LONGEST_EXACT
                for span in spans
            )
        )

    def spans_of(self, text: str) -> list[Span]:
        """Return the protected spans and the terms of a plain text."""
        found = self.protection.find(text, self.knows)
        return found if self.glossary is None else self.glossary.add_terms(text, found)


def cut(text: str, rules: Rules, *, format: Format, into_sentences: bool) -> list[Segment]:  # noqa: A002
    """Return the segments of a text in the order of their starts.

    Args:
      text: Text of any length.
      rules: How to treat the text.
      format: The format of the text.
      into_sentences: Whether to cut each block into sentences.

    Raises:
      TooLongToSearchError: The text is too long to find its protected spans.
    """
    segments: list[Segment] = []
    end = 0
    for block in format.find_segments(text):
        segments += _structure(text, end, block.start)
        whole = Segment(block.start, text[block.start : block.end], is_quoted=block.is_attribute)
        if format.has_marks:
            whole.spans = _spans_of_block(whole.text, block, rules)
        else:
            whole.spans = rules.spans_of(text)
        parts = _cut_block(whole, rules, format.has_marks, into_sentences=into_sentences)
        attributes = [*_attributes_of(whole, block, rules)]
        if attributes:
            parts = sorted([*parts, *attributes], key=lambda each: each.start)
        segments += parts
        end = block.end
    return segments + _structure(text, end, len(text))


def _structure(text: str, start: int, end: int) -> list[Segment]:
    between = text[start:end]
    kind = Kind.SPACE if between.isspace() else Kind.STRUCTURE
    return [Segment(start, between, kind)] if between else []


def _cut_block(
    block: Segment, rules: Rules, is_wrapped: bool, *, into_sentences: bool
) -> list[Segment]:
    """Cut a block into sentences, white space, and the markup between sentences.

    Args:
      block: The block.
      rules: How to treat the text.
      is_wrapped: Whether a line break is only a space, as in HTML. A sentence can end at <br>, and
        after a short line.
      into_sentences: Whether to cut the block into sentences; otherwise, only the markup at its
        ends is cut off.
    """
    text, spans = block.text, block.spans
    if into_sentences:
        shown = _without_spans(text, spans, is_wrapped=is_wrapped) if spans or is_wrapped else text
        parts = split_sentences(shown, language=rules.language) or [text]
        if spans:
            parts = _cut_like(text, spans, parts)
    else:
        parts = _cut_markup_off(text, spans)
    if is_wrapped and len(parts) > 1:
        parts = tags.keep_pairs(parts, spans)
    return block.divide(parts) if len(parts) > 1 or text.isspace() else [block]


def _spans_of_block(piece: str, block: Block, rules: Rules) -> list[Span]:
    """Return the tags, the protected spans and the terms of a block with markup."""
    marks: list[Span] = []
    for mark in block.marks:
        start, end = mark.start - block.start, mark.end - block.start
        text = piece[start:end]
        role = "" if mark.role is Role.CODE else mark.role.value
        replacement = text if role == "" else mark.written or text
        marks.append(Span(start, end, replacement, role != "", role))
    marks = tags.join_words(piece, marks) if marks else marks
    spans = rules.protection.find(piece, rules.knows)
    terms: list[Span] = []
    if rules.glossary is not None:
        blanks = [mark._replace(replacement=" " * (mark.end - mark.start)) for mark in marks]
        bare = tags.replace_spans(piece, blanks)  # "_" is a letter of words
        terms = rules.glossary.find(bare, [*marks, *spans])

    def is_known(character: str) -> bool:
        if len(character) > 2:  # an entity that does not exist is protected
            return False
        return character in PLAIN_MARKS or rules.knows(character)

    marks = tags.add_spans(piece, marks, spans, is_known=is_known)
    return tags.add_spans(piece, marks, terms) if terms else marks


def _attributes_of(whole: Segment, block: Block, rules: Rules) -> Iterator[Segment]:
    """Yield the texts in attributes of inline tags that the model can translate."""
    for mark in block.marks:
        for first, last in mark.attributes if mark.role is not Role.CODE else ():
            value = whole.text[first - block.start : last - block.start]
            if LETTER.search(value):
                spans = rules.spans_of(value)
                if rules.can_place(value, spans):
                    yield Segment(first, value, Kind.ATTRIBUTE, spans, is_quoted=True)


def cut_around(segment: Segment) -> list[Segment]:
    """Cut a sentence around its protected spans and terms; a single span is not cut."""
    kept = segment.kept_spans
    if not kept or segment.is_span:
        return [segment]
    found = []
    for part in segment.divide(tags.cut_around_spans(segment.text, kept), is_fragment=True):
        if any(span.role for span in part.spans) and not part.is_span:
            cut_off = tags.keep_pairs(_cut_markup_off(part.text, part.spans), part.spans)
            found += part.divide(cut_off)
        else:
            found.append(part)
    return found


def cut_in_half(segment: Segment) -> list[Segment]:
    """Cut a sentence into two halves, and white space between them if any."""
    return segment.divide(halve(segment.text, spans=segment.spans))


def _cut_markup_off(text: str, spans: Sequence[Span]) -> list[str]:
    """Cut off markup and white space at both ends of a text.

    >>> tags = [Span(0, 3, "<p>", True), Span(14, 18, "</p>", True)]
    >>> _cut_markup_off("<p>A <b>b</b>.</p>", tags)
    ['<p>', 'A <b>b</b>.', '</p>']
    """
    if not any(span.is_markup for span in spans):
        return [text]
    shown = _without_spans(text, spans)
    core = shown.strip()
    start = shown.index(core)
    parts = (shown[:start], core, shown[start + len(core) :])
    return _cut_like(text, spans, [part for part in parts if part])


def _without_spans(text: str, spans: Sequence[Span], *, is_wrapped: bool = False) -> str:
    """Return a text of the same length, with spaces instead of markup and X in other spans."""
    if is_wrapped and len(text.splitlines()) > 1:
        text = _join_lines(text)
    shown = []
    for span in spans:
        filling = (" " if span.is_markup else "X") * (span.end - span.start)
        if is_wrapped and span.role == Role.VOID and _BREAK.match(span.replacement):
            filling = "\n" + filling[1:]
        shown.append(Span(span.start, span.end, filling))
    return tags.replace_spans(text, shown)


def _join_lines(text: str) -> str:
    """Replace the line breaks after long lines by spaces, so that no sentence ends there."""
    joined, start = [], 0
    for found in LINE_BREAK.finditer(text):
        is_long = found.start() - start >= _LONG_LINE
        joined += [text[start : found.start()], " " * len(found[0]) if is_long else found[0]]
        start = found.end()
    return "".join([*joined, text[start:]])


def _cut_like(text: str, spans: Sequence[Span], shown: Sequence[str]) -> list[str]:
    """Cut a text at the same places as `shown`, the parts of its version without spans.

    A part of white space can contain markup, so it is also cut around its spans.
    """
    parts: list[str] = []
    start = 0
    for each in shown:
        end = start + len(each)
        if each.isspace():
            parts += tags.cut_around_spans(text[start:end], tags.spans_within(spans, start, end))
        else:
            parts.append(text[start:end])
        start = end
    return parts
