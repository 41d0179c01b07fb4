"""`find_links` finds the words that belong together by scores, or by their positions."""

from __future__ import annotations

import numpy as np
import pytest
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.model.engines.translator import ScoredText, Scorer
from tt.pipelines.texts.inline_tags import find_words
from tt.pipelines.texts.word_links import Pair, find_links

LEXICON = {"el": "the", "coche": "car", "rojo": "red", "lee": "reads", "perro": "dog"}


class Lexicon(Reverser):
    """Scores a word with -0.5, or with -0.5 - `drop` if the source lacks the word's translation.

    Words without an entry in the lexicon do not depend on the source.
    """

    def __init__(self, lexicon=None, *, drop=4.0):
        super().__init__()
        self.lexicon = LEXICON if lexicon is None else lexicon
        self.drop = drop
        self.scored: list[tuple[str, str]] = []

    def score(self, pairs):
        found = []
        for each, text in pairs:
            source = each.encoded
            self.scored.append((source, text))
            ends, scores = [], []
            for start, end in find_words(text):
                word = self.lexicon.get(text[start:end])
                ends.append(end)
                scores.append(-0.5 - self.drop * (word is not None and word not in source.split()))
            found.append(ScoredText(ends, scores))
        return found


def cut(source, target, atoms=()):
    """Return a pair with a tag before and after each word of the source."""
    words = find_words(source, atoms=atoms)
    return Pair(source, target, tuple(atoms), tuple(sorted({p for word in words for p in word})))


def links_of(pair, translator):
    found = find_links([pair], translator=translator, languages=("", ""))
    assert [*found] == [pair]
    assert found[pair].is_certain is isinstance(translator, Scorer)
    return found[pair].links.tolist()


def test_words_are_linked_to_the_words_that_they_lose():
    translator = Lexicon()
    links = links_of(cut("the red car", "el coche rojo"), translator)
    assert links == [[1, 0, 0], [0, 0, 1], [0, 1, 0]]
    # Each source lacks one word.
    sources = [" ".join(source.split()) for source, _ in translator.scored]
    assert sources == ["the red car", "red car", "the car", "the red"]
    assert {text for _, text in translator.scored} == {"el coche rojo"}


def test_word_that_depends_on_no_source_word_has_no_link():
    assert links_of(cut("the car", "el ahí coche"), Lexicon()) == [[1, 0], [0, 0], [0, 1]]


def test_scores_of_parts_of_words_are_added():
    class Parts(Lexicon):
        """Cuts texts into single characters, and loses 2 per character of "xy" without "a"."""

        def score(self, pairs):
            return [
                ScoredText(
                    [*range(1, len(text) + 1)],
                    [-1.0 - 2 * (c in "xy" and "a" not in s.text) - (c == "z" and "b" not in s.text)
                     for c in text],
                )
                for s, text in pairs
            ]  # fmt: skip

    assert links_of(cut("a b", "xy z xz"), Parts()) == [[1, 0], [0, 1], [2 / 3, 1 / 3]]


def test_atoms_are_single_words():
    pair = cut("see {a b} dog", "{a b} perro", ["{a b}"])
    translator = Lexicon({"perro": "dog"})
    assert links_of(pair, translator) == [[0, 0, 0], [0, 0, 1]]
    sources = [source for source, _ in translator.scored]
    assert sources == ["see {a b} dog", "{a b} dog", "see  dog", "see {a b}"]


def test_equal_pairs_are_scored_once():
    pairs = [cut("the car", "el coche"), cut("the dog", "el perro"), cut("the car", "el coche")]
    translator = Lexicon()
    found = find_links(pairs, translator=translator, languages=("", ""))
    assert [*found] == pairs[:2]
    assert len(translator.scored) == 2 * (1 + 2)
    assert found[pairs[0]].links.tolist() == found[pairs[1]].links.tolist() == [[1, 0], [0, 1]]


@pytest.mark.parametrize(
    ("source", "target", "shape"), [("", "x y", (2, 0)), ("a b", "", (0, 2)), ("", "", (0, 0))]
)
@pytest.mark.parametrize("translator", [Lexicon(), Reverser()])
def test_empty_texts_have_no_links(source, target, shape, translator):
    pair = cut(source, target)
    links = find_links([pair], translator=translator, languages=("", ""))[pair].links
    assert links.shape == shape
    assert not links.any()


@pytest.mark.parametrize(
    ("cuts", "sources", "links"),
    [
        ((), ["a b c d"], [[1 / 4] * 4, [1 / 4] * 4]),
        ((4,), ["a b c d", "c d", "a b "], [[1 / 2, 1 / 2, 0, 0], [0, 0, 1 / 2, 1 / 2]]),
        ((0, 1), ["a b c d", " b c d", "a "], [[1, 0, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3]]),
    ],
)
def test_words_between_two_tags_are_left_out_together(cuts, sources, links):
    translator = Lexicon({"x": "a", "y": "d"})
    found = links_of(Pair("a b c d", "x y", (), cuts), translator)
    assert np.allclose(found, links)
    assert [source for source, _ in translator.scored if source] == [
        source for source in map(str.strip, sources) if source
    ]


def test_long_sentence_is_scored_once_per_group():
    words = [f"w{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(200)]
    source = " ".join(words)
    translator = Lexicon({word.upper(): word for word in words})
    first, last = source.index(words[90]), source.index(words[95]) - 1
    links = links_of(Pair(source, source.upper(), (), (first, last)), translator)
    assert len(translator.scored) == 1 + 3
    expected = np.zeros((200, 200))
    for start, end in ((0, 90), (90, 95), (95, 200)):
        expected[start:end, start:end] = 1 / (end - start)
    np.testing.assert_allclose(links, expected)


def test_source_that_cannot_be_scored_links_no_word():
    class Failing(Lexicon):
        def score(self, pairs):
            if any(each.text == "the  car" for each, _ in pairs):  # "the red car" without "red"
                raise ValueError("bad source")
            return super().score(pairs)

    class Broken(Lexicon):
        def score(self, pairs):
            raise OSError("no route to host")

    pair = cut("the red car", "el coche rojo")
    assert links_of(pair, Failing()) == [[1, 0, 0], [0, 0, 1], [0, 0, 0]]
    with pytest.raises(OSError, match="no route"):
        find_links([pair], translator=Broken(), languages=("", ""))


@pytest.mark.parametrize(
    ("source", "target", "links"),
    [
        ("a b", "w x y z", [[1, 0], [1, 0], [0, 1], [0, 1]]),
        ("a b c d", "x y", [[1, 0, 0, 0], [0, 0, 1, 0]]),
    ],
)
def test_words_belong_together_by_position_without_scores(source, target, links):
    assert links_of(cut(source, target), Reverser()) == links


@given(
    source=st.lists(st.sampled_from(["the", "car", "red", "dog", "so"]), max_size=80),
    target=st.lists(st.sampled_from([*LEXICON, "así"]), max_size=20),
    drop=st.sampled_from([0.0, 0.5, 3.0]),
)
def test_each_row_sums_to_at_most_one(source, target, drop):
    pair = cut(" ".join(source), " ".join(target))
    links = find_links([pair], translator=Lexicon(drop=drop), languages=("", ""))[pair].links
    assert links.shape == (len(target), len(source))
    assert (links >= 0).all()
    assert (links.sum(1) <= 1 + 1e-9).all()
    for j, word in enumerate(target):
        own = [i for i, each in enumerate(source) if each == LEXICON.get(word)]
        if len(own) == 1:
            assert links[j, own[0]] == pytest.approx(min(drop, 1.0))
