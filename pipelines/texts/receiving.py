"""Give the translations of a segment back what the model did not receive, and judge them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import regex

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.text.spans import BRACKET
from tt.pipelines.texts.flags import NUMBER, Limits, Sentence, flag_sentence
from tt.pipelines.texts.inline_tags import needs_links
from tt.pipelines.texts.numbers import has_fraction, has_same_numbers, replace_wrong_number
from tt.pipelines.texts.placeholders import (
    keeps_spans,
    match_first_letter,
    remove_placeholders,
    unmask,
)
from tt.pipelines.texts.segments import Kind, Segment
from tt.pipelines.texts.word_links import Linked, Pair

_END = regex.compile(r"\s*[.。।۔!！?？…]+(?=[\"'”“»]*$)")
_FULL_STOP = regex.compile(r"(?<![.。])[.。।۔]$")


def _keeps_all_spans(segment: Segment, text: str) -> bool:
    """Return whether a translation keeps all spans, which only a truncated source may lack."""
    masked = segment.masked
    return masked is None or segment.is_truncated or keeps_spans(text, masked)


def find_kept(segment: Segment, result: Translation) -> Hypothesis | None:
    """Return the best translation that keeps all spans."""
    return next((each for each in result.hypotheses if _keeps_all_spans(segment, each.text)), None)


def find_pair(segment: Segment, text: str) -> Pair | None:
    """Return the source and a translation if the tags need links between their words."""
    masked = segment.masked
    # The model does not know the end of a truncated source.
    if masked is None or not masked.tags or segment.is_truncated:
        return None
    if not keeps_spans(text, masked):
        return None
    if not needs_links(masked.tags, masked.text):
        return None
    cuts = tuple(tag.place for tag in masked.tags)
    return Pair(masked.text, _end_like_source(segment, text), masked.exact, cuts)


def _end_like_source(segment: Segment, text: str) -> str:
    """Remove an added full stop, and the added marks and capitals of a fragment."""
    if segment.is_unended:
        text = (_END if segment.is_fragment else _FULL_STOP).sub("", text)
    if segment.is_fragment:
        text = match_first_letter(text, source=segment.shown)
    return text


def _put_back(
    segment: Segment, text: str, linked: Linked | None, *, tags: Sequence[str]
) -> tuple[str, bool] | None:
    """Return a translation with everything that the model did not receive.

    Args:
      segment: The segment.
      text: The translation by the model.
      linked: The links of the pair from `find_pair`, if there is one.
      tags: The inline tags as they stand in the translation.

    Returns:
      The translation, and whether the places of all tags are clear; or None if a span is missing
      or repeated.
    """
    masked = segment.masked
    if not _keeps_all_spans(segment, text):
        return None
    if masked is None or masked.is_bare:
        text = text if BRACKET in segment.text else remove_placeholders(text)
        return _end_like_source(segment, text), True
    links, is_certain = linked or (None, True)
    text, is_clear = unmask(_end_like_source(segment, text), masked, tags=tags, links=links)
    return text, is_clear and is_certain


def has_wrong_figures(segment: Segment, made: Hypothesis, *, limits: Limits) -> bool:
    """Return whether the best translation has figures that `receive` cannot correct."""
    if segment.is_truncated or segment.kind is Kind.ATTRIBUTE:
        return False
    source, languages = segment.shown, limits.languages
    segment.has_same_numbers = has_same_numbers(made.text, source=source, languages=languages)
    if segment.has_same_numbers:
        return False
    if has_fraction(f"{source}\n{made.text}"):
        return False
    return replace_wrong_number(made.text, source=source, languages=languages) is None


def receive(
    segment: Segment,
    result: Translation,
    *,
    limits: Limits,
    linked: Sequence[Linked | None],
    tags: Sequence[str],
    repairs_figures: bool,
) -> bool:
    """Give a segment the hypotheses that keep all spans, and the flags of the best one.

    The flags judge the texts with placeholders, so that protected spans have no influence.

    Args:
      segment: The segment.
      result: The translation of its source.
      limits: The usual values of the model.
      linked: The links of the pair from `find_pair`, if there is one, for each hypothesis.
      tags: The inline tags as they stand in the translation.
      repairs_figures: Whether to replace a wrong figure of the best hypothesis.

    Returns:
      Whether a hypothesis keeps all spans.
    """
    assert segment.source is not None
    kept = [
        (each, back, links)
        for each, links in zip(result.hypotheses, linked, strict=True)
        if (back := _put_back(segment, each.text, links, tags=tags)) is not None
    ]
    if not kept:
        return False
    hypotheses = [
        each if each.text == text else dataclasses.replace(each, text=text)
        for each, (text, _), _ in kept
    ]
    made, (_, segment.is_clear), links = kept[0]
    segment.made = made.text
    is_bare = segment.masked is None or segment.masked.is_bare
    sentence = Sentence(
        source=segment.shown,
        translation=hypotheses[0].text if is_bare else made.text,
        limits=limits,
        source_tokens=segment.source.length,
        target_tokens=made.tokens - 1,
        score=made.score,
        is_complete=made.is_complete,
        unknown="".join(segment.source.unknown),
        has_same_numbers=segment.has_same_numbers,
    )
    segment.flags = flag_sentence(sentence)
    if NUMBER in segment.flags and repairs_figures:
        languages = limits.languages
        text = replace_wrong_number(made.text, source=segment.shown, languages=languages)
        if text and (back := _put_back(segment, text, links, tags=tags)):
            hypotheses[0] = dataclasses.replace(hypotheses[0], text=back[0])
    segment.hypotheses = hypotheses
    return True
