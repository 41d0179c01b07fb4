"""Texts to translations: each row gets one, and a status that says how it was made.

Nothing here knows files or Beam: tables, lines and streams call it.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from model.engines.batching import begin_sources
from model.engines.translator import Hypothesis, Translation, Translator, Work, between
from model.text.glossary import Glossary
from model.text.spans import BRACKET, TooLongToSearchError
from model.transformer.search_options import Decoding
from pipelines.texts.bisection import call_on_parts, one_line, raise_if_not_at_fault
from pipelines.texts.choosing import (
    Chosen,
    Found,
    choose,
    combine,
    usable_hypotheses,
)
from pipelines.texts.judging import Judge
from pipelines.texts.limits import SPAN_REPAIRED, Limits
from pipelines.texts.loops import repeats_itself
from pipelines.texts.options import LEAVE_OUT, TextOptions
from pipelines.texts.planning import PROBE, Plan, Planner, Source
from pipelines.texts.segments import join_translations

OK = "ok"
NULL = "null"  # no text: no translation
EMPTY = "empty"  # nothing is in it: the translation is ""
COPIED = "copied"  # no letter is in it, or protected spans alone: the translation is the text
TOO_LONG = "too_long"  # more tokens than max_source_tokens: only the beginning, or nothing
SPLIT = "split"  # a sentence was too long, and translated in pieces
INCOMPLETE = "incomplete"  # a sentence's translation was cut off at the length limit
UNKNOWN = "unknown"  # most of it is not in the model's vocabulary: no translation
FAILED = "failed"  # not UTF-8, or the model fails at it: no translation
FLAGGED = "flagged"  # left out, as `on_flag=null` says: no translation
STATUSES = (OK, NULL, EMPTY, COPIED, TOO_LONG, SPLIT, INCOMPLETE, UNKNOWN, FLAGGED, FAILED)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedText:
    """What a row gets."""

    translation: str | None = None  # the best one
    score: float | None = None  # its log-probability; of several sentences, the sum of theirs
    status: str  # one of STATUSES
    error: str | None = None  # why there is no translation, in one line
    flags: tuple[str, ...] = ()  # of FLAGS: what is suspicious about the translation
    # Best first; of several sentences, those of the most probable choices among theirs.
    n_best: tuple[Hypothesis, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TermCounts:
    """Terms of a glossary in texts; two counts add up with `+`."""

    found: int = 0  # terms in the texts, each occurrence counted
    kept: int = 0  # those of them whose translation stands in the text's

    def __add__(self, other: TermCounts) -> TermCounts:
        return TermCounts(found=self.found + other.found, kept=self.kept + other.kept)


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedTexts:
    """What `translate_texts` returns."""

    translations: list[TranslatedText]  # one for each row, in order
    texts: int  # sources that were translated, each occurrence counted
    distinct_texts: int  # sources without repetitions: each is translated once
    source_characters: int  # of all rows that hold text
    work: Work  # of the calls that did not fail
    terms: TermCounts = dataclasses.field(default_factory=TermCounts)


def translate_texts(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    limits: Limits | None = None,
) -> TranslatedTexts:
    """Translates each distinct source once and gives every row its translation, score and status.

    Where the model fails at a source, its rows become FAILED and all others are translated. Where
    it loses or doubles a protected span of a sentence, what is between its spans is translated.

    Args:
      cells: The bytes of a text, or None, for each row.
      translator: The model.
      options: How texts are treated.
      glossary: Terms whose translations are given.
      limits: What is usual for the model's translations; without, some flags cannot be known.

    Raises:
      Exception: What the translator raised, where that is no fault of a source
        (`is_input_error`), or where all sources fail and a harmless one as well.
    """
    translator = between(translator, source=options.source_language, target=options.target_language)
    decided: dict[bytes | None, TranslatedText] = {None: TranslatedText(status=NULL)}
    texts: dict[bytes, str] = {}
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        try:
            texts[cell] = cell.decode()
        except UnicodeDecodeError as error:
            decided[cell] = TranslatedText(status=FAILED, error=f"not UTF-8: {error.reason}")
    planner = Planner(translator=translator, options=options, glossary=glossary)
    plans = dict(zip(texts, planner.plan(list(texts.values())), strict=True))
    found, work = _translate(_sources_of(plans.values()), translator=translator)
    repaired = _plan_repairs(plans, found, planner=planner)
    again, more = _translate(
        {
            source: text
            for source, text in _sources_of(repaired.values()).items()
            if source not in found
        },
        translator=translator,
    )
    found, work, plans = {**found, **again}, work + more, plans | repaired
    judge = Judge(limits=limits or Limits(), flags=options.flags)
    for cell, plan in plans.items():
        finished = _finish_whole(plan, found, judge=judge)
        if finished is None:
            chosen = choose(plan, found, judge=judge)
            finished = _finish(plan, chosen, is_repaired=cell in repaired, judge=judge)
        decided[cell] = _leave_out(finished) if options.on_flag == LEAVE_OUT else finished
    translated = {source for source, result in found.items() if isinstance(result, Translation)}
    texts_in = {
        cell: sum(source in translated for source in plan.occurrences)
        for cell, plan in plans.items()
    }
    return TranslatedTexts(
        translations=[decided[cell] for cell in cells],
        texts=sum(texts_in.get(cell, 0) for cell in cells if cell is not None),
        distinct_texts=len(translated),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in cells if cell),
        work=work,
        terms=_count_terms(cells, texts, decided, options=options, glossary=glossary),
    )


def _sources_of(plans: Iterable[Plan]) -> dict[Source, str]:
    """Returns the sources of plans in their order, each once, with the text of it."""
    return {
        plan.sources[part]: part for plan in plans for part in plan.parts if part in plan.sources
    }


def _plan_repairs(
    plans: Mapping[bytes, Plan], found: Found, *, planner: Planner
) -> dict[bytes, Plan]:
    """Plans those texts anew of whose sentences no hypothesis has the protected spans."""
    lost: dict[bytes, list[str]] = {}
    for cell, plan in plans.items():
        for part in plan.masked:
            result = found[plan.sources[part]]
            if isinstance(result, Translation) and not usable_hypotheses(plan, part, result):
                lost.setdefault(cell, []).append(part)
    planned = planner.plan_around([plans[cell] for cell in lost], lost=list(lost.values()))
    return dict(zip(lost, planned, strict=True))


def _count_terms(
    cells: Sequence[bytes | None],
    texts: Mapping[bytes, str],
    decided: Mapping[bytes | None, TranslatedText],
    *,
    options: TextOptions,
    glossary: Glossary | None,
) -> TermCounts:
    if glossary is None:
        return TermCounts()
    counts: dict[bytes | None, TermCounts] = {}
    for cell, text in texts.items():
        try:
            spans = options.protection.find(text)
        except TooLongToSearchError:  # the text has failed
            continue
        terms = glossary.find(text, spans)
        wanted = collections.Counter(term.replacement for term in terms)
        translation = decided[cell].translation or ""
        kept = sum(min(count, translation.count(term)) for term, count in wanted.items())
        counts[cell] = TermCounts(found=wanted.total(), kept=kept)
    return sum((counts[cell] for cell in cells if cell in counts), TermCounts())


def _translate(sources: Mapping[Source, str], *, translator: Translator) -> tuple[Found, Work]:
    """Translates sources; one at which the model fails has its error instead.

    A source whose best translation was cut off is translated again, with room for twice as much.
    One that repeats itself is not: more room would make more of that.
    """
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Source], **settings: Any) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some], **settings)
        work += done
        return translations

    found = call_on_parts(translate, list(sources), is_input_error=translator.is_input_error)
    raise_if_not_at_fault(
        found,
        probe=lambda: translator.translate_ids(translator.encode([PROBE])),
        is_input_error=translator.is_input_error,
    )
    results = dict(zip(sources, found, strict=True))
    cut_off = [
        source
        for source, result in results.items()
        if isinstance(result, Translation)
        and not result.hypotheses[0].is_complete
        and _can_grow(source, translator.decoding)
        and not repeats_itself(result.hypotheses[0].text, source=sources[source])
    ]
    again = call_on_parts(
        lambda some: translate(some, growth=2), cut_off, is_input_error=translator.is_input_error
    )
    raise_if_not_at_fault(
        again,
        probe=lambda: translator.translate_ids(translator.encode([PROBE]), growth=2),
        is_input_error=translator.is_input_error,
    )
    longer = zip(cut_off, again, strict=True)
    results |= {source: each for source, each in longer if isinstance(each, Translation)}
    return results, work


def _can_grow(source: Source, decoding: Decoding) -> bool:
    """Says whether a translation may be longer in a second try, within `max_decoding_length`."""
    return decoding.length_limit(len(source), growth=2) > decoding.length_limit(len(source))


def _leave_out(text: TranslatedText) -> TranslatedText:
    if not text.flags:
        return text
    error = f"left out, since it is flagged: {', '.join(text.flags)}"
    return TranslatedText(status=FLAGGED, error=error, flags=text.flags)


def _finish_whole(plan: Plan, found: Found, *, judge: Judge) -> TranslatedText | None:
    """Does quickly what `choose` and `_finish` do where there is little to do; else None.

    That is a text of one sentence without spans, for which there is no choice: most are.
    """
    if not plan.is_whole:
        return None
    [(part, source)] = plan.sources.items()
    result = found[source]
    if isinstance(result, Exception) or any(BRACKET in each.text for each in result.hypotheses):
        return None
    best = result.hypotheses[0]
    flagged = judge(part, best, source_tokens=len(source) - 2)
    return TranslatedText(
        translation=best.text,
        score=best.score,
        status=OK if best.is_complete else INCOMPLETE,
        n_best=result.hypotheses,
        flags=flagged,
    )


def _finish(
    plan: Plan,
    chosen: Mapping[str, Chosen | Exception],
    *,
    is_repaired: bool,
    judge: Judge,
) -> TranslatedText:
    if why := plan.failed:
        return TranslatedText(status=FAILED, error=why)
    if why := plan.unknown:
        return TranslatedText(status=UNKNOWN, error=why)
    if why := plan.too_long:
        return TranslatedText(status=TOO_LONG, error=why)
    if not plan.sources:
        if not any(plan.kept.values()):
            return TranslatedText(translation="", status=EMPTY)
        if all(text in ("", part) for part, text in plan.kept.items()):
            return TranslatedText(translation="".join(plan.parts), status=COPIED)
        return TranslatedText(translation=join_translations(plan.parts, plan.kept), status=OK)
    translations: dict[str, Translation] = {}
    flagged: set[str] = set()
    for part, result in chosen.items():
        if isinstance(result, Exception):
            return TranslatedText(status=FAILED, error=one_line(result))
        translations[part] = Translation(result.hypotheses)
        flagged.update(result.flags)
    best, *_ = hypotheses = combine(plan, translations)
    if is_repaired:
        flagged.add(SPAN_REPAIRED)
    status = SPLIT if plan.was_cut else OK
    if plan.truncated:
        status = TOO_LONG
    elif not best.is_complete:
        status = INCOMPLETE
    return TranslatedText(
        translation=best.text,
        score=best.score,
        status=status,
        n_best=hypotheses,
        flags=judge.counting(flagged),
    )
