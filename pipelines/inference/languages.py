"""Texts of a table into several languages: those of each language are translated together."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from model.engines.translator import Translator, Work, between
from model.errors import UserError
from model.text.glossary import Glossary
from model.text.languages import find_language
from pipelines.texts.limits import Limits
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import (
    FAILED,
    NULL,
    TermCounts,
    TranslatedText,
    TranslatedTexts,
    translate_texts,
)


def translate_by_language(
    cells: Sequence[bytes | None],
    codes: Sequence[str],
    *,
    translator: Translator,
    options: TextOptions,
    glossary: Glossary | None = None,
    limits: Limits | None = None,
) -> TranslatedTexts:
    """Translates texts as `translate_texts` does, each into the language of its code.

    A text of a language that the model has not becomes FAILED.

    Args:
      cells: The bytes of a text, or None, for each row.
      codes: The language to translate each into; "" is that of the options.
      translator: The model.
      options: How texts are treated.
      glossary: Terms whose translations are given.
      limits: What is usual for the model's translations.

    Raises:
      Exception: As `translate_texts`.
    """
    made: dict[int, TranslatedText] = {}
    sums: list[TranslatedTexts] = []
    limits = limits or Limits()
    for code in dict.fromkeys(codes):
        places = [i for i, other in enumerate(codes) if other == code]
        into, usual = options, limits
        if code:
            into = dataclasses.replace(options, target_language=code)
            known = find_language(code)
            usual = dataclasses.replace(limits, target_script=known.script if known else "")
        try:
            if code and not hasattr(translator, "between"):
                raise UserError(
                    f"the translator is told no language, and the row names {code!r}: leave out "
                    "`target_language_column`, or give the translator a method `between`"
                )
            between(translator, source=into.source_language, target=into.target_language)
        except UserError as error:
            if not any(codes):
                raise
            failed = TranslatedText(status=FAILED, error=str(error))
            null = TranslatedText(status=NULL)
            made |= {i: null if cells[i] is None else failed for i in places}
            continue
        found = translate_texts(
            [cells[i] for i in places],
            translator=translator,
            options=into,
            glossary=glossary,
            limits=usual,
        )
        made |= zip(places, found.translations, strict=True)
        sums.append(found)
    return TranslatedTexts(
        translations=[made[i] for i in range(len(cells))],
        texts=sum(each.texts for each in sums),
        distinct_texts=sum(each.distinct_texts for each in sums),
        source_characters=sum(each.source_characters for each in sums),
        work=sum((each.work for each in sums), Work()),
        terms=sum((each.terms for each in sums), TermCounts()),
    )
