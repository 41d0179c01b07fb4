"""What is suspicious about a translation, sentence by sentence."""

import dataclasses
import gzip
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.formats.model_card import About, TrainingData
from pipelines.texts.copies import is_copy
from pipelines.texts.ends import find_lost_ends, has_lost_end
from pipelines.texts.judging import flag_sentence
from pipelines.texts.limits import FLAGS, Limits
from pipelines.texts.loops import (
    _LEAST_REPEATED,
    _ROUNDS,
    _has_characters_loop,
    _share_in_rounds,
    has_loop,
    repeats_itself,
)
from pipelines.texts.signs import (
    _foreign_word,
    _maybe_foreign,
    has_lost_figure,
    has_other_script,
)

LIMITS = Limits(target_script="Latin", shortest=0.4, usual=1.0, longest=2.5, least_score=-2.0)


# Loops.


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Das Haus Haus Haus Haus ist groß.", "The house is big."),
        ("und dann, und dann, und dann ging er", "and then he went"),
        ("er sagte, dass er, er sagte, dass er, er sagte, dass er kommt", "he said he would come"),
        ("Der Mann geht in das Haus. Der Mann geht in das Haus.", "The man goes into the house."),
        ("Er lacht hahahahahahaha", "He laughs"),
        ("Das ist sooooooooo gut", "That is good"),
        ("他说他说他说他说他说他说", "He said"),
        ("你好，你好，你好，你好，你好，你好", "Hello"),
        ("nein " * 40, "No, no, no, no!"),
    ],
)
def test_a_loop_repeats_words_or_letters(text, source):
    assert has_loop(text, source=source)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("Das ist sehr, sehr, sehr gut.", "That is good."),
        ("Nein, nein, nein, nein!", "No, no, no, no!"),
        ("Sooooooooo gut", "Sooooooooo good"),
        ("Es kostet 1000000000 Euro .......... oder mehr", "It costs a billion"),
        ("der Hund und der Mann und der Ball und der Baum", "the dog, the man, the ball, the tree"),
        ("一一五五", "1155"),
        ("", "Hello"),
    ],
)
def test_no_loop_is_what_the_source_has_or_a_language_does(text, source):
    assert not has_loop(text, source=source)


@given(
    words=st.lists(st.sampled_from("abcdefghijklmnop"), min_size=3, max_size=30, unique=True),
    data=st.data(),
)
def test_any_run_of_words_that_comes_five_times_is_a_loop(words, data):
    """Of words that are all different, at any place, and nothing of them is a loop by itself."""
    start = data.draw(st.integers(0, len(words) - 1))
    size = data.draw(st.integers(1, min(12, len(words) - start)))
    looped = words[: start + size] + words[start : start + size] * 4 + words[start + size :]
    assert has_loop(" ".join(looped), source="x y z")
    assert not has_loop(" ".join(words), source="x y z")
    assert not has_loop(" ".join(looped), source=" ".join(looped))


@pytest.mark.parametrize(
    "text",
    [
        "Bus" + 20 * "s",
        "Zwei Männer am Strand und der Hund und der Hund und der Hund und der Hund und",
        "Ein Mann in einem schwarzen Lederkrrrrrrrrrrrrrrrrrrrrrrrrrrrim Ster ist in eine schw",
        "während man während man während man während der einent, der einentrtrtrt, während",
        "两个男人在海滩上，两个男人在海滩上，两个男人在海滩上，两个男人在海",
        "Der Mann geht mit dem großen Hund und der Katze. " * 6,
        ("Der Mann, der auf dem Strand sitzt, sieht den Hund, der im Wasser spielt. " * 4)[:250],
        # Of a model, cut off on captions that it did not know.
        "Eine Art von Rettungs-Lolen, die die „Forttttttttttttttttttetetttttttettetetttttet",
        "Ein Frau, der die gewänttttttent, der sich für die Ausssssssssssssstttttttttt",
        "n einem Klünktenenenenenen einertertertertererterter in inter eine gelbertrtrt",
    ],
)
def test_what_was_cut_off_in_a_loop_repeats_itself(text):
    assert repeats_itself(text, source="Two men on a beach.")
    assert not repeats_itself(text, source=text), "and so does its source"


@given(
    period=st.text("abcdefgh ", min_size=41, max_size=120),
    before=st.text("abc ", max_size=200),
    rounds=st.integers(2, 4),
)
def test_a_quick_look_overlooks_no_loop(period, before, rounds):
    text = before + period * rounds + "end"
    in_rounds = sum(len(found[0]) for found in _ROUNDS.finditer(text))
    assert _share_in_rounds(text) == in_rounds / len(text)


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("", ""),
        ("Hund", "dog"),
        ("Es war sehr, sehr, sehr kalt, als der alte Mann", "It was very cold when the old man"),
        (
            "Ich weiß nicht, was ich tun soll, ich weiß nicht, was ich tun soll, und dann ging ich",
            "我不知道我应该做什么，我不知道我应该做什么，然后我就离开了",
        ),
        (
            "Artikel 3 Absatz 1, Artikel 5 Absatz 2, Artikel 7 Absatz 1, Artikel 9 Absatz 4 und "
            "Artikel 11 Absatz 2 der Verordnung sowie Artikel 3 Absatz",
            "Arts. 3(1), 5(2), 7(1), 9(4) and 11(2) of the Regulation and Art. 3(",
        ),
        (
            "the World Health Organization, the World Trade Organization, the International Labour "
            "Organization, the World Meteorological Organization, the International Maritime",
            "世界卫生组织、世界贸易组织、国际劳工组织、世界气象组织、国际海事组织",
        ),
        (
            "He said that he knew that she said that he knew that she had said it and",
            "他说他知道她说",
        ),
        ("government of the people, by the people, for the people, shall not", "民有、民治、民享"),
        ("11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29,", "11 to 99"),
    ],
)
def test_a_sound_text_that_was_cut_off_does_not_repeat_itself(text, source):
    assert not repeats_itself(text, source=source)


@pytest.mark.parametrize(
    "path",
    ["news_zh_en/train.en.gz", "multi30k/train.de.gz", "tatoeba_de_en/train.de.gz",
     "ted_ru_en/dev.ru.gz"],
)  # fmt: skip
def test_no_long_line_of_a_real_corpus_repeats_itself(shared_data, path):
    with gzip.open(shared_data / path, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if len(line) > 60][:8000]
    assert [line for line in lines if repeats_itself(line, source="")] == []


# Copies.


@pytest.mark.parametrize(
    "text",
    [
        "A man is reading a book in the park.",
        "Tom laughed.",
        "we will come later",
        "他不知道那条狗",
        "Он не знает, почему",
    ],
)
def test_a_sentence_that_comes_back_is_a_copy(text):
    assert is_copy(text, source=text)


def test_a_copy_may_differ_in_a_word():
    source = "A man is reading a good book in the old park."
    assert is_copy("A man is reading a gutes book in the old park.", source=source)
    assert not is_copy("Ein Mann liest ein good book im park.", source=source)
    assert not is_copy("park old the in book good a reading is man A", source=source)


@pytest.mark.parametrize(
    "text",
    [
        "Berlin",
        "Hotel",
        "Barack Obama",
        "Charles de Gaulle, Paris",
        "12,345 km",
        "Die Presse (diepresse.com)",
        "https://example.org/index.html",
        "iPhone 12 Pro",
        "MacBook",
        "东京",
        "",
    ],
)
def test_names_single_words_and_numbers_are_no_copies(text):
    assert not is_copy(text, source=text)


# Lengths and ends.


def flags_of(source_tokens, target_tokens, *, target="Ein Hund.", source="A dog.", limits=LIMITS):
    return flag_sentence(
        source, target, limits=limits, source_tokens=source_tokens, target_tokens=target_tokens
    )


def test_short_and_long_are_beyond_the_range_of_the_training_pairs():
    found = {tokens: flags_of(100, tokens) for tokens in (39, 40, 250, 251)}
    assert found == {39: ("short",), 40: (), 250: (), 251: ("long",)}
    few = {pair: flags_of(*pair) for pair in ((1, 5), (1, 6), (6, 2), (7, 2))}
    assert few == {(1, 5): (), (1, 6): ("long",), (6, 2): (), (7, 2): ("short",)}
    unknown = dataclasses.replace(LIMITS, shortest=None)
    assert flags_of(100, 1, limits=unknown) == flags_of(0, 9) == flags_of(9, 0) == ()


def test_a_lost_full_stop_makes_less_of_the_range_short():
    assert flags_of(100, 59, target="Ein Hund") == ("short",)
    assert flags_of(100, 60, target="Ein Hund") == ()
    assert flags_of(100, 59, target="Ein Hund", source="A dog") == ()
    assert flags_of(100, 59, target="Ein Hund!") == ()
    half = dataclasses.replace(LIMITS, usual=2.0)
    assert flags_of(100, 119, target="Ein Hund", limits=half) == ("short",)
    assert flags_of(100, 120, target="Ein Hund", limits=half) == ()


@pytest.mark.parametrize("source", ["Go.", "Go!", '"Go?"', "走。", "(Go.)", "جاؤ۔"])
def test_ends_of_sentences(source):
    assert has_lost_end("Geh", source=source)
    assert has_lost_end("Geh,", source=source)
    assert not has_lost_end("Geh.", source=source)
    assert has_lost_end("«Geh»", source=source)
    assert has_lost_end("Geh'", source=source)
    assert not has_lost_end("«Geh.»", source=source)
    assert not has_lost_end("(Geh!)", source=source)
    assert not has_lost_end("", source=source)
    assert not has_lost_end("»", source=source)


@given(st.lists(st.tuples(st.text("a.!? \"')。,", max_size=4), st.text("b.!…)»\"',", max_size=4))))
def test_many_pairs_are_looked_at_as_each_is(pairs):
    expected = [has_lost_end(target, source=source) for source, target in pairs]
    assert find_lost_ends([s for s, _ in pairs], [t for _, t in pairs]) == expected


@pytest.mark.parametrize("source", ["Go", "Go…", "Go ...", "Go:", "1)", ""])
def test_no_ends_of_sentences(source):
    assert not has_lost_end("Geh", source=source)


def test_limits_are_those_of_the_model_card():
    ratios = {"0.01%": 0.25, "50%": 1.0, "99.99%": 4.0}
    data = TrainingData(target_language="de", length_ratios=ratios)
    limits = Limits.of(About(data=data))
    # The quantiles are middles of places an eighth of an octave wide: the edges are in the range.
    assert (limits.target_script, limits.usual) == ("Latin", 1.0)
    assert limits.shortest == pytest.approx(0.25 * 2 ** (-1 / 16))
    assert limits.longest == pytest.approx(4 * 2 ** (1 / 16))
    assert limits.without_end == 0.6
    old = About(data=TrainingData(length_ratios={"0.1%": 0.5, "50%": 1.0}))
    assert Limits.of(old) == Limits(usual=1.0)
    assert Limits.of(About()) == Limits()


@pytest.mark.parametrize(
    ("pairs", "lost", "expected"),
    [  # 3 in 10,000 may be below, 3 of which are kept back
        (9_999, {}, 0.6),  # that none of so few has lost its end does not say enough
        (10_000, {}, 1.0),
        (10_000, {32: 1}, 0.6),  # at half of the median
        (13_334, {32: 1}, 1.0),
        (20_000, {32: 3, 40: 1}, 2 ** (-1 / 16)),
        (20_000, {32: 3, 36: 1}, 2 ** (-9 / 16)),  # an octave has 8 places
        (20_000, {32: 3, 34: 1}, 0.6),  # the least
        (20_000, {32: 3, 48: 1}, 1.0),  # the median is enough
        (100_000, {16: 27, 36: 9_000}, 2 ** (-9 / 16)),
    ],
)
def test_where_training_pairs_keep_their_ends_more_is_short(pairs, lost, expected):
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
        ("Ein ganz normaler Satz mit 狗 darin", "Latin", False),  # a letter
        ("Straße, Übermut, łódź, Việt Nam, ŋ", "Latin", False),
        ("Он купил iPhone", "Cyrillic", False),  # of the source
        ("He bought a phone", "Cyrillic", True),
        ("私はiPhoneを買った", "Japanese", False),
        ("그는 사과를 샀다", "Japanese", True),
        ("他买了iPhone", "Han", False),
        ("12 µ", "Han", False),
        ("", "Han", False),
    ],
)
def test_letters_of_another_script(text, script, expected):
    assert has_other_script(text, source="I bought iPhone", script=script) is expected


@pytest.mark.parametrize(
    ("text", "source", "expected"),
    [
        ("Es waren 250 Hunde", "There were 250 dogs", False),
        ("Es waren 25 Hunde", "There were 250 dogs", False),  # zeros may go
        ("Es waren 26 Hunde", "There were 250 dogs", True),
        ("Es waren Hunde", "There were 250 dogs", True),
        ("Es waren drei Hunde", "There were 3 dogs", False),
        ("1.234.567,89 €", "€1,234,567.89", False),
        ("1 234 567", "1,234,567", False),
        ("150万", "1.5 million", False),
        ("٢٥٠ كلبا", "250 dogs", False),
        ("250 Hunde", "۲۵۰ سگ", False),
        ("Keine", "None", False),
    ],
)
def test_a_lost_figure(text, source, expected):
    assert has_lost_figure(text, source=source) is expected


def test_a_sentence_can_have_several_flags_in_the_order_of_the_table():
    found = flag_sentence(
        "It costs 250 euros, he says.", "да да да да", limits=LIMITS, source_tokens=100,
        target_tokens=4, score=-50.0,
    )  # fmt: skip
    assert found == ("repeats", "short", "wrong_script", "number", "low_score")
    assert [flag for flag in FLAGS if flag in found] == list(found)


def test_a_low_score_is_one_below_the_models_limit():
    def flags(score, tokens):
        return flag_sentence(
            "A", "B", limits=LIMITS, source_tokens=10, target_tokens=tokens, score=score
        )

    assert flags(-20.1, 9) == ("low_score",)  # EOS is the tenth
    assert flags(-20.0, 9) == ()
    assert flag_sentence("A", "B", limits=Limits(), score=-99.0) == ()


@given(text=st.text(), source=st.text(), script=st.sampled_from(["", "Latin", "Han", "Korean"]))
def test_no_text_makes_it_fail(text, source, script):
    limits = dataclasses.replace(LIMITS, target_script=script)
    found = flag_sentence(source, text, limits=limits, source_tokens=3, target_tokens=3)
    assert set(found) <= set(FLAGS)


# Long texts.

WORDS = [f"word{chr(97 + i % 26)}{chr(97 + i // 26 % 26)}{chr(97 + i // 676)}" for i in range(9000)]
# How a text of so many characters is made; the other side is another one of as many.
HOSTILE = {
    "numbers": lambda n: (" ".join(map(str, range(10**5, 10**5 + n // 7))), "1234567 " * (n // 8)),
    "numbers backwards": lambda n: (
        " ".join(map(str, range(10**5, 10**5 + n // 7))),
        " ".join(map(str, range(10**5 + n // 7, 10**5, -1))),
    ),
    "figures": lambda n: (
        " ".join(map(str, range(10**5, 10**5 + n // 7))),
        "".join(map(str, range(10**5, 10**5 + n // 6))),
    ),
    "one word": lambda n: ("the " * (n // 4), "the " * (n // 4)),
    "two words": lambda n: ("the " * (n // 4), "the dog " * (n // 8)),
    "words": lambda n: (" ".join(WORDS[: n // 8]), " ".join(WORDS[: n // 8][::-1])),
    "no space": lambda n: ("a" * n, "ab" * (n // 2)),
    "dots": lambda n: ("." * n, "a." * (n // 2)),
    "script": lambda n: ("dog " * (n // 4), "\u72d7 \u4e00\u72d7 " * (n // 5)),
    "scripts": lambda n: (
        " ".join(chr(0x4E00 + i % 9999) * 3 for i in range(n // 4)),
        " ".join(chr(0x4E00 + i % 9998) * 2 for i in range(n // 3)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_the_time_grows_with_the_length(name):
    def seconds(length):
        source, text = HOSTILE[name](length)
        took = []
        for _ in range(3):
            start = time.process_time()
            for one, other in ((source, text), (text, source), (text, text)):
                flag_sentence(one, other, limits=LIMITS, source_tokens=9, target_tokens=9)
            took.append(time.process_time() - start)
        return min(took)

    half, whole = seconds(50_000), seconds(100_000)
    assert whole < max(3 * half, 0.05)
    assert whole < 3


def test_the_beginning_of_a_long_copy_is_enough():
    english = " ".join(WORDS[:900])
    assert is_copy(english, source=english)
    assert not is_copy(english, source=" ".join(WORDS[900:1800]))


# Quick looks.


@given(
    word=st.lists(st.sampled_from(["ab", "a", "c", "ß", "d1", "e" * 5]), max_size=12).map("".join)
)
def test_a_word_with_a_loop_of_characters_has_few_others(word):
    """So that most words need no search."""
    assert not _has_characters_loop(word) or len(word) - len({*word}) >= _LEAST_REPEATED


@given(
    text=st.text(max_size=12),
    script=st.sampled_from(["Latin", "Han", "Korean", "Japanese", "Cyrillic", "Thai"]),
)
def test_a_quick_look_finds_any_letter_of_another_script(text, script):
    assert not _foreign_word(script).search(text) or _maybe_foreign(script).search(text)


@pytest.mark.parametrize("script", ["Latin", "Han", "Korean", "Japanese", "Cyrillic"])
def test_a_quick_look_finds_no_letter_of_the_script(script):
    """Of the plane that it knows: else it would spare nothing."""
    for i in range(0x10000):
        is_foreign = _foreign_word(script).search(chr(i)) is not None
        assert (_maybe_foreign(script).search(chr(i)) is not None) == is_foreign
