"""Inline tags are placed around the same words of a translation, and stay well-formed."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.inline_tags import Role, Tag, find_words, place_tags

_TAG = re.compile(r"<(/?)(\w+)(/?)>")


def read_tags(marked):
    """Return a sentence without its tags, and the tags; a void tag looks like <br/>."""
    source, tags, end = "", [], 0
    for found in _TAG.finditer(marked):
        source += marked[end : found.start()]
        end = found.end()
        role = Role.CLOSE if found[1] else Role.VOID if found[3] else Role.OPEN
        spaces = (marked[: found.start()][-1:] == " ", marked[end:][:1] == " ")
        tags.append(Tag(len(source), found[0], role, spaces))
        if role is Role.VOID and not any(spaces):
            source += " "  # as `mask` does
    return source + marked[end:], tags


def place(marked, target, *, pairs, written=None):
    """Place the tags of a sentence.

    Args:
      marked: The sentence with tags.
      target: The translation.
      pairs: The source word of each target word, as a digit, or "-" for a word without one.
      written: The texts that replace the tags.
    """
    source, tags = read_tags(marked)
    source_words, target_words = find_words(source), find_words(target)
    links = np.zeros((len(target_words), len(source_words)))
    for j, i in enumerate(pairs.split()):
        if i != "-":
            links[j, int(i)] = 1
    return place_tags(tags, source=source, target=target, links=links, written=written)


@pytest.mark.parametrize(
    ("marked", "target", "pairs", "expected"),
    [
        # One pair, at the start, in the middle and at the end.
        ("<b>the</b> red car", "el coche rojo", "0 2 1", "<b>el</b> coche rojo"),
        ("the <b>red</b> car", "el coche rojo", "0 2 1", "el coche <b>rojo</b>"),
        ("the <b>red car</b>", "el coche rojo", "0 2 1", "el <b>coche rojo</b>"),
        # A pair around a word that is several words in the translation.
        ("<b>it</b> rains", "es ist so", "1 0 0", "es <b>ist so</b>"),
        # The clearest adjacent words win if the words of a pair are apart.
        ("<b>gives up</b> now", "gibt jetzt ganz auf", "0 2 1 1", "gibt jetzt <b>ganz auf</b>"),
        # Several pairs change their order.
        (
            "<b>a</b> <i>b</i> <u>c</u>", "C A B", "2 0 1",
            "<u>C</u> <b>A</b> <i>B</i>",
        ),
        ("<b>a b</b> <i>c d</i>", "C D A B", "2 3 0 1", "<i>C D</i> <b>A B</b>"),
        # Nested pairs, with the same and with other words.
        ("<a>x <b>y</b></a> z", "Z Y X", "2 1 0", "Z <a><b>Y</b> X</a>"),
        ("<a><b>x y</b></a> z", "Z Y X", "2 1 0", "Z <a><b>Y X</b></a>"),
        # An empty pair stays empty, between the words that surround it.
        ("x<a></a> y", "X Y", "0 1", "X<a></a> Y"),
        # An empty translation.
        ("<a>x <b>y</b></a><br/>", "", "", "<a><b></b></a><br/>"),
        # A tag without its partner is a single tag between words.
        ("x <b>y z", "X Y Z", "0 1 2", "X <b>Y Z"),
        # A pair that crosses another pair loses its opening tag, and the others remain a pair.
        ("<b>x <i>y</b> z</i> v", "X Y Z V", "0 1 2 3", "<b>X <i>Y</b> Z</i> V"),
        # Punctuation at the edges belongs to a pair as in the source.
        ("<b>Yes</b>, x", "Sí, X", "0 0 2", "<b>Sí</b>, X"),
        ('Say "<b>x</b>".', 'Di «X».', "0 1 2 3 4", "Di «<b>X</b>»."),
        ("<b>Note:</b> (x)", "Nota: (X)", "0 1 2 3 4", "<b>Nota:</b> (X)"),
    ],
)  # fmt: skip
def test_tags_follow_their_words(marked, target, pairs, expected):
    assert place(marked, target, pairs=pairs) == (expected, True)


@pytest.mark.parametrize(
    ("marked", "target", "pairs", "expected"),
    [
        ("x <br/> y", "X Y", "0 1", "X <br/> Y"),
        ("x <br/>y", "X Y", "0 1", "X <br/>Y"),
        ("x y<br/>z", "Z X Y", "2 0 1", "Z X Y<br/>"),
        ("<br/>x", "X", "0", "<br/>X"),
        ("x<br/><hr/>y", "X Y", "0 1", "X<br/><hr/>Y"),
        # A void tag is never inside a pair whose words do not surround it in the source.
        ("<b>x y</b><br/>z", "X Z Y", "0 2 1", "<b>X</b><br/>Z Y"),
        ("<b>x<br/>y</b> z", "Z X Y", "2 0 1", "Z <b>X<br/>Y</b>"),
    ],
)
def test_void_tags_stay_between_their_words(marked, target, pairs, expected):
    assert place(marked, target, pairs=pairs) == (expected, True)


@pytest.mark.parametrize(
    ("marked", "target", "pairs", "expected"),
    [
        # No word belongs to the pair, so the first word with letters is inside.
        ("<b>x</b> y", "… Y", "- 1", "… <b>Y</b>"),
        ("x <b>y</b>", "X Z", "0 0", "<b>X</b> Z"),
        # A nested pair stays in its outer pair, although its word moves away.
        ("<a>x <b>y</b></a> z", "X X Z Y", "0 0 2 1", "<a><b>X</b> X</a> Z Y"),
        # Three pairs for one word, and for two words.
        ("<b>x</b> <i>y</i> <u>z</u>", "X", "0", "<b><i><u>X</u></i></b>"),
    ],
)
def test_pair_without_its_own_words_has_an_unclear_place(marked, target, pairs, expected):
    assert place(marked, target, pairs=pairs) == (expected, False)


WORD = st.sampled_from(["a", "b", "ab", "x1", ",", "¡"])
NAMES = st.sampled_from(["b", "i", "u"])
INSIDE = st.recursive(
    st.one_of(WORD, st.just("<br/>"), st.just("<hr/>")),
    lambda inner: st.tuples(NAMES, st.lists(inner, max_size=4)).map(
        lambda pair: f"<{pair[0]}>{' '.join(pair[1])}</{pair[0]}>"
    ),
    max_leaves=10,
)


@st.composite
def marked_texts(draw, joints=(" ", " ", "")):
    """Return a text with well-formed tags, whose tags have different names."""
    parts = draw(st.lists(st.tuples(INSIDE, st.sampled_from(joints)), max_size=5))
    text = "".join(each for part in parts for each in part).strip()
    stack, count = [], 0

    def number(found):
        nonlocal count
        if found[1]:
            return f"</{found[2]}{stack.pop()}>"
        count += 1
        if not found[3]:
            stack.append(count)
        return f"<{found[2]}{count}{found[3]}>"

    return _TAG.sub(number, text)


def is_well_formed(text):
    stack = []
    for is_close, name, is_void in _TAG.findall(text):
        if is_close:
            if not stack or stack.pop() != name:
                return False
        elif not is_void:
            stack.append(name)
    return not stack


def contents(text):
    """Return the text between the tags of each pair, without tags, by the name of the pair."""
    found = {}
    for each in re.finditer(r"<(\w+)>(.*)</\1>", text, re.DOTALL):
        found[each[1]] = _TAG.sub("", each[2])
        found |= contents(each[2])
    for each in re.finditer(r"<(\w+)>", text):
        inside = re.search(rf"<{each[1]}>(.*?)</{each[1]}>", text, re.DOTALL)
        found[each[1]] = _TAG.sub("", inside[1])
    return found


@given(marked=marked_texts(), words=st.lists(WORD, max_size=6), data=st.data())
def test_result_is_well_formed_and_keeps_the_translation(marked, words, data):
    source, tags = read_tags(marked)
    target = " ".join(words)
    source_words, target_words = find_words(source), find_words(target)
    shares = st.lists(
        st.sampled_from([0.0, 0.0, 0.25, 0.5, 1.0]),
        min_size=len(source_words), max_size=len(source_words),
    )  # fmt: skip
    rows = [data.draw(shares) for _ in target_words]
    links = np.array(rows, float).reshape(len(target_words), len(source_words))
    links /= np.maximum(links.sum(1, keepdims=True), 1)
    found, is_clear = place_tags(tags, source=source, target=target, links=links)
    assert isinstance(is_clear, bool)
    bare = _TAG.sub("", found)
    if any(tag.role is Role.VOID for tag in tags):  # the spaces around a void tag may change
        assert bare.replace(" ", "") == target.replace(" ", "")
    else:
        assert bare == target
    assert sorted(each[0] for each in _TAG.finditer(found)) == sorted(tag.text for tag in tags)
    assert is_well_formed(found)
    own, placed = contents(marked), contents(found)
    assert placed.keys() == own.keys()
    for name, text in own.items():
        if find_words(text) and target_words:
            assert find_words(placed[name]), f"the pair {name} is empty in {found!r}"
        elif not find_words(text):
            assert not find_words(placed[name]), f"the pair {name} is not empty in {found!r}"


@given(marked=marked_texts(joints=(" ",)))
def test_tags_stay_at_their_places_if_the_translation_is_the_source(marked):
    source, tags = read_tags(marked)
    links = np.eye(len(find_words(source)))
    found, _ = place_tags(tags, source=source, target=source, links=links)
    assert found.replace(" ", "") == marked.replace(" ", "")


@pytest.mark.parametrize(
    ("text", "atoms", "words"),
    [
        ("A dog runs.", [], ["A", "dog", "runs", "."]),
        ("她读书。", [], ["她", "读", "书", "。"]),
        ("iPhone 15用户", [], ["iPhone", "15", "用", "户"]),
        ("don't l’eau", [], ["don't", "l’eau"]),
        ("dogs' 'x'", [], ["dogs", "'", "'", "x", "'"]),
        ("well-known -x", [], ["well-known", "-", "x"]),
        ("⟦1⟧x⟦12⟧", [], ["⟦1⟧", "x", "⟦12⟧"]),
        ("a {b c}d", ["{b c}"], ["a", "{b c}", "d"]),
        ("$5 and $50", ["$5", "$50"], ["$5", "and", "$50"]),
        ("", [], []),
    ],
)
def test_words(text, atoms, words):
    assert [text[start:end] for start, end in find_words(text, atoms=atoms)] == words
