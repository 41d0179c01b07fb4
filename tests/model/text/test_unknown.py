"""Unknown parts of texts, and the threshold above which a text is not translated."""

import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import train

from tt.model.engines.tokens import prepare_texts
from tt.model.engines.translator import Input
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    SHARED_MODEL,
    UNK_ID,
    Vocabulary,
    count_letters,
)

LINES = [
    "COVID is here, on 3 May 2024.", "Hello, Tom! Go on: 12:30?", "He said no (twice); so be it.",
    "Quick brown foxes jump over lazy dogs.", "VIDEO 5,678.90 COVID",
]  # fmt: skip


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def vocabulary(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("vocabulary") / SHARED_MODEL
    path.write_bytes(train(LINES * 20, size=64, kind=request.param, rule="identity"))
    return Vocabulary(path, TextNormalization())


@pytest.mark.parametrize(
    ("text", "unknown", "letters"),
    [
        ("Да.", 2, 2),
        ("Да?", 2, 2),
        ("我爱你", 3, 3),
        ("我爱你.", 3, 3),
        ("Привет, мир.", 9, 9),
        ("你好, 世界.", 4, 4),
        ("👍", 1, 1),
        ("👋, 🦊.", 2, 2),
        ("12:30 👍", 1, 1),
        ("Да, 2024.", 2, 2),
        ("COVID 新冠病毒疫情在全球范围内迅速蔓延造成严重影", 21, 26),
        ("Tom 最喜欢我。", 4, 7),
        ("हिन्दी", 6, 6),  # marks count like letters
        # In these texts, at most half of the letters are unknown.
        ("Tom 最喜欢", 3, 6),
        ("Hello, 👍!", 1, 6),
        ("Go on, 我!", 1, 5),
    ],
)
def test_letters_and_symbols_decide_whether_a_text_is_unknown(vocabulary, text, unknown, letters):
    [found] = prepare_texts([text], vocabulary=vocabulary, most_tokens=None)
    assert sum(map(count_letters, found.unknown)) == unknown
    said = f"{unknown} of {letters} letters and symbols are unknown to the model"
    assert found.describe_unknown() == (said if 2 * unknown > letters else None)


def test_texts_in_the_vocabulary_are_known(vocabulary):
    for text, found in zip(
        LINES, prepare_texts(LINES, vocabulary=vocabulary, most_tokens=None), strict=True
    ):
        assert found == Input(text, len(vocabulary.encode([text])[0]) - 2)
        assert found.describe_unknown() is None


def test_run_of_unknown_characters_is_one_token(vocabulary):
    [found] = prepare_texts(["我爱你 Tom 👍"], vocabulary=vocabulary, most_tokens=None)
    assert found.unknown == ("我爱你", "👍")
    assert found.encoded.count(UNK_ID) == 2


def test_message_if_more_than_half_of_the_tokens_are_unknown(tmp_path):
    vocabulary = toy.write_vocabulary(tmp_path).source  # its pieces are words
    texts = ["👍 one", "👍 one 👍", "12:30"]
    found = prepare_texts(texts, vocabulary=vocabulary, most_tokens=None)
    assert [each.describe_unknown() for each in found] == [
        None,
        "2 of 3 tokens are unknown to the model",
        "1 of 1 tokens are unknown to the model",
    ]


def test_counts_use_the_normalized_text(tmp_path):
    path = tmp_path / SHARED_MODEL
    path.write_bytes(train(["one two three"] * 20, size=13))
    for lowercase, message in (
        (False, "6 of 6 letters and symbols are unknown to the model"),
        (True, None),
    ):
        vocabulary = Vocabulary(path, TextNormalization(lowercase=lowercase))
        [found] = prepare_texts([" ONE\u200b TWO "], vocabulary=vocabulary, most_tokens=None)
        assert found.describe_unknown() == message


def test_nothing_is_unknown_with_byte_fallback(tmp_path):
    path = tmp_path / SHARED_MODEL
    path.write_bytes(train(LINES * 20, size=316, byte_fallback=True))
    vocabulary = Vocabulary(path, TextNormalization())
    [found] = prepare_texts(["我爱你👍"], vocabulary=vocabulary, most_tokens=None)
    assert UNK_ID not in found.encoded
    assert (found.encoded[0], found.encoded[-1]) == (BOS_ID, EOS_ID)
    assert (found.unknown, found.describe_unknown()) == ((), None)


@given(st.text("aé我👍²5 .,\u0301\u200d$_", max_size=20))
def test_count_letters(text):
    assert count_letters(text) == sum(text.count(each) for each in "aé我👍\u0301$")
