"""Unicode scripts: the classes of characters."""

import unicodedata

import numpy as np
import pytest

from tt.model.errors import UserError
from tt.pipelines.preprocess import characters
from tt.pipelines.preprocess.filters import MOST_CHARACTERS


@pytest.mark.parametrize(
    "name", ["", "latin", "Lu", "L", "Any", "Common", "Inherited", "Klingon", "Latin}", "Latn"]
)
def test_unknown_scripts_are_errors(name):
    with pytest.raises(UserError, match=r'"Latin", "Cyrillic".*Received: ') as raised:
        characters.check_script(name)
    assert repr(name) in str(raised.value)


def test_character_classes_match_unicodedata():
    """The test covers all code points that Python's version of Unicode defines."""
    points = [c for c in range(characters.CODE_POINTS) if unicodedata.category(chr(c)) != "Cn"]
    letters = [unicodedata.category(chr(c))[0] in "LM" for c in points]
    np.testing.assert_array_equal(characters.letters()[points], letters)
    space = [chr(c).isspace() for c in range(characters.CODE_POINTS)]
    np.testing.assert_array_equal(characters.white_space(), space)


def test_text_of_the_largest_length_is_counted():
    [count] = characters.count_characters(["a" * MOST_CHARACTERS], script="Latin").letter_share
    assert count == 1


@pytest.mark.parametrize(
    ("script", "inside", "outside"),
    [
        ("Latin", "aZäßªºỆﬁＡ\u0301ʼ7", "αжم中のむ"),
        ("Greek", "αΩῷ\u0345", "aж"),
        ("Han", "中𠀀々㐀\U00020000", "のア한ㄅa"),
        ("Japanese", "中のアー〆ｱ𠀀", "한aж"),
        ("Korean", "한ㄱ漢", "のa"),
        ("Arabic", "مپےـ\u064b", "אa"),
    ],
)
def test_characters_of_a_script(script, inside, outside):
    members = characters.in_script(script)
    assert "".join(c for c in inside + outside if members[ord(c)]) == inside
