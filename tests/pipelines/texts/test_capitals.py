"""Sentences in capitals and titles are recognized, and their capitals are restored."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.capitals import Capitals, find_capitals, restore_capitals, to_usual_case

UPPER = [
    "BUY NOW, PAY LATER!",
    "ÉCOLE FERMÉE",
    "CLICK ⟦1⟧ TO OPEN THE PAGE",
    "THE iPHONE IS VERY GOOD HERE",  # at least 90% of the letters
    "STRAßE UND HÄUSER",
]
TITLE = [
    "The Art of Computer Programming",
    "The Art of ⟦1⟧ Computer Programming",
    "Война и Мир и Другие Рассказы",
]
ORDINARY = [
    "Tom is a very good teacher.",
    "TOM",
    "NASA",
    "USA, UK",  # fewer than eight letters
    "UNBELIEVABLE",  # a single word may be a name
    "Barack Obama met NASA engineers.",
    "New York City",  # three words
    "The Big Cat",
    "She saw Mary and John in a car.",
    "Will Tom ask Mary to go?",
    "TOM IS a very good teacher.",
    "你好世界你好世界",
    "新しい SONY カメラを買いました。",  # the other letters have no case
    "⟦1⟧ ⟦2⟧",
    "",
    "for Arabic, Chinese, Dutch and English",
]


@pytest.mark.parametrize(
    ("texts", "found", "with_capital_nouns"),
    [
        (UPPER, Capitals.UPPER, Capitals.UPPER), (TITLE, Capitals.TITLE, None),
        (ORDINARY, None, None),
    ],
)  # fmt: skip
def test_capitals_are_found(texts, found, with_capital_nouns):
    assert {text: find_capitals(text) for text in texts} == dict.fromkeys(texts, found)
    nouns = {text: find_capitals(text, has_capital_nouns=True) for text in texts}
    assert nouns == dict.fromkeys(texts, with_capital_nouns)


def choose_lower(forms):
    return forms[0]


@pytest.mark.parametrize(
    ("text", "atoms", "expected"),
    [
        ("TOM IS HERE.", [], "Tom is here."),
        ("⟦1⟧ IS HERE", [], "⟦1⟧ Is here"),
        ("SEE {NAME} NOW", ["{NAME}"], "See {NAME} now"),
        ("SEE {NAME}{NAMES} NOW", ["{NAME}", "{NAMES}"], "See {NAME}{NAMES} now"),
        ("DON'T WELL-KNOWN", [], "Don't well-known"),
        ("İZMİR İS BIG", [], "İzmİr İs big"),  # "i̇" would be a longer text
        ("ΝΕΟΣ ΑΝΔΡΑΣ", [], "Νεος ανδρας"),
    ],
)
def test_words_in_lower_case(text, atoms, expected):
    assert to_usual_case(text, choose=choose_lower, atoms=atoms) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("New IT Rules for Small Firms in the EU", "New IT rules for small firms in the EU"),
        ("US Trade Rules Hit the EU Hard", "US trade rules hit the EU hard"),
        ("A World War II Plane", "A world war II plane"),
    ],
)
def test_acronyms_in_titles_stay(text, expected):
    assert to_usual_case(text, choose=choose_lower, is_title=True) == expected


def test_names_keep_their_capital():
    asked = []

    def choose(forms):
        asked.append(forms)
        return forms[1] if forms[1] in ("Tom", "London") else forms[0]

    text = to_usual_case("WE SAW TOM IN LONDON.", choose=choose)
    assert text == "We saw Tom in London."
    assert asked == [("saw", "Saw"), ("tom", "Tom"), ("in", "In"), ("london", "London")]


@pytest.mark.parametrize(
    ("text", "capitals", "expected"),
    [
        ("Tom es profesor.", Capitals.UPPER, "TOM ES PROFESOR."),
        ("Die Straße ⟦1⟧", Capitals.UPPER, "DIE STRASSE ⟦1⟧"),
        ("El arte de la computadora", Capitals.TITLE, "El Arte de la Computadora"),
        ("l'école de musique", Capitals.TITLE, "L'école de Musique"),
        ("⟦1⟧ casas", Capitals.TITLE, "⟦1⟧ Casas"),
        ("iPhone nuevo", Capitals.TITLE, "IPhone Nuevo"),
    ],
)
def test_restored_capitals(text, capitals, expected):
    assert restore_capitals(text, capitals) == expected


WORDS = st.lists(st.sampled_from(["tom", "reads", "über", "книга", "x"]), min_size=1, max_size=8)


@given(words=WORDS)
def test_capitals_of_a_copied_sentence_are_the_same(words):
    text = " ".join(words).upper()
    assert restore_capitals(to_usual_case(text, choose=choose_lower), Capitals.UPPER) == text


@given(text=st.text(max_size=30))
def test_usual_case_changes_only_the_case(text):
    found = to_usual_case(text, choose=choose_lower)
    assert found.casefold() == text.casefold()
    assert len(found) == len(text)
