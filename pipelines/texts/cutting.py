"""Cut texts into their structure, pieces for the model, and the white space between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import regex

from tt.model.text.glossary import Glossary
from tt.model.text.spans import Span
from tt.pipelines.texts import protecting, tags
from tt.pipelines.texts.entities import PLAIN_MARKS
from tt.pipelines.texts.figures import protect_figures
from tt.pipelines.texts.markup import MARKDOWN, PLAIN, find_regions
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.regions import Region, Role
from tt.pipelines.texts.segments import LINE_BREAK

# Line breaks and no-break spaces, which are spaces for the model.
_SPACE = regex.compile(rf"{LINE_BREAK.pattern}|&(?:nbsp|#160|#[xX][aA]0);")
_ESCAPED = regex.compile(r"\\[!-/:-@\[-`{-~]")  # punctuation after a backslash in Markdown
LETTER = regex.compile(r"\p{L}")  # letters of all scripts
_MOST_EXACT = 8  # spans that a model without placeholders may copy by itself
_LONGEST_EXACT = 100  # characters of such a span
# Characters for private use stand for attributes: the first code point, and the most characters.
_FIRST_ATTRIBUTE, _MOST_ATTRIBUTES = 0x100000, 0xFFF0


def can_copy(text: str, spans: Sequence[Span]) -> bool:
    """Return whether a model without placeholders may copy the spans of a piece by itself."""
    return len(spans) <= _MOST_EXACT and all(
        span.replacement == text[span.start : span.end] and span.end - span.start <= _LONGEST_EXACT
        for span in spans
    )


class Cutter:
    """Cuts a text, and remembers the spans of its pieces.

    Attributes:
      fragments: Pieces from the inside of sentences that were cut around their spans.
      verbatim: The structure between pieces, such as block tags.
      values: Pieces from the values of attributes, in quotation marks.
      attributes: The texts in attributes of inline tags, by the characters that stand for them.

    Args:
      name: The format of the text.
      options: Options for texts.
      glossary: The glossary, if there is one.
      knows: Returns whether the model knows a character, so that its entity can be decoded.
    """

    def __init__(
        self,
        *,
        name: str,
        options: TextOptions,
        glossary: Glossary | None,
        knows: Callable[[str], bool],
    ) -> None:
        self.format = name
        self.knows = knows
        self._language = options.source_language
        self._protection = options.protection
        self._most_spans = options.placeholders or 0  # spans per piece that the model can place
        self._glossary = glossary
        self._spans: dict[str, list[Span]] = {}  # protected spans, by text or piece
        self.fragments: set[str] = set()
        self.verbatim: set[str] = set()
        self.values: set[str] = set()
        self.attributes: dict[str, str] = {}
        self._stand_ins: dict[str, str] = {}  # the inverse of `attributes`

    def cut_text(self, text: str, *, into_sentences: bool) -> list[str]:
        """Return the structure and the pieces of a text."""
        if self.format == PLAIN:
            return self._cut_region(text, self.spans_of(text), into_sentences=into_sentences)
        parts: list[str] = []
        end = 0
        for region in find_regions(text, format=self.format):
            self._add_verbatim(parts, text[end : region.start])
            piece = text[region.start : region.end]
            spans = self._find_region_spans(piece, region)
            found = self._cut_region(piece, spans, into_sentences=into_sentences)
            if region.is_attribute:
                self.values.update(found)
            parts += found
            end = region.end
        self._add_verbatim(parts, text[end:])
        return parts

    def _add_verbatim(self, parts: list[str], text: str) -> None:
        if text and not text.isspace():
            self.verbatim.add(text)
        parts += [text] if text else []

    def _cut_region(self, text: str, spans: Sequence[Span], *, into_sentences: bool) -> list[str]:
        is_wrapped = self.format != PLAIN
        if into_sentences:
            language = self._language
            parts = protecting.cut_sentences(text, spans, language=language, is_wrapped=is_wrapped)
        else:
            parts = protecting.cut_markup_off(text, spans)
        if is_wrapped:
            parts = tags.keep_pairs(parts, spans)
            self.hand_down_spans(text, parts, spans=spans)
        return parts

    def _find_region_spans(self, piece: str, region: Region) -> list[Span]:
        """Return the tags and the protected spans of a region.

        Args:
          piece: The text of the region.
          region: The region.
        """
        marks: list[Span] = []
        single = tags.find_single_tags(piece, region)
        for mark in region.marks:
            start, end = mark.start - region.start, mark.end - region.start
            text = piece[start:end]
            replaced = mark.written or text
            for first, last in reversed(mark.attributes):
                value = piece[first - region.start : last - region.start]
                if not LETTER.search(value) or len(self._stand_ins) >= _MOST_ATTRIBUTES:
                    continue
                if not self._is_short_value(value):
                    continue
                unused = chr(_FIRST_ATTRIBUTE + len(self._stand_ins))
                name = self._stand_ins.setdefault(value, unused)
                self.attributes[name] = value
                self.values.add(value)
                at = first - mark.start
                replaced = replaced[:at] + name + replaced[at + len(value) :]
            # An escaped tag without its partner is a word that the text mentions.
            is_word = text.startswith("&lt;") and mark in single
            role = "" if mark.role is Role.CODE or is_word else mark.role.value
            marks.append(Span(start, end, text if role == "" else replaced, role != "", role))
        breaks = [
            Span(found.start(), found.end(), found[0], is_markup=True, role=Role.SPACE)
            for found in _SPACE.finditer(piece)
        ]
        marks = tags.join_words(piece, tags.add_spans(piece, marks, breaks))
        if self.format == MARKDOWN:
            escaped = [Span(e.start(), e.end(), e[0]) for e in _ESCAPED.finditer(piece)]
            marks = tags.add_spans(piece, marks, escaped)
        spans = self._protection.find(piece)
        terms: list[Span] = []
        if self._glossary is not None:
            blanks = [mark._replace(replacement=" " * (mark.end - mark.start)) for mark in marks]
            bare = protecting.replace_spans(piece, blanks)  # "_" is a letter of words
            terms = self._glossary.find(bare, [*marks, *spans])
        marks = tags.add_spans(piece, marks, spans, is_known=self._can_decode)
        return tags.add_spans(piece, marks, terms)

    def _is_short_value(self, value: str) -> bool:
        """Return whether the model can keep the spans of an attribute without cutting it."""
        spans = self.spans_of(value)
        return len(spans) <= self._most_spans or can_copy(value, spans)

    def _can_decode(self, character: str) -> bool:
        if len(character) > 2:  # an entity that does not exist is protected
            return False
        return character in PLAIN_MARKS or self.knows(character)

    def hand_down_spans(
        self, text: str, parts: Sequence[str], *, spans: Sequence[Span] | None = None
    ) -> None:
        """Remember the spans of the parts of a text with structure."""
        if self.format == PLAIN:
            return
        known = self.spans_of(text) if spans is None else spans
        if text in self.values:
            self.values.update(parts)
        for part, inside in tags.spans_of_parts(parts, known):
            if part not in self._spans:
                self._spans[part] = inside

    def cut_around(self, part: str, *, has_whole: bool) -> list[str]:
        """Cut a part around its spans, unless the model can first get the part as a whole."""
        spans = [] if part.isspace() else self.spans_of(part)
        kept = [span for span in spans if not span.role]
        if not kept or self.is_span(part):
            return [part]
        if has_whole and (len(kept) <= self._most_spans or can_copy(part, kept)):
            return [part]
        parts = protecting.cut_around(part, kept)
        self.hand_down_spans(part, parts)
        parts = [each for fragment in parts for each in self._cut_tags_off(fragment)]
        self.fragments.update(
            each for each in parts if LETTER.search(each) and not self.is_span(each)
        )
        return parts

    def _cut_tags_off(self, fragment: str) -> list[str]:
        """Cut the tags and the white space off both ends of a fragment."""
        spans = [] if fragment.isspace() else self.spans_of(fragment)
        if not any(span.role for span in spans) or self.is_span(fragment):
            return [fragment]
        parts = tags.keep_pairs(protecting.cut_markup_off(fragment, spans), spans)
        self.hand_down_spans(fragment, parts)
        return parts

    def keep(self, part: str, *, is_empty: bool) -> str:
        """Return the translation of a part that the model does not translate.

        Args:
          part: The part.
          is_empty: Whether the normalized text is empty. The result then contains only the spans.
        """
        spans = self.spans_of(part)
        if is_empty:
            return "".join(span.replacement for span in spans)
        return protecting.replace_spans(part, spans)

    def protect_figures(self, part: str) -> None:
        """Add the figures of a piece to its protected spans."""
        self._spans[part] = protect_figures(part, self.spans_of(part))

    def is_span(self, part: str) -> bool:
        """Return whether a part is a single span."""
        spans = self.spans_of(part)
        return len(spans) == 1 and spans[0].end - spans[0].start == len(part)

    def spans_of(self, part: str) -> list[Span]:
        """Return the protected spans of a text or piece, including terms of the glossary."""
        if part not in self._spans:
            self._spans[part] = self._find_spans(part)
        return self._spans[part]

    def _find_spans(self, part: str) -> list[Span]:
        found = self._protection.find(part)
        return found if self._glossary is None else self._glossary.add_terms(part, found)
