"""Cut texts, and prepare the inputs of the model."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Sequence

from tt.model.text.glossary import Glossary
from tt.model.text.patterns import VALUE
from tt.model.text.spans import TooLongToSearchError
from tt.pipelines.texts.calling import one_line
from tt.pipelines.texts.drafts import Draft
from tt.pipelines.texts.known import Translations
from tt.pipelines.texts.markup.formats import AUTO, FORMATS, PLAIN, Format, detect_format
from tt.pipelines.texts.numbers import protect_numbers
from tt.pipelines.texts.options import LONG, SENTENCES, SPLIT, TRUNCATE, TextOptions
from tt.pipelines.texts.placeholders import mask
from tt.pipelines.texts.results import FAILED, TOO_LONG, UNKNOWN
from tt.pipelines.texts.segments import (
    Kind,
    Rules,
    Segment,
    cut,
    cut_around,
    cut_in_half,
)

Placed = tuple[Segment, Draft]  # a segment, and the draft that it belongs to


class Inputs:
    """Decides which inputs the model gets for texts.

    Args:
      known: The inputs, and their translations.
      options: Options for texts.
      glossary: The glossary, if there is one.
    """

    def __init__(
        self, known: Translations, *, options: TextOptions, glossary: Glossary | None
    ) -> None:
        self._known = known
        self._options = options
        self._rules = Rules(
            language=options.source_language,
            protection=options.protection,
            glossary=glossary,
            most_spans=options.placeholders or 0,
            restores_capitals=options.restores_capitals,
            knows=functools.cache(known.knows),
            choose_case=functools.cache(known.choose_case),
        )

    def begin(self, texts: Sequence[str]) -> list[Draft]:
        """Cut texts, and prepare the inputs of the model."""
        drafts = [Draft(text, find_format(text, options=self._options)) for text in texts]
        for draft in drafts:
            self._cut(draft, into_sentences=self._options.split == SENTENCES)
        self._fill(drafts)
        for draft in open_drafts(drafts):
            if any(source.unknown for source in draft.sources):
                words = " ".join(s.words for s in draft.every if s.source and s.has_letters)
                # Unknown symbols do not hide the meaning of a text with letters.
                words = "".join(c if c.isalpha() or self._rules.knows(c) else " " for c in words)
                if why := self._known.describe_unknown(words):
                    draft.failure = (UNKNOWN, why)
        self._cut_to_fit(open_drafts(drafts))
        for draft in open_drafts(drafts):
            draft.failure = self.settle(draft.every)
            draft.find_unended()
        for draft in drafts:
            if draft.failure:
                draft.segments, draft.attributes = [], []
        return drafts

    def _cut(self, draft: Draft, *, into_sentences: bool) -> None:
        try:
            segments = cut(
                draft.text, self._rules, format=draft.format, into_sentences=into_sentences
            )
        except TooLongToSearchError as error:
            draft.failure = (FAILED, str(error))
            return
        draft.segments = [each for each in segments if each.kind is not Kind.ATTRIBUTE]
        draft.attributes = [each for each in segments if each.kind is Kind.ATTRIBUTE]

    def _fill(self, drafts: Sequence[Draft]) -> None:
        """Keep values and human translations, and prepare the other segments for the model."""
        worded = [each for draft in drafts for each in draft.every if each.is_worded]
        corrections = self._known.find_corrections(each.text for each in worded)
        for segment in worded if corrections else ():
            segment.kept = corrections.get(segment.text)
            segment.is_corrected = segment.kept is not None
        for segment in worded:
            # The marks of a value are no spans around which it could be cut.
            if segment.kept is None and VALUE.fullmatch(segment.text) and not segment.has_terms:
                segment.kept = segment.text
        for draft in drafts:
            if any(segment.spans for segment in draft.segments):
                draft.segments = [
                    each for segment in draft.segments for each in self._fit_spans(segment, draft)
                ]
        self.prepare([(each, draft) for draft in drafts for each in draft.every])

    def _fit_spans(self, segment: Segment, draft: Draft) -> list[Segment]:
        """Cut a sentence with more spans than the model can place around its spans."""
        spans = segment.kept_spans if segment.is_worded else ()
        if not spans or self._rules.can_place(segment.text, spans):
            return [segment]
        return self.cut_around(segment, draft)

    def cut_around(self, segment: Segment, draft: Draft) -> list[Segment]:
        """Cut a sentence around its spans; the fragments get the capitals of the sentence."""
        fragments = cut_around(segment)
        if len(fragments) > 1:
            capitals = mask(segment, self._rules, format=draft.format).capitals
            for fragment in fragments:
                fragment.capitals = capitals
        return fragments

    def prepare(self, new: Sequence[Placed]) -> None:
        """Prepare the inputs of the model for new segments."""
        new = [(segment, draft) for segment, draft in new if segment.is_worded]
        for segment, draft in new:
            segment.masked = mask(segment, self._rules, format=draft.format)
        inputs = self._known.prepare(segment.shown for segment, _ in new)
        for segment, _ in new:
            source = inputs[segment.shown]
            if isinstance(source, Exception):
                segment.error = one_line(source)
            else:
                segment.source = source

    def _cut_to_fit(self, drafts: Sequence[Draft]) -> None:
        """Cut the texts and sentences that are too long for the model, as the options say."""
        most = self._options.max_source_tokens
        long = [draft for draft in drafts if any(each.is_long(most) for each in draft.segments)]
        if self._options.split == LONG and long:
            for draft in long:
                self._cut(draft, into_sentences=True)
            self._fill(long)
        while self._options.on_too_long == SPLIT and long:
            halves: list[Placed] = []
            for draft in long:
                segments: list[Segment] = []
                for each in draft.segments:
                    if each.is_long(most) and len(each.text) > 1:
                        segments += (new := cut_in_half(each))
                        halves += [(half, draft) for half in new]
                        draft.was_cut = True
                    else:
                        segments.append(each)
                draft.segments = segments
            self.prepare(halves)
            long = list(dict.fromkeys(draft for half, draft in halves if half.is_long(most)))

    def settle(self, segments: Sequence[Segment]) -> tuple[str, str] | None:
        """Decide which segments the model translates; return the failure of their text, if any."""
        most = self._options.max_source_tokens
        for segment in segments:
            source = segment.source
            if segment.error:
                return FAILED, segment.error
            if source is None:
                continue
            is_value = segment.is_fragment and VALUE.fullmatch(source.text)
            if not segment.has_letters or is_value or not source.length:
                segment.source = None
                if source.text and not source.length:  # nothing is left after normalization
                    segment.kept = "".join(span.replacement for span in segment.spans)
            elif source.length + 2 <= most:
                continue
            elif self._options.on_too_long == TRUNCATE:
                segment.is_truncated = True
                segment.source = dataclasses.replace(source, length=most - 2)
            elif segment.kind is Kind.ATTRIBUTE:
                segment.source = None
            else:  # the options forbid cutting, or it is a single character
                count = source.length + 2
                return TOO_LONG, f"a sentence has {count:,} tokens; at most {most:,} are allowed"
        return None

    def protect_figures(self, segment: Segment, draft: Draft) -> list[Segment]:
        """Return a sentence whose figures are spans, or its fragments around these spans."""
        spans = protect_numbers(segment.text, segment.spans)
        [whole] = segment.divide([segment.text])
        whole.spans, whole.capitals = spans, segment.capitals
        if self._rules.most_spans and self._rules.can_place(whole.text, whole.kept_spans):
            return [whole]
        return self.cut_around(whole, draft)


def open_drafts(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the drafts that have not failed."""
    return [draft for draft in drafts if draft.failure is None]


def find_format(text: str, *, options: TextOptions) -> Format:
    """Return the format in which a text is translated."""
    if not options.protection.protect:
        return FORMATS[PLAIN]
    return FORMATS[detect_format(text) if options.texts == AUTO else options.texts]
