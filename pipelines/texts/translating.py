"""Translate texts, and give each text a status, a score and flags.

`translate_texts` cuts all texts into segments, translates the distinct texts that the model gets
for them, and puts everything back that the model did not get. Sentences that lost a protected span
or a figure are translated a second time.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Collection, Mapping, Sequence

from tt.model.engines.translator import Translation, Translator
from tt.model.errors import checked
from tt.model.text.glossary import Glossary
from tt.model.text.normalization import MAX_TEXT_BYTES
from tt.model.text.spans import TooLongToSearchError
from tt.pipelines.texts.batch import Batch
from tt.pipelines.texts.calling import encode_text
from tt.pipelines.texts.drafts import Draft
from tt.pipelines.texts.flags import PIECES, TAGS, WRONG_SOURCE, Limits, WholeText, flag_texts
from tt.pipelines.texts.inputs import find_format
from tt.pipelines.texts.known import Memory
from tt.pipelines.texts.languages import OTHER, compare_language, likely_language
from tt.pipelines.texts.options import COPY_TEXT, FLAG, LEAVE_OUT, TextOptions
from tt.pipelines.texts.results import (
    COPIED,
    EMPTY,
    FAILED,
    FLAGGED,
    FROM_MEMORY,
    INCOMPLETE,
    NULL,
    OK,
    SPLIT,
    TOO_LONG,
    TermCounts,
    TranslatedText,
    TranslatedTexts,
)
from tt.pipelines.texts.segments import Kind


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
    """Translate texts; each distinct input of the model is translated only once.

    Human translations in the memory replace whole texts, or sentences of texts. Earlier
    translations of the model in the memory give the same results as the model itself.

    If the model fails at an input, the rows with this input become FAILED, and all other rows are
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
      Exception: The translator raised an error that no input can have caused (`is_input_error`),
        or all inputs failed and a harmless input failed too.
    """
    batch = Batch(translator, options, glossary=glossary, limits=limits, memory=memory)
    return translate_cells(cells, batch, options=options, glossary=glossary)


def translate_cells(
    cells: Sequence[str | bytes | None],
    batch: Batch,
    *,
    options: TextOptions,
    glossary: Glossary | None,
) -> TranslatedTexts:
    """Translate texts with the model, the limits and the memory of a batch; see `translate_texts`.

    The model does not translate an input again that it has already translated for the batch.
    """
    encoded = [encode_text(cell) for cell in cells]
    texts, decided = read_cells(encoded)
    corrections = batch.known.find_corrections(texts.values())
    for cell, text in texts.items():
        if text in corrections:
            decided[cell] = TranslatedText(translation=corrections[text], status=FROM_MEMORY)
    foreign = _find_foreign(texts, options=options)
    if options.on_wrong_language != FLAG:
        foreign -= decided.keys()  # human translations stay
        decided |= {cell: _untranslated(texts[cell], options=options) for cell in foreign}
    rest = [cell for cell in texts if cell not in decided]
    drafts = dict(zip(rest, batch.translate([texts[cell] for cell in rest]), strict=True))
    decided |= {cell: _finish(draft, options=options) for cell, draft in drafts.items()}
    judged = {  # human translations need no check
        cell: WholeText(*draft.prose, batch.limits)
        for cell, draft in drafts.items()
        if decided[cell].n_best
    }
    doubts = dict(zip(judged, flag_texts([*judged.values()], names=options.flags), strict=True))
    for cell in foreign.intersection(drafts):
        if decided[cell].status != FROM_MEMORY:
            doubts[cell] = {**doubts.get(cell, {}), WRONG_SOURCE: options.source_language}
    for cell, found in doubts.items():
        if found:
            decided[cell] = _with_flags(decided[cell], found, options=options)
    if options.detect_language:
        for cell, text in texts.items():
            code = likely_language(_find_prose(text, options=options)) or None
            decided[cell] = dataclasses.replace(decided[cell], source_language=code)
    terms = {}
    if glossary is not None:
        terms = {
            cell: _count_terms(text, decided[cell], options=options, glossary=glossary)
            for cell, text in texts.items()
        }
    known = batch.known
    translated = {text for text, each in known.found.items() if isinstance(each, Translation)}
    texts_in = {
        cell: sum(source.text in translated for source in draft.sources)
        for cell, draft in drafts.items()
    }
    return TranslatedTexts(
        translations=[decided[cell] for cell in encoded],
        texts=sum(texts_in.get(cell, 0) for cell in encoded if cell is not None),
        distinct_texts=len(translated - known.remembered),
        source_characters=sum(len(cell.decode(errors="ignore")) for cell in encoded if cell),
        work=known.work,
        terms=sum((terms[cell] for cell in encoded if cell in terms), TermCounts()),
        remembered_texts=len(known.remembered),
        learned=known.learned(batch.flags),
    )


def find_sentences(
    cells: Sequence[bytes | None],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    memory: Memory | None = None,
) -> set[str]:
    """Return the distinct texts for the model whose translations `translate_texts` needs first.

    It needs more translations for texts whose protected spans the model loses.

    Args:
      cells: Bytes of the text, or None, for each row.
      translator: The model.
      options: Options for texts.
      glossary: The glossary, if there is one.
      memory: The translation memory, if there is one; its human translations need no input.
    """
    batch = Batch(translator, options, glossary=glossary, limits=None, memory=memory)
    texts, _ = read_cells(cells)
    foreign = set() if options.on_wrong_language == FLAG else _find_foreign(texts, options=options)
    rest = [text for cell, text in texts.items() if cell not in foreign]
    corrections = batch.known.find_corrections(rest)
    drafts = batch.inputs.begin([text for text in rest if text not in corrections])
    return {source.text for draft in drafts for source in draft.sources}


def _find_foreign(texts: Mapping[bytes, str], *, options: TextOptions) -> set[bytes]:
    """Return the texts that are clearly not in the source language, with `on_wrong_language`."""
    if options.on_wrong_language is None:
        return set()
    prose = {cell: _find_prose(text, options=options) for cell, text in texts.items()}
    code = options.source_language
    return {cell for cell, each in prose.items() if compare_language(each, code=code) == OTHER}


def _find_prose(text: str, *, options: TextOptions) -> str:
    """Return a text without its structure, tags and code, which do not show its language."""
    markup = find_format(text, options=options)
    if not markup.has_marks:
        return text
    parts: list[str] = []
    for block in markup.find_segments(text):
        start = block.start
        for mark in block.marks:
            parts.append(text[start : mark.start])
            start = mark.end
        parts.append(text[start : block.end])
    return " ".join(parts)


def read_cells(
    cells: Sequence[bytes | None],
) -> tuple[dict[bytes, str], dict[bytes | None, TranslatedText]]:
    """Return the distinct texts, and the results of other cells, which are not texts."""
    texts: dict[bytes, str] = {}
    others: dict[bytes | None, TranslatedText] = {None: TranslatedText(status=NULL)}
    for cell in dict.fromkeys(cell for cell in cells if cell is not None):
        error = f"{len(cell):,} bytes exceed the limit of {MAX_TEXT_BYTES:,} for a text"
        if len(cell) <= MAX_TEXT_BYTES:
            try:
                texts[cell] = cell.decode()
                continue
            except UnicodeDecodeError as wrong:
                error = f"not UTF-8: {wrong.reason}"
        others[cell] = TranslatedText(status=FAILED, error=error)
    return texts, others


def _finish(draft: Draft, *, options: TextOptions) -> TranslatedText:
    """Return the translation of a text, or the reason why there is none."""
    if draft.failure:
        status, error = draft.failure
        return TranslatedText(status=status, error=error)
    if not draft.sources:
        if any(each.is_corrected for each in draft.every):
            return TranslatedText(translation=draft.join({}), status=FROM_MEMORY)
        worded = [each for each in draft.segments if each.kind is not Kind.SPACE]
        kept = [draft.keep(each) for each in worded]
        if not any(kept):
            return TranslatedText(translation="", status=EMPTY)
        if all(text in ("", each.text) for text, each in zip(kept, worded, strict=True)):
            return TranslatedText(translation=draft.text, status=COPIED)
        return TranslatedText(translation=draft.join({}), status=OK)
    best, *_ = n_best = draft.combine()
    flagged = {flag for each in draft.every for flag in each.flags}
    if any(each.source and each.is_fragment for each in draft.segments):
        flagged.add(PIECES)
    if not all(each.is_clear for each in draft.every):
        flagged.add(TAGS)
    counted = tuple(flag for flag in options.flags if flag in flagged) if flagged else ()
    if counted and options.on_flag == LEAVE_OUT:
        return _left_out(counted)
    status = SPLIT if draft.was_cut else OK
    if any(each.is_truncated for each in draft.every):
        status = TOO_LONG
    elif not best.is_complete:
        status = INCOMPLETE
    return TranslatedText(
        translation=best.text, score=best.score, status=status, n_best=tuple(n_best), flags=counted
    )


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
