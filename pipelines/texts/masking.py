"""Turn pieces into the texts that the model receives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from tt.model.text.spans import Span
from tt.pipelines.texts import protecting
from tt.pipelines.texts.capitals import Capitals, find_capitals, to_usual_case
from tt.pipelines.texts.cutting import Cutter, can_copy
from tt.pipelines.texts.entities import decode_entities
from tt.pipelines.texts.markup import PLAIN
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.protecting import Masked
from tt.pipelines.texts.segments import LINE_BREAK

_CAPITAL_NOUNS = ("de", "lb")  # languages that begin all nouns with a capital


class Masker:
    """Turns pieces of a text into the texts that the model receives.

    Args:
      options: Options for texts.
      cutter: The cutter with the format and the spans of the pieces.
      choose_case: Chooses one of two forms of a word, in lower case and with a capital.
    """

    def __init__(
        self,
        *,
        options: TextOptions,
        cutter: Cutter,
        choose_case: Callable[[tuple[str, str]], str],
    ) -> None:
        self._options = options
        self._cutter = cutter
        self._choose_case = choose_case
        self._most_spans = options.placeholders or 0  # spans per piece that the model can place
        self._masks: dict[str, Masked] = {}  # by piece
        self._inherited: dict[str, Capitals] = {}  # by fragment; the capitals of its sentence
        self._has_capital_nouns = options.source_language.partition("-")[0] in _CAPITAL_NOUNS

    def hand_down_capitals(self, part: str, fragments: Sequence[str]) -> None:
        """Give the fragments of a piece the capitals of the whole piece."""
        if fragments != [part] and (capitals := self.mask(part).capitals):
            for fragment in fragments:
                self._inherited[fragment] = capitals
                self._masks.pop(fragment, None)

    def show_as_is(self, part: str) -> None:
        """Give the model this piece as it is."""
        self._masks[part] = Masked(part)

    def forget(self, part: str) -> None:
        """Mask a piece again, because its spans have changed."""
        self._masks.pop(part, None)

    def mask(self, part: str) -> Masked:
        """Return a piece as the model receives it, and what its translation gets back."""
        if part not in self._masks:
            self._masks[part] = self._mask(part, self._cutter.spans_of(part))
        return self._masks[part]

    def _mask(self, part: str, spans: Sequence[Span]) -> Masked:
        text = part
        entities: Mapping[str, str] = {}
        if self._cutter.format != PLAIN:
            text, spans, entities = decode_entities(
                part, spans, is_attribute=part in self._cutter.values, is_known=self._cutter.knows
            )
        kept = [span for span in spans if not span.role]
        has_placeholders = self._cutter.is_span(part) or len(kept) <= self._most_spans
        if not has_placeholders and not can_copy(text, kept):
            spans = [span for span in spans if span.role]
        masked = protecting.mask(text, spans, has_placeholders=has_placeholders)
        masked = masked._replace(entities=entities)
        if self._cutter.format != PLAIN:
            masked = masked._replace(text=LINE_BREAK.sub(" ", masked.text))
        if self._options.restores_capitals:
            bare = masked.text if has_placeholders else without_spans(masked.text, masked.exact)
            found = self._inherited.get(part) or find_capitals(
                bare, has_capital_nouns=self._has_capital_nouns
            )
            if found is not None:
                lowered = to_usual_case(
                    masked.text,
                    choose=self._choose_case,
                    atoms=masked.exact,
                    is_title=found is Capitals.TITLE,
                )
                masked = masked._replace(text=lowered, capitals=found)
        return masked


def without_spans(text: str, spans: Iterable[str]) -> str:
    """Return a text without some of its spans."""
    for span in spans:
        text = text.replace(span, " ")
    return text
