"""What is said of a corpus whose sides are swapped, or in another language than was named."""

from __future__ import annotations

from collections.abc import Mapping

from pipelines.texts.languages import Counts, count_told, find_wrong_sides, language_of_side

_SIDES = ("source", "target")


def describe_wrong_languages(
    name: str, texts: Mapping[str, Counts], *, codes: Mapping[str, str]
) -> str:
    """Says that a corpus seems to have its sides swapped, or one in another language; else "".

    Args:
      name: What the corpus is called.
      texts: Texts of "source" and "target", each by the language that they seem to be in.
      codes: The code that was given for each of the two, or "".

    >>> texts = {"source": {"en": 80, "": 20}, "target": {"de": 90, "en": 3, "": 7}}
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "en-GB", "target": "de"})
    ''
    >>> describe_wrong_languages("a.tsv", texts, codes={"source": "fr", "target": "de"})
    'a.tsv seems to be in another language: 80 of 80 source texts that tell their language are in \
en, and `source_language` is fr. Name the language of the texts, or another corpus, and make the \
dataset again'
    """
    wrong, are_swapped = find_wrong_sides(texts, codes=codes)
    found = {}
    for side in _SIDES:
        language = language_of_side(texts[side])
        found[side] = (
            f"{texts[side].get(language, 0):,} of {count_told(texts[side]):,} {side} texts that "
            f"tell their language are in {language}"
        )
    if are_swapped:
        given = " and ".join(
            f"`{side}_language` is {codes[side]}" for side in _SIDES if codes[side]
        )
        languages = "the languages" if all(codes.values()) else "name the other language"
        return (
            f"{name} seems to have its sides the wrong way round: {found['source']} and "
            f"{found['target']}, but {given}. Swap the texts (of TSV, the columns: FILE:1:0), or "
            f"{languages}, and make the dataset again"
        )
    reasons = [f"{found[side]}, and `{side}_language` is {codes[side]}" for side in wrong]
    if not reasons:
        return ""
    return (
        f"{name} seems to be in another language: {'; '.join(reasons)}. Name the language of the "
        "texts, or another corpus, and make the dataset again"
    )
