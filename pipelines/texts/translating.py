"""Texts to translations: each row gets one, and a status that says how it was made.

Nothing here knows files or Beam: tables, lines and streams call it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from model.decoding.options import MAX_SOURCE_TOKENS
from model.engines.progress import begin_sources
from model.engines.translator import Hypothesis, Translation, Translator, Work
from model.errors import require, require_one_of
from model.text.languages import read_language
from model.text.vocabulary import EOS_ID, UNK_ID, is_empty
from pipelines.texts.bisection import call_on_parts, one_line, raise_if_not_at_fault
from pipelines.texts.segments import cut_to_fit, join_translations

OK = "ok"
NULL = "null"  # no text: no translation
EMPTY = "empty"  # nothing to translate in it: the translation is ""
TOO_LONG = "too_long"  # more tokens than max_source_tokens: only its beginning, or nothing
SPLIT = "split"  # too long as well: translated in pieces
UNKNOWN = "unknown"  # most of it is not in the model's vocabulary: no translation
FAILED = "failed"  # not UTF-8, or the model fails at it: no translation
STATUSES = (OK, NULL, EMPTY, TOO_LONG, SPLIT, UNKNOWN, FAILED)
ON_TOO_LONG = ("split", "truncate", "skip")
_PROBE = "a"  # translated if all texts fail: is it the texts, or the machine?
_Source = tuple[int, ...]  # ids: texts that normalisation makes equal are one source
_Found = Mapping[_Source, Translation | Exception]


@dataclasses.dataclass(frozen=True, kw_only=True)
class TextOptions:
    """How texts are treated.

    Attributes:
      max_source_tokens: Tokens of a source that the model gets at once, BOS and EOS counted.
      on_too_long: What becomes of a text of more tokens: "split" translates its sentences one by
        one, "truncate" its first `max_source_tokens` tokens, "skip" leaves it out.
      source_language: Code of the texts' language, whose rules cut long texts into sentences; by
        default that of the model's training, else English.
    """

    max_source_tokens: int = MAX_SOURCE_TOKENS
    on_too_long: str = "split"
    source_language: str = ""

    def __post_init__(self) -> None:
        rule = "`max_source_tokens` must be at least 3 (BOS, a token and EOS)"
        require(self.max_source_tokens >= 3, rule, self.max_source_tokens)
        require_one_of("`on_too_long`", self.on_too_long, ON_TOO_LONG)
        if self.source_language:
            read_language(self.source_language, name="`source_language`")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedText:
    """What a row gets.

    Attributes:
      translation: The best translation, or None.
      score: Its log-probability, or None; of pieces, the sum of theirs.
      status: One of STATUSES.
      error: Why it failed, or how much of it is unknown, in one line; None of others.
      n_best: Hypotheses of a translated text, best first; a text that was split has only one.
    """

    translation: str | None = None
    score: float | None = None
    status: str
    error: str | None = None
    n_best: tuple[Hypothesis, ...] = ()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TranslatedTexts:
    """What `translate_texts` returns.

    Attributes:
      translations: One for each row, in order.
      texts: Sources that were translated, each occurrence counted: texts, and pieces of those
        that were split.
      distinct_texts: Sources without repetitions: each is translated once.
      source_characters: Characters of all rows that hold text.
      work: Work of the calls that did not fail.
    """

    translations: list[TranslatedText]
    texts: int
    distinct_texts: int
    source_characters: int
    work: Work


@dataclasses.dataclass(frozen=True)
class _Job:
    """A text to translate.

    Attributes:
      status: Status of its rows.
      parts: The text alone, or its pieces and the white space between them.
      sources: The ids of the parts of which something is left to translate.
    """

    status: str
    parts: list[str]
    sources: Mapping[str, _Source]

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
    longest = options.max_source_tokens
    ids: dict[str, list[int] | Exception] = {}  # by text, or by piece of a long one

    def encode(new: list[str]) -> None:
        found = call_on_parts(translator.encode, new, is_input_error=translator.is_input_error)
        ids.update(zip(new, found, strict=True))

    def is_too_long(text: str) -> bool:
        found = ids[text]
        return not isinstance(found, Exception) and len(found) > longest

    def fit(pieces: list[str]) -> list[bool]:
        encode([piece for piece in pieces if piece not in ids])
        return [not is_too_long(piece) for piece in pieces]

    encode(texts)
    raise_if_not_at_fault(
        list(ids.values()),
        probe=lambda: translator.encode([_PROBE]),
        is_input_error=translator.is_input_error,
    )
    unknown = {
        text: cell
        for text in texts
        if (cell := _find_unknown(text, ids[text], translator=translator))
    }
    pieces: dict[str, list[str]] = {}  # by text that is too long
    if options.on_too_long == "split":
        long = [text for text in texts if is_too_long(text) and text not in unknown]
        cut = cut_to_fit(long, language=options.source_language, fits=fit)
        pieces = dict(zip(long, cut, strict=True))

    def plan(text: str) -> _Job | TranslatedText:
        if text in unknown:
            return unknown[text]
        if text in pieces:
            return _plan_pieces(pieces[text], ids=ids, longest=longest)
        return _plan_whole(text, ids[text], options=options)

    return [plan(text) for text in texts]


def _find_unknown(
    text: str, ids: list[int] | Exception, *, translator: Translator
) -> TranslatedText | None:
    """Returns what the rows of a text get if more than half of it is unknown."""
    if isinstance(ids, Exception) or UNK_ID not in ids:
        return None
    error = translator.count_unknown(text).describe()
    return None if error is None else TranslatedText(status=UNKNOWN, error=error)


def _plan_whole(
    text: str, ids: list[int] | Exception, *, options: TextOptions
) -> _Job | TranslatedText:
    if isinstance(ids, Exception):
        return TranslatedText(status=FAILED, error=one_line(ids))
    if is_empty(ids):
        return TranslatedText(translation="", status=EMPTY)
    longest = options.max_source_tokens
    if len(ids) <= longest:
        return _Job(OK, [text], {text: tuple(ids)})
    if options.on_too_long == "truncate":
        return _Job(TOO_LONG, [text], {text: (*ids[: longest - 1], EOS_ID)})
    return TranslatedText(status=TOO_LONG)


def _plan_pieces(
    parts: list[str], *, ids: Mapping[str, list[int] | Exception], longest: int
) -> _Job | TranslatedText:
    sources: dict[str, _Source] = {}
    for part in parts:
        if part.isspace():
            continue
        found = ids[part]
        if isinstance(found, Exception):
            return TranslatedText(status=FAILED, error=one_line(found))
        if len(found) > longest:  # a single character
            return TranslatedText(status=TOO_LONG)
        if not is_empty(found):
            sources[part] = tuple(found)
    return _Job(SPLIT, parts, sources)


def _translate(sources: list[_Source], *, translator: Translator) -> tuple[_Found, Work]:
    """Translates sources; one at which the model fails has its error instead."""
    work = Work()
    begin_sources(len(sources))

    def translate(some: list[_Source]) -> list[Translation]:
        nonlocal work
        translations, done = translator.translate_ids([list(source) for source in some])
        work += done
        return translations

    found = call_on_parts(translate, sources, is_input_error=translator.is_input_error)
    raise_if_not_at_fault(
        found,
        probe=lambda: translator.translate_ids(translator.encode([_PROBE])),
        is_input_error=translator.is_input_error,
    )
    return dict(zip(sources, found, strict=True)), work


def _finish(job: _Job, found: _Found) -> TranslatedText:
    translations: dict[str, Translation] = {}
    for part, source in job.sources.items():
        result = found[source]
        if isinstance(result, Exception):
            return TranslatedText(status=FAILED, error=one_line(result))
        translations[part] = result
    if job.status == SPLIT:
        texts = {
            part: translations[part].text if part in translations else "" for part in job.parts
        }
        score = sum(translations[part].score for part in job.parts if part in translations)
        hypotheses: tuple[Hypothesis, ...] = (
            Hypothesis(join_translations(job.parts, texts), score),
        )
    else:
        hypotheses = translations[job.parts[0]].hypotheses
    return TranslatedText(
        translation=hypotheses[0].text,
        score=hypotheses[0].score,
        status=job.status,
        n_best=hypotheses,
    )
