"""Unknown parts of texts, and the threshold above which a text is not translated."""

import pytest
import toy
from hypothesis import given
from hypothesis import strategies as st
from vocabularies import train

from tt.model.text.normalization import WORD_BOUNDARY, TextNormalization
from tt.model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    SHARED_MODEL,
    UNK_ID,
    UnknownParts,
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
def test_unknown_letters_and_symbols_are_counted(vocabulary, text, unknown, letters):
    found = vocabulary.count_unknown(text)
    assert found[:2] == (unknown, letters)
    said = f"{unknown} of {letters} letters and symbols are unknown to the model"
    assert found.describe() == (said if 2 * unknown > letters else None)


def test_texts_in_the_vocabulary_are_known(vocabulary):
    for line in LINES:
        assert UNK_ID not in vocabulary.encode([line])[0]
        assert vocabulary.count_unknown(line)[::2] == (0, 0)


def test_run_of_unknown_characters_is_one_token_without_its_word_boundary(vocabulary):
    """In the unigram vocabulary, the word boundary before the run is a separate token."""
    [with_boundary] = vocabulary.encode(["我爱你 Tom"])
    tokens = [vocabulary.piece(i) for i in with_boundary[1:-1]]
    expected = UnknownParts(3, 6, 1, len(tokens) - tokens.count(WORD_BOUNDARY))
    assert vocabulary.count_unknown("我爱你 Tom") == expected


def test_message_if_more_than_half_of_the_tokens_are_unknown(tmp_path):
    vocabulary = toy.write_vocabulary(tmp_path).source  # its pieces are words
    assert vocabulary.encode(["👍 one"])[0][:2] == [BOS_ID, UNK_ID]
    assert vocabulary.count_unknown("👍 one") == (1, 4, 1, 2)
    assert vocabulary.count_unknown("👍 one").describe() is None
    found = vocabulary.count_unknown("👍 one 👍")
    assert found == (2, 5, 2, 3)
    assert found.describe() == "2 of 3 tokens are unknown to the model"
    found = vocabulary.count_unknown("12:30")  # no letters
    assert found == (0, 0, 1, 1)
    assert found.describe() == "1 of 1 tokens are unknown to the model"


def test_counts_use_the_normalized_text(tmp_path):
    path = tmp_path / SHARED_MODEL
    path.write_bytes(train(["one two three"] * 20, size=13))
    for lowercase, unknown in ((False, 6), (True, 0)):
        vocabulary = Vocabulary(path, TextNormalization(lowercase=lowercase))
        assert vocabulary.count_unknown(" ONE\u200b TWO ")[:2] == (unknown, 6)


def test_nothing_is_unknown_with_byte_fallback(tmp_path):
    path = tmp_path / SHARED_MODEL
    path.write_bytes(train(LINES * 20, size=316, byte_fallback=True))
    vocabulary = Vocabulary(path, TextNormalization())
    [ids] = vocabulary.encode(["我爱你👍"])
    assert UNK_ID not in ids
    assert (ids[0], ids[-1]) == (BOS_ID, EOS_ID)
    found = vocabulary.count_unknown("我爱你👍")
    assert (found.unknown_characters, found.unknown_tokens) == (0, 0)
    assert found.tokens == len("我爱你👍".encode())
    assert found.describe() is None


@given(st.text("aé我👍²5 .,\u0301\u200d$_", max_size=20))
def test_count_letters(text):
    assert count_letters(text) == sum(text.count(each) for each in "aé我👍\u0301$")
