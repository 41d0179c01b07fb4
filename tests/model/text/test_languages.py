"""Language codes: valid codes, scripts, comparisons, and messages for invalid codes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.model.text.languages import are_different, are_same, find_language, read_language
from tt.model.text.scores import bleu_tokenizer


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
        ("el ell grc", "Greek"),
        ("ja jpn JA ja-JP", "Japanese"),
        ("ko", "Korean"),
        ("th", "Thai"),
        ("pt-BR pt_br EN en-GB de-DE-1996 es-419 zh-Latn-pinyin sr-Latn uz_Latn_UZ", "Latin"),
        ("zh_TW zh-Hant zh-CN zh-Hans-SG zh-cn cmn zho cmn_Hant wuu nan", "Han"),
        ("sr-Cyrl az-Cyrl ru-RU rus xal", "Cyrillic"),
        ("pa-Arab-PK azb arz fas prs", "Arabic"),
        ("sr uz ku tlh tlh-x-latn", ""),
    ],
)
def test_script_of_a_language(codes, script):
    found = {code: read_language(code, name="code").script for code in codes.split()}
    assert found == dict.fromkeys(codes.split(), script)


@pytest.mark.parametrize(
    ("code", "primary"),
    [("zh_TW", "zh"), ("cmn", "zh"), ("zho-Hans", "zh"), ("jpn", "ja"), ("DEU", "de"),
     ("ger", "de"), ("arz", "arz"), ("arb", "ar"), ("yue", "yue"), ("sr-Latn-RS", "sr"),
     ("iw", "he"), ("i-klingon", "tlh"), ("nob", "nb"), (" en ", "en"), ("tok", "tok")],
)  # fmt: skip
def test_primary_code_of_a_language(code, primary):
    language = read_language(code, name="code")
    assert (language.code, language.primary) == (code, primary)


@pytest.mark.parametrize(
    "code",
    ["English", "jp", "xx", "eng lish", "e", "-", "en-", "en_US.UTF-8", "\uff25\uff2e", "\ud800",
     "english-us", "none", "no way"],
)  # fmt: skip
def test_invalid_codes_are_refused(code):
    assert find_language(code) is None
    with pytest.raises(UserError) as raised:
        read_language(code, name="--source-language")
    assert str(raised.value) == (
        "--source-language must be the code of one language, such as en, de or zh-Hant. "
        f"Received: {code}"
    )


@pytest.mark.parametrize(
    "code",
    ["und", "root", "UND", "und-Latn", "mul", "mul-Latn", "mis", "zxx", "qaa", "QAA", "qtz",
     "x-klingon", "en-Zzzz", "en-Zyyy", "en-Qaaa", "en-XX", "en_xx", "en-ZZ", "de-AA", "en-QM",
     "en-Latn-XA"],
)  # fmt: skip
def test_codes_for_no_single_language_are_refused(code):
    with pytest.raises(UserError, match=rf"the code of one language, .* Received: {code}$"):
        read_language(code, name="--target-language")
    assert find_language(code), "older datasets may contain the code"


def test_codes_that_resemble_private_codes_are_valid():
    """Examples are Kosovo, numbered regions, collections, private subtags, and Quechua."""
    for code in ["sq-XK", "es-419", "en-001", "en-x-mine", "tlh-x-latn", "nah", "quz", "qya"]:
        assert read_language(code, name="code").code == code


@pytest.mark.parametrize(
    ("codes", "are_one"),
    [("nb no", True), ("nb nn", True), ("nob nn-NO", True), ("yue zh", True), ("yue cmn", True),
     ("zh_TW yue", True), ("arz ar", True), ("id ms", True), ("hr sr", True), ("hr sr-Cyrl", False),
     ("sr-Latn sr-Cyrl", True), ("ckb kmr", False), ("azb az", False), ("no da", False)],
)  # fmt: skip
def test_members_of_a_macrolanguage_are_the_same_unless_their_scripts_differ(codes, are_one):
    for one, other in (codes.split(), codes.split()[::-1]):
        assert are_same(one, other) == are_one
        assert are_different(one, other) != are_one


@given(st.text(max_size=12))
def test_find_language_accepts_any_text(text):
    language = find_language(text)
    assert language is None or (language.code == text and language.primary)


@pytest.mark.parametrize(
    ("codes", "tokenizer"),
    [
        ("zh zh_TW cmn zho yue ZH-hant", "zh"),
        ("ja jpn ko kor th lo km my mya", "char"),
        ("en de sr ar hi zh-Latn-pinyin ja-Latn tlh", None),
        ("English xx", None),  # saved by an older version
    ],
)
def test_bleu_tokenizer(codes, tokenizer):
    assert {bleu_tokenizer(code) for code in codes.split()} == {tokenizer}
    assert bleu_tokenizer("") is None
