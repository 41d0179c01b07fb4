"""Plan which pieces of each text the model translates."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence

import regex

from tt.model.engines.translator import Input, Translator
from tt.model.text.glossary import Glossary
from tt.model.text.spans import PLACEHOLDER, TooLongToSearchError
from tt.pipelines.texts.calling import PROBE, call_on_parts, one_line
from tt.pipelines.texts.cutting import LETTER, Cutter
from tt.pipelines.texts.judging import has_no_end
from tt.pipelines.texts.markup import AUTO, PLAIN, detect_format
from tt.pipelines.texts.masking import Masker, without_spans
from tt.pipelines.texts.options import KEEP, LONG, SENTENCES, SPLIT, TRUNCATE, TextOptions
from tt.pipelines.texts.plans import Plan
from tt.pipelines.texts.protecting import Masked, has_stand_ins
from tt.pipelines.texts.segments import LINE_BREAK, cut_to_fit, distinct_pieces, find_plain

# A code such as SKU-4711, or a value that spreadsheets and databases write.
_CODE = regex.compile(
    r"\s*(?:(?=\S*[0-9])[A-Z0-9]+(?:[-_./:#][A-Z0-9]+)*"
    r"|#?N/A|n/a|N\.A\.|n\.a\.|null|NULL|NaN|nan)\s*"
)


def is_code(text: str) -> bool:
    """Return whether a text is a code or a missing value, which no model should translate.

    >>> is_code("N/A"), is_code("SKU-4711"), is_code("A dog")
    (True, True, False)
    """
    return _CODE.fullmatch(text) is not None


def find_format(text: str, *, options: TextOptions) -> str:
    """Return the format in which a text is translated: `MARKDOWN`, `HTML` or `PLAIN`."""
    # Characters for private use stand for tags, so a text that contains them has no structure.
    if not options.protection.protect or has_stand_ins(text):
        return PLAIN
    return detect_format(text) if options.texts == AUTO else options.texts


@dataclasses.dataclass
class _Draft:
    """The unfinished plan of a text. Each text has its own spans and masks."""

    cutter: Cutter
    masker: Masker
    parts: list[str]


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
        self._prepare = functools.partial(
            translator.prepare,
            languages=(options.source_language, options.target_language),
            most_tokens=options.max_source_tokens if options.on_too_long == TRUNCATE else None,
        )
        self._glossary = glossary
        self._find_corrections = find_corrections
        self._corrections: dict[str, str] = {}  # human translations, by piece
        self._most_spans = options.placeholders or 0  # spans per piece that the model can place
        self._inputs: dict[str, Input | Exception] = {}  # by text for the model
        self._drafts: dict[str, _Draft] = {}  # by text
        self._knows = functools.cache(self._is_known)
        self._choose_case = functools.cache(lambda forms: _find_usual_case(self._prepare([*forms])))

    def plan(self, texts: Sequence[str]) -> list[Plan]:
        """Return a plan for each text; the texts must be distinct.

        Raises:
          Exception: The translator cannot encode any text.
        """
        planned: dict[str, Plan] = {}
        if self._glossary is None:
            planned = {t: Plan(parts=(t,), kept={t: t}) for t in texts if is_code(t)}
            others = [text for text in texts if text not in planned]
            if not self._options.protection.protect_regex:
                planned |= self._plan_plain(others)
        for text in texts:
            if text not in planned:
                try:
                    self._drafts[text] = self._draft(text)
                except TooLongToSearchError as error:
                    planned[text] = Plan(failed=str(error))
        drafts = [self._drafts[text] for text in texts if text not in planned]
        self._cut_around(drafts)
        self._encode((draft, part) for draft in drafts for part in draft.parts)
        made = iter(self._plan_drafts(drafts))
        return [planned[text] if text in planned else next(made) for text in texts]

    def plan_around(self, plan: Plan, lost: Iterable[str]) -> Plan:
        """Plan a text again, and cut the parts whose translations lost spans around their spans."""
        draft = self._drafts["".join(plan.parts)]
        around = {part: self._cut_part(draft, part, has_whole=False) for part in lost}
        kept = set(plan.parts) - around.keys()
        for each in set(itertools.chain.from_iterable(around.values())) - kept:
            if draft.masker.mask(each).replacements and not draft.cutter.is_span(each):
                # Text between spans can look like a span once it is cut off. The model would lose
                # its placeholder again, so the model gets the text itself.
                draft.masker.show_as_is(each)
        return self._plan_again(draft, plan, around)

    def plan_figures(self, plan: Plan, wrong: Iterable[str]) -> Plan:
        """Plan a text again, and protect the figures of the parts with wrong translations."""
        text = "".join(plan.parts)
        if text not in self._drafts:  # the text was planned as a plain sentence
            self._drafts[text] = self._draft(text)
        draft = self._drafts[text]
        around: dict[str, list[str]] = {}
        for part in wrong:
            draft.cutter.protect_figures(part)
            around[part] = self._cut_part(draft, part, has_whole=self._most_spans > 0)
            draft.masker.forget(part)
        return self._plan_again(draft, plan, around)

    def _plan_again(self, draft: _Draft, plan: Plan, cut: Mapping[str, list[str]]) -> Plan:
        """Return a plan with other parts instead of the keys of `cut`."""
        parts = [fragment for part in plan.parts for fragment in cut.get(part, [part])]
        self._encode((draft, part) for part in parts)
        again = dataclasses.replace(draft, parts=parts)
        return self._plan_parts(again, was_cut=plan.was_cut)

    def _draft(self, text: str) -> _Draft:
        cutter = Cutter(
            name=find_format(text, options=self._options),
            options=self._options,
            glossary=self._glossary,
            knows=self._knows,
        )
        masker = Masker(options=self._options, cutter=cutter, choose_case=self._choose_case)
        parts = cutter.cut_text(text, into_sentences=self._options.split == SENTENCES)
        return _Draft(cutter, masker, parts)

    def _is_known(self, character: str) -> bool:
        """Return whether the vocabulary contains a character of an entity."""
        return not character.isspace() and not self._prepare([character])[0].unknown

    def _plan_plain(self, texts: Sequence[str]) -> dict[str, Plan]:
        """Plan texts that are clearly one sentence without spans, and not too long for the model.

        Most rows of a table of sentences are such texts. Without this shortcut, planning takes
        three times as long.
        """
        is_plain = find_plain(
            texts,
            language=self._options.source_language,
            may_have_capitals=self._options.capitals == KEEP,
        )
        plain = list(itertools.compress(texts, is_plain))
        self._encode_new(plain)
        planned = {}
        for text in plain:
            source = self._inputs[text]
            if isinstance(source, Exception) or not source.length or source.unknown:
                continue
            if _fits(source, options=self._options):
                unended = frozenset((text,)) if text[-1].isalnum() else frozenset[str]()
                planned[text] = Plan(parts=(text,), sources={text: source}, unended=unended)
        return planned

    def _plan_drafts(self, drafts: Sequence[_Draft]) -> list[Plan]:
        """Plan texts whose parts have been encoded."""
        options = self._options
        unknown = [self._find_unknown(draft) for draft in drafts]
        known = [draft for draft, why in zip(drafts, unknown, strict=True) if not why]
        long = [d for d in known if any(self._is_long(d, part) for part in d.parts)]
        if options.split == LONG:
            for draft in long:  # their spans have been found already
                text = "".join(draft.parts)
                draft.parts = draft.cutter.cut_text(text, into_sentences=True)
            self._cut_around(long)
            self._encode((draft, part) for draft in long for part in draft.parts)
        whole = {id(draft): len(draft.parts) for draft in drafts}
        for draft in long if options.on_too_long == SPLIT else ():
            [draft.parts] = cut_to_fit(
                [draft.parts],
                fits=functools.partial(self._fit, draft),
                spans_of=draft.cutter.spans_of,
                on_cut=draft.cutter.hand_down_spans,
            )
        return [
            Plan(unknown=why)
            if why
            else self._plan_parts(draft, was_cut=len(draft.parts) > whole[id(draft)])
            for draft, why in zip(drafts, unknown, strict=True)
        ]

    def _cut_around(self, drafts: Sequence[_Draft]) -> None:
        """Cut the pieces with too many spans, unless they have human translations."""
        pieces = distinct_pieces(
            part for d in drafts for part in d.parts if part not in d.cutter.verbatim
        )
        self._corrections |= self._find_corrections(pieces)
        for draft in drafts:
            draft.parts = [
                fragment
                for part in draft.parts
                for fragment in (
                    [part]
                    if part in self._corrections or part in draft.cutter.verbatim
                    else self._cut_part(draft, part, has_whole=True)
                )
            ]

    def _cut_part(self, draft: _Draft, part: str, *, has_whole: bool) -> list[str]:
        fragments = draft.cutter.cut_around(part, has_whole=has_whole)
        draft.masker.hand_down_capitals(part, fragments)
        return fragments

    def _is_worded(self, draft: _Draft, part: str) -> bool:
        """Return whether a part is neither structure nor white space, and has no translation."""
        is_other = part in draft.cutter.verbatim or part in self._corrections
        return not is_other and not part.isspace()

    def _encode(self, parts: Iterable[tuple[_Draft, str]]) -> None:
        """Encode the parts that are not yet encoded."""
        shown = (d.masker.mask(part).text for d, part in parts if self._is_worded(d, part))
        self._encode_new([text for text in dict.fromkeys(shown) if text not in self._inputs])

    def _encode_new(self, texts: list[str]) -> None:
        found = call_on_parts(
            self._prepare,
            texts,
            is_input_error=self._translator.is_input_error,
            probe=lambda: self._prepare([PROBE]),
        )
        self._inputs.update(zip(texts, found, strict=True))

    def _fit(self, draft: _Draft, pieces: list[str]) -> list[bool]:
        self._encode((draft, piece) for piece in pieces)
        return [
            not self._has_letters(draft, piece) or not self._is_long(draft, piece)
            for piece in pieces
        ]

    def _has_letters(self, draft: _Draft, part: str) -> bool:
        return self._is_worded(draft, part) and bool(LETTER.search(draft.masker.mask(part).text))

    def _is_long(self, draft: _Draft, part: str) -> bool:
        if not self._is_worded(draft, part):
            return False
        source = self._inputs[draft.masker.mask(part).text]
        return not isinstance(source, Exception) and not _fits(source, options=self._options)

    def _find_unknown(self, draft: _Draft) -> str | None:
        """Return the reason if the model does not know most of a text's letters, or None."""
        masks = [draft.masker.mask(part) for part in draft.parts if self._has_letters(draft, part)]
        found = [self._inputs[masked.text] for masked in masks]
        if not any(not isinstance(each, Exception) and each.unknown for each in found):
            return None
        text = " ".join(without_spans(masked.text, masked.exact) for masked in masks)
        # Unknown symbols do not hide the meaning of a text with letters.
        text = "".join(c if c.isalpha() or self._knows(c) else " " for c in text)
        return self._prepare([text])[0].describe_unknown()

    def _plan_parts(self, draft: _Draft, *, was_cut: bool) -> Plan:
        options, cutter, parts = self._options, draft.cutter, draft.parts
        sources: dict[str, Input] = {}
        kept: dict[str, str] = {}
        masked: dict[str, Masked] = {}
        truncated: set[str] = set()
        values = dict.fromkeys(cutter.attributes.values())
        self._encode((draft, value) for value in values if value not in self._corrections)
        for part in [*parts, *values]:
            if part.isspace():
                continue
            if not self._is_worded(draft, part):
                kept[part] = self._corrections.get(part, part)
                continue
            shown = draft.masker.mask(part)
            source = self._inputs[shown.text]
            if isinstance(source, Exception):
                return Plan(failed=one_line(source))
            words = without_spans(shown.text, shown.exact)
            is_text = LETTER.search(words) and not is_code(shown.text)
            if not is_text or not source.length:
                kept[part] = cutter.keep(part, is_empty=bool(shown.text) and not source.length)
            elif _fits(source, options=self._options):
                sources[part] = source
            elif options.on_too_long == TRUNCATE:
                truncated.add(part)
                sources[part] = dataclasses.replace(source, length=options.max_source_tokens - 2)
            elif part in values and part not in parts:
                kept[part] = part
            else:  # the options forbid cutting, or the part is a single character
                most = options.max_source_tokens
                why = f"a sentence has {source.length + 2:,} tokens; at most {most:,} are allowed"
                return Plan(too_long=why)
            if part in sources and shown != Masked(part):
                masked[part] = shown
        return Plan(
            parts=parts,
            sources=sources,
            kept=kept,
            verbatim=frozenset(cutter.verbatim.intersection(parts)),
            attributes=cutter.attributes,
            has_corrections=not self._corrections.keys().isdisjoint(kept),
            masked=masked,
            fragments=frozenset(cutter.fragments.intersection(sources)),
            was_cut=was_cut,
            truncated=frozenset(truncated),
            unknown_characters={
                part: _find_unknown(draft.masker.mask(part).text, knows=self._knows)
                for part, source in sources.items()
                if source.unknown
            },
            unended=_find_unended(draft, sources=sources),
        )


def _find_usual_case(forms: Sequence[Input]) -> str:
    """Return the form of a word that the vocabulary knows better."""
    return min(forms, key=lambda each: (each.length, each.rarity)).text


def _fits(source: Input, *, options: TextOptions) -> bool:
    """Return whether a source is not too long, with BOS and EOS."""
    return source.length + 2 <= options.max_source_tokens


def _find_unended(draft: _Draft, *, sources: Mapping[str, Input]) -> frozenset[str]:
    """Return the pieces whose translations must not end with an added full stop.

    These pieces do not end like a sentence, or precede a span at all their occurrences.
    """
    parts = set(draft.parts)
    found = {  # first of the pieces in attributes
        part: has_no_end(draft.masker.mask(part).text) for part in sources if part not in parts
    }
    is_before = False  # whether a span follows on the same line
    for part in reversed(draft.parts):
        if part.isspace():
            is_before = is_before and not LINE_BREAK.search(part)
            continue
        if part in sources:
            text = draft.masker.mask(part).text
            is_open = text[-1:] not in ".。" and (is_before or has_no_end(text))
            found[part] = found.get(part, True) and is_open
        is_before = part not in draft.cutter.verbatim and draft.cutter.is_span(part)
    return frozenset(part for part, is_unended in found.items() if is_unended)


def _find_unknown(text: str, *, knows: Callable[[str], bool]) -> frozenset[str]:
    """Return the characters of a text for the model that the vocabulary lacks."""
    shown = unicodedata.normalize("NFC", PLACEHOLDER.sub("", text))
    return frozenset(c for c in shown if not (c.isspace() or knows(c)))
