"""Translate texts, and give each text a status, a score and flags."""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from tt.model.engines.translator import (
    Hypothesis,
    Input,
    Languages,
    Translation,
    Translator,
    Work,
)
from tt.model.errors import checked
from tt.model.text.glossary import Glossary
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.model.text.spans import TooLongToSearchError
from tt.pipelines.texts.calling import encode_text, one_line
from tt.pipelines.texts.choosing import (
    Found,
    Hypotheses,
    LinksOf,
    choose,
    combine,
    find_all_links,
    has_wrong_figures,
)
from tt.pipelines.texts.doubts import find_doubts, find_foreign, find_prose
from tt.pipelines.texts.languages import likely_language
from tt.pipelines.texts.limits import PIECES, TAGS, WRONG_SOURCE, Limits
from tt.pipelines.texts.options import COPY_TEXT, FLAG, LEAVE_OUT, TRANSLATION, TextOptions
from tt.pipelines.texts.planning import Planner
from tt.pipelines.texts.plans import Plan
from tt.pipelines.texts.remembering import Learned, Memory
from tt.pipelines.texts.results import Results

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
    source_language: str | None = None  # detected language of the text, with `detect_language`
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


@checked
def translate_texts(
    cells: Sequence[str | bytes | None],
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
      cells: The text or its bytes in UTF-8, or None, for each row.
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      limits: The usual values of the model; without them, some flags are never set.
      memory: The translation memory, if there is one.

    Raises:
      UserError: An argument has a wrong type.
      Exception: The translator raised an error that no source can have caused (`is_input_error`),
        or all sources failed and a harmless source failed too.
    """
    languages = (options.source_language, options.target_language)
    translator.prepare([], languages=languages)  # before any work, because it checks the languages
    decided: dict[bytes | None, TranslatedText] = {None: TranslatedText(status=NULL)}
    encoded = [encode_text(cell) for cell in cells]
    texts, unreadable = _decode(encoded)
    decided |= {
        cell: TranslatedText(status=FAILED, error=error) for cell, error in unreadable.items()
    }
    find_corrections = _corrections_in(memory, languages=languages)
    corrections = find_corrections(texts.values())
    decided |= {
        cell: TranslatedText(translation=corrections[text], status=FROM_MEMORY)
        for cell, text in texts.items()
        if text in corrections
    }
    foreign = find_foreign(texts, options=options)
    if options.on_wrong_language != FLAG:
        foreign -= decided.keys()  # human translations stay
        decided |= {cell: _untranslated(texts[cell], options=options) for cell in foreign}
    planner = Planner(
        translator=translator,
        options=options,
        glossary=glossary,
        find_corrections=find_corrections,
    )
    rest = [cell for cell in texts if cell not in decided]
    plans = dict(zip(rest, planner.plan([texts[cell] for cell in rest]), strict=True))
    results = Results(translator, memory=memory, languages=languages)
    results.add(plans.values())
    repaired = _plan_repairs(plans, results.found, planner=planner)
    results.add(repaired.values())
    limits = limits or Limits()
    corrected: dict[bytes, Plan] = {}
    if options.protection.protect:
        corrected = _plan_figures(plans | repaired, results.found, planner=planner, limits=limits)
    results.add(corrected.values())
    repaired |= {
        cell: plan
        for cell, plan in corrected.items()
        if _are_right(plan, results.found, limits=limits)
    }
    links = find_all_links(
        [*plans.values(), *repaired.values()],
        results.found,
        translator=translator,
        languages=languages,
    )
    flags: dict[Input, list[str]] = {}
    for cell in corrected:  # the memory gets the flags of wrong figures, too
        for part, source in plans[cell].sources.items():
            result = results.found[source]
            if isinstance(result, Translation):
                chosen = choose(
                    plans[cell], part, result, limits=limits, links=links, repairs_figures=True
                )
                flags[source] = [] if chosen is None else chosen[1]
    for cell, plan in (plans | repaired).items():
        decided[cell] = _finish(
            plan,
            results.found,
            limits=limits,
            options=options,
            links=links,
            flags_of=flags,
        )
    doubts = find_doubts(
        {
            cell: (texts[cell], decided[cell].translation if decided[cell].n_best else None)
            for cell in plans
            if decided[cell].status != FROM_MEMORY  # human translations need no check
        },
        foreign=foreign,
        options=options,
        limits=limits,
    )
    decided |= {cell: _with_flags(decided[cell], found, options=options) for cell, found in doubts}
    if options.detect_language:
        decided |= {
            cell: dataclasses.replace(
                decided[cell],
                source_language=likely_language(find_prose(text, options=options)) or None,
            )
            for cell, text in texts.items()
        }
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
        translations=[decided[cell] for cell in encoded],
        texts=sum(texts_in.get(cell, 0) for cell in encoded if cell is not None),
        distinct_texts=len(translated - results.remembered),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in encoded if cell),
        work=results.work,
        terms=sum((terms[cell] for cell in encoded if cell in terms), TermCounts()),
        remembered_texts=len(results.remembered),
        learned=learned,
    )


def _decode(cells: Sequence[bytes | None]) -> tuple[dict[bytes, str], dict[bytes, str]]:
    """Return the distinct texts, and the reasons why other cells are not texts."""
    texts, errors = {}, {}
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        if len(cell) > MAX_TEXT_BYTES:
            errors[cell] = f"{len(cell):,} bytes exceed the limit of {MAX_TEXT_BYTES:,} for a text"
            continue
        try:
            texts[cell] = cell.decode()
        except UnicodeDecodeError as error:
            errors[cell] = f"not UTF-8: {error.reason}"
    return texts, errors


def find_sentences(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    memory: Memory | None = None,
) -> set[str]:
    """Return the sentences of texts, with placeholders for protected spans.

    `translate_texts` needs the model's translations of these sentences. It needs more
    sentences for texts whose protected spans the model loses, and truncated sentences.

    Args:
      cells: Bytes of the text, or None, for each row.
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      memory: The translation memory, if there is one; its human translations need no sentence.
    """
    decoded, _ = _decode(cells)
    foreign = set() if options.on_wrong_language == FLAG else find_foreign(decoded, options=options)
    texts = [text for cell, text in decoded.items() if cell not in foreign]
    find_corrections = _corrections_in(
        memory, languages=(options.source_language, options.target_language)
    )
    corrections = find_corrections(texts)
    planner = Planner(
        translator=translator,
        options=options,
        glossary=glossary,
        find_corrections=find_corrections,
    )
    plans = planner.plan([text for text in texts if text not in corrections])
    sources = {s for plan in plans for p, s in plan.sources.items() if p not in plan.truncated}
    return {source.text for source in sources}


def _corrections_in(
    memory: Memory | None, *, languages: Languages
) -> Callable[[Iterable[str]], Mapping[str, str]]:
    """Return a function that finds human translations of texts, if there is a memory."""
    if memory is None:
        return lambda texts: {}
    return functools.partial(memory.find_corrections, languages=languages)


def _plan_repairs(
    plans: Mapping[bytes, Plan], found: Found, *, planner: Planner
) -> dict[bytes, Plan]:
    """Return new plans for texts with a sentence for which no hypothesis keeps all spans."""
    lost: dict[bytes, list[str]] = {}
    for cell, plan in plans.items():
        for part in plan.masked:
            if part in plan.values:
                continue  # an attribute stays as it is
            result = found[plan.sources[part]]
            if isinstance(result, Translation) and not any(
                plan.keeps_spans(part, each.text) for each in result.hypotheses
            ):
                lost.setdefault(cell, []).append(part)
    return {cell: planner.plan_around(plans[cell], parts) for cell, parts in lost.items()}


def _plan_figures(
    plans: Mapping[bytes, Plan], found: Found, *, planner: Planner, limits: Limits
) -> dict[bytes, Plan]:
    """Return new plans for texts with a sentence whose translation has wrong figures."""
    wrong: dict[bytes, list[str]] = {}
    for cell, plan in plans.items():
        for part, source in plan.sources.items():
            result = found[source]
            if isinstance(result, Translation) and has_wrong_figures(
                plan, part, result, limits=limits
            ):
                wrong.setdefault(cell, []).append(part)
    return {cell: planner.plan_figures(plans[cell], parts) for cell, parts in wrong.items()}


def _are_right(plan: Plan, found: Found, *, limits: Limits) -> bool:
    """Return whether a plan gave a translation of each sentence, with all spans and figures."""
    if plan.failed or plan.unknown or plan.too_long:
        return False
    for part, source in plan.sources.items():
        result = found[source]
        if not isinstance(result, Translation) or has_wrong_figures(
            plan, part, result, limits=limits
        ):
            return False
        if not any(plan.keeps_spans(part, each.text) for each in result.hypotheses):
            return False
    return True


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


def _finish(
    plan: Plan,
    found: Found,
    *,
    limits: Limits,
    options: TextOptions,
    links: LinksOf,
    flags_of: dict[Input, list[str]],
) -> TranslatedText:
    """Return the translation of a text, or the reason why there is none.

    The function adds the flags of the text's sources to `flags_of`.
    """
    for status, why in ((FAILED, plan.failed), (UNKNOWN, plan.unknown), (TOO_LONG, plan.too_long)):
        if why:
            return TranslatedText(status=status, error=why)
    if not plan.sources:
        if plan.has_corrections:
            corrected = plan.join(plan.kept)
            return TranslatedText(translation=corrected, status=FROM_MEMORY)
        if not any(plan.kept.values()):
            return TranslatedText(translation="", status=EMPTY)
        if all(text in ("", part) for part, text in plan.kept.items()):
            return TranslatedText(translation="".join(plan.parts), status=COPIED)
        return TranslatedText(translation=plan.join(plan.kept), status=OK)
    hypotheses: dict[str, Hypotheses] = {}
    flagged: set[str] = set()
    for part, source in plan.sources.items():
        result = found[source]
        if isinstance(result, Exception):
            return TranslatedText(status=FAILED, error=one_line(result))
        chosen = choose(
            plan,
            part,
            result,
            limits=limits,
            links=links,
            repairs_figures=options.protection.protect,
        )
        if chosen is None and part in plan.values:
            hypotheses[part] = (Hypothesis(part, 0.0),)
            flagged.add(PIECES)
            continue
        if chosen is None:
            error = f"the model does not keep the protected text in {part!r}"
            return TranslatedText(status=FAILED, error=error)
        hypotheses[part], flags_of[source], is_clear = chosen
        flagged.update(flags_of[source])
        if not is_clear:
            flagged.add(TAGS)
    best, *_ = n_best = combine(plan, hypotheses)
    if plan.fragments:
        flagged.add(PIECES)
    counted = tuple(flag for flag in options.flags if flag in flagged) if flagged else ()
    if counted and options.on_flag == LEAVE_OUT:
        return _left_out(counted)
    status = SPLIT if plan.was_cut else OK
    if plan.truncated:
        status = TOO_LONG
    elif not best.is_complete:
        status = INCOMPLETE
    return TranslatedText(
        translation=best.text, score=best.score, status=status, n_best=n_best, flags=counted
    )


def _untranslated(text: str, *, options: TextOptions) -> TranslatedText:
    """Return the result of a text in another language, which the model does not translate."""
    found = tuple(flag for flag in options.flags if flag == WRONG_SOURCE)
    if options.on_wrong_language == COPY_TEXT:
        return TranslatedText(translation=text, status=COPIED, flags=found)
    error = f"the text is not in the language {options.source_language}"
    return TranslatedText(status=FLAGGED, error=error, flags=found)


def _with_flags(
    translated: TranslatedText, found: Collection[str], *, options: TextOptions
) -> TranslatedText:
    """Add flags to a translation, or leave the translation out, as the options require."""
    known = {*translated.flags, *found}
    flags = tuple(flag for flag in options.flags if flag in known)
    # Without a translation, the status and the error already tell more.
    was_left_out = translated.status == FLAGGED
    if options.on_flag == LEAVE_OUT and (translated.translation is not None or was_left_out):
        return _left_out(flags)
    return dataclasses.replace(translated, flags=flags)


def _left_out(flags: tuple[str, ...]) -> TranslatedText:
    error = f"left out because of its flags: {', '.join(flags)}"
    return TranslatedText(status=FLAGGED, error=error, flags=flags)


SCORE = "translation_score"
STATUS = "translation_status"
ERROR = "translation_error"
ROW_FLAGS = "translation_flags"
N_BEST = "translation_n_best"
SOURCE_LANGUAGE = "translation_source_language"


VALUES: dict[str, Callable[[TranslatedText], Any]] = {
    TRANSLATION: lambda text: text.translation,
    SCORE: lambda text: text.score,
    STATUS: lambda text: text.status,
    ERROR: lambda text: text.error,
    ROW_FLAGS: lambda text: list(text.flags),
    N_BEST: lambda text: [{"text": h.text, "score": h.score} for h in text.n_best] or None,
    SOURCE_LANGUAGE: lambda text: text.source_language,
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextFields:
    """The fields to translate, and the names of the added fields.

    Attributes:
      fields: Fields that contain the texts.
      output: Name of the field for the translation; the other added fields start with this name.
      has_n_best: Whether the n best translations are added.
      has_language: Whether the detected languages of the texts are added.
    """

    fields: tuple[str, ...] = ()
    output: str = TRANSLATION
    has_n_best: bool = False
    has_language: bool = False

    def name(self, field: str, added: str) -> str:
        """Return the name of an added field; with several fields, it starts with the text's field.

        >>> TextFields(fields=("a", "b"), output="german").name("a", "translation_score")
        'a_german_score'
        """
        name = self.output + added.removeprefix(TRANSLATION)
        return name if len(self.fields) == 1 else f"{field}_{name}"

    def added(self) -> list[tuple[str, str]]:
        """Return a pair for each added field: the text's field, and a key of VALUES."""
        optional = {N_BEST: self.has_n_best, SOURCE_LANGUAGE: self.has_language}
        names = [name for name in VALUES if optional.get(name, True)]
        return [(field, name) for field in self.fields for name in names]
