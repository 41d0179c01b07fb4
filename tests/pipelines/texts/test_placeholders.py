"""Protected spans and glossaries, in translations by stand-ins for models."""

from __future__ import annotations

import dataclasses
import re

import pytest
from fakes import Reverser, reverse
from hypothesis import given
from hypothesis import strategies as st

from tt.model.engines.translator import Hypothesis, Translation
from tt.model.text.glossary import Glossary
from tt.model.text.spans import Protection
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.placeholders import unmask
from tt.pipelines.texts.results import TermCounts
from tt.pipelines.texts.segments import Masked
from tt.pipelines.texts.translating import translate_texts


class Placer(Reverser):
    """Reverses the order of words, and keeps placeholders.

    The functions in `spoil` change the texts of the first hypotheses.
    """

    def __init__(self, *, spoil=(), n_best=1):
        super().__init__(n_best=n_best)
        self.spoil = spoil

    def translate(self, inputs):
        found, work = super().translate(inputs)
        turned = []
        for translation in found:
            hypotheses = [
                dataclasses.replace(
                    each, text=" ".join(reverse(each.text.rstrip("'")).split()[::-1])
                )
                for each in translation.hypotheses
            ]
            for i, spoil in enumerate(self.spoil[: len(hypotheses)]):
                hypotheses[i] = dataclasses.replace(hypotheses[i], text=spoil(hypotheses[i].text))
            turned.append(Translation(tuple(hypotheses)))
        return turned, work


PLAIN = {"texts": "plain"}


def translate(cells, translator, *, glossary=None, **options):
    return translate_texts(
        [text.encode() for text in cells],
        translator=translator,
        options=TextOptions(**options),
        glossary=glossary,
    )


def lose(text):
    return re.sub("⟦1⟧", "", text)


def double(text):
    return text.replace("⟦1⟧", "⟦1⟧⟦1⟧")


def invent(text):
    return f"{text} ⟦8⟧"


def test_model_without_placeholders_translates_the_text_between_spans():
    translator = Reverser()
    text = "Ab <b>cd</b> ef, {name}: 5 km."
    [cell] = translate([text], translator, **PLAIN).translations
    assert cell.translation == "bA <b>dc</b> ,fe {name}: 5 km."
    assert (cell.status, cell.flags, cell.score) == ("ok", ("pieces",), -2 - 2 - 3)
    assert translator.translated == [text, "Ab", "cd", "ef,"], "first as a whole, then in pieces"


def test_model_without_placeholders_can_copy_spans():
    class Copier(Reverser):
        def translate(self, inputs):
            found, work = super().translate(inputs)
            turned = [reverse(each.text.rstrip("'")).split()[::-1] for each in found]
            return [Translation((Hypothesis(" ".join(each), -1),)) for each in turned], work

    translator = Copier()
    [cell] = translate(["Ab {name} cd 12345 ef"], translator).translations
    assert (cell.translation, cell.flags) == ("ef 12345 cd {name} Ab", ())
    assert translator.translated == ["Ab {name} cd 12345 ef"]


def test_model_with_placeholders_places_them():
    translator = Placer()
    result = translate(
        ["Ab {name} cd {y}ef{z} gh", "Ab {other} cd {a}ef{b} gh"], translator, placeholders=8
    )
    assert [cell.translation for cell in result.translations] == [
        "gh {y}ef{z} cd {name} Ab",
        "gh {a}ef{b} cd {other} Ab",
    ]
    assert [cell.flags for cell in result.translations] == [(), ()]
    assert translator.translated == ["Ab ⟦1⟧ cd ⟦2⟧ef⟦3⟧ gh"], "both texts have the same source"


def test_markup_around_sentences_is_not_given_to_the_model():
    translator = Placer()
    text = '<p class="x. Y">Ab cd. <b>Ef gh.</b></p>\n<ul>\n<li>Ij kl 😀</li></ul>'
    [cell] = translate([text], translator, placeholders=8).translations
    assert cell.translation == (
        '<p class="x. Y">cd. Ab <b>gh. Ef</b></p>\n<ul>\n<li>kl Ij 😀</li></ul>'
    )
    assert translator.translated == ["Ab cd.", "Ef gh.", "Ij kl"]


@pytest.mark.parametrize("spoil", [lose, double, invent])
def test_lost_or_repeated_spans_are_repaired_and_flagged(spoil):
    translator = Placer(spoil=[spoil])
    result = translate(["Ab {x} cd ef. Gh ij.", "Gh ij."], translator, placeholders=2)
    [cell, other] = result.translations
    assert cell.translation == "Ab {x} ef. cd " + other.translation
    assert (cell.status, cell.flags, other.flags) == ("ok", ("pieces",), ())
    assert cell.score == -2 - 6 - 6
    # The useless translation counts as work, but not as a text.
    assert (result.texts, result.distinct_texts, result.work.sources) == (4, 4, 4)


@pytest.mark.parametrize(("spoil", "on_flag"), [(lose, "keep"), (double, "null")])
def test_pattern_that_matches_again_after_a_cut_protects_only_the_first_match(spoil, on_flag):
    own = Protection(protect_regex=(r"^\w+",))  # matches the first word of any part
    words = "alpha beta gamma delta epsilon zeta eta theta iota kappa"
    texts = [words, "epsilon zeta eta theta iota kappa"]
    result = translate(
        texts, Placer(spoil=[spoil]), placeholders=2, protection=own, on_flag=on_flag
    )
    expected = [
        "alpha kappa iota theta eta zeta epsilon delta gamma beta",
        "epsilon kappa iota theta eta zeta",
    ]
    if on_flag == "null":
        expected = [None, None]
    assert [cell.translation for cell in result.translations] == expected
    assert all(cell.flags == ("pieces",) for cell in result.translations)


def test_best_hypothesis_with_all_spans_is_chosen():
    translator = Placer(spoil=[lose], n_best=3)
    [cell] = translate(["Ab {x} cd"], translator, placeholders=2).translations
    assert cell.n_best == (Hypothesis("cd {x} Ab", -10), Hypothesis("cd {x} Ab", -11))
    assert (cell.translation, cell.flags) == ("cd {x} Ab", ())


@pytest.mark.parametrize("text", ["{x}", "<p>😀</p> &amp;", "5 km, 12345!", "`ab cd`"])
def test_texts_with_only_spans_are_copied(text):
    for placeholders in (0, 8):
        translator = Placer()
        [cell] = translate([text], translator, placeholders=placeholders).translations
        assert (cell.translation, cell.status, cell.score) == (text, "copied", None)
        assert translator.translated == []


def test_full_stop_that_the_model_adds_before_a_span_is_removed():
    class Stopper(Reverser):
        def translate(self, inputs):
            found, work = super().translate(inputs)
            return [
                Translation(tuple(dataclasses.replace(h, text=h.text + ".") for h in t.hypotheses))
                for t in found
            ], work

    [cell] = translate(["ab {y} cd {x} ef. {z} gh."], Stopper()).translations
    assert cell.translation == "ba {y} dc {x} .fe. {z} .hg."


def test_protection_can_be_turned_off_and_extended():
    off = Protection(protect=False)
    translator = Reverser()
    translate(["Ab {x}"], translator, protection=off)
    assert translator.translated == ["Ab {x}"]
    own = Protection(protect_regex=(r"\bSKU \w+",))
    [cell] = translate(["Ab SKU x7 {x}"], Reverser(), protection=own).translations
    assert cell.translation == "bA SKU x7 {x}"


def test_truncated_text_loses_the_spans_after_the_cut():
    translator = Placer()
    [cell] = translate(
        ["Ab {x} cd {y} ef"],
        translator,
        placeholders=2,
        split="never",
        on_too_long="truncate",
        max_source_tokens=9,
    ).translations
    assert (cell.translation, cell.status, cell.flags) == ("{x} Ab", "too_long", ())


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("I have ⟦1⟧ and", "Tengo⟦1⟧y", "Tengo $5 y"),
        ("I have ⟦1⟧ dogs", "我有⟦1⟧只狗", "我有$5只狗"),
        ("in ⟦1⟧ years", "in l'⟦1⟧-jährig", "in l'$5-jährig"),
    ],
)
def test_letters_of_a_translation_do_not_touch_spans(source, translation, expected):
    assert unmask(translation, Masked(source, replacements=("$5",))) == (expected, True)
    spans = [each.replace("⟦1⟧", "$5") for each in (source, translation)]
    assert unmask(spans[1], Masked(spans[0], exact=("$5",))) == (expected, True)


_SPANS = ("{x}", "%s", "$VAR", "<b>", "</b>", "&amp;", "12345", "5 km", "www.a.com/b?c", "a@b.de",
          "`c d`", "😀", ":ok:", "⟦1⟧", "$5.20")  # fmt: skip


@given(
    st.lists(st.sampled_from([*_SPANS, "ab", "cd,", "Ef.", "\n", "我有。"]), max_size=14),
    st.sampled_from([0, 1, 2, 8]),
    st.sampled_from([(), (lose,), (double,), (invent,)]),
)
def test_all_spans_of_any_text_are_kept(words, placeholders, spoil):
    text = " ".join(words)
    translator = Placer(spoil=spoil)
    [cell] = translate([text], translator, placeholders=placeholders).translations
    assert {span: cell.translation.count(span) for span in _SPANS} == {
        span: text.count(span) for span in _SPANS
    }
    assert "pieces" not in cell.flags or spoil or len(words) > placeholders


# --- glossary -------------------------------------------------------------------------------

TERMS = Glossary({"white house": "Weißes Haus", "我": "ich", "house": "Haus"}, {"tea": "Tee"})


def test_terms_of_a_glossary_are_translated():
    translator = Placer()
    result = translate(
        ["Our white house is", "Our TEA is", "White house"],
        translator,
        glossary=TERMS,
        placeholders=1,
    )
    assert [cell.translation for cell in result.translations] == [
        "is Weißes Haus Our",
        "is Tee Our",
        "Haus White",
    ]
    assert translator.translated == ["Our ⟦1⟧ is", "White ⟦1⟧"]
    assert result.terms == TermCounts(found=3, kept=3)


def test_each_row_counts_its_terms():
    result = translate(["tea", "tea", "ab"], Placer(), glossary=TERMS)
    assert [cell.translation for cell in result.translations] == ["Tee", "Tee", "ab"]
    assert [cell.status for cell in result.translations] == ["ok", "ok", "ok"]
    assert [cell.score for cell in result.translations] == [None, None, -2]
    assert result.terms == TermCounts(found=2, kept=2)


def test_terms_of_rows_without_a_translation_are_not_kept():
    result = translate(["qb tea", "tea"], Reverser(poison="q"), glossary=TERMS)
    assert [cell.status for cell in result.translations] == ["failed", "ok"]
    assert result.terms == TermCounts(found=2, kept=1)


def test_piece_keeps_its_full_stop_at_the_end_of_a_paragraph():
    class Stopper(Reverser):
        def translate(self, inputs):
            found, work = super().translate(inputs)
            return [Translation((Hypothesis("Hallo.", -1),)) for _ in found], work

    for text, expected in (
        ("Hello.\n\nHello {a}", "Hallo.\n\nHallo {a}"),
        ("Hello.\n***\nBye!", "Hallo.\n***\nHallo."),
        ("Hello.\n{a} bye!", "Hallo.\n{a} hallo."),
        ("Hello {a}", "Hallo {a}"),
    ):
        [cell] = translate([text], Stopper()).translations
        assert cell.translation == expected


TAGS = ["a", "b", "em", "span"]
AROUND = [("**", "**"), ("*", "*"), ("__", "__"), ("_", "_"), ("~~", "~~"), ("[", "](http://a.bc)")]
AROUND += [(f"<{tag}>", f"</{tag}>") for tag in TAGS] + [("<a href='/x'>", "</a>"), ("(", ")")]


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize("texts", ["plain", "markdown", "html"])
def test_terms_inside_inline_markup_are_translated(texts, placeholders):
    shapes = [f"ab {{0}}{term}{{1}} cd" for term in ("tea", "white house", "ab tea", "tea, tea")]
    shapes += ["{0}tea{1}", "{0}{{x}}tea{1} ab", "ab {0}tea{1} {0}house{1} cd", "ab\ncd {0}tea{1}"]
    around = [marks for marks in AROUND if texts == "markdown" or "_" not in marks[0]]
    cells = [shape.format(*marks) for shape in shapes for marks in around]
    result = translate(cells, Placer(), glossary=TERMS, texts=texts, placeholders=placeholders)
    kept = [made.translation for made in result.translations]
    assert result.terms["kept"] == result.terms["found"] >= len(cells)
    assert [text for text in kept if "tea" in text or "white house" in text] == []


def test_sentence_that_equals_an_attribute_is_translated():
    """The model loses the span of both; only the attribute may stay as it is."""
    text = "Hello {name} friend"
    cells = [
        f'<p>See <img alt="{text}"> now.</p><p>{text}</p>',
        f'<p>{text}</p><p>See <img alt="{text}"> now.</p>',
        f'<p title="{text}">{text}</p>',
        f'![{text}](a.png "{text}")\n\n{text}',
    ]
    for cell in cells:
        with_image = translate([cell], Reverser(), placeholders=8).translations[0]
        without = translate([f"<p>{text}</p>"], Reverser(), placeholders=8).translations[0]
        assert (with_image.status, without.status) == ("ok", "ok")
        [body] = re.findall(r"<p>(.*)</p>", without.translation)
        assert body != text
        assert body in with_image.translation
