"""Each way of changing a text, and the texts that stay as they are."""

from __future__ import annotations

import collections
import re

import numpy as np
import pytest

from tt.model.text.augmentation import augment

TEXT = "The young man in the blue shirt plays the guitar."
PLACED = "The ⟦1⟧ young man sees ⟦2⟧ on the beach."


def forms(text, count=400, **options):
    """Return the changed forms of a text for many seeds, with their frequencies."""
    return collections.Counter(
        augment(text, generator=np.random.default_rng(seed), **options) for seed in range(count)
    )


def test_each_way_has_its_share():
    found = forms(TEXT, 1000)
    assert TEXT not in found
    assert found[TEXT.upper()] == pytest.approx(100, abs=40)
    assert found["The Young Man In The Blue Shirt Plays The Guitar."] == pytest.approx(100, abs=40)
    assert found[TEXT[:-1]] == pytest.approx(300, abs=60)
    joined = sum(n for form, n in found.items() if form.replace(" ", "") == TEXT.replace(" ", "")
                 and len(form) == len(TEXT) - 1)  # fmt: skip
    assert joined == pytest.approx(200, abs=50)


def test_typos_are_as_many_as_the_letters_allow():
    typos = [form for form in forms(TEXT * 4) if form.count("The ") == 4 and form.endswith(".")]
    assert typos
    assert all(abs(len(form) - len(TEXT * 4)) <= len(TEXT * 4) // 20 for form in typos)


def test_a_generator_decides_everything():
    assert [forms(TEXT, 50), forms(TEXT, 50)] == [forms(TEXT, 50)] * 2


def test_placeholders_stay_as_they_are():
    for form in forms(PLACED):
        assert re.findall(r"⟦\d⟧", form) == ["⟦1⟧", "⟦2⟧"], form


def test_scripts_without_case_and_spaces():
    for form in forms("他不知道那条狗为什么叫。"):
        assert abs(len(form) - 12) <= 1


def test_texts_without_case():
    found = forms(TEXT, keeps_case=False)
    assert TEXT.upper() not in found
    assert TEXT[:-1] in found


@pytest.mark.parametrize("text", ["", "⟦1⟧", "1990", "?", "..."])
def test_texts_to_which_no_way_applies(text):
    assert set(forms(text, 20)) == {text}
