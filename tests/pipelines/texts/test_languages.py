"""The language that texts seem to be in."""

import gzip

import pytest

from pipelines.texts.languages import (
    language_of_side,
    likely_language,
    other_language,
)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "Two young men are outside near the bushes."),
        ("de", "Zwei junge Männer sind im Freien in der Nähe der Büsche."),
        ("fr", "Deux jeunes hommes sont dehors près des buissons."),
        ("es", "Dos hombres están fuera con un perro, y no hay nadie más en el parque."),
        ("it", "Due giovani sono all'aperto vicino ai cespugli della casa."),
        ("pt", "Dois homens jovens não estão fora, mas perto dos arbustos."),
        ("nl", "Twee jonge mannen zijn buiten bij het huis."),
        ("sv", "Två unga män är inte ute och de kan inte se buskarna."),
        ("pl", "Dwaj młodzi mężczyźni nie są na dworze, bo już jest noc."),
        ("tr", "İki genç adam çok uzak değil ve bu ev için geldiler."),
        ("ru", "Двое молодых людей стоят у кустов, и это всё, что он видел."),
        ("uk", "Це двоє молодих людей, які стоять біля кущів, але він їх не бачив."),
        ("de", "Du hast recht, aber wo bist du?"),
        ("en", "Go to the settings, and go back"),
        ("ar", "رجلان في الخارج على الطريق إلى هذا المكان"),
        ("fa", "دو مرد جوان در بیرون هستند و این را می‌بینند"),
        ("en", "TWO YOUNG MEN ARE OUTSIDE NEAR THE BUSHES."),
        ("zh", "两个年轻人在外面的公园里坐着，看着他们的孩子和朋友们一起玩耍。"),
        ("en", "Two young men\nare outside\tnear the bushes."),
        ("", "Berlin 1990, OK"),
        ("", "the a an of and"),  # too short
        ("", "两个年轻人在外面"),
        ("", ""),
    ],
)
def test_the_language_of_a_text(language, text):
    assert likely_language(text) == language


def test_danish_and_norwegian_are_alike():
    danish = ["Jeg kan ikke se dig lige nu", "Hun er på vej hjem fra arbejde"] * 20
    norwegian = ["Jeg kan ikke se deg akkurat nå", "Hun er på vei hjem fra arbeid"] * 20
    for code, texts in (("da", danish), ("nb", norwegian), ("no", danish), ("nn", danish)):
        assert other_language(texts, code=code)[0] == ""
        assert other_language(texts, code="en")[0] in {"da", "no", "nn"}


@pytest.mark.parametrize(
    ("path", "language"),
    [
        ("tatoeba_de_en/train.de.gz", "de"),
        ("tatoeba_de_en/train.en.gz", "en"),
        ("news_zh_en/train.en.gz", "en"),
        ("multi30k/train.en.gz", "en"),
        ("multi30k/train.fr.gz", "fr"),
        ("ted_ru_en/train_not_ted.ru.gz", "ru"),
    ],
)
def test_no_run_of_lines_of_a_real_corpus_seems_to_be_in_another_language(
    shared_data, path, language
):
    """Not even of sorted lines, of which many begin with the same words."""
    with gzip.open(shared_data / path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file][:10_000]
    for ordered in (lines, sorted(lines)):
        for first in range(0, len(ordered), 50):
            assert other_language(ordered[first : first + 50], code=language) == ("", 0, 0)


ENGLISH = {"en": 90, "": 30, "de": 2}
UNKNOWN = {"": 110, "id": 12}  # a language without a row


def test_a_side_is_in_the_language_of_nearly_all_its_texts():
    assert language_of_side(ENGLISH) == "en"
    assert language_of_side(UNKNOWN) == ""
    assert language_of_side({}) == ""
