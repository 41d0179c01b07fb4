"""The rules of the flags, judged by `flag_sentence`."""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.formats.model_card import About, TrainingData
from tt.pipelines.texts.flags import FLAGS, TABLE, Limits, Sentence, flag_sentence, has_lost_end

LIMITS = Limits(target_script="Latin", shortest=0.4, usual=1.0, longest=2.5, least_score=-2.0)


NO_LIMITS = Limits()


def flags(source, text, limits=NO_LIMITS, **figures):
    return tuple(flag_sentence(Sentence(source, text, limits, **figures)))


# Loops.


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Das Haus Haus Haus Haus ist groß.", "The house is big."),
        ("er sagte, dass er, er sagte, dass er, er sagte, dass er kommt", "he said he would come"),
        ("Er lacht hahahahahahaha", "He laughs"),
        ("Das ist sooooooooo gut", "That is good"),
        ("你好，你好，你好，你好，你好，你好", "Hello"),
        ("Der Mann geht in das Haus. Der Mann geht in das Haus.", "The man goes into the house."),
        ("他说他说他说他说他说他说", "He said"),
    ],
)
def test_loops_of_words_or_letters(text, source):
    assert "repeats" in flags(source, text)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Das ist sehr, sehr, sehr gut.", "That is good."),
        ("Sooooooooo gut", "Sooooooooo good"),
        ("Es kostet 1000000000 Euro .......... oder mehr", "It costs a billion"),
        ("der Hund und der Mann und der Ball und der Baum", "the dog, the man, the ball, the tree"),
    ],
)
def test_repetitions_that_are_not_loops(text, source):
    assert "repeats" not in flags(source, text)


@given(
    words=st.lists(st.sampled_from("abcdefghijklmnop"), min_size=3, max_size=30, unique=True),
    data=st.data(),
)
def test_any_sequence_of_words_that_occurs_five_times_is_a_loop(words, data):
    """The words are all different, and the sequence is at any position."""
    start = data.draw(st.integers(0, len(words) - 1))
    size = data.draw(st.integers(1, min(12, len(words) - start)))
    looped = words[: start + size] + words[start : start + size] * 4 + words[start + size :]
    assert "repeats" in flags("x y z", " ".join(looped))
    assert "repeats" not in flags("x y z", " ".join(words))
    assert "repeats" not in flags(" ".join(looped), " ".join(looped))


# Copies.


@pytest.mark.parametrize(
    "text", ["A man is reading a book in the park.", "Tom laughed.", "他不知道那条狗"]
)
def test_unchanged_sentence_is_a_copy(text):
    assert "copy" in flags(text, text)


@pytest.mark.parametrize(
    "text", ["Berlin", "Barack Obama", "12,345 km", "https://example.org/index.html", "东京", ""]
)
def test_names_single_words_and_numbers_are_not_copies(text):
    assert "copy" not in flags(text, text)


# Lengths and ends.


def flags_of(source_tokens, target_tokens, *, target="Ein Hund.", source="A dog.", limits=LIMITS):
    return flags(source, target, limits, source_tokens=source_tokens, target_tokens=target_tokens)


def test_lengths_outside_of_the_training_range_are_flagged():
    found = {tokens: flags_of(100, tokens) for tokens in (39, 40, 250, 251)}
    assert found == {39: ("short",), 40: (), 250: (), 251: ("long",)}
    few = {pair: flags_of(*pair) for pair in ((1, 5), (1, 6), (6, 2), (7, 2))}
    assert few == {(1, 5): (), (1, 6): ("long",), (6, 2): (), (7, 2): ("short",)}
    unknown = dataclasses.replace(LIMITS, shortest=None)
    assert flags_of(100, 1, limits=unknown) == flags_of(0, 9) == flags_of(9, 0) == ()


def test_translation_without_its_full_stop_has_a_higher_limit_for_short():
    assert flags_of(100, 59, target="Ein Hund") == ("short",)
    assert flags_of(100, 60, target="Ein Hund") == ()
    assert flags_of(100, 59, target="Ein Hund", source="A dog") == ()
    assert flags_of(100, 59, target="Ein Hund!") == ()
    half = dataclasses.replace(LIMITS, usual=2.0)
    assert flags_of(100, 119, target="Ein Hund", limits=half) == ("short",)
    assert flags_of(100, 120, target="Ein Hund", limits=half) == ()


@pytest.mark.parametrize("source", ["Go.", '"Go?"', "走。", "جاؤ۔"])
def test_lost_ends_of_sentences(source):
    assert has_lost_end("Geh", source=source)
    assert has_lost_end("Geh,", source=source)
    assert not has_lost_end("Geh.", source=source)
    assert has_lost_end("«Geh»", source=source)
    assert has_lost_end("Geh'", source=source)
    assert not has_lost_end("«Geh.»", source=source)
    assert not has_lost_end("(Geh!)", source=source)
    assert not has_lost_end("", source=source)
    assert not has_lost_end("»", source=source)


@pytest.mark.parametrize("source", ["Go", "Go…", "Go ...", "1)", ""])
def test_source_without_an_end_has_no_lost_end(source):
    assert not has_lost_end("Geh", source=source)


def test_limits_come_from_the_model_card():
    ratios = {"0.01%": 0.25, "50%": 1.0, "99.99%": 4.0}
    data = TrainingData(target_language="de", length_ratios=ratios)
    limits = Limits.of(About(data=data))
    # The quantiles are middles of bins that are an eighth of an octave wide. The range includes the
    # whole bins, up to their edges.
    assert (limits.target_script, limits.usual) == ("Latin", 1.0)
    assert limits.shortest == pytest.approx(0.25 * 2 ** (-1 / 16))
    assert limits.longest == pytest.approx(4 * 2 ** (1 / 16))
    assert limits.without_end == 0.6
    assert limits.least_score is None
    assert Limits.of(About(token_scores={"0.1%": -2.5, "1%": -2.0})).least_score == -2.5
    old = About(data=TrainingData(length_ratios={"0.1%": 0.5, "50%": 1.0}))
    assert Limits.of(old) == Limits(usual=1.0)
    assert Limits.of(About()) == Limits()


@pytest.mark.parametrize(
    ("pairs", "lost", "expected"),
    [  # at most 3 pairs in 10,000 may be below the limit, minus 3 for unseen pairs
        (9_999, {}, 0.6),  # too few pairs to conclude anything from none
        (10_000, {}, 1.0),
        (10_000, {32: 1}, 0.6),  # at half of the median
        (20_000, {32: 3, 40: 1}, 2 ** (-1 / 16)),
        (20_000, {32: 3, 36: 1}, 2 ** (-9 / 16)),  # an octave has 8 bins
        (20_000, {32: 3, 48: 1}, 1.0),  # the median is the maximum
    ],
)
def test_limit_without_a_full_stop_depends_on_the_training_pairs(pairs, lost, expected):
    counts = [lost.get(place, 0) for place in range(max(lost, default=0) + 1)]
    ratios = {"0.01%": 0.25, "50%": 1.0, "99.99%": 4.0}
    data = TrainingData(pairs=pairs, length_ratios=ratios, lost_end_ratios=counts)
    limits = Limits.of(About(data=data))
    assert limits.without_end == pytest.approx(expected)
    tokens = int(expected * 1000)
    assert flags_of(1000, tokens - 1, target="Ein Hund", limits=limits) == ("short",)
    assert flags_of(1000, tokens + 1, target="Ein Hund", limits=limits) == ()
    assert flags_of(1000, tokens - 1, limits=limits) == ()


# Scripts and figures.


@pytest.mark.parametrize(
    ("text", "script", "expected"),
    [
        ("Это не по-немецки", "Latin", True),
        ("Ein 狗狗", "Latin", True),
        ("Ein ganz normaler Satz mit 狗 darin", "Latin", False),  # only one letter
        ("Он купил iPhone", "Cyrillic", False),  # copied from the source
        ("私はiPhoneを買った", "Japanese", False),
        ("他买了iPhone", "Han", False),
    ],
)
def test_letters_of_another_script(text, script, expected):
    found = flags("I bought iPhone", text, Limits(target_script=script))
    assert ("wrong_script" in found) is expected


def test_several_flags_are_in_the_order_of_the_table():
    found = flags(
        "It costs 250 euros, he says.", "да да да да", limits=LIMITS, source_tokens=100,
        target_tokens=4, score=-50.0,
    )  # fmt: skip
    assert found == ("repeats", "short", "wrong_script", "number", "low_score")
    assert [flag for flag in FLAGS if flag in found] == list(found)


def test_the_documentation_has_each_flag_with_its_limit():
    page = (Path(__file__).parents[3] / "docs/reference/columns.md").read_text(encoding="utf-8")
    section = page.split("\n## Flags\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \|.*\| *(.*?) *\|$", section, re.MULTILINE)
    shown = [(name, re.sub(r"\[|\]\(.*?\)", "", limit)) for name, limit in rows]
    assert shown == [(flag.name, flag.limit.replace("%", " %")) for flag in TABLE]


def test_score_below_the_limit_is_flagged():
    tokens = {"source_tokens": 10, "target_tokens": 9}
    assert flags("A", "B", LIMITS, score=-20.1, **tokens) == ("low_score",)  # EOS is the tenth
    assert flags("A", "B", LIMITS, score=-20.0, **tokens) == ()
    assert flags("A", "B", score=-99.0) == ()


@given(text=st.text(), source=st.text(), script=st.sampled_from(["", "Latin", "Han", "Korean"]))
def test_flag_sentence_accepts_any_text(text, source, script):
    limits = dataclasses.replace(LIMITS, target_script=script)
    found = flags(source, text, limits, source_tokens=3, target_tokens=3)
    assert set(found) <= set(FLAGS)


# Long texts.
