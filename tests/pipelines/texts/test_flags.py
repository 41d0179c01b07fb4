"""What is suspicious about the translations of whole texts, and what becomes of those."""

import random

import pytest
from fakes import Reverser

from model.decoding.options import Decoding
from model.engines.translator import Hypothesis, Translation, Work
from model.errors import UserError
from pipelines.flags.limits import FLAGS, read_names
from pipelines.flags.signs import has_lost_figure
from pipelines.texts.options import TextOptions
from pipelines.texts.translating import translate_texts

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
