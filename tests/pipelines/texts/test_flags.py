"""Flags of the translations of whole texts, and the treatment of flagged translations."""

import random

import pytest
from fakes import Reverser

from tt.model.engines.translator import Hypothesis, Translation, Work
from tt.model.errors import UserError
from tt.pipelines.texts.flags import DEFAULT_FLAGS, FLAGS, read_names
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

# Options.


def test_flags_are_separated_by_commas_or_repeated():
    assert TextOptions().flags == DEFAULT_FLAGS
    assert TextOptions(flags=("short,copy", "number")).flags == ("copy", "short", "number")
    assert read_names(["none"]) == TextOptions(flags=()).flags == ()
    with pytest.raises(UserError) as caught:
        TextOptions(flags=("copy,shrot",))
    assert str(caught.value) == (
        f"`flags` must be one of {', '.join((*FLAGS, 'none'))}. Received: shrot"
    )
    with pytest.raises(UserError, match="`flags=none` cannot be combined"):
        TextOptions(flags=("none", "copy"))
    with pytest.raises(UserError, match="`on_flag` must be one of keep, null"):
        TextOptions(on_flag="no")
    with pytest.raises(UserError, match="`on_flag=null` has no effect with `flags=none`"):
        TextOptions(flags=("none",), on_flag="null")
    assert TextOptions(flags=("none",), on_flag="keep").flags == ()


# Texts.


class Parrot(Reverser):
    """Returns each sentence unchanged."""

    def translate(self, inputs):
        texts = [each.encoded for each in inputs]
        found = [Hypothesis(text, -5.0, tokens=len(text) + 1) for text in texts]
        return [Translation((each,)) for each in found], Work(sources=len(texts))


SENTENCE, NAME = "Tom reads a book.", "Berlin"


def translate(texts, translator, **options):
    cells = [text.encode() for text in texts]
    return translate_texts(cells, translator=translator, options=TextOptions(**options))


def test_text_has_the_flags_of_its_sentences():
    texts = [f"{NAME}. {SENTENCE} {SENTENCE}", NAME, "12", "", f"{SENTENCE}\n{NAME}"]
    found = translate(texts, Parrot())
    assert [each.flags for each in found.translations] == [("copy",), (), (), (), ("copy",)]
    assert [each.translation for each in found.translations] == texts
    off = translate(texts, Parrot(), flags=("short",))
    assert all(each.flags == () for each in off.translations)


def test_flagged_translations_are_left_out():
    [copied, name] = translate([SENTENCE, NAME], Parrot(), on_flag="null").translations
    assert (copied.translation, copied.n_best, copied.flags) == (None, (), ("copy",))
    assert copied.error == "left out because of its flags: copy"
    assert (copied.status, copied.score) == ("flagged", None)
    assert (name.translation, name.error, name.flags) == (NAME, None, ())
    [kept] = translate([SENTENCE], Parrot(), on_flag="null", flags=("short",)).translations
    assert kept.translation == SENTENCE


CODE = "`cd the folder and run the tests of 2024 with 1500 files and then and then and then again`"


def test_protected_spans_have_no_influence_on_flags():
    shown = "Tom liest ⟦1⟧ heute."
    right = f"Tom reads {CODE} today."

    class German(Parrot):
        def translate(self, inputs):
            _, work = super().translate(inputs)
            return [Translation((Hypothesis(shown, -5.0, tokens=9),))] * len(inputs), work

    for on_flag in ("keep", "null"):
        [found] = translate([right], German(), placeholders=8, on_flag=on_flag).translations
        assert (found.translation, found.flags) == (f"Tom liest {CODE} heute.", ())
    [copied] = translate([right], Parrot(), placeholders=8).translations
    assert (copied.translation, copied.flags) == (right, ("copy",)), "the other words do count"


@pytest.mark.parametrize("on_flag", ["keep", "null"])
def test_flags_of_a_row_do_not_depend_on_other_rows(on_flag):
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
    alone = [translate([text], Parrot(), **options).translations[0] for text in texts]
    for seed in range(5):
        order = random.Random(seed).sample(range(len(texts)), len(texts))
        together = translate([texts[i] for i in order], Parrot(), **options).translations
        assert together == [alone[i] for i in order]
