"""What the model gets of each text, and what becomes of the rest."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import regex

from model.engines.translator import Translator
from model.text.glossary import Glossary
from model.text.spans import BRACKET, Span, TooLongToSearchError
from model.text.vocabulary import EOS_ID, UNK_ID, is_empty
from pipelines.texts.bisection import call_on_parts, one_line, raise_if_not_at_fault
from pipelines.texts.options import LONG, SENTENCES, SPLIT, TRUNCATE, TextOptions
from pipelines.texts.protecting import (
    Masked,
    cut_around,
    cut_markup_off,
    cut_sentences,
    mask,
    remove_placeholders,
    unmask,
)
from pipelines.texts.segments import LINE_BREAK, cut_to_fit, distinct_pieces, find_plain

Source = tuple[int, ...]  # ids: texts that normalisation makes equal are one source
PROBE = "a"  # encoded or translated if all texts fail: is it the texts, or the machine?
_MOST_CUTS = 4  # times that what is between spans is looked at again
_FULL_STOP = regex.compile(r"(?<![.。])[.。]$")
_LETTER = regex.compile(r"\p{L}")  # of any script


class Plan(NamedTuple):
    """What is made of a text.

    Attributes:
      parts: Its pieces, and the white space between them; joined, they are the text.
      sources: Ids of those pieces that the model translates.
      kept: What stands for the other pieces.
      masked: Those of the first with placeholders in them.
      was_cut: Whether a sentence had to be cut inside.
      truncated: Pieces of which the model gets only the beginning.
      unended: Pieces before a span that end in no full stop; so do their translations.
      unknown: Why there is no translation, as most of the text is unknown to the model.
      too_long: Why there is none, as a sentence is too long.
      failed: Why there is none, as the text cannot be encoded.
    """

    parts: Sequence[str] = ()
    sources: Mapping[str, Source] = {}
    kept: Mapping[str, str] = {}
    masked: Mapping[str, Masked] = {}
    was_cut: bool = False
    truncated: frozenset[str] = frozenset()
    unended: frozenset[str] = frozenset()
    unknown: str | None = None
    too_long: str | None = None
    failed: str | None = None

    @property
    def is_whole(self) -> bool:
        """Whether the text is a piece that the model gets as it is, with nothing beside it."""
        is_alone = len(self.parts) == 1 == len(self.sources)
        return is_alone and not (self.masked or self.unended or self.truncated)

    @property
    def occurrences(self) -> list[Source]:
        """The sources in the order of the text, those that repeat as well."""
        if len(self.parts) == 1:
            return [*self.sources.values()]
        return [self.sources[part] for part in self.parts if part in self.sources]

    def end_like(self, part: str, text: str) -> str:
        """Returns a translation without the full stop that its part has not."""
        return _FULL_STOP.sub("", text) if part in self.unended else text

    def put_back(self, part: str, text: str) -> str | None:
        """Returns the translation of a part with its spans; None if it has lost or doubled one."""
        text = self.end_like(part, text)
        if part not in self.masked:
            return text if BRACKET in part else remove_placeholders(text)
        replacements = self.masked[part].replacements
        return unmask(text, replacements, is_cut=part in self.truncated)


def describe_cuts(texts: Sequence[str], *, options: TextOptions) -> list[str]:
    """Returns a line where a model without placeholders gets texts with protected spans.

    Args:
      texts: The first texts.
      options: How they are treated, for the model.
    """
    if options.placeholders != 0 or not options.protection.is_on:
        return []
    cut = 0
    for text in texts:
        with contextlib.suppress(TooLongToSearchError):  # its row will fail
            cut += any(not span.is_markup for span in options.protection.find(text))
    if not cut:
        return []
    return [
        f"{cut:,} of the first {len(texts):,} texts hold variables, URLs, figures or the like, for "
        "which the model has no placeholders: what stands between them is translated piece by "
        "piece. Data with such pairs teaches a model to place them (see docs/translate.md), and "
        "`protect=False` gives them to the model"
    ]


def _find_too_long(texts: Iterable[str], *, spans_of: Callable[[str], object]) -> dict[str, Plan]:
    """Return failed plans for texts whose spans cannot be found."""
    failed = {}
    for text in texts:
        try:
            spans_of(text)
        except TooLongToSearchError as error:
            failed[text] = Plan(failed=str(error))
    return failed


class Planner:
    """Plans texts for a model; what it has encoded, it knows."""

    def __init__(
        self, *, translator: Translator, options: TextOptions, glossary: Glossary | None = None
    ) -> None:
        self._translator = translator
        self._options = options
        self._glossary = glossary
        self._most_spans = options.placeholders or 0  # of a piece, that the model itself places
        self._ids: dict[str, list[int] | Exception] = {}  # by piece
        self._spans: dict[str, list[Span]] = {}  # by text or piece
        self._shown: dict[str, Masked] = {}  # what the model gets, by piece

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Returns a plan for each of distinct texts.

        Raises:
          Exception: What the translator raised, where it encodes no text.
        """
        plain = self._find_plain(texts)
        failed = _find_too_long(set(texts) - plain.keys(), spans_of=self._spans_of)
        is_cut_first = self._options.split == SENTENCES
        parts = {
            text: self._cut(text, into_sentences=is_cut_first)
            for text in texts
            if text not in plain and text not in failed
        }
        self._encode((part for each in parts.values() for part in each), plain=plain)
        raise_if_not_at_fault(
            list(self._ids.values()),
            probe=lambda: self._translator.encode([PROBE]),
            is_input_error=self._translator.is_input_error,
        )
        planned = failed | self._plan_plain(plain)
        planned |= _find_too_long(plain.keys() - planned.keys(), spans_of=self._spans_of)
        parts |= {text: [text] for text in plain if text not in planned}
        planned |= self._plan_others([text for text in texts if text not in planned], parts)
        return [planned[text] for text in texts]

    def _find_plain(self, texts: Sequence[str]) -> dict[str, None]:
        """Returns the texts that are plainly one sentence without spans: no closer look is needed.

        That is nearly all where each row is a sentence, and a look takes a third of their time.
        """
        if self._glossary is not None or self._options.protection.protect_regex:
            return {}
        is_plain = find_plain(texts, language=self._options.source_language)
        return dict.fromkeys(itertools.compress(texts, is_plain))

    def _plan_plain(self, texts: Iterable[str]) -> dict[str, Plan]:
        """Plans plain texts that the model can take as they are."""
        found = ((text, self._ids[text]) for text in texts)
        return {
            text: Plan(parts=(text,), sources={text: tuple(ids)})
            for text, ids in found
            if not isinstance(ids, Exception)
            and not is_empty(ids)
            and len(ids) <= self._options.max_source_tokens
            and UNK_ID not in ids
        }

    def _plan_others(self, texts: Sequence[str], parts: dict[str, list[str]]) -> dict[str, Plan]:
        """Plans texts in parts that are encoded."""
        options = self._options
        unknown = {text: why for text in texts if (why := self._find_unknown(parts[text]))}
        if options.split == LONG:
            long = [
                text
                for text in texts
                if text not in unknown and any(self._is_long(part) for part in parts[text])
            ]
            parts |= {text: self._cut(text, into_sentences=True) for text in long}
            self._encode(part for text in long for part in parts[text])
        whole = dict(parts)  # before a sentence is cut inside
        if options.on_too_long == SPLIT:
            known = [text for text in texts if text not in unknown]
            fitting = cut_to_fit(
                [parts[text] for text in known], fits=self._fit, spans_of=self._spans_of
            )
            parts |= zip(known, fitting, strict=True)
        return {
            text: Plan(unknown=unknown[text])
            if text in unknown
            else self._plan_parts(parts[text], was_cut=len(parts[text]) > len(whole[text]))
            for text in texts
        }

    def plan_around(self, plans: Sequence[Plan], *, lost: Sequence[Iterable[str]]) -> list[Plan]:
        """Plans texts anew whose translations have lost spans: what is between them is translated.

        Args:
          plans: The plans so far.
          lost: For each plan its parts that lost spans.
        """
        distinct = dict.fromkeys(itertools.chain.from_iterable(lost))
        around = {part: self._cut_around(part, most=0) for part in distinct}
        kept = {part for plan in plans for part in plan.parts} - around.keys()  # they have theirs
        for each in set(itertools.chain.from_iterable(around.values())) - kept:
            if self._masked(each).replacements and not self._is_span(each):
                # Spans after the last cut: the model would lose them again, and gets them as text.
                self._shown[each] = Masked(each)
                self._ids.pop(each, None)
        self._encode(fragment for fragments in around.values() for fragment in fragments)
        planned = []
        for plan, parts in zip(plans, lost, strict=True):
            cut = dict.fromkeys(parts)
            fragments = [
                fragment
                for part in plan.parts
                for fragment in (around[part] if part in cut else [part])
            ]
            planned.append(self._plan_parts(fragments, was_cut=plan.was_cut))
        return planned

    def _cut(self, text: str, *, into_sentences: bool) -> list[str]:
        spans = self._spans_of(text)
        if into_sentences:
            parts = cut_sentences(text, spans, language=self._options.source_language)
        else:
            parts = cut_markup_off(text, spans)
        if not spans:
            return parts
        most = self._most_spans
        return [fragment for part in parts for fragment in self._cut_around(part, most=most)]

    def _cut_around(self, part: str, *, most: int) -> list[str]:
        """Cuts a part with more than so many spans into spans and what is between them."""
        parts = [part]
        # What is between spans seldom looks like one without what stood before it, and so on.
        for _ in range(_MOST_CUTS):
            cut = [piece for each in parts for piece in self._cut_once(each, most=most)]
            if len(cut) == len(parts):
                break
            parts, most = cut, 0
        return parts

    def _cut_once(self, part: str, *, most: int) -> list[str]:
        spans = [] if part.isspace() else self._spans_of(part)
        if len(spans) <= most or self._is_span(part):
            return [part]
        return cut_around(part, spans)

    def _is_span(self, part: str) -> bool:
        spans = self._spans_of(part)
        return len(spans) == 1 and spans[0].end - spans[0].start == len(part)

    def _spans_of(self, part: str) -> list[Span]:
        """Returns what of a text or piece must not change, and the terms of the glossary."""
        if part not in self._spans:
            found = self._options.protection.find(part)
            if self._glossary is not None:
                found = self._glossary.add_terms(part, found)
            self._spans[part] = found
        return self._spans[part]

    def _masked(self, part: str) -> Masked:
        if part not in self._shown:
            spans = self._spans_of(part)
            # Half of a long sentence may hold what looks like a span and was none.
            is_masked = spans and (self._is_span(part) or len(spans) <= self._most_spans)
            self._shown[part] = mask(part, spans) if is_masked else Masked(part)
        return self._shown[part]

    def _encode(self, parts: Iterable[str], *, plain: Iterable[str] = ()) -> None:
        """Encodes parts, and plain texts beside them, that are new."""
        shown = {part: part for part in plain}
        for part in distinct_pieces(parts):
            if part not in self._ids and part not in shown:
                shown[part] = self._masked(part).text
        found = call_on_parts(
            self._translator.encode,
            list(shown.values()),
            is_input_error=self._translator.is_input_error,
        )
        self._ids.update(zip(shown, found, strict=True))

    def _fit(self, pieces: list[str]) -> list[bool]:
        self._encode(pieces)
        return [not self._has_words(piece) or not self._is_long(piece) for piece in pieces]

    def _has_words(self, part: str) -> bool:
        return bool(_LETTER.search(self._masked(part).text))

    def _is_long(self, part: str) -> bool:
        ids = self._ids.get(part, ())  # white space has none
        return not isinstance(ids, Exception) and len(ids) > self._options.max_source_tokens

    def _find_unknown(self, parts: Iterable[str]) -> str | None:
        """Says that more than half of what has letters is unknown, if it is."""
        worded = [part for part in parts if self._has_words(part)]
        found = [self._ids[part] for part in worded]
        if not any(not isinstance(each, Exception) and UNK_ID in each for each in found):
            return None
        text = " ".join(self._masked(part).text for part in worded)
        return self._translator.count_unknown(text).describe()

    def _plan_parts(self, parts: Sequence[str], *, was_cut: bool) -> Plan:
        options = self._options
        sources: dict[str, Source] = {}
        kept: dict[str, str] = {}
        masked: dict[str, Masked] = {}
        truncated: set[str] = set()
        for part in parts:
            if part.isspace():
                continue
            ids, shown = self._ids[part], self._masked(part)
            if isinstance(ids, Exception):
                return Plan(failed=one_line(ids))
            if is_empty(ids):
                kept[part] = ""
            elif not _LETTER.search(shown.text):
                kept[part] = unmask(shown.text, shown.replacements) or part
            elif not self._is_long(part):
                sources[part] = tuple(ids)
            elif options.on_too_long == TRUNCATE:
                truncated.add(part)
                sources[part] = (*ids[: options.max_source_tokens - 1], EOS_ID)
            else:  # not to be cut, or a single character
                most = options.max_source_tokens
                why = f"a sentence has {len(ids):,} tokens; at most {most:,} are allowed"
                return Plan(too_long=why)
            if part in sources and shown.replacements:
                masked[part] = shown
        return Plan(
            parts=parts,
            sources=sources,
            kept=kept,
            masked=masked,
            was_cut=was_cut,
            truncated=frozenset(truncated),
            unended=self._find_unended(parts, sources=sources),
        )

    def _find_unended(
        self, parts: Sequence[str], *, sources: Mapping[str, Source]
    ) -> frozenset[str]:
        """Returns the pieces that end in no full stop, and stand before a span wherever they do."""
        found: dict[str, bool] = {}
        for i, part in enumerate(parts):
            if part in sources:
                space, following = [*parts[i + 1 : i + 3], "", ""][:2]
                if not space.isspace():
                    space, following = "", space
                is_before = bool(following) and not LINE_BREAK.search(space)
                is_before = is_before and not following.isspace() and self._is_span(following)
                found[part] = found.get(part, True) and is_before
        return frozenset(
            part for part, is_before in found.items() if is_before and part[-1] not in ".。"
        )
