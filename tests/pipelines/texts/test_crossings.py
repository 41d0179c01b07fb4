"""Features of texts that meet in one text: markup, spans, glossaries and repetitions."""

from __future__ import annotations

import dataclasses
import itertools
import re

import pytest
from dictionary import Dictionary
from fakes import Reverser
from hypothesis import given
from hypothesis import strategies as st

from tt.model.text.glossary import Glossary
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts


class Loser(Dictionary):
    """Loses the spans of sentences with a dog."""

    def translate_text(self, text):
        lost = re.sub(r" (⟦\d⟧|\{\w+\})", "", text) if re.search("(?i)dog", text) else text
        return super().translate_text(lost)


class Limited(Dictionary):
    """Has no tokens for some characters, and loses them.

    Args:
      missing: The characters.
    """

    def __init__(self, missing):
        super().__init__({"door": "puerta"})
        self.missing = missing

    def clean(self, text):
        return " ".join(text.split())

    def prepare(self, texts, **options):
        inputs = super().prepare(texts, **options)
        return [dataclasses.replace(each, unknown=self._find_missing(each.text)) for each in inputs]

    def _find_missing(self, text):
        return tuple(re.findall(f"[{re.escape(self.missing)}]+", text)) if self.missing else ()

    def translate_text(self, text):
        return super().translate_text("".join(c for c in text if c not in self.missing))


def translate(cells, translator=None, /, *, glossary=None, **options):
    """Translate texts from English to Spanish."""
    return translate_texts(
        [text.encode() for text in cells],
        translator=translator or Dictionary(),
        options=TextOptions(source_language="en", target_language="es", **options),
        glossary=glossary,
    )


def translation_of(text, translator=None, **options):
    [made] = translate([text], translator, **options).translations
    return made.translation


# --- equal sentences in one text -------------------------------------------------------------

SENTENCE, TRANSLATED = "The dog {name} runs", "El perro {name} corre"


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    "text",
    [
        '<p>See <img alt="{0}"> now.</p><p>{0}</p>',
        '<p>{0}</p><p>See <img alt="{0}"> now.</p>',
        '<p>See <a href="/x" title="{0}">this page</a> now.</p>\n<ul><li>{0}</li><li>{0}</li></ul>',
    ],
)
def test_sentence_that_equals_an_attribute_is_translated(text, placeholders):
    made = translation_of(text.format(SENTENCE), Loser(), placeholders=placeholders)
    bodies = re.findall(r"<(?:p|li)>([^<]*)</", made)
    assert bodies == [TRANSLATED] * len(bodies) != []
    assert made.startswith(text[:3])


@pytest.mark.parametrize("placeholders", [0, 8])
def test_equal_sentences_of_a_text_get_their_own_spans(placeholders):
    texts = [
        ("<p>{}</p><p>{}</p>", ["{a}", "{b}"]),
        ("{}.\n\n{}.\n\n{}.", ["{a}", "{b}", "{a}"]),
        ("- {}\n- **{}**\n", ["{a}", "{b}"]),
    ]
    for text, names in texts:
        source, wanted = (
            text.format(*(each.replace("{name}", name) for name in names))
            for each in (SENTENCE, TRANSLATED)
        )
        assert translation_of(source, Loser(), placeholders=placeholders) == wanted


def test_only_the_occurrence_that_loses_a_span_is_repaired():
    text = "<p>{}</p><p>{}</p><p>{}</p>"
    sentences = "The dog runs", "The dog {x} runs", "The cat {x} runs"
    wanted = "El perro corre", "El perro {x} corre", "El gato {x} corre"
    translator = Loser()
    [made] = translate([text.format(*sentences)], translator, placeholders=8).translations
    assert (made.translation, made.flags) == (text.format(*wanted), ("pieces",))
    assert sum("cat" in source for source in translator.translated) == 1


NAMES = " ".join(f"{{{name}}}" for name in "abcdefghi")  # more than a model copies by itself


@pytest.mark.parametrize("split", ["sentences", "long", "never"])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Is the dog big?", "Es el perro grande?"),
        ("Go home!", "Vaya casa!"),
        ('See "the red car."', 'Vea "el coche rojo."'),
        ("See the red car", "Vea el coche rojo"),
    ],
)
def test_only_added_marks_are_removed_before_spans(text, wanted, split):
    [made] = translate([f"{text} {NAMES}"], placeholders=0, split=split).translations
    assert made.translation == f"{wanted} {NAMES}"


@pytest.mark.parametrize("end", [".", "!", "?", "...", '."', "?!"])
@pytest.mark.parametrize("length", [1, 10, 30, 100, 5000])
def test_long_tag_after_a_sentence_stays_whole(end, length):
    translator = Dictionary()
    tag = f'<a href="/{"x" * length}" title="the dog" id="b c">'
    found = translation_of(f"<p>The big dog runs{end} {tag}She</a> smiles.</p>", translator)
    wanted = tag.replace("the dog", "El perro")
    assert found == f"<p>El perro grande corre{end} {wanted}Ella</a> sonríe.</p>"
    assert {f"The big dog runs{end}", "She smiles."} <= {*translator.translated}


# --- the glossary in markup ------------------------------------------------------------------

TERMS = Glossary({"book": "tomo", "red car": "bólido"}, {"tea": "infusión"})
SOURCE_TERM = re.compile(r"\b(?:book|red car|tea)\b", re.IGNORECASE)
FRAMES = {
    "plain": ["{}", "The dog sees {} now.", "“{}”", "({})", "{}: 5 km", "{}\n{}"],
    "markdown": [
        "# {}", "- {}", "1. {}", "> {}", "**{}**", "*{}*", "_{}_", "__{}__", "~~{}~~", "***{}***",
        "[{}](http://u.vw/a)", "![{}](a.png)", "[{}][1]\n\n[1]: http://u.vw",
        "| {} | dog |\n|---|---|\n| {} | {} |", "The dog **and {}** runs", "{}\n===", "<b>{}</b>",
        "The *dog* {} **{}** `x`",
    ],
    "html": [
        *(f"<{tag}>{{}}</{tag}>" for tag in ("b", "i", "em", "strong", "u", "s", "span", "mark",
                                             "sup", "small", "p", "li", "td", "h1", "q", "div")),
        '<a href="/x">{}</a>', '<img src="a.png" alt="{}">',
        "<p>The dog <b><i>{}</i></b> runs.</p>", "<ul><li>{}<li>{}</ul>", "<p>{}<br>{}</p>",
        "<table><tr><th>{}</th><td><b>{}</b></td></tr></table>", "<p>dog &amp; {}</p>",
    ],
}  # fmt: skip
TITLES = {
    "markdown": ['[dog](u "{}")', '![{}](a.png "{}")', "The dog [sees](u '{}') the {} now"],
    "html": ["<a href='/x' title='{}'>{}</a>", "<p>The <img src=a alt='{}'> dog</p>"],
}
TERMS_IN_TEXTS = ["book", "the book", "book and tea", "a red car here", "Tea", "dog book, tea"]
CONTENTS = st.lists(
    st.sampled_from(["book", "the", "tea", "Tea", "red car", "dog", "big", "water", "and"]),
    min_size=1, max_size=4,
).map(" ".join)  # fmt: skip


def fill(frames):
    """Return each frame with each text."""
    return [
        frame.format(*[content] * frame.count("{}"))
        for frame, content in itertools.product(frames, TERMS_IN_TEXTS)
    ]


def check_terms(texts, *, name, placeholders):
    """Check that no source term is left where the glossary found one."""
    made = translate(texts, glossary=TERMS, texts=name, placeholders=placeholders)
    translations = [each.translation for each in made.translations]
    left = [
        (text, found)
        for text, found in zip(texts, translations, strict=True)
        if SOURCE_TERM.search(found)
    ]
    assert left == []
    assert made.terms["kept"] == made.terms["found"]


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize("name", FRAMES)
def test_terms_are_translated_in_each_frame(name, placeholders):
    texts = fill(FRAMES[name])
    check_terms(texts, name=name, placeholders=placeholders)
    made = translate(texts, glossary=TERMS, texts=name, placeholders=placeholders)
    assert made.terms["found"] >= len(texts)


UNPLACED = pytest.mark.xfail(strict=True, reason="values whose terms the model cannot place stay")


@pytest.mark.parametrize("placeholders", [pytest.param(0, marks=UNPLACED), 8])
@pytest.mark.parametrize("name", TITLES)
def test_terms_are_translated_in_attributes_of_inline_tags(name, placeholders):
    check_terms(fill(TITLES[name]), name=name, placeholders=placeholders)


@given(data=st.data(), name=st.sampled_from([*FRAMES]), placeholders=st.sampled_from([0, 2, 8]))
def test_no_source_term_is_left_where_it_was_found(data, name, placeholders):
    frames = data.draw(st.lists(st.sampled_from(FRAMES[name]), min_size=1, max_size=3))
    blocks = [
        frame.format(*(data.draw(CONTENTS) for _ in range(frame.count("{}")))) for frame in frames
    ]
    check_terms(["\n\n".join(blocks)], name=name, placeholders=placeholders)


@pytest.mark.parametrize("placeholders", [0, 8])
def test_terms_between_two_tags_are_one_term(placeholders):
    texts = ["<p>The <b>red</b> car runs.</p>", "<p>The <b>red car</b> runs.</p>"]
    made = translate(texts, glossary=TERMS, placeholders=placeholders).translations
    assert made[1].translation == "<p>El <b>bólido</b> corre.</p>"
    assert "red" not in made[0].translation
    assert "<b>" in made[0].translation


# --- characters for private use, and symbols without a token ---------------------------------


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize("c", "\ue000\uf8ff\U000f0000\U000f0001\U000ffffd\U00100000\U0010fffd")
def test_texts_with_characters_for_private_use_keep_their_structure(c, placeholders):
    texts = {
        f"<p>The <b>red</b> dog {c} runs.</p>": f"<p>El perro <b>rojo</b> {c} corre.</p>",
        f"{c}<p>The dog</p><p>{c}{c}</p>": f"{c}<p>El perro</p><p>{c}{c}</p>",
        f"# The dog {c}\n\n- red **dog**\n": f"# El perro {c}\n\n- **Perro** rojo\n",
    }
    made = translate([*texts], Limited(""), placeholders=placeholders).translations
    assert [each.translation for each in made] == [*texts.values()]


SYMBOLS = "½²①→≥±♥•│§☎₹∞★✓©°€"


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize("name", ["plain", "markdown", "html"])
def test_symbols_without_a_token_stay(name, placeholders):
    texts = [f"The red dog {symbol} runs." for symbol in SYMBOLS]
    made = translate(texts, Limited(SYMBOLS), texts=name, placeholders=placeholders)
    found = [each.translation for each in made.translations]
    assert [text for symbol, text in zip(SYMBOLS, found, strict=True) if symbol not in text] == []
    assert all("perro rojo" in text.lower() and "corre" in text for text in found)


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("Door ★★★☆☆", "Puerta ★★★☆☆"),
        ("★★★★☆ the red car", "★★★★☆ el coche rojo"),
        ("<p>Door <b>★★★</b>☆☆</p>", "<p>Puerta <b>★★★</b>☆☆</p>"),
        ("- Door → house\n- ✓ tea", "- Puerta → casa\n- ✓ té"),
    ],
)
def test_texts_with_symbols_without_a_token_are_translated(text, wanted, placeholders):
    [made] = translate([text], Limited("★☆→✓"), placeholders=placeholders).translations
    assert made.status == "ok"
    assert made.translation.lower() == wanted.lower()


def test_symbols_with_a_token_are_no_spans():
    translator = Limited("")
    text = "The red dog → house"
    assert translation_of(text, translator, placeholders=8) == "El perro rojo → casa"
    assert translator.translated == [text]


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    "text", ["N/A", "#REF!", "SKU-4711", "en-US", "| N/A | XL |\n|---|---|\n| 1 | 2 |"]
)
def test_values_are_copied_even_if_the_vocabulary_lacks_their_marks(text, placeholders):
    [made] = translate([text], Limited("/-#!"), placeholders=placeholders).translations
    assert (made.translation, made.status) == (text, "copied")


def test_value_that_is_a_term_is_translated():
    glossary = Glossary({"N/A": "n. d."}, {})
    [made] = translate(["N/A"], glossary=glossary).translations
    assert made.translation == "n. d."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("N/A", True), (" null ", True), ("true", True), ("None", True), ("XL", True), ("S", True),
        ("en-US", True), ("zh-Hans", True), ("SKU-4711", True), ("#REF!", True), ("USD", True),
        ("https://a.com, {x}!", True), ('{"text": "the dog"}', True), ("12 - 15", True),
        ("True.", False), ("None of them", False), ("Small", False), ("so", False), ("I", False),
        ("It is null", False), ("{x} dogs", False), ("", False), (" ", False), ("大", False),
    ],
)  # fmt: skip
def test_value_is_no_text(text, expected):
    [made] = translate([text], Reverser()).translations
    assert (made.status == "copied") == expected
    assert made.translation == text or not expected
