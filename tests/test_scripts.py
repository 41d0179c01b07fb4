"""Unicode scripts: the classes of characters and the script of a language."""

import unicodedata

import numpy as np
import pytest

from model.errors import UserError
from pipelines import scripts


@pytest.mark.parametrize(
    ("codes", "script"),
    [
        ("en de fr es pt it nl pl cs sk ro hu fi sv da nb no et lv lt sl hr bs sq tr", "Latin"),
        ("vi id ms tl sw af ca eu gl cy ga mt is eo la az tk so ha yo ig zu xh mg ht lb", "Latin"),
        ("ru uk be bg mk kk ky tg mn tt ba cv", "Cyrillic"),
        ("ar fa ur ps sd ug ckb", "Arabic"),
        ("hi mr ne sa", "Devanagari"),
        ("bn as", "Bengali"),
        ("zh yue", "Han"),
        ("he yi", "Hebrew"),
        ("am ti", "Ethiopic"),
        ("el", "Greek"),
        ("ja", "Japanese"),
        ("ko", "Korean"),
        ("th", "Thai"),
        ("ta", "Tamil"),
        ("te", "Telugu"),
        ("kn", "Kannada"),
        ("ml", "Malayalam"),
        ("gu", "Gujarati"),
        ("pa", "Gurmukhi"),
        ("si", "Sinhala"),
        ("my", "Myanmar"),
        ("km", "Khmer"),
        ("lo", "Lao"),
        ("ka", "Georgian"),
        ("hy", "Armenian"),
        ("bo dz", "Tibetan"),
        ("dv", "Thaana"),
        ("or", "Oriya"),
        ("pt-BR pt_br EN en-GB de-DE-1996 es-419 zh-Latn-pinyin sr-Latn uz_Latn_UZ", "Latin"),
        ("zh_TW zh-Hant zh-CN zh-Hans-SG zh-cn", "Han"),
        ("sr-Cyrl az-Cyrl ru-RU", "Cyrillic"),
        ("pa-Arab-PK", "Arabic"),
        ("sr uz ku tlh xx en-Zzzz xx-x-latn -", ""),
    ],
)
def test_script_of_language(codes, script):
    found = {code: scripts.script_of_language(code) for code in codes.split()}
    assert found == dict.fromkeys(codes.split(), script)


def test_every_script_that_a_language_gives_exists():
    known = set(scripts._LANGUAGES) | set(scripts._SUBTAGS.values())
    for script in sorted(known):
        scripts.check_script(script)
    codes = [code for codes in scripts._LANGUAGES.values() for code in codes.split()]
    assert len(codes) == len(set(codes))  # none stands in two scripts
    assert len(codes) > 200


@pytest.mark.parametrize("name", ["Latin", "Yi", "Nko", "Ol_Chiki", "Japanese", "Korean"])
def test_scripts_are_known(name):
    scripts.check_script(name)


@pytest.mark.parametrize(
    "name", ["", "latin", "Lu", "L", "Any", "Common", "Inherited", "Klingon", "Latin}", "Latn"]
)
def test_unknown_scripts_are_refused(name):
    with pytest.raises(UserError, match=r'"Latin", "Cyrillic".*Received: ') as raised:
        scripts.check_script(name)
    assert repr(name) in str(raised.value)


def test_classes_agree_with_unicodedata():
    """Of all code points that Python's version of Unicode knows."""
    points = [c for c in range(scripts.CODE_POINTS) if unicodedata.category(chr(c)) != "Cn"]
    letters = [unicodedata.category(chr(c))[0] in "LM" for c in points]
    np.testing.assert_array_equal(scripts.letters()[points], letters)
    space = [chr(c).isspace() for c in range(scripts.CODE_POINTS)]
    np.testing.assert_array_equal(scripts.white_space(), space)


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
def test_characters_are_in_their_script(script, inside, outside):
    members = scripts.in_script(script)
    assert "".join(c for c in inside + outside if members[ord(c)]) == inside
