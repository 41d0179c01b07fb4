"""Texts to translations: each row gets one, and a status that says how it was made.

Nothing here knows files or Beam: tables, lines and streams call it.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from model.decoding.options import Decoding
from model.engines.progress import begin_sources
from model.engines.translator import Hypothesis, Translation, Translator, Work
from model.text.glossary import Glossary
from pipelines.texts import flags
from pipelines.texts.bisection import call_on_parts, one_line, raise_if_not_at_fault
from pipelines.texts.flags import Judge, Limits
from pipelines.texts.options import LEAVE_OUT, RETRY, TextOptions
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
_Found = Mapping[Source, Translation | Exception]


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
        [source for source in _sources_of(repaired.values()) if source not in found],
        translator=translator,
    )
    found, work, plans = {**found, **again}, work + more, plans | repaired
    judge = Judge(limits=limits or Limits(), flags=options.flags)
    second = _Second()
    if options.on_flag == RETRY:
        second, more = _retry(
            plans.values(), found, translator=translator, planner=planner, judge=judge
        )
        work += more
    for cell, plan in plans.items():
        chosen = _choose(plan, found, second, judge=judge)
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


def _sources_of(plans: Iterable[Plan]) -> list[Source]:
    return list(dict.fromkeys(source for plan in plans for source in plan.occurrences))


def _plan_repairs(
    plans: Mapping[bytes, Plan], found: _Found, *, planner: Planner
) -> dict[bytes, Plan]:
    """Plans those texts anew of whose sentences no hypothesis has the protected spans."""
    lost: dict[bytes, list[str]] = {}
    for cell, plan in plans.items():
        for part in plan.masked:
            result = found[plan.sources[part]]
            if isinstance(result, Translation) and not _usable(plan, part, result):
                lost.setdefault(cell, []).append(part)
    planned = planner.plan_around([plans[cell] for cell in lost], lost=list(lost.values()))
    return dict(zip(lost, planned, strict=True))


class _Usable(NamedTuple):
    """A hypothesis of a part that has its protected spans."""

    made: Hypothesis  # as the model made it, with placeholders
    shown: Hypothesis  # with the spans


def _usable(plan: Plan, part: str, result: Translation) -> list[_Usable]:
    is_plain = part not in plan.masked and part not in plan.unended
    if is_plain and not any("⟦" in each.text for each in result.hypotheses):
        return [_Usable(each, each) for each in result.hypotheses]
    return [
        _Usable(hypothesis, dataclasses.replace(hypothesis, text=text))
        for hypothesis in result.hypotheses
        if (text := plan.put_back(part, hypothesis.text)) is not None
    ]


def _flags_of(plan: Plan, part: str, best: _Usable, *, judge: Judge) -> tuple[str, ...]:
    """Returns the flags of a part's translation; what must not change is no part of it."""
    ids = plan.sources[part]
    if part in plan.masked:
        return judge(plan.masked[part].text, best.made, source_tokens=len(ids) - 2)
    return judge(part, best.shown, source_tokens=len(ids) - 2)


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
        terms = glossary.find(text, options.protection.find(text))
        wanted = collections.Counter(term.replacement for term in terms)
        translation = decided[cell].translation or ""
        kept = sum(min(count, translation.count(term)) for term, count in wanted.items())
        counts[cell] = TermCounts(found=wanted.total(), kept=kept)
    return sum((counts[cell] for cell in cells if cell in counts), TermCounts())


def _translate(sources: list[Source], *, translator: Translator) -> tuple[_Found, Work]:
    """Translates sources; one at which the model fails has its error instead.

    A source whose best translation was cut off is translated again, with room for twice as much.
    """
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Source], **settings: Any) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some], **settings)
        work += done
        return translations

    found = call_on_parts(translate, sources, is_input_error=translator.is_input_error)
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


class _Second(NamedTuple):
    """What a second try made of flagged sentences."""

    found: Mapping[Source, Translation] = {}  # by another search
    around: Mapping[str, Plan] = {}  # what is between the spans of a sentence that has some


def _retry(
    plans: Iterable[Plan],
    found: _Found,
    *,
    translator: Translator,
    planner: Planner,
    judge: Judge,
) -> tuple[_Second, Work]:
    """Translates flagged sentences once more by another search, whole and around their spans."""
    work = Work()
    flagged: dict[Source, None] = {}
    masked: dict[str, None] = {}
    for plan in plans:
        for part, source in plan.sources.items():
            first = found[source]
            if isinstance(first, Exception):
                continue
            if _flags_of(plan, part, _usable(plan, part, first)[0], judge=judge):
                flagged[source] = None
                if part in plan.masked and part not in plan.truncated:
                    masked[part] = None
    planned = planner.plan_around(
        [Plan(parts=(part,)) for part in masked], lost=[(part,) for part in masked]
    )
    around = dict(zip(masked, planned, strict=True))

    def translate(some: list[Source]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids(
            [list(each) for each in some], growth=2, decoding=translator.decoding.second_try()
        )
        work += done
        return translations

    sources = list(flagged | dict.fromkeys(_sources_of(planned)))
    again = call_on_parts(translate, sources, is_input_error=translator.is_input_error)
    made = zip(sources, again, strict=True)
    kept = {source: each for source, each in made if isinstance(each, Translation)}
    return _Second(kept, around), work


class _Chosen(NamedTuple):
    """What may become of a part."""

    hypotheses: tuple[Hypothesis, ...]  # with its spans
    score: float  # of the best
    flags: tuple[str, ...]


def _choose(
    plan: Plan, found: _Found, second: _Second, *, judge: Judge
) -> dict[str, _Chosen | Exception]:
    """Chooses the translation of each part of a text.

    Of one that is flagged, a second try is taken if it has fewer flags, or as many and is more
    probable. Texts with the same ids may have other flags, so that each chooses for itself.
    """
    chosen: dict[str, _Chosen | Exception] = {}
    for part, source in plan.sources.items():
        first = found[source]
        if isinstance(first, Exception):
            chosen[part] = first
            continue
        best = _as_choice(plan, part, _usable(plan, part, first), judge=judge)
        if best.flags:
            tries = [best]
            if source in second.found and (usable := _usable(plan, part, second.found[source])):
                tries.append(_as_choice(plan, part, usable, judge=judge))
            if part in second.around and part not in plan.truncated:
                tries += _choose_around(plan, part, second, judge=judge)
            best = min(tries, key=lambda each: (len(each.flags), -each.score))
        chosen[part] = best
    return chosen


def _as_choice(plan: Plan, part: str, usable: Sequence[_Usable], *, judge: Judge) -> _Chosen:
    flagged = _flags_of(plan, part, usable[0], judge=judge)
    return _Chosen(tuple(each.shown for each in usable), usable[0].made.score, flagged)


def _choose_around(plan: Plan, part: str, second: _Second, *, judge: Judge) -> list[_Chosen]:
    """Returns a part as translated around its spans, judged by what is between them, if it was."""
    between = second.around[part]
    if not between.sources or not second.found.keys() >= set(between.sources.values()):
        return []
    translations = {
        piece: Translation(
            tuple(each.shown for each in _usable(between, piece, second.found[source]))
        )
        for piece, source in between.sources.items()
    }
    hypotheses = _combine(between, translations)
    pieces = [piece for piece in between.parts if piece in translations]
    best = [translations[piece].hypotheses[0] for piece in pieces]
    made = Hypothesis(
        " ".join(each.text for each in best),
        hypotheses[0].score,
        hypotheses[0].is_complete,
        tokens=sum(each.tokens - 1 for each in best) + 1,
    )
    tokens = sum(len(source) - 2 for source in between.occurrences)
    flagged = judge(" ".join(pieces), made, source_tokens=tokens)
    shown = [dataclasses.replace(h, text=plan.end_like(part, h.text)) for h in hypotheses]
    return [_Chosen(tuple(shown), made.score, flagged)]


def _leave_out(text: TranslatedText) -> TranslatedText:
    if not text.flags:
        return text
    error = f"left out, since it is flagged: {', '.join(text.flags)}"
    return TranslatedText(status=FLAGGED, error=error, flags=text.flags)


def _finish(
    plan: Plan,
    chosen: Mapping[str, _Chosen | Exception],
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
    best, *_ = hypotheses = _combine(plan, translations)
    if is_repaired:
        flagged.add(flags.SPAN_REPAIRED)
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


def _combine(plan: Plan, translations: Mapping[str, Translation]) -> tuple[Hypothesis, ...]:
    """Returns the hypotheses of a text: the best of each piece, then the most probable others."""
    times = collections.Counter(part for part in plan.parts if part in translations)
    best = {part: each.hypotheses[0] for part, each in translations.items()}
    count = max(len(each.hypotheses) for each in translations.values())
    score = sum(times[part] * each.score for part, each in best.items())
    others: list[tuple[float, dict[str, Hypothesis]]] = []  # scores, and what differs from the best
    for part, (first, *rest) in ((part, each.hypotheses) for part, each in translations.items()):
        others += [
            (known + times[part] * (each.score - first.score), changed | {part: each})
            for known, changed in [(score, {}), *others]
            for each in rest
        ]
        if len(translations) > 1:  # else they have the order of the search
            others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
    hypotheses = []
    for known, changed in [(score, {}), *others]:
        chosen = best | changed
        texts = {**plan.kept, **{part: each.text for part, each in chosen.items()}}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(join_translations(plan.parts, texts), known, is_complete))
    return tuple(hypotheses)
