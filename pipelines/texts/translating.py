"""Translate texts, and give each of them a status, a score and flags."""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tt.model.engines.batching import begin_sources
from tt.model.engines.translator import Hypothesis, Translation, Translator, Work, between
from tt.model.text.glossary import Glossary
from tt.model.text.spans import BRACKET, TooLongToSearchError
from tt.pipelines.texts.judging import flag_sentence
from tt.pipelines.texts.limits import SPAN_REPAIRED, Limits
from tt.pipelines.texts.options import LEAVE_OUT, TextOptions
from tt.pipelines.texts.planning import PROBE, Plan, Planner, Source, call_on_parts, one_line
from tt.pipelines.texts.segments import join_translations

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
# Several texts together have the first of these statuses that one of them has.
WORST_FIRST = (FAILED, UNKNOWN, FLAGGED, TOO_LONG, INCOMPLETE, SPLIT, OK, COPIED, EMPTY, NULL)


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


TermCounts = collections.Counter[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedTexts:
    """The result of `translate_texts`."""

    translations: list[TranslatedText]  # one for each row, in order
    texts: int  # sources that were translated, each occurrence counted
    distinct_texts: int  # sources without repetitions: each is translated once
    source_characters: int  # of all rows that hold text
    work: Work  # of the calls that did not fail
    # Terms of the glossary that were "found" in the texts, and those "kept" in the translations.
    terms: TermCounts = dataclasses.field(default_factory=collections.Counter)


_Found = Mapping[Source, Translation | Exception]
_Hypotheses = tuple[Hypothesis, ...]  # best first


def translate_texts(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    limits: Limits | None = None,
) -> TranslatedTexts:
    """Translate each distinct source once; give every row its translation, score and status.

    If the model fails at a source, its rows become FAILED and all others are translated. If the
    model loses or doubles a protected span of a sentence, the text between its spans is translated.

    Args:
      cells: The bytes of a text, or None, for each row.
      translator: The model.
      options: How texts are treated.
      glossary: Terms whose translations are given.
      limits: The usual values of the model; without them, some flags cannot be known.

    Raises:
      Exception: The translator raised an error that no source can have caused (`is_input_error`),
        or all sources fail and a harmless one as well.
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
    missing = [source for source in _sources_of(repaired.values()) if source not in found]
    again, more = _translate(missing, translator=translator)
    found, plans = {**found, **again}, plans | repaired
    for cell, plan in plans.items():
        decided[cell] = _finish(
            plan,
            found,
            limits=limits or Limits(),
            options=options,
            is_repaired=cell in repaired,
        )
    translated = {source for source, result in found.items() if isinstance(result, Translation)}
    texts_in = {
        cell: sum(source in translated for source in plan.occurrences)
        for cell, plan in plans.items()
    }
    terms = {}
    if glossary is not None:
        terms = {
            cell: _count_terms(text, decided[cell], options=options, glossary=glossary)
            for cell, text in texts.items()
        }
    return TranslatedTexts(
        translations=[decided[cell] for cell in cells],
        texts=sum(texts_in.get(cell, 0) for cell in cells if cell is not None),
        distinct_texts=len(translated),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in cells if cell),
        work=work + more,
        terms=sum((terms[cell] for cell in cells if cell in terms), TermCounts()),
    )


def _sources_of(plans: Iterable[Plan]) -> dict[Source, None]:
    """Return the distinct sources of plans in their order."""
    return dict.fromkeys(source for plan in plans for source in plan.occurrences)


def _plan_repairs(
    plans: Mapping[bytes, Plan], found: _Found, *, planner: Planner
) -> dict[bytes, Plan]:
    """Plan those texts again that have a sentence of which no hypothesis has the spans."""
    lost: dict[bytes, list[str]] = {}
    for cell, plan in plans.items():
        for part in plan.masked:
            result = found[plan.sources[part]]
            if isinstance(result, Translation) and not _usable_hypotheses(plan, part, result):
                lost.setdefault(cell, []).append(part)
    planned = planner.plan_around([plans[cell] for cell in lost], lost=list(lost.values()))
    return dict(zip(lost, planned, strict=True))


def _count_terms(
    text: str, translated: TranslatedText, *, options: TextOptions, glossary: Glossary
) -> TermCounts:
    try:
        spans = options.protection.find(text)
    except TooLongToSearchError:  # the text has failed
        return TermCounts()
    wanted = collections.Counter(term.replacement for term in glossary.find(text, spans))
    translation = translated.translation or ""
    kept = sum(min(count, translation.count(term)) for term, count in wanted.items())
    return TermCounts(found=wanted.total(), kept=kept)


def _translate(sources: Collection[Source], *, translator: Translator) -> tuple[_Found, Work]:
    """Translate sources; a source at which the model fails has its error instead."""
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Source]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some])
        work += done
        return translations

    found = call_on_parts(
        translate,
        list(sources),
        probe=lambda: translator.translate_ids(translator.encode([PROBE])),
        is_input_error=translator.is_input_error,
    )
    return dict(zip(sources, found, strict=True)), work


def _finish(
    plan: Plan, found: _Found, *, limits: Limits, options: TextOptions, is_repaired: bool
) -> TranslatedText:
    """Return the translation of a text, or the reason why there is none."""
    for status, why in ((FAILED, plan.failed), (UNKNOWN, plan.unknown), (TOO_LONG, plan.too_long)):
        if why:
            return TranslatedText(status=status, error=why)
    if not plan.sources:
        if not any(plan.kept.values()):
            return TranslatedText(translation="", status=EMPTY)
        if all(text in ("", part) for part, text in plan.kept.items()):
            return TranslatedText(translation="".join(plan.parts), status=COPIED)
        return TranslatedText(translation=join_translations(plan.parts, plan.kept), status=OK)
    hypotheses: dict[str, _Hypotheses] = {}
    flagged: set[str] = set()
    for part, source in plan.sources.items():
        result = found[source]
        if isinstance(result, Exception):
            return TranslatedText(status=FAILED, error=one_line(result))
        if (chosen := choose(plan, part, result, limits=limits)) is None:
            error = f"the model loses what must not change in {part!r}"
            return TranslatedText(status=FAILED, error=error)
        hypotheses[part], seen = chosen
        flagged.update(seen)
    best, *_ = n_best = _combine(plan, hypotheses)
    if is_repaired:
        flagged.add(SPAN_REPAIRED)
    counted = tuple(flag for flag in options.flags if flag in flagged) if flagged else ()
    if counted and options.on_flag == LEAVE_OUT:
        error = f"left out, since it is flagged: {', '.join(counted)}"
        return TranslatedText(status=FLAGGED, error=error, flags=counted)
    status = SPLIT if plan.was_cut else OK
    if plan.truncated:
        status = TOO_LONG
    elif not best.is_complete:
        status = INCOMPLETE
    return TranslatedText(
        translation=best.text, score=best.score, status=status, n_best=n_best, flags=counted
    )


def choose(
    plan: Plan, part: str, result: Translation, *, limits: Limits
) -> tuple[_Hypotheses, list[str]] | None:
    """Return the hypotheses of a part that have its spans, and the flags of the best.

    Protected spans are not judged: the placeholders of both texts are. The result is None if no
    hypothesis has all spans.
    """
    usable = _usable_hypotheses(plan, part, result)
    if not usable:
        return None
    made, shown = usable[0]
    is_masked = part in plan.masked
    found = [
        *flag_sentence(
            plan.masked[part].text if is_masked else part,
            made.text if is_masked else shown.text,
            limits=limits,
            source_tokens=len(plan.sources[part]) - 2,
            target_tokens=made.tokens - 1,
            score=made.score,
        )
    ]
    if not made.is_complete:
        found.append(INCOMPLETE)  # a flag of this name, too
    return tuple(with_spans for _, with_spans in usable), found


def _usable_hypotheses(
    plan: Plan, part: str, result: Translation
) -> list[tuple[Hypothesis, Hypothesis]]:
    """Return the hypotheses of a part that have its spans, with placeholders and with the spans."""
    is_plain = part not in plan.masked and part not in plan.unended
    if is_plain and not any(BRACKET in each.text for each in result.hypotheses):
        return [(each, each) for each in result.hypotheses]
    return [
        (hypothesis, dataclasses.replace(hypothesis, text=text))
        for hypothesis in result.hypotheses
        if (text := plan.put_back(part, hypothesis.text)) is not None
    ]


def _combine(plan: Plan, found: Mapping[str, _Hypotheses]) -> _Hypotheses:
    """Return the hypotheses of a text: the best of each piece, then the most probable others."""
    if len(plan.parts) == 1:
        return found[plan.parts[0]]
    times = collections.Counter(part for part in plan.parts if part in found)
    best = {part: each[0] for part, each in found.items()}
    count = max(len(each) for each in found.values())
    score = sum(times[part] * each.score for part, each in best.items())
    others: list[tuple[float, dict[str, Hypothesis]]] = []  # scores, and what differs from the best
    for part, (first, *rest) in found.items():
        others += [
            (known + times[part] * (each.score - first.score), changed | {part: each})
            for known, changed in [(score, {}), *others]
            for each in rest
        ]
        if len(found) > 1:  # else they have the order of the search
            others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
    hypotheses = []
    for known, changed in [(score, {}), *others]:
        chosen = best | changed
        texts = {**plan.kept, **{part: each.text for part, each in chosen.items()}}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(join_translations(plan.parts, texts), known, is_complete))
    return tuple(hypotheses)


TRANSLATION = "translation"
SCORE = "translation_score"
STATUS = "translation_status"
ERROR = "translation_error"
ROW_FLAGS = "translation_flags"
N_BEST = "translation_n_best"


VALUES: dict[str, Callable[[TranslatedText], Any]] = {
    TRANSLATION: lambda text: text.translation,
    SCORE: lambda text: text.score,
    STATUS: lambda text: text.status,
    ERROR: lambda text: text.error,
    ROW_FLAGS: lambda text: list(text.flags),
    N_BEST: lambda text: [{"text": h.text, "score": h.score} for h in text.n_best] or None,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFields:
    """The fields that are translated, and the names of the added fields.

    Attributes:
      fields: The fields of the texts.
      output: The name of the translation; the names of the other added fields begin with it.
      has_n_best: Whether the n best translations are added.
    """

    fields: tuple[str, ...] = ()
    output: str = TRANSLATION
    has_n_best: bool = False

    def name(self, field: str, added: str) -> str:
        """Return the name of an added field: of several texts, it begins with the text's field.

        >>> TextFields(fields=("a", "b"), output="german").name("a", "translation_score")
        'a_german_score'
        """
        name = self.output + added.removeprefix(TRANSLATION)
        return name if len(self.fields) == 1 else f"{field}_{name}"

    def added(self) -> list[tuple[str, str]]:
        """Return the text's field and the name in VALUES of each added field, in their order."""
        names = [name for name in VALUES if self.has_n_best or name != N_BEST]
        return [(field, name) for field in self.fields for name in names]
