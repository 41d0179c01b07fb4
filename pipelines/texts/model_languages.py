"""The languages of a model against those of the texts that it is given."""

from __future__ import annotations

from collections.abc import Sequence

import regex

from model.formats.model_card import TrainingData
from model.text.languages import OF_TWO_SCRIPTS, are_different, find_language
from pipelines.texts.languages import other_language

SAMPLE = 1000  # texts that are looked at
_LEAST_SHARE = 0.2  # of the letters of a text that is in a script
_LEAST_LETTERS = 20  # in all: of fewer, nothing is said
_LETTER = regex.compile(r"\p{L}")
_COMPOSED = {"Japanese": ("Hiragana", "Katakana", "Han"), "Korean": ("Hangul", "Han")}


def describe_other_language(given: str, *, data: TrainingData) -> list[str]:
    """Returns warnings of a language that is little known or not the model's.

    Args:
      given: The code that the user gave, or "".
      data: What the model was trained on.

    >>> describe_other_language("en-GB", data=TrainingData(source_language="en"))
    []
    """
    said = find_language(given)
    if said is None:
        return []
    found = []
    if not said.script and said.primary not in OF_TWO_SCRIPTS:
        found.append(
            f"little is known here of the language {given}: where texts are cut into sentences, "
            "it may be by the rules of English"
        )
    if are_different(given, data.source_language):
        target = f" to {data.target_language}" if data.target_language else ""
        found.append(
            f"`source_language` is {given}, and the model was trained to translate from "
            f"{data.source_language}{target}: what it makes of another language means little"
        )
    return found


def describe_other_texts(texts: Sequence[str], *, data: TrainingData) -> list[str]:
    """Returns a line where most texts are plainly not in the model's language, by script or words.

    Args:
      texts: The first texts; of these, `SAMPLE` are looked at.
      data: What the model was trained on.
    """
    if found := describe_other_script(texts, data=data):
        return found
    language, count, told = other_language(texts[:SAMPLE], code=data.source_language)
    if not language:
        return []
    return [
        f"{count:,} of the first {told:,} texts that tell their language seem to be in {language}, "
        f"and the model was trained to translate from {data.source_language}: what it makes of "
        "another language means little. Is this the column, or the model, that you mean?"
    ]


def describe_other_script(texts: Sequence[str], *, data: TrainingData) -> list[str]:
    """Returns a line where most texts are plainly not in the script of the model's language.

    Names and words of another script do not count: a text is in a script with a fifth of its
    letters.

    Args:
      texts: The first texts; of these, `SAMPLE` are looked at.
      data: What the model was trained on.
    """
    language = find_language(data.source_language)
    if language is None or not language.script:
        return []
    names = _COMPOSED.get(language.script, (language.script,))
    inside = regex.compile("[" + "".join(rf"\p{{{name}}}" for name in names) + "]")
    letters = [len(_LETTER.findall(text)) for text in texts[:SAMPLE]]
    worded = [(text, count) for text, count in zip(texts, letters, strict=False) if count]
    others = sum(len(inside.findall(text)) < _LEAST_SHARE * count for text, count in worded)
    if sum(letters) < _LEAST_LETTERS or 2 * others <= len(worded):
        return []
    return [
        f"{others:,} of the first {len(worded):,} texts with letters are not in the script of "
        f"{data.source_language}, {language.script}, which the model was trained to translate "
        "from: what it makes of another language means little"
    ]
