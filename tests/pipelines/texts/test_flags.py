"""What is suspicious about a translation, sentence by sentence and in whole texts."""

import dataclasses
import random
import time

import pytest
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from model.decoding.options import Decoding
from model.engines.translator import Hypothesis, Translation, Work
from model.errors import UserError
from model.formats.model_card import About, TrainingData
from pipelines.texts.flags import (
    FLAGS,
    Limits,
    flag_sentence,
    has_loop,
    has_lost_end,
    has_lost_figure,
    has_other_script,
    is_copy,
    read_names,
)
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import translate_texts

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
    assert not has_lost_end("«Geh»", source=source)
    assert not has_lost_end("", source=source)


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
    old = About(data=TrainingData(length_ratios={"0.1%": 0.5, "50%": 1.0}))
    assert Limits.of(old) == Limits(usual=1.0)
    assert Limits.of(About()) == Limits()


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


# Options.


def test_flags_are_named_with_commas_or_one_by_one():
    assert TextOptions().flags == FLAGS
    assert TextOptions(flags=("short,copy", "number")).flags == ("copy", "short", "number")
    assert read_names(["none"]) == TextOptions(flags=()).flags == ()
    with pytest.raises(UserError) as caught:
        TextOptions(flags=("copy,shrot",))
    assert str(caught.value) == (
        f"`flags` must be one of {', '.join((*FLAGS, 'none'))}. Received: shrot"
    )
    with pytest.raises(UserError, match="`flags=none` stands alone"):
        TextOptions(flags=("none", "copy"))
    with pytest.raises(UserError, match="`on_flag` must be one of keep, null, retry"):
        TextOptions(on_flag="no")
    for on_flag in ("null", "retry"):
        with pytest.raises(UserError, match=f"`on_flag={on_flag}` needs a flag that counts"):
            TextOptions(flags=("none",), on_flag=on_flag)
    assert TextOptions(flags=("none",), on_flag="keep").flags == ()


# Texts.


class Parrot(Reverser):
    """Gives each sentence back, but by another search what `second` says."""

    def __init__(self, second=None, **options):
        super().__init__(**options)
        self.decoding = Decoding(beam_size=3, no_repeat_ngram_size=5)
        self.second = second or {}
        self.searches = []

    def translate_ids(self, source_ids, *, growth=1, decoding=None):
        self.searches.append((growth, decoding))
        texts = ["".join(map(chr, ids[1:-1])) for ids in source_ids]
        if decoding is None:
            found = [Hypothesis(text, -5.0, tokens=len(text) + 1) for text in texts]
        else:
            if any(self.second[text] is None for text in texts):
                raise ValueError("not a second time")
            found = [Hypothesis(*self.second[text]) for text in texts]
        return [Translation((each,)) for each in found], Work(sources=len(texts))


SENTENCE, NAME = "Tom reads a book.", "Berlin"


def translate(texts, translator, **options):
    cells = [text.encode() for text in texts]
    return translate_texts(cells, translator=translator, options=TextOptions(**options))


def test_the_flags_of_a_text_are_those_of_its_sentences():
    texts = [f"{NAME}. {SENTENCE} {SENTENCE}", NAME, "12", "", f"{SENTENCE}\n{NAME}"]
    found = translate(texts, Parrot())
    assert [each.flags for each in found.translations] == [("copy",), (), (), (), ("copy",)]
    assert [each.translation for each in found.translations] == texts
    off = translate(texts, Parrot(), flags=("short",))
    assert all(each.flags == () for each in off.translations)


def test_flagged_translations_are_left_out():
    [copied, name] = translate([SENTENCE, NAME], Parrot(), on_flag="null").translations
    assert (copied.translation, copied.n_best, copied.flags) == (None, (), ("copy",))
    assert copied.error == "left out, since it is flagged: copy"
    assert (copied.status, copied.score) == ("flagged", None)
    assert (name.translation, name.error, name.flags) == (NAME, None, ())
    [kept] = translate([SENTENCE], Parrot(), on_flag="null", flags=("short",)).translations
    assert kept.translation == SENTENCE


def test_flagged_sentences_are_translated_once_more_and_the_better_one_stays():
    others = [f"Tom reads {thing} today." for thing in ("books", "news", "all 25 pages", "it all")]
    second = {
        SENTENCE: ("Tom liest ein Buch.", -9.0),  # no flag
        others[0]: (others[0], -4.0),  # the same flag, and more probable
        others[1]: (others[1] + "!", -6.0),  # the same flag, and less probable
        others[2]: ("Tom reads all pages today.", -1.0),  # two flags
        others[3]: None,  # fails
    }
    translator = Parrot(second)
    found = translate([f"{SENTENCE} {NAME}.", *others, NAME], translator, on_flag="retry")
    assert [(each.translation, each.flags) for each in found.translations] == [
        (f"Tom liest ein Buch. {NAME}.", ()),
        *((text, ("copy",)) for text in others),
        (NAME, ()),
    ]
    assert [each.score for each in found.translations] == [-14.0, -4.0, -5.0, -5.0, -5.0, -5.0]
    first, *again = translator.searches
    assert first == (1, None)
    assert {growth for growth, _ in again} == {2}
    assert {search for _, search in again} == {Decoding(beam_size=6, no_repeat_ngram_size=3)}
    assert found.work.sources == 7 + 4, "the work of the second try counts"


def test_a_second_try_that_loses_what_must_not_change_is_not_taken():
    shown = "Tom reads ⟦1⟧ today and now."
    pieces = {"Tom reads": ("Tom reads", -3.0), "today and now.": ("today and now.", -3.0)}
    for second, expected, flags in (
        ("Tom liest ⟦1⟧ heute.", "Tom liest https://a.bc/x heute.", ()),
        ("Tom liest heute.", "Tom reads https://a.bc/x today and now.", ("copy",)),
    ):
        translator = Parrot({shown: (second, -1.0), **pieces})
        text = shown.replace("⟦1⟧", "https://a.bc/x")
        [found] = translate([text], translator, on_flag="retry", placeholders=8).translations
        assert len(translator.searches) == 2
        assert (found.translation, found.flags) == (expected, flags)


def test_a_flagged_sentence_is_tried_around_its_spans_too():
    """By fewer flags, and of as many by the score; what is between the spans is judged as one."""
    shown = "Tom reads ⟦1⟧ today and now."
    text = shown.replace("⟦1⟧", "https://a.bc/x")
    whole, german = ("Tom liest ⟦1⟧ heute.", -4.0), {"Tom reads": ("Tom liest", -1.0, True, 3)}
    rest = "today and now."
    for second, expected, score, flags in (
        # Loses the span, so that around it is the only other one.
        ({shown: ("Tom liest.", -1.0), rest: ("heute.", -2.0)}, "Tom liest | heute.", -3, ()),
        # Both have no flag.
        ({shown: whole, rest: ("heute!", -2.0)}, "Tom liest | heute!", -3, ()),
        ({shown: whole, rest: ("heute!", -3.5)}, "Tom liest | heute.", -4, ()),
        # As many flags as the first, and less probable.
        ({shown: None, rest: ("nun nun nun nun.", -9.0)}, "Tom reads | today and now.", -5,
         ("copy",)),
        # Of words that are no copies piece by piece, the whole is one.
        ({shown: None, "Tom reads": ("Tom reads", -1.0), rest: (rest, -1.0)},
         "Tom reads | today and now.", -2, ("copy",)),
        # A piece was cut off.
        ({shown: whole, rest: ("heute!", -1.0, False)}, "Tom liest | heute.", -4, ()),
        # A piece fails.
        ({shown: None, rest: None}, "Tom reads | today and now.", -5, ("copy",)),
    ):  # fmt: skip
        translator = Parrot(german | second)
        [found] = translate([text], translator, on_flag="retry", placeholders=8).translations
        assert found.translation == expected.replace("|", "https://a.bc/x")
        assert (found.score, found.flags) == (score, flags)
        assert {growth for growth, decoding in translator.searches if decoding} == {2}


def test_a_piece_before_a_span_ends_as_its_source_does_in_a_second_try():
    second = {
        "Tom reads ⟦1⟧ and books": None,
        "Tom reads": ("Tom liest.", -1.0),
        "and books": ("und Bücher.", -1.0),
    }
    text = "Tom reads {x} and books<br>\n{y}"
    [found] = translate([text], Parrot(second), on_flag="retry", placeholders=1).translations
    assert found.translation == "Tom liest {x} und Bücher<br>\n{y}"


def test_a_beginning_is_not_tried_around_its_spans():
    """Since these pieces would be the whole."""
    shown = "Tom reads ⟦1⟧ and a lot "
    translator = Parrot({shown: (shown, -9.0)})
    [found] = translate(
        ["Tom reads {x} and a lot of other books today"], translator, on_flag="retry",
        placeholders=8, on_too_long="truncate", max_source_tokens=26,
    ).translations  # fmt: skip
    assert (found.flags, found.status) == (("copy",), "too_long")
    assert translator.searches[1:] == [(2, translator.decoding.second_try())]


CODE = "`cd the folder and run the tests of 2024 with 1500 files and then and then and then again`"


def test_what_must_not_change_has_no_flags():
    shown = "Tom liest ⟦1⟧ heute."
    right = f"Tom reads {CODE} today."

    class German(Parrot):
        def translate_ids(self, source_ids, **options):
            _, work = super().translate_ids(source_ids, **options)
            return [Translation((Hypothesis(shown, -5.0, tokens=9),))] * len(source_ids), work

    for on_flag in ("keep", "null", "retry"):
        [found] = translate([right], German(), placeholders=8, on_flag=on_flag).translations
        assert (found.translation, found.flags) == (f"Tom liest {CODE} heute.", ())
    [copied] = translate([right], Parrot(), placeholders=8).translations
    assert (copied.translation, copied.flags) == (right, ("copy",)), "nor is what is beside it lost"


def test_the_number_of_a_placeholder_is_no_figure():
    assert has_lost_figure("⟦1⟧ und ⟦2⟧", source="⟦1⟧ and ⟦2⟧ in 12")
    assert not has_lost_figure("und", source="⟦1⟧ and ⟦2⟧")


class Twice(Parrot):
    """Has an answer of its own for all that it is asked the second time."""

    def translate_ids(self, source_ids, *, growth=1, decoding=None):
        found, work = super().translate_ids(source_ids, growth=growth)
        if decoding is None:
            return found, work
        return [
            Translation((Hypothesis(each.text.replace("reads", "liest"), -6.0, tokens=9),))
            for (each,) in (one.hypotheses for one in found)
        ], work


@pytest.mark.parametrize("on_flag", ["keep", "null", "retry"])
def test_a_row_does_not_depend_on_the_others(on_flag):
    texts = [
        "Tom reads https://a.bc/x.",
        "Tom reads `cd the folder and run the tests`.",
        "Tom reads here and there and now `x`.",
        "Tom reads here and there and now https://a.bc/x and 1,250 more.",
        "Tom reads here and there and now `all of the other texts` and 1,250 more.",
        "Tom reads here and there and now {name} and 1,250 more.",
        "Tom reads. Tom reads here and there and now {name}.",
        "Tom reads here and there and now {other}. Berlin. 12.",
        "Tom reads here and there and now {other}.\u200b", SENTENCE, f"{SENTENCE} {NAME}.", NAME,
    ]  # fmt: skip
    options = {"placeholders": 8, "on_flag": on_flag}
    alone = [translate([text], Twice(), **options).translations[0] for text in texts]
    for seed in range(5):
        order = random.Random(seed).sample(range(len(texts)), len(texts))
        together = translate([texts[i] for i in order], Twice(), **options).translations
        assert together == [alone[i] for i in order]


class ByIds(Parrot):
    """Translates "Ab" and "ab" alike, and so may a vocabulary without case."""

    def encode(self, texts):
        return super().encode([text.lower() for text in texts])


@pytest.mark.parametrize("on_flag", ["keep", "null", "retry"])
def test_texts_of_the_same_ids_choose_for_themselves(on_flag):
    lower = "tom reads a book here now."
    second = {lower: ("tom liest.", -9.0)}
    texts = [lower, lower.title(), lower.capitalize()]
    options = {"on_flag": on_flag}
    alone = [translate([text], ByIds(second), **options).translations[0] for text in texts]
    assert len({each.flags for each in alone}) == (1 if on_flag == "retry" else 2)
    assert len({each.translation for each in alone}) == (1 if on_flag == "keep" else 2)
    for order in ([0, 1, 2], [2, 1, 0], [1, 2, 0]):
        together = translate([texts[i] for i in order], ByIds(second), **options).translations
        assert together == [alone[i] for i in order]


def test_nothing_is_tried_again_where_nothing_is_flagged():
    translator = Parrot()
    del translator.decoding
    translate([NAME], translator, on_flag="retry")
    assert translator.searches == [(1, None)]


def test_the_order_of_texts_changes_no_flag():
    texts = [SENTENCE, NAME, f"{NAME}. {SENTENCE}", "we come home later", "1990", ""]
    alone = [translate([text], Parrot()).translations[0] for text in texts]
    order = random.Random(1).sample(range(len(texts)), len(texts))
    together = translate([texts[i] for i in order], Parrot()).translations
    assert together == [alone[i] for i in order]
