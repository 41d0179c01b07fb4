"""Unfinished translations of texts."""

from __future__ import annotations

import bisect
import dataclasses
import heapq
import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence

from tt.model.engines.translator import Hypothesis, Input
from tt.model.text.spans import Span
from tt.pipelines.texts.flags import has_no_end
from tt.pipelines.texts.markup.formats import Format
from tt.pipelines.texts.markup.regions import Role
from tt.pipelines.texts.segments import Kind, Segment
from tt.pipelines.texts.sentences import join_translations
from tt.pipelines.texts.tags import replace_spans


@dataclasses.dataclass(slots=True, eq=False)
class Draft:
    """A text, and its translation as far as it is known.

    Attributes:
      text: The text.
      format: Its format.
      segments: Its segments, except the texts in attributes of inline tags; joined, they are the
        text.
      attributes: The texts in attributes of inline tags.
      failure: The status and the reason if there is no translation.
      was_cut: Whether a sentence was cut into parts because it was too long.
      replaced: Segments that other segments replaced in the second round.
    """

    text: str
    format: Format
    segments: list[Segment] = dataclasses.field(default_factory=list)
    attributes: list[Segment] = dataclasses.field(default_factory=list)
    failure: tuple[str, str] | None = None
    was_cut: bool = False
    replaced: list[Segment] = dataclasses.field(default_factory=list)

    @property
    def every(self) -> list[Segment]:
        """All segments; the texts in attributes come last."""
        return [*self.segments, *self.attributes] if self.attributes else self.segments

    @property
    def sources(self) -> list[Input]:
        """The inputs of the model, including repetitions."""
        return [each.source for each in self.every if each.source is not None]

    @property
    def prose(self) -> tuple[str, str]:
        """The translated sentences, and their best translations, as the model saw them."""
        seen = [each for each in self.segments if each.hypotheses]
        return " ".join([each.shown for each in seen]), " ".join([each.made for each in seen])

    def find_unended(self) -> None:
        """Find the segments whose translations must not end with an added full stop."""
        for segment in self.every:
            segment.is_unended = segment.source is not None and has_no_end(segment.shown)

    def replace(self, others: Mapping[int, Sequence[Segment]]) -> None:
        """Replace segments by other segments, given by the `id` of the segment."""
        self.replaced += [each for each in self.segments if id(each) in others]
        self.segments = [new for old in self.segments for new in others.get(id(old), [old])]

    def written_tags(self, segment: Segment) -> list[str]:
        """Return the inline tags of a segment as they stand in the translation."""
        if segment.masked is None or not segment.masked.tags:
            return []
        spans = self._written_spans(segment)
        return [span.replacement for span in spans if span.role and span.role != Role.SPACE]

    def _written_spans(self, segment: Segment) -> Iterator[Span]:
        """Yield the spans of a segment with the translations of the texts in attributes."""
        for span in segment.spans:
            own = segment.text[span.start : span.end]
            start = segment.start + span.start
            inside = self._attributes_within(start, start + len(own))
            if not inside or not span.role or span.replacement != own:
                yield span
                continue
            values = [
                Span(each.start - start, each.end - start, self._best(each))
                for each in inside
                if each.end <= start + len(own)
            ]
            yield span._replace(replacement=replace_spans(own, values))

    def _attributes_within(self, start: int, end: int) -> list[Segment]:
        if not self.attributes:
            return []
        first, last = (
            bisect.bisect_left(self.attributes, i, key=lambda each: each.start)
            for i in (start, end)
        )
        return self.attributes[first:last]

    def _best(self, attribute: Segment) -> str:
        found = attribute.hypotheses
        return found[0].text if found else self.keep(attribute)

    def keep(self, segment: Segment) -> str:
        """Return the translation of a segment that the model does not translate."""
        if segment.kept is not None:
            return segment.kept
        if not segment.spans:
            return segment.text
        return replace_spans(segment.text, [*self._written_spans(segment)])

    def join(self, chosen: Mapping[int, Hypothesis]) -> str:
        """Return the translation of the text.

        Args:
          chosen: Translations by the model, by the index of their segment.
        """
        joined = ""
        numbered = enumerate(self.segments)
        for is_structure, run in itertools.groupby(numbered, _is_structure):
            parts = [(s.text, chosen[i].text if i in chosen else self.keep(s)) for i, s in run]
            own = [text for text, _ in parts]
            if is_structure:
                joined += "".join(own)
            else:
                joined += join_translations(own, [text for _, text in parts])
        return joined

    def combine(self) -> list[Hypothesis]:
        """Return combinations of the hypotheses of the segments, best first."""
        if len(self.segments) == 1 and not self.attributes:
            return [*self.segments[0].hypotheses]
        found = {i: each.hypotheses for i, each in enumerate(self.segments) if each.hypotheses}
        fixed = [each.hypotheses[0] for each in self.attributes if each.hypotheses]
        best = {i: each[0] for i, each in found.items()}
        count = max((len(each) for each in found.values()), default=1)
        score = sum(each.score for each in [*best.values(), *fixed])
        # Scores of other combinations, and the hypotheses that differ from the best combination.
        others: list[tuple[float, dict[int, Hypothesis]]] = []
        for i, (first, *rest) in found.items():
            others += [
                (known + each.score - first.score, changed | {i: each})
                for known, changed in [(score, {}), *others]
                for each in rest
            ]
            if len(found) > 1:  # a single segment keeps the order of the search
                others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
        hypotheses = []
        for known, changed in [(score, {}), *others]:
            chosen = best | changed
            is_complete = all(each.is_complete for each in [*chosen.values(), *fixed])
            hypotheses.append(Hypothesis(self.join(chosen), known, is_complete))
        return hypotheses


def _is_structure(numbered: tuple[int, Segment]) -> bool:
    return numbered[1].kind is Kind.STRUCTURE
