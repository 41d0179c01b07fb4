"""Texts in other languages, and translations in another language or about something else."""

from __future__ import annotations

import dataclasses

import pytest
from dictionary import Dictionary

from tt.model.errors import UserError
from tt.pipelines.texts.flags import DEFAULT_FLAGS, FLAGS, Limits
from tt.pipelines.texts.languages import compare_language
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

ENGLISH = "The teacher reads the book on the small table in the house."
GERMAN = "Der Lehrer liest das Buch am kleinen Tisch in seinem Haus."
SHORT_GERMAN = "Guten Tag, Anna."


class Fixed(Dictionary):
    """Returns the same translation for each text."""

    def __init__(self, translation):
        super().__init__()
        self._fixed = translation

    def translate(self, inputs):
        translations, work = super().translate(inputs)
        fixed = [
            dataclasses.replace(
                each, hypotheses=(dataclasses.replace(each.hypotheses[0], text=self._fixed),)
            )
            for each in translations
        ]
        return fixed, work


def translate(*texts, translator=None, limits=None, **options):
    return translate_texts(
        [text.encode() for text in texts],
        translator=translator or Dictionary(),
        options=TextOptions(source_language="en", target_language="es", **options),
        limits=limits or Limits(source_language="en", target_language="es"),
    ).translations


def test_texts_in_other_languages_are_translated_by_default():
    [found] = translate(GERMAN)
    assert found.status == "ok"
    assert "wrong_source" not in found.flags


def test_texts_in_other_languages_are_flagged():
    english, german, short = translate(ENGLISH, GERMAN, SHORT_GERMAN, on_wrong_language="flag")
    assert "wrong_source" in german.flags
    assert german.status == "ok"
    assert german.translation
    assert "wrong_source" not in english.flags + short.flags


def test_texts_in_other_languages_are_left_out():
    translator = Dictionary()
    english, german = translate(ENGLISH, GERMAN, on_wrong_language="null", translator=translator)
    assert (german.status, german.translation) == ("flagged", None)
    assert german.flags == ("wrong_source",)
    assert german.error == "the text is not in the language en"
    assert english.status == "ok"
    assert all("Lehrer" not in text for text in translator.translated)


def test_texts_in_other_languages_are_copied():
    _, german = translate(ENGLISH, GERMAN, on_wrong_language="copy")
    assert (german.status, german.translation) == ("copied", GERMAN)
    assert german.flags == ("wrong_source",)


def test_options_without_effect_are_refused():
    for flags in (("copy",), ("none",)):
        with pytest.raises(UserError, match="has no effect without the flag wrong_source"):
            TextOptions(on_wrong_language="flag", flags=flags)
    with pytest.raises(UserError, match="contradict each other"):
        TextOptions(on_wrong_language="copy", on_flag="null")


def test_addresses_do_not_hide_the_language_of_texts_without_spaces():
    text = "这是一个关于公司产品的长句子，请访问http://a.cn/x了解更多信息，谢谢您的支持和关注。"
    assert compare_language(text, code="en") == "other"


def test_flagged_texts_in_other_languages_can_be_left_out():
    [german] = translate(GERMAN, on_wrong_language="flag", on_flag="null")
    assert (german.status, german.translation) == ("flagged", None)


def test_the_language_of_each_text_is_detected():
    texts = ENGLISH, GERMAN, SHORT_GERMAN, ""
    found = [each.source_language for each in translate(*texts, detect_language=True)]
    assert found == ["en", "de", "de", None]
    assert [each.source_language for each in translate(*texts)] == [None] * 4


def test_translations_in_another_language_are_flagged():
    french = "Le professeur lit le livre sur la petite table dans la maison."
    spanish = "El profesor lee el libro en la mesa pequeña de la casa."
    [wrong] = translate(ENGLISH, translator=Fixed(french))
    assert "wrong_language" in wrong.flags
    [right] = translate(ENGLISH, translator=Fixed(spanish))
    assert "wrong_language" not in right.flags
    [unknown] = translate(ENGLISH, translator=Fixed(french), limits=Limits())
    assert "wrong_language" not in unknown.flags
    [left_out] = translate(ENGLISH, translator=Fixed(french), on_flag="null")
    assert left_out.translation is None
    assert "wrong_language" in left_out.error


def test_tags_and_addresses_do_not_count_as_a_language():
    text = '<p class="the-main-title of the page">El profesor lee.</p> https://the.best/of/all/the'
    [found] = translate("<p>The teacher reads.</p>", translator=Fixed(text), texts="plain")
    assert "wrong_language" not in found.flags


CODE = f"""```
# Read the first hundred rows of the table, and print the source and the target
# of each row. If the translation of a row has failed, the program stops with an error.
```

{GERMAN}
"""
COMMENT = f"<!-- {ENGLISH * 5} --><p>{GERMAN}</p>"


@pytest.mark.parametrize("text", [CODE, COMMENT])
def test_code_and_comments_are_in_no_language(text):
    [english] = translate(text, on_wrong_language="null", detect_language=True)
    assert (english.flags, english.source_language) == (("wrong_source",), "de")
    [german] = translate_texts(
        [text.encode()],
        translator=Fixed(GERMAN),
        options=TextOptions(source_language="de", target_language="de", on_wrong_language="null"),
        limits=Limits(source_language="de", target_language="de"),
    ).translations
    assert GERMAN in german.translation
    assert not {"wrong_source", "wrong_language"}.intersection(german.flags)


@pytest.mark.parametrize("on_flag", ["keep", "null"])
def test_texts_in_other_languages_are_flagged_without_a_translation(on_flag):
    skipped = {"split": "never", "max_source_tokens": 4, "on_too_long": "skip"}
    [german] = translate(GERMAN, on_wrong_language="flag", on_flag=on_flag, **skipped)
    assert (german.status, german.flags) == ("too_long", ("wrong_source",))


def test_unrelated_translations_are_flagged_on_request():
    spanish = "El profesor lee el libro en la mesa pequeña de la casa."
    other = "La bolsa de Tokio cerró ayer con fuertes pérdidas."
    limits = Limits(source_language="en", target_language="es", least_cosine=0.35)
    options = {"limits": limits, "flags": FLAGS}
    [related] = translate(ENGLISH, translator=Fixed(spanish), **options)
    [unrelated] = translate(ENGLISH, translator=Fixed(other), **options)
    assert "unrelated" not in related.flags
    assert "unrelated" in unrelated.flags
    [default] = translate(ENGLISH, translator=Fixed(other), limits=limits)
    assert "unrelated" not in default.flags
    assert "unrelated" not in DEFAULT_FLAGS
