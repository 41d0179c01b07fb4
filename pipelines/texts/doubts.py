"""Find texts and translations in wrong languages, and translations that do not fit their texts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

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
    return {cell for cell, text in texts.items() if compare_language(text, code=code) == OTHER}


def find_doubts(
    pairs: Mapping[bytes, tuple[str, str]],
    *,
    foreign: Collection[bytes],
    options: TextOptions,
    limits: Limits,
) -> Iterator[tuple[bytes, set[str]]]:
    """Yield the flags of whole texts, for texts with at least one of these flags.

    Args:
      pairs: Each text with the model's translation.
      foreign: The texts in other languages; see `find_foreign`.
      options: Options for texts.
      limits: The usual values of the model.
    """
    least = limits.least_cosine
    similarity: dict[bytes, float] = {}
    if UNRELATED in options.flags and least is not None:
        sources, translations = zip(*pairs.values(), strict=True) if pairs else ((), ())
        similarity = dict(zip(pairs, cosines(sources, translations).tolist(), strict=True))
    for cell, (_, translation) in pairs.items():
        found = {WRONG_SOURCE} if cell in foreign else set()
        if (
            WRONG_LANGUAGE in options.flags
            and compare_language(translation, code=limits.target_language) == OTHER
        ):
            found.add(WRONG_LANGUAGE)
        if least is not None and similarity.get(cell, least) < least:
            found.add(UNRELATED)
        if found.intersection(options.flags):
            yield cell, found
