"""Find texts and translations in wrong languages, and translations that do not fit their texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from tt.pipelines.texts.inputs import find_format
from tt.pipelines.texts.languages import OTHER, compare_language
from tt.pipelines.texts.limits import UNRELATED, WRONG_LANGUAGE, WRONG_SOURCE, Limits
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.similarity import cosines


def find_foreign(texts: Mapping[bytes, str], *, options: TextOptions) -> set[bytes]:
    """Return the texts that are clearly not in the source language.

    The set is empty without `on_wrong_language`.
    """
    if options.on_wrong_language is None:
        return set()
    code = options.source_language
    return {
        cell
        for cell, text in texts.items()
        if compare_language(find_prose(text, options=options), code=code) == OTHER
    }


def find_prose(text: str, *, options: TextOptions) -> str:
    r"""Return a text without its structure, tags and code, which do not show its language.

    >>> find_prose("# Hallo\n\n    print(1)\n\n- `a` **Anna**", options=TextOptions()).split()
    ['Hallo', 'Anna']
    """
    markup = find_format(text, options=options)
    if not markup.has_marks:
        return text
    parts: list[str] = []
    for segment in markup.find_segments(text):
        start = segment.start
        for mark in segment.marks:
            parts.append(text[start : mark.start])
            start = mark.end
        parts.append(text[start : segment.end])
    return " ".join(parts)


def find_doubts(
    pairs: Mapping[bytes, tuple[str, str | None]],
    *,
    foreign: Collection[bytes],
    options: TextOptions,
    limits: Limits,
) -> Iterator[tuple[bytes, set[str]]]:
    """Yield the flags of whole texts, for texts with at least one of these flags.

    Args:
      pairs: Each text with the model's translation, or None.
      foreign: The texts in other languages; see `find_foreign`.
      options: Options for texts.
      limits: The usual values of the model.
    """
    least = limits.least_cosine
    similarity: dict[bytes, float] = {}
    if UNRELATED in options.flags and least is not None:
        translated = {
            cell: (text, made) for cell, (text, made) in pairs.items() if made is not None
        }
        sources, translations = zip(*translated.values(), strict=True) if translated else ((), ())
        similarity = dict(zip(translated, cosines(sources, translations).tolist(), strict=True))
    for cell, (_, translation) in pairs.items():
        found = {WRONG_SOURCE} if cell in foreign else set()
        if translation is not None and WRONG_LANGUAGE in options.flags:
            prose = find_prose(translation, options=options)
            if compare_language(prose, code=limits.target_language) == OTHER:
                found.add(WRONG_LANGUAGE)
        if least is not None and similarity.get(cell, least) < least:
            found.add(UNRELATED)
        if found.intersection(options.flags):
            yield cell, found
