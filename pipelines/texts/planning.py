"""Plan which pieces of each text the model translates."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

import regex

from tt.model.engines.translator import Translator
from tt.model.text.glossary import Glossary
from tt.model.text.spans import BRACKET, Span, TooLongToSearchError
from tt.model.text.vocabulary import EOS_ID, UNK_ID, is_empty
from tt.pipelines.texts import protecting
from tt.pipelines.texts.options import LONG, SENTENCES, SPLIT, TRUNCATE, TextOptions
from tt.pipelines.texts.protecting import Masked
from tt.pipelines.texts.remembering import Source
from tt.pipelines.texts.segments import LINE_BREAK, cut_to_fit, distinct_pieces, find_plain

_Source = TypeVar("_Source")
_Result = TypeVar("_Result")


def call_on_parts(
    function: Callable[[list[_Source]], list[_Result]],
    sources: list[_Source],
    *,
    is_input_error: Callable[[Exception], bool],
    probe: Callable[[], object] = lambda: None,
) -> list[_Result | Exception]:
    """Call a function on all sources, and bisect the sources if it raises an error.

    If k of n sources fail, this takes about k log n calls.

    Args:
      function: Returns one result per source, in order.
      sources: The sources.
      is_input_error: Returns whether a source can have caused an error.
      probe: Makes the same call with a harmless source. If all sources fail, and this call fails as
        well, the machine is at fault, and the job can succeed elsewhere.

    Returns:
      For each source, its result, or the error that it causes.

    Raises:
      Exception: An error that no source can have caused, or the first error if the probe fails.
      RuntimeError: The function returned a wrong number of results.

    >>> def invert(numbers):
    ...     return [1 / number for number in numbers]
    >>> call_on_parts(invert, [1, 2, 0, 4], is_input_error=lambda error: True)
    [1.0, 0.5, ZeroDivisionError('division by zero'), 0.25]
    """

    def bisect(some: list[_Source]) -> list[_Result | Exception]:
        if not some:
            return []
        try:
            results = function(some)
        except Exception as error:
            if not is_input_error(error):
                raise
            if len(some) == 1:
                return [error]
            middle = len(some) // 2
            return bisect(some[:middle]) + bisect(some[middle:])
        if len(results) != len(some):
            raise RuntimeError(f"{len(some)} sources gave {len(results)} results")
        return [*results]

    found = bisect(sources)
    errors = [each for each in found if isinstance(each, Exception)]
    if errors and len(errors) == len(found):
        try:
            probe()
        except Exception as error:
            if not is_input_error(error):
                raise
            raise errors[0] from error
    return found


def one_line(error: Exception) -> str:
    r"""Return an error's type and the first line of its message.

    >>> one_line(ValueError("bad shape\nat line 1")), one_line(KeyError())
    ('ValueError: bad shape', 'KeyError')
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


PROBE = "a"  # a text that shows whether the machine is at fault if all texts fail
_FULL_STOP = regex.compile(r"(?<![.。])[.。]$")
_LETTER = regex.compile(r"\p{L}")  # letters of all scripts


class Plan(NamedTuple):
    """The plan for a text: its pieces, and how to translate each of them.

    Attributes:
      parts: Pieces of the text, and the white space between them; joined, they are the text.
      sources: Ids of the pieces that the model translates.
      kept: Replacements of the pieces that the model does not translate.
      has_corrections: Whether some of these replacements are human translations.
      masked: Pieces with placeholders that the model translates.
      was_cut: Whether a sentence was cut into parts because it was too long.
      truncated: Pieces of which the model translates only the beginning.
      unended: Pieces before a span that do not end with a full stop. A full stop at the end of
        their translations is removed.
      unknown: Reason for no translation, if the model does not know most of the text.
      too_long: Reason for no translation, if a sentence is too long.
      failed: Reason for no translation, if the text cannot be encoded.
    """

    parts: Sequence[str] = ()
    sources: Mapping[str, Source] = {}
    kept: Mapping[str, str] = {}
    has_corrections: bool = False
    masked: Mapping[str, Masked] = {}
    was_cut: bool = False
    truncated: frozenset[str] = frozenset()
    unended: frozenset[str] = frozenset()
    unknown: str | None = None
    too_long: str | None = None
    failed: str | None = None

    @property
    def occurrences(self) -> list[Source]:
        """The sources in the order of the text, including repetitions."""
        if len(self.parts) == 1:
            return [*self.sources.values()]
        return [self.sources[part] for part in self.parts if part in self.sources]

    def shown(self, part: str) -> str:
        """Return a part as the model receives it, with placeholders for its spans."""
        return self.masked[part].text if part in self.masked else part

    def put_back(self, part: str, text: str) -> str | None:
        """Replace the placeholders in a part's translation.

        Args:
          part: The part.
          text: Its translation by the model.

        Returns:
          The translation with the protected spans, or None if a span is missing or repeated.
        """
        if part in self.unended:
            text = _FULL_STOP.sub("", text)
        if part not in self.masked:
            return text if BRACKET in part else protecting.remove_placeholders(text)
        replacements = self.masked[part].replacements
        return protecting.unmask(text, replacements, is_cut=part in self.truncated)


class Planner:
    """Plans how to translate texts with a model, and caches the encoded pieces.

    Args:
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      find_corrections: Returns the human translations of pieces that have one. The model does not
        translate these pieces.
    """

    def __init__(
        self,
        *,
        translator: Translator,
        options: TextOptions,
        glossary: Glossary | None = None,
        find_corrections: Callable[[list[str]], Mapping[str, str]] = lambda pieces: {},
    ) -> None:
        self._translator = translator
        self._options = options
        self._glossary = glossary
        self._find_corrections = find_corrections
        self._corrections: dict[str, str] = {}  # human translations, by piece
        self._most_spans = options.placeholders or 0  # spans per piece that the model can place
        self._ids: dict[str, list[int] | Exception] = {}  # ids or error, by piece
        self._spans: dict[str, list[Span]] = {}  # protected spans, by text or piece
        self._masks: dict[str, Masked] = {}  # texts for the model, by piece

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Return a plan for each text; the texts must be distinct.

        Raises:
          Exception: The translator cannot encode any text.
        """
        planned = self._plan_plain(texts)
        others = [text for text in texts if text not in planned]
        parts, failed = self._cut(others, into_sentences=self._options.split == SENTENCES)
        planned |= failed
        self._encode(part for each in parts.values() for part in each)
        planned |= self._plan_others(list(parts), parts)
        return [planned[text] for text in texts]

    def _plan_plain(self, texts: Sequence[str]) -> dict[str, Plan]:
        """Plan texts that are clearly one sentence without spans, and not too long for the model.

        Most rows of a table of sentences are such texts. Without this shortcut, planning takes
        three times as long.
        """
        if self._glossary is not None or self._options.protection.protect_regex:
            return {}
        is_plain = find_plain(texts, language=self._options.source_language)
        plain = list(itertools.compress(texts, is_plain))
        self._encode_new({text: text for text in plain})
        planned = {}
        for text in plain:
            ids = self._ids[text]
            if isinstance(ids, Exception) or is_empty(ids) or UNK_ID in ids or self._is_long(text):
                continue
            planned[text] = Plan(parts=(text,), sources={text: tuple(ids)})
        return planned

    def _plan_others(self, texts: Sequence[str], parts: dict[str, list[str]]) -> dict[str, Plan]:
        """Plan texts whose parts have been encoded."""
        options = self._options
        unknown = {text: why for text in texts if (why := self._find_unknown(parts[text]))}
        if options.split == LONG:
            long = [
                text
                for text in texts
                if text not in unknown and any(self._is_long(part) for part in parts[text])
            ]
            parts |= self._cut(long, into_sentences=True)[0]  # their spans have been found already
            self._encode(part for text in long for part in parts[text])
        whole = dict(parts)  # the parts before long sentences are cut
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
        """Plan texts again whose translations lost spans; cut their parts around the spans.

        Args:
          plans: The plans that failed.
          lost: The parts that lost spans, for each plan.
        """
        distinct = dict.fromkeys(itertools.chain.from_iterable(lost))
        around = {part: self._cut_around(part, most=0) for part in distinct}
        kept = {part for plan in plans for part in plan.parts} - around.keys()
        for each in set(itertools.chain.from_iterable(around.values())) - kept:
            if self._masked(each).replacements and not self._is_span(each):
                # Text between spans can look like a span once it is cut off. The model would lose
                # its placeholder again, so the model gets the text itself.
                self._masks[each] = Masked(each)
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

    def _cut(
        self, texts: Sequence[str], *, into_sentences: bool
    ) -> tuple[dict[str, list[str]], dict[str, Plan]]:
        """Return the parts of each text, and the plans of texts that cannot be cut."""
        language = self._options.source_language
        cut: dict[str, list[str]] = {}
        failed: dict[str, Plan] = {}
        for text in texts:
            try:
                spans = self._spans_of(text)
            except TooLongToSearchError as error:
                failed[text] = Plan(failed=str(error))
                continue
            if into_sentences:
                cut[text] = protecting.cut_sentences(text, spans, language=language)
            else:
                cut[text] = protecting.cut_markup_off(text, spans)
        pieces = distinct_pieces(part for parts in cut.values() for part in parts)
        self._corrections |= self._find_corrections(pieces)
        for text, parts in cut.items():
            if self._spans_of(text):
                cut[text] = [
                    fragment
                    for part in parts
                    for fragment in (
                        [part]
                        if part in self._corrections
                        else self._cut_around(part, most=self._most_spans)
                    )
                ]
        return cut, failed

    def _cut_around(self, part: str, *, most: int) -> list[str]:
        """Cut a part with more than `most` spans into its spans and the text between them."""
        spans = [] if part.isspace() else self._spans_of(part)
        if len(spans) <= most or self._is_span(part):
            return [part]
        return protecting.cut_around(part, spans)

    def _is_span(self, part: str) -> bool:
        spans = self._spans_of(part)
        return len(spans) == 1 and spans[0].end - spans[0].start == len(part)

    def _spans_of(self, part: str) -> list[Span]:
        """Return the protected spans of a text or piece, including terms of the glossary."""
        if part not in self._spans:
            found = self._options.protection.find(part)
            if self._glossary is not None:
                found = self._glossary.add_terms(part, found)
            self._spans[part] = found
        return self._spans[part]

    def _masked(self, part: str) -> Masked:
        if part not in self._masks:
            spans = self._spans_of(part)
            # A part of a long sentence may contain text that looks like a span only after the cut.
            is_masked = spans and (self._is_span(part) or len(spans) <= self._most_spans)
            self._masks[part] = protecting.mask(part, spans) if is_masked else Masked(part)
        return self._masks[part]

    def _encode(self, parts: Iterable[str]) -> None:
        """Encode the parts that are not yet encoded."""
        new = [
            part
            for part in distinct_pieces(parts)
            if part not in self._ids and part not in self._corrections
        ]
        self._encode_new({part: self._masked(part).text for part in new})

    def _encode_new(self, shown: Mapping[str, str]) -> None:
        """Encode parts, given the text for the model for each of them."""
        found = call_on_parts(
            self._translator.encode,
            list(shown.values()),
            is_input_error=self._translator.is_input_error,
            probe=lambda: self._translator.encode([PROBE]),
        )
        self._ids.update(zip(shown, found, strict=True))

    def _fit(self, pieces: list[str]) -> list[bool]:
        self._encode(pieces)
        return [not self._has_words(piece) or not self._is_long(piece) for piece in pieces]

    def _has_words(self, part: str) -> bool:
        return bool(_LETTER.search(self._masked(part).text))

    def _is_long(self, part: str) -> bool:
        ids = self._ids.get(part, ())  # white space is not encoded
        return not isinstance(ids, Exception) and len(ids) > self._options.max_source_tokens

    def _find_unknown(self, parts: Iterable[str]) -> str | None:
        """Return the reason if the model does not know most of a text's letters, or None."""
        worded = [p for p in parts if p not in self._corrections and self._has_words(p)]
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
            if part in self._corrections:
                kept[part] = self._corrections[part]
                continue
            ids, shown = self._ids[part], self._masked(part)
            if isinstance(ids, Exception):
                return Plan(failed=one_line(ids))
            if is_empty(ids):
                kept[part] = ""
            elif not _LETTER.search(shown.text):
                kept[part] = protecting.unmask(shown.text, shown.replacements) or part
            elif not self._is_long(part):
                sources[part] = tuple(ids)
            elif options.on_too_long == TRUNCATE:
                truncated.add(part)
                sources[part] = (*ids[: options.max_source_tokens - 1], EOS_ID)
            else:  # the options forbid cutting, or the part is a single character
                most = options.max_source_tokens
                why = f"a sentence has {len(ids):,} tokens; at most {most:,} are allowed"
                return Plan(too_long=why)
            if part in sources and shown.replacements:
                masked[part] = shown
        return Plan(
            parts=parts,
            sources=sources,
            kept=kept,
            has_corrections=not self._corrections.keys().isdisjoint(kept),
            masked=masked,
            was_cut=was_cut,
            truncated=frozenset(truncated),
            unended=self._find_unended(parts, sources=sources),
        )

    def _find_unended(
        self, parts: Sequence[str], *, sources: Mapping[str, Source]
    ) -> frozenset[str]:
        """Return the pieces without a full stop that precede a span at all their occurrences."""
        found: dict[str, bool] = {}
        is_before = False  # whether a span follows on the same line
        for part in reversed(parts):
            if part.isspace():
                is_before = is_before and not LINE_BREAK.search(part)
                continue
            if part in sources:
                found[part] = found.get(part, part[-1] not in ".。") and is_before
            is_before = self._is_span(part)
        return frozenset(part for part, is_unended in found.items() if is_unended)
