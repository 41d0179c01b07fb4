"""Translate texts, and give each text a status, a score and flags."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import heapq
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tt.model.engines.batching import begin_sources
from tt.model.engines.translator import Hypothesis, Translation, Translator, Work, between
from tt.model.text.glossary import Glossary
from tt.model.text.spans import BRACKET, TooLongToSearchError
from tt.pipelines.texts.judging import flag_sentence
from tt.pipelines.texts.limits import SPAN_REPAIRED, Limits
from tt.pipelines.texts.options import LEAVE_OUT, TRANSLATION, TextOptions
from tt.pipelines.texts.planning import PROBE, Plan, Planner, call_on_parts, one_line
from tt.pipelines.texts.remembering import Learned, Memory, Source
from tt.pipelines.texts.segments import join_translations

OK = "ok"
NULL = "null"  # the text is missing; no translation
EMPTY = "empty"  # the text is empty; the translation is ""
COPIED = "copied"  # the text has no letters, or only protected spans; the translation is the text
TOO_LONG = "too_long"  # a sentence exceeds max_source_tokens; a partial translation, or none
SPLIT = "split"  # a sentence was too long and was translated in parts
INCOMPLETE = "incomplete"  # the search ended a sentence at the length limit
UNKNOWN = "unknown"  # the model's vocabulary does not contain most of the text; no translation
FAILED = "failed"  # the text is not UTF-8, or the model fails at it; no translation
FLAGGED = "flagged"  # the translation is flagged, and `on_flag` is "null"; no translation
FROM_MEMORY = "from_memory"  # the whole translation comes from people, by a translation memory
SKIPPED = "skipped"  # the condition of `where` is not true for the row; no translation
STATUSES = (
    OK, NULL, EMPTY, COPIED, TOO_LONG, SPLIT, INCOMPLETE, UNKNOWN, FLAGGED, FAILED, FROM_MEMORY,
    SKIPPED,
)  # fmt: skip
# A group of texts has the worst status of its texts.
WORST_FIRST = (
    FAILED, UNKNOWN, FLAGGED, TOO_LONG, INCOMPLETE, SPLIT, OK, FROM_MEMORY, COPIED, EMPTY, NULL,
    SKIPPED,
)  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedText:
    """The result for one text."""

    translation: str | None = None  # the best translation
    score: float | None = None  # log-probability, summed over the sentences
    status: str  # one of STATUSES
    error: str | None = None  # one line with the reason if there is no translation
    flags: tuple[str, ...] = ()  # some of FLAGS
    # The n best translations, best first. With several sentences, the first one combines the best
    # hypotheses of all sentences, and the others are the most probable other combinations.
    n_best: tuple[Hypothesis, ...] = ()


TermCounts = collections.Counter[str]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedTexts:
    """The result of `translate_texts`."""

    translations: list[TranslatedText]  # one per row, in order
    texts: int  # number of translated sources, including repetitions
    distinct_texts: int  # number of sources that the model translated, without repetitions
    source_characters: int  # number of characters in all rows with a text
    work: Work  # work of the successful calls of the model
    # Numbers of glossary terms that were "found" in the texts and "kept" in the translations.
    terms: TermCounts = dataclasses.field(default_factory=collections.Counter)
    remembered_texts: int = 0  # number of distinct sources whose translation the memory contains
    learned: tuple[Learned, ...] = ()  # new translations of the model; empty without a memory


_Found = Mapping[Source, Translation | Exception]
_Hypotheses = tuple[Hypothesis, ...]  # best first


def translate_texts(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    limits: Limits | None = None,
    memory: Memory | None = None,
) -> TranslatedTexts:
    """Translate texts; each distinct source is translated only once.

    Human translations in the memory replace whole texts, or sentences of texts. Earlier
    translations of the model in the memory give the same results as the model itself.

    If the model fails at a source, the rows with this source become FAILED, and all other rows are
    translated. If the model loses or repeats a protected span of a sentence, the text between the
    spans is translated instead.

    Args:
      cells: Bytes of the text, or None, for each row.
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      limits: The usual values of the model; without them, some flags are never set.
      memory: The translation memory, if there is one.

    Raises:
      Exception: The translator raised an error that no source can have caused (`is_input_error`),
        or all sources failed and a harmless source failed too.
    """
    translator = between(translator, source=options.source_language, target=options.target_language)
    decided: dict[bytes | None, TranslatedText] = {None: TranslatedText(status=NULL)}
    texts: dict[bytes, str] = {}
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        try:
            texts[cell] = cell.decode()
        except UnicodeDecodeError as error:
            decided[cell] = TranslatedText(status=FAILED, error=f"not UTF-8: {error.reason}")
    target = options.target_language
    find_corrections = _corrections_in(memory, target_language=target)
    corrections = find_corrections(texts.values())
    decided |= {
        cell: TranslatedText(translation=corrections[text], status=FROM_MEMORY)
        for cell, text in texts.items()
        if text in corrections
    }
    planner = Planner(
        translator=translator,
        options=options,
        glossary=glossary,
        find_corrections=find_corrections,
    )
    rest = [cell for cell in texts if cell not in decided]
    plans = dict(zip(rest, planner.plan([texts[cell] for cell in rest]), strict=True))
    results = _Results(translator, memory=memory, target_language=target)
    results.add(plans.values())
    repaired = _plan_repairs(plans, results.found, planner=planner)
    results.add(repaired.values())
    flags: dict[Source, list[str]] = {}
    for cell, plan in (plans | repaired).items():
        decided[cell] = _finish(
            plan,
            results.found,
            limits=limits or Limits(),
            options=options,
            is_repaired=cell in repaired,
            flags_of=flags,
        )
    translated = {s for s, result in results.found.items() if isinstance(result, Translation)}
    texts_in = {
        cell: sum(source in translated for source in plan.occurrences)
        for cell, plan in (plans | repaired).items()
    }
    terms = {}
    if glossary is not None:
        terms = {
            cell: _count_terms(text, decided[cell], options=options, glossary=glossary)
            for cell, text in texts.items()
        }
    learned = () if memory is None else results.learn([*plans.values(), *repaired.values()], flags)
    return TranslatedTexts(
        translations=[decided[cell] for cell in cells],
        texts=sum(texts_in.get(cell, 0) for cell in cells if cell is not None),
        distinct_texts=len(translated - results.remembered),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in cells if cell),
        work=results.work,
        terms=sum((terms[cell] for cell in cells if cell in terms), TermCounts()),
        remembered_texts=len(results.remembered),
        learned=learned,
    )


def find_sentences(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    memory: Memory | None = None,
) -> dict[Source, str]:
    """Return the distinct sources of texts, with a sentence for each of them.

    The model's translation of such a sentence is what `translate_texts` needs for the texts, except
    that texts whose protected spans the model loses need more sources.

    Args:
      cells: Bytes of the text, or None, for each row.
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      memory: The translation memory, if there is one; its human translations need no source.
    """
    translator = between(translator, source=options.source_language, target=options.target_language)
    texts = []
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        with contextlib.suppress(UnicodeDecodeError):  # the text fails later
            texts.append(cell.decode())
    find_corrections = _corrections_in(memory, target_language=options.target_language)
    corrections = find_corrections(texts)
    planner = Planner(
        translator=translator,
        options=options,
        glossary=glossary,
        find_corrections=find_corrections,
    )
    plans = planner.plan([text for text in texts if text not in corrections])
    return {source: part for plan in plans for part, source in plan.sources.items()}


def _corrections_in(
    memory: Memory | None, *, target_language: str
) -> Callable[[Iterable[str]], Mapping[str, str]]:
    """Return a function that finds human translations of texts, if there is a memory."""
    if memory is None:
        return lambda texts: {}
    return functools.partial(memory.find_corrections, target_language=target_language)


class _Results:
    """The results of sources, from the memory or from the model.

    Attributes:
      found: The translation of each source, or the error if the model fails at it.
      remembered: The sources whose translations come from the memory.
      work: The work of the model.
    """

    def __init__(
        self, translator: Translator, *, memory: Memory | None, target_language: str
    ) -> None:
        self._translator = translator
        self._memory = memory
        self._target_language = target_language
        self.found: dict[Source, Translation | Exception] = {}
        self.remembered: set[Source] = set()
        self.work = Work()

    def add(self, plans: Iterable[Plan]) -> None:
        """Find or translate the sources of plans that have no result yet."""
        sources = [source for source in _sources_of(plans) if source not in self.found]
        if self._memory is not None:
            target = self._target_language
            known = self._memory.find_translations(sources, target_language=target)
            self.found |= known
            self.remembered |= known.keys()
            sources = [source for source in sources if source not in known]
        made, work = _translate(sources, translator=self._translator)
        self.found |= made
        self.work += work

    def learn(
        self, plans: Iterable[Plan], flags: Mapping[Source, Sequence[str]]
    ) -> tuple[Learned, ...]:
        """Return the new translations of the model, with the flags of their best hypotheses."""
        texts = {source: plan.shown(p) for plan in plans for p, source in plan.sources.items()}
        return tuple(
            Learned(source, text, self._target_language, result, tuple(flags.get(source, ())))
            for source, text in texts.items()
            if source not in self.remembered
            and isinstance(result := self.found[source], Translation)
        )


def _sources_of(plans: Iterable[Plan]) -> dict[Source, None]:
    """Return the distinct sources of plans, in order."""
    return dict.fromkeys(source for plan in plans for source in plan.occurrences)


def _plan_repairs(
    plans: Mapping[bytes, Plan], found: _Found, *, planner: Planner
) -> dict[bytes, Plan]:
    """Return new plans for texts with a sentence for which no hypothesis keeps all spans."""
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
    except TooLongToSearchError:  # the text has failed, so its terms do not count
        return TermCounts()
    wanted = collections.Counter(term.replacement for term in glossary.find(text, spans))
    translation = translated.translation or ""
    kept = sum(min(count, translation.count(term)) for term, count in wanted.items())
    return TermCounts(found=wanted.total(), kept=kept)


def _translate(sources: Sequence[Source], *, translator: Translator) -> tuple[_Found, Work]:
    """Return the translation of each source, or the error if the model fails at it."""
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[Source]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some])
        work += done
        return translations

    found = call_on_parts(
        translate,
        [*sources],
        probe=lambda: translator.translate_ids(translator.encode([PROBE])),
        is_input_error=translator.is_input_error,
    )
    return dict(zip(sources, found, strict=True)), work


def _finish(
    plan: Plan,
    found: _Found,
    *,
    limits: Limits,
    options: TextOptions,
    is_repaired: bool,
    flags_of: dict[Source, list[str]],
) -> TranslatedText:
    """Return the translation of a text, or the reason why there is none.

    The function adds the flags of the text's sources to `flags_of`.
    """
    for status, why in ((FAILED, plan.failed), (UNKNOWN, plan.unknown), (TOO_LONG, plan.too_long)):
        if why:
            return TranslatedText(status=status, error=why)
    if not plan.sources:
        if plan.has_corrections:
            corrected = join_translations(plan.parts, plan.kept)
            return TranslatedText(translation=corrected, status=FROM_MEMORY)
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
            error = f"the model does not keep the protected text in {part!r}"
            return TranslatedText(status=FAILED, error=error)
        hypotheses[part], seen = chosen
        flags_of[source] = seen
        flagged.update(seen)
    best, *_ = n_best = _combine(plan, hypotheses)
    if is_repaired:
        flagged.add(SPAN_REPAIRED)
    counted = tuple(flag for flag in options.flags if flag in flagged) if flagged else ()
    if counted and options.on_flag == LEAVE_OUT:
        error = f"left out because of its flags: {', '.join(counted)}"
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
    """Return the hypotheses of a part that keep its spans, and the flags of the best one.

    The flags judge the texts with placeholders, so that protected spans have no influence.

    Returns:
      The hypotheses and the flags, or None if no hypothesis keeps all spans.
    """
    usable = _usable_hypotheses(plan, part, result)
    if not usable:
        return None
    made, shown = usable[0]
    is_masked = part in plan.masked
    found = [
        *flag_sentence(
            plan.shown(part),
            made.text if is_masked else shown.text,
            limits=limits,
            source_tokens=len(plan.sources[part]) - 2,
            target_tokens=made.tokens - 1,
            score=made.score,
        )
    ]
    if not made.is_complete:
        found.append(INCOMPLETE)  # the flag has the same name as the status
    return tuple(with_spans for _, with_spans in usable), found


def _usable_hypotheses(
    plan: Plan, part: str, result: Translation
) -> list[tuple[Hypothesis, Hypothesis]]:
    """Return pairs of hypotheses that keep all spans: with placeholders, and with the spans."""
    is_plain = part not in plan.masked and part not in plan.unended
    if is_plain and not any(BRACKET in each.text for each in result.hypotheses):
        return [(each, each) for each in result.hypotheses]
    return [
        (hypothesis, dataclasses.replace(hypothesis, text=text))
        for hypothesis in result.hypotheses
        if (text := plan.put_back(part, hypothesis.text)) is not None
    ]


def _combine(plan: Plan, found: Mapping[str, _Hypotheses]) -> _Hypotheses:
    """Return the hypotheses of a text: combinations of its parts' hypotheses, best first."""
    if len(plan.parts) == 1:
        return found[plan.parts[0]]
    times = collections.Counter(part for part in plan.parts if part in found)
    best = {part: each[0] for part, each in found.items()}
    count = max(len(each) for each in found.values())
    score = sum(times[part] * each.score for part, each in best.items())
    # Scores of other combinations, and the hypotheses that differ from the best combination.
    others: list[tuple[float, dict[str, Hypothesis]]] = []
    for part, (first, *rest) in found.items():
        others += [
            (known + times[part] * (each.score - first.score), changed | {part: each})
            for known, changed in [(score, {}), *others]
            for each in rest
        ]
        if len(found) > 1:  # a single part keeps the order of the search
            others = heapq.nlargest(count - 1, others, key=operator.itemgetter(0))
    hypotheses = []
    for known, changed in [(score, {}), *others]:
        chosen = best | changed
        texts = {**plan.kept, **{part: each.text for part, each in chosen.items()}}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(join_translations(plan.parts, texts), known, is_complete))
    return tuple(hypotheses)


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
    """The fields to translate, and the names of the added fields.

    Attributes:
      fields: Fields that contain the texts.
      output: Name of the field for the translation; the other added fields start with this name.
      has_n_best: Whether the n best translations are added.
    """

    fields: tuple[str, ...] = ()
    output: str = TRANSLATION
    has_n_best: bool = False

    def name(self, field: str, added: str) -> str:
        """Return the name of an added field; with several fields, it starts with the text's field.

        >>> TextFields(fields=("a", "b"), output="german").name("a", "translation_score")
        'a_german_score'
        """
        name = self.output + added.removeprefix(TRANSLATION)
        return name if len(self.fields) == 1 else f"{field}_{name}"

    def added(self) -> list[tuple[str, str]]:
        """Return a pair for each added field: the text's field, and a key of VALUES."""
        names = [name for name in VALUES if self.has_n_best or name != N_BEST]
        return [(field, name) for field in self.fields for name in names]
