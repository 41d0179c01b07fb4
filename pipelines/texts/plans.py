"""The plan for a text: its pieces, and how to translate each of them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Mapping, Sequence

import regex

from tt.model.engines.translator import Input
from tt.model.text.spans import BRACKET
from tt.pipelines.texts import protecting
from tt.pipelines.texts.aligning import Linked, Pair
from tt.pipelines.texts.placing import find_words, needs_links
from tt.pipelines.texts.protecting import Masked
from tt.pipelines.texts.segments import join_translations

_ATTRIBUTE = regex.compile("[\U00100000-\U0010fffd]")  # the stand-ins of attributes
_END = regex.compile(r"\s*[.。।۔!！?？…]+(?=[\"'”“»]*$)")
_FULL_STOP = regex.compile(r"(?<![.。])[.。।۔]$")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """The plan for a text.

    Attributes:
      parts: Pieces of the text, and the white space between them; joined, they are the text.
      sources: Encodings of the pieces that the model translates.
      kept: Replacements of the pieces that the model does not translate.
      verbatim: The pieces among `kept` that are the structure of the text, such as block tags.
      attributes: Texts in attributes of tags, such as `alt`, by their stand-in character. They are
        pieces that are not in `parts`.
      has_corrections: Whether some replacements in `kept` are human translations.
      masked: Pieces that the model does not receive as they are.
      fragments: Pieces from inside a sentence that was cut around its spans.
      was_cut: Whether a sentence was cut into parts because it was too long.
      truncated: Pieces of which the model translates only the beginning.
      unknown_characters: The characters of pieces that the vocabulary lacks, if there are any.
      unended: Pieces that do not end with a mark, so `put_back` removes a full stop at the end of
        their translations.
      unknown: Reason for no translation, if the model does not know most of the text.
      too_long: Reason for no translation, if a sentence is too long.
      failed: Reason for no translation, if the text cannot be encoded.
    """

    parts: Sequence[str] = ()
    sources: Mapping[str, Input] = dataclasses.field(default_factory=dict)
    kept: Mapping[str, str] = dataclasses.field(default_factory=dict)
    verbatim: frozenset[str] = frozenset()
    attributes: Mapping[str, str] = dataclasses.field(default_factory=dict)
    has_corrections: bool = False
    masked: Mapping[str, Masked] = dataclasses.field(default_factory=dict)
    fragments: frozenset[str] = frozenset()
    was_cut: bool = False
    truncated: frozenset[str] = frozenset()
    unknown_characters: Mapping[str, frozenset[str]] = dataclasses.field(default_factory=dict)
    unended: frozenset[str] = frozenset()
    unknown: str | None = None
    too_long: str | None = None
    failed: str | None = None

    @property
    def occurrences(self) -> list[Input]:
        """The sources in the order of the text, including repetitions."""
        if len(self.parts) == 1 and not self.attributes:
            return [*self.sources.values()]
        parts = [*self.parts, *self.attributes.values()]
        return [self.sources[part] for part in parts if part in self.sources]

    @functools.cached_property
    def values(self) -> frozenset[str]:
        """The texts in attributes of inline tags, unless they are also pieces of the text."""
        return frozenset(self.attributes.values()).difference(self.parts)

    def shown(self, part: str) -> str:
        """Return a part as the model receives it, with placeholders for its spans."""
        return self.masked[part].text if part in self.masked else part

    def is_unchanged(self, part: str) -> bool:
        """Return whether the translation of a part needs no changes, except placeholders."""
        return not any(part in each for each in (self.masked, self.unended, self.fragments))

    def pair(self, part: str, text: str) -> Pair | None:
        """Return a part and its translation if their tags need links, or None otherwise.

        Args:
          part: The part.
          text: A translation by the model that keeps all spans.
        """
        masked = self.masked.get(part)
        if masked is None or not masked.tags or not self.keeps_spans(part, text):
            return None
        if part in self.truncated:  # the model does not know the whole source
            return None
        if not needs_links(masked.tags, find_words(masked.text, atoms=masked.exact)):
            return None
        cuts = tuple(tag.place for tag in masked.tags)
        return Pair(masked.text, self._end_like_source(part, text), masked.exact, cuts)

    def keeps_spans(self, part: str, text: str) -> bool:
        """Return whether a translation of a part keeps all spans that the model received.

        If the model translated only the beginning of the part, spans may be missing.
        """
        masked = self.masked.get(part)
        return masked is None or part in self.truncated or protecting.keeps_spans(text, masked)

    def _end_like_source(self, part: str, text: str) -> str:
        """Remove an added full stop, and the added marks and capitals of a fragment."""
        if part in self.unended:
            end = _END if part in self.fragments else _FULL_STOP
            text = end.sub("", text)
        if part in self.fragments:
            text = protecting.match_first_letter(text, source=self.shown(part))
        return text

    def put_back(
        self, part: str, text: str, links: Mapping[Pair, Linked], *, linked: str | None = None
    ) -> tuple[str, bool] | None:
        """Return a part's translation with everything that the model did not receive.

        Args:
          part: The part.
          text: Its translation by the model.
          links: The links of all pairs from `pair`.
          linked: The translation that the links belong to, if `text` is a copy with another figure.

        Returns:
          The translation with the protected spans and tags, and whether the places of all tags are
          clear; or None if a span is missing or repeated.
        """
        if not self.keeps_spans(part, text):
            return None
        masked = self.masked.get(part)
        pair = self.pair(part, text if linked is None else linked)
        if masked is None:
            text = text if BRACKET in part else protecting.remove_placeholders(text)
        text = self._end_like_source(part, text)
        if masked is None:
            return text, True
        if pair is None:
            return protecting.unmask(text, masked)
        text, is_clear = protecting.unmask(text, masked, links=links[pair].links)
        return text, is_clear and links[pair].is_certain

    def join(self, translations: Mapping[str, str]) -> str:
        """Return the translation of the text, given the translation of each part."""
        text = ""
        for is_verbatim, run in itertools.groupby(self.parts, self.verbatim.__contains__):
            parts = [*run]
            text += "".join(parts) if is_verbatim else join_translations(parts, translations)
        return str(
            _ATTRIBUTE.sub(
                lambda found: translations.get(self.attributes.get(found[0], ""), found[0]), text
            )
        )
