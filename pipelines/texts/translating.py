"""Texts to translations: each row gets one, and a status that says how it was made.

Nothing here knows files or Beam: tables, lines and streams call it.
"""

from __future__ import annotations

import collections
import dataclasses
import heapq
import operator
from collections.abc import Mapping, Sequence

import regex

from model.decoding.options import MAX_SOURCE_TOKENS
from model.engines.progress import begin_sources
from model.engines.translator import Hypothesis, Translation, Translator, Work
from model.errors import require, require_one_of
from model.text.languages import read_language
from model.text.vocabulary import EOS_ID, UNK_ID, is_empty
from pipelines.texts import flags
from pipelines.texts.bisection import call_on_parts, one_line, raise_if_not_at_fault
from pipelines.texts.segments import (
    cut_to_fit,
    distinct_pieces,
    join_translations,
    split_sentences,
)

OK = "ok"
NULL = "null"  # no text: no translation
EMPTY = "empty"  # nothing is in it: the translation is ""
COPIED = "copied"  # no letter of any script is in it: the translation is the text
TOO_LONG = "too_long"  # more tokens than max_source_tokens: only the beginning, or nothing
SPLIT = "split"  # a sentence was too long, and translated in pieces
INCOMPLETE = "incomplete"  # a sentence's translation was cut off at the length limit
UNKNOWN = "unknown"  # most of it is not in the model's vocabulary: no translation
FAILED = "failed"  # not UTF-8, or the model fails at it: no translation
STATUSES = (OK, NULL, EMPTY, COPIED, TOO_LONG, SPLIT, INCOMPLETE, UNKNOWN, FAILED)
SENTENCES, LONG, NEVER = "sentences", "long", "never"
SPLITS = (SENTENCES, LONG, NEVER)
ON_TOO_LONG = ("split", "truncate", "skip")
_LETTER = regex.compile(r"\p{L}")  # of any script
_PROBE = "a"  # translated if all texts fail: is it the texts, or the machine?
_Source = tuple[int, ...]  # ids: texts that normalisation makes equal are one source
_Found = Mapping[_Source, Translation | Exception]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts are treated.

    Attributes:
      max_source_tokens: Tokens of a source that the model gets at once, BOS and EOS counted.
      split: Which texts are cut into sentences, each translated by itself: all ("sentences"), those
        of more than `max_source_tokens` ("long", for models of longer texts) or none ("never").
      on_too_long: What becomes of a sentence of more than `max_source_tokens`, or of a text that is
        not cut: "split" translates it in parts, "truncate" its first `max_source_tokens` tokens,
        "skip" leaves the text out. By default "split", and "skip" with `split=never`.
      source_language: Code of the texts' language, whose rules cut texts into sentences; by default
        that of the model's training, else English.
    """

    max_source_tokens: int = MAX_SOURCE_TOKENS
    split: str = SENTENCES
    on_too_long: str | None = None
    source_language: str = ""

    def __post_init__(self) -> None:
        rule = "`max_source_tokens` must be at least 3 (BOS, a token and EOS)"
        require(self.max_source_tokens >= 3, rule, self.max_source_tokens)
        require_one_of("`split`", self.split, SPLITS)
        if self.on_too_long is None:
            default = "skip" if self.split == NEVER else "split"
            object.__setattr__(self, "on_too_long", default)
        require_one_of("`on_too_long`", self.on_too_long, ON_TOO_LONG)
        require(
            (self.split, self.on_too_long) != (NEVER, "split"),
            "`on_too_long=split` and `split=never` contradict each other: leave one out",
        )
        if self.source_language:
            read_language(self.source_language, name="`source_language`")


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
class TranslatedTexts:
    """What `translate_texts` returns."""

    translations: list[TranslatedText]  # one for each row, in order
    texts: int  # sources that were translated, each occurrence counted
    distinct_texts: int  # sources without repetitions: each is translated once
    source_characters: int  # of all rows that hold text
    work: Work  # of the calls that did not fail


@dataclasses.dataclass(frozen=True)
class _Job:
    """A text to translate."""

    status: str  # of its rows, unless something happens to its translation
    parts: list[str]  # its pieces and the white space between them
    sources: Mapping[str, _Source]  # ids of the parts that the model translates
    kept: dict[str, str]  # what stands for the other parts

    def occurrences(self) -> list[_Source]:
        """Returns the sources in the order of the text, those that repeat as well."""
        return [self.sources[part] for part in self.parts if part in self.sources]


def translate_texts(
    cells: Sequence[bytes | None], *, translator: Translator, options: TextOptions
) -> TranslatedTexts:
    """Translates each distinct source once and gives every row its translation, score and status.

    Where the model fails at a source, its rows become FAILED and all others are translated.

    Args:
      cells: The bytes of a text, or None, for each row.
      translator: The model.
      options: How texts are treated.

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
    planned = _plan(list(texts.values()), translator=translator, options=options)
    jobs = {cell: plan for cell, plan in zip(texts, planned, strict=True) if isinstance(plan, _Job)}
    found, work = _translate(
        list(dict.fromkeys(source for job in jobs.values() for source in job.occurrences())),
        translator=translator,
    )
    for cell, plan in zip(texts, planned, strict=True):
        decided[cell] = _finish(plan, found) if isinstance(plan, _Job) else plan
    translated = {source for source, result in found.items() if isinstance(result, Translation)}
    texts_in = {
        cell: sum(source in translated for source in job.occurrences())
        for cell, job in jobs.items()
    }
    return TranslatedTexts(
        translations=[decided[cell] for cell in cells],
        texts=sum(texts_in.get(cell, 0) for cell in cells if cell is not None),
        distinct_texts=len(translated),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in cells if cell),
        work=work,
    )


def _plan(
    texts: list[str], *, translator: Translator, options: TextOptions
) -> list[_Job | TranslatedText]:
    """Returns for each distinct text a job, or what its rows get without one."""
    ids: dict[str, list[int] | Exception] = {}  # by piece

    def encode(new: list[str]) -> None:
        found = call_on_parts(translator.encode, new, is_input_error=translator.is_input_error)
        ids.update(zip(new, found, strict=True))

    def fit(pieces: list[str]) -> list[bool]:
        encode([piece for piece in pieces if piece not in ids])
        return [not _LETTER.search(each) or not _is_long(ids[each], options) for each in pieces]

    def split(text: str) -> list[str]:
        return split_sentences(text, language=options.source_language) or [text]

    parts = {text: split(text) if options.split == SENTENCES else [text] for text in texts}
    encode(distinct_pieces(part for each in parts.values() for part in each))
    raise_if_not_at_fault(
        list(ids.values()),
        probe=lambda: translator.encode([_PROBE]),
        is_input_error=translator.is_input_error,
    )
    unknown = {
        text: cell
        for text in texts
        if (cell := _find_unknown(parts[text], ids=ids, translator=translator))
    }
    if options.split == LONG:
        long = [text for text in ids if _is_long(ids[text], options) and text not in unknown]
        parts |= {text: split(text) for text in long}
        fit(distinct_pieces(part for text in long for part in parts[text]))
    whole = dict(parts)  # before a sentence is cut inside
    if options.on_too_long == "split":
        known = [text for text in texts if text not in unknown]
        parts |= zip(known, cut_to_fit([parts[text] for text in known], fits=fit), strict=True)
    return [
        unknown.get(text)
        or _plan_text(
            parts[text],
            ids=ids,
            status=OK if len(parts[text]) == len(whole[text]) else SPLIT,
            options=options,
        )
        for text in texts
    ]


def _is_long(ids: list[int] | Exception, options: TextOptions) -> bool:
    return not isinstance(ids, Exception) and len(ids) > options.max_source_tokens


def _find_unknown(
    parts: list[str],
    *,
    ids: Mapping[str, list[int] | Exception],
    translator: Translator,
) -> TranslatedText | None:
    """Returns what the rows of a text get if it has letters, and more than half is unknown."""
    worded = [part for part in parts if _LETTER.search(part)]
    found = [ids[piece] for piece in worded]
    if not any(not isinstance(each, Exception) and UNK_ID in each for each in found):
        return None
    error = translator.count_unknown(" ".join(worded)).describe()
    return None if error is None else TranslatedText(status=UNKNOWN, error=error)


def _plan_text(
    parts: list[str],
    *,
    ids: Mapping[str, list[int] | Exception],
    status: str,
    options: TextOptions,
) -> _Job | TranslatedText:
    sources: dict[str, _Source] = {}
    kept: dict[str, str] = {}
    for part in parts:
        if part.isspace():
            continue
        found = ids[part]
        if isinstance(found, Exception):
            return TranslatedText(status=FAILED, error=one_line(found))
        if is_empty(found):
            kept[part] = ""
        elif not _LETTER.search(part):
            kept[part] = part
        elif not _is_long(found, options):
            sources[part] = tuple(found)
        elif options.on_too_long == "truncate":
            status = TOO_LONG
            sources[part] = (*found[: options.max_source_tokens - 1], EOS_ID)
        else:  # not to be cut, or a single character
            most = options.max_source_tokens
            error = f"a sentence has {len(found):,} tokens; at most {most:,} are allowed"
            return TranslatedText(status=TOO_LONG, error=error)
    if sources:
        return _Job(status, parts, sources, kept)
    if any(kept.values()):
        return TranslatedText(translation="".join(parts), status=COPIED)
    return TranslatedText(translation="", status=EMPTY)


def _translate(sources: list[_Source], *, translator: Translator) -> tuple[_Found, Work]:
    """Translates sources; one at which the model fails has its error instead.

    A source whose best translation was cut off is translated again, with room for twice as much.
    """
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[_Source], **settings: int) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(each) for each in some], **settings)
        work += done
        return translations

    found = call_on_parts(translate, sources, is_input_error=translator.is_input_error)
    raise_if_not_at_fault(
        found,
        probe=lambda: translator.translate_ids(translator.encode([_PROBE])),
        is_input_error=translator.is_input_error,
    )
    results = dict(zip(sources, found, strict=True))
    cut_off = [
        source
        for source, result in results.items()
        if isinstance(result, Translation) and not result.hypotheses[0].is_complete
    ]
    again = call_on_parts(
        lambda some: translate(some, growth=2), cut_off, is_input_error=translator.is_input_error
    )
    raise_if_not_at_fault(
        again,
        probe=lambda: translator.translate_ids(translator.encode([_PROBE]), growth=2),
        is_input_error=translator.is_input_error,
    )
    longer = zip(cut_off, again, strict=True)
    results |= {source: each for source, each in longer if isinstance(each, Translation)}
    return results, work


def _finish(job: _Job, found: _Found) -> TranslatedText:
    translations: dict[str, Translation] = {}
    for part, source in job.sources.items():
        result = found[source]
        if isinstance(result, Exception):
            return TranslatedText(status=FAILED, error=one_line(result))
        translations[part] = result
    best, *_ = hypotheses = _combine(job, translations)
    is_cut_off = job.status != TOO_LONG and not best.is_complete
    return TranslatedText(
        translation=best.text,
        score=best.score,
        status=INCOMPLETE if is_cut_off else job.status,
        flags=(flags.INCOMPLETE,) if is_cut_off else (),
        n_best=hypotheses,
    )


def _combine(job: _Job, translations: Mapping[str, Translation]) -> tuple[Hypothesis, ...]:
    """Returns the hypotheses of a text: the best of each piece, then the most probable others."""
    times = collections.Counter(part for part in job.parts if part in translations)
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
        texts = job.kept | {part: each.text for part, each in chosen.items()}
        is_complete = all(each.is_complete for each in chosen.values())
        hypotheses.append(Hypothesis(join_translations(job.parts, texts), known, is_complete))
    return tuple(hypotheses)
