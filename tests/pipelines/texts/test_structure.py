"""Texts with structure are translated by a dictionary, and everything but the words stays."""

from __future__ import annotations

import pytest
from dictionary import Dictionary

from tt.model.formats.model_card import TrainingData
from tt.model.text.spans import Protection
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.translating import translate_texts

WRONG_FIGURES = {"480": "488", "50": "5 5 55", "2500": "25", "7": "14"}


def translate(text, *, lexicon=None, translator=None, **options):
    """Return the result for one text from English to Spanish."""
    [cell] = translate_texts(
        [text.encode()],
        translator=translator or Dictionary(lexicon),
        options=TextOptions(source_language="en", target_language="es", **options),
    ).translations
    return cell


def result(text, **options):
    """Return the translation of a text and its flags."""
    cell = translate(text, **options)
    return cell.translation, cell.flags


# --- texts with structure, figures and capitals ----------------------------------------------


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("a man with number 480 .", "Un hombre con número 480 ."),
        ("a man with number 2500 .", "Un hombre con número 2500 ."),
        ("a man wears number 7 .", "Un hombre lleva número 7 ."),
    ],
)
@pytest.mark.parametrize("placeholders", [0, 8])
def test_wrong_figure_is_replaced_and_flagged(text, translation, placeholders):
    found = result(text, lexicon=WRONG_FIGURES, placeholders=placeholders)
    assert found == (translation, ("number",))


@pytest.mark.parametrize(
    ("text", "translation"),
    [("Save 1/2 now", "Save 1/50 ahora."), ("2 dogs at half past 9", "2 perros at half past 30.")],
)
@pytest.mark.parametrize("placeholders", [0, 8])
def test_figures_in_sentences_with_fractions_are_only_flagged(text, translation, placeholders):
    lexicon = {"2": "50", "9": "30"} if "/" in text else {"9": "30"}
    found = result(text, lexicon=lexicon, placeholders=placeholders)
    assert found == (translation.removesuffix("."), ("number",))


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("a red ball 5 cm", "Un balón rojo 5 cm"),
        ("the dog runs.", "El perro corre."),
        ("“the dog runs.”", "“el perro corre.”"),
    ],
)
def test_translations_get_no_full_stop_that_their_source_lacks(text, translation, placeholders):
    class Ending(Dictionary):
        def translate_text(self, text):
            made = super().translate_text(text)
            return made if made.endswith((".", ".”")) else f"{made}."

    assert result(text, translator=Ending(), placeholders=placeholders)[0] == translation


@pytest.mark.parametrize("languages", [("az", "es"), ("tr-TR", "es"), ("en", "tr")])
def test_capitals_of_turkish_stay(languages):
    source, target = languages
    of_model = TrainingData(source_language=source, target_language=target)
    for options in (
        TextOptions().for_model(of_model),
        TextOptions(source_language=source, target_language=target),  # of a row
    ):
        translator = Dictionary()
        text = "YENİ KIRMIZI AYAKKABILAR"
        translate_texts([text.encode()], translator=translator, options=options)
        assert translator.translated == [text]


# --- Markdown --------------------------------------------------------------------------------


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("# The dog #\n\nThe dog runs.\n", "# El perro #\n\nEl perro corre.\n"),
        ("---\ntitle: the dog\n---\n# The dog\n", "---\ntitle: the dog\n---\n# El perro\n"),
        ("```py\nthe = dog\n```\nThe dog\n", "```py\nthe = dog\n```\nEl perro\n"),
        ("The dog:\n\n    the dog\n\nThe cat", "El perro:\n\n    the dog\n\nEl gato"),
        (
            "| Name | Price |\n|:-----|------:|\n| Red ball | $5 |\n| `the` | two |\n",
            "| Nombre | Precio |\n|:-----|------:|\n| Balón rojo | $5 |\n| `the` | Dos |\n",
        ),
        (
            "- The dog\n  - the cat\n    1. the book\n* a red ball\n",
            "- El perro\n  - El gato\n    1. El libro\n* Un balón rojo\n",
        ),
        ("The dog runs.  \nThe cat reads.", "El perro corre.  \nEl gato lee."),
        ('![The dog](dog.png "The cat")', '![El perro](dog.png "El gato")'),
        (
            '![The dog](the-dog.png "The cat") The man runs.',
            '![El perro](the-dog.png "El gato") El hombre corre.',
        ),
        (
            'See [the page](https://a.b/the "The title") now.',
            'Vea [el página](https://a.b/the "El título") ahora.',
        ),
        # The text of these links is the label of their definitions.
        ("See [the dog][] and ![the cat].\n\n[the dog]: /d\n[the cat]: /c",
         "Vea [el perro][the dog] y ![el gato][the cat].\n\n[the dog]: /d\n[the cat]: /c"),
        ("A *red* **ball** is ~~here~~.", "Un **balón** *rojo* es ~~aquí~~."),
        ("**The *red* ball** is here.", "**El balón *rojo*** es aquí."),
        (
            '<div class="the">\nThe dog <b>runs</b>.\n</div>\n\nThe *red* ball.',
            '<div class="the">\nEl perro <b>corre</b>.\n</div>\n\nEl balón *rojo*.',
        ),
    ],
)  # fmt: skip
def test_markdown(text, translation, placeholders):
    assert result(text, placeholders=placeholders, texts="markdown") == (translation, ())


@pytest.mark.parametrize("mark", ["> > ", "  "])
def test_wrapped_lines_stay_wrapped(mark):
    lines = ["The teacher reads the", "book in the house", "and the dog runs."]
    found = translate("\n".join(mark + line for line in lines), texts="markdown").translation
    wrapped = found.split("\n")
    assert len(wrapped) == 3
    assert all(line.startswith(mark) for line in wrapped)
    words = " ".join(line.removeprefix(mark) for line in wrapped)
    assert words.strip() == "El profesor lee el libro en el casa y el perro corre."


# --- HTML ------------------------------------------------------------------------------------


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("<h1>The dog</h1><p>The dog runs.</p>", "<h1>El perro</h1><p>El perro corre.</p>"),
        (
            '<img src="the.png" alt="The dog" title="a cat"> The man runs.',
            '<img src="the.png" alt="El perro" title="Un gato"> El hombre corre.',
        ),
        (
            'The man <img alt="the dog" src=the> runs.',
            'El hombre <img alt="El perro" src=the> corre.',
        ),
        (
            '<a href="/the" title="The page">The page</a> is here.',
            '<a href="/the" title="El página">El página</a> es aquí.',
        ),
        ('<input placeholder="Your name" value="the">',
         '<input placeholder="Su nombre" value="the">'),
        ("<p>The <!-- the dog --> man runs.</p>", "<p>El <!-- the dog --> hombre corre.</p>"),
        ("<script>the = dog</script><p>The dog</p>", "<script>the = dog</script><p>El perro</p>"),
        ("<pre>the dog\n the</pre>The dog", "<pre>the dog\n the</pre>El perro"),
        ("The dog runs.<br>The cat reads.<br/>", "El perro corre.<br>El gato lee.<br/>"),
        ("The dog <br> runs here", "El perro <br> corre aquí"),
        ("<p>The dog\n   runs here.\n</p>", "<p>El perro\n   corre aquí.\n</p>"),
        (
            "He <b>reads <i>the book</i></b> and she <u>runs</u>.",
            "Él <b>lee <i>el libro</i></b> y ella <u>corre</u>.",
        ),
        ("The <b>red</b> <i>ball</i> is here.", "El <i>balón</i> <b>rojo</b> es aquí."),
        ("<p>The dog<b>s</b> runs here</p>", "<p>El <b>perros</b> corre aquí</p>"),
        # A tag at an end of a sentence stays with its partner inside.
        ("the red <b>ball</b>", "El <b>balón</b> rojo"),
        ("<p><b>Red</b> ball</p>", "<p>Balón <b>rojo</b></p>"),
        # Items of a menu have no space between them.
        ("<span>The dog</span><span>The cat</span>", "<span>El perro</span><span>El gato</span>"),
        ("<li><b><a href='/a'>Red dog</a><a href='/b'>Old cat</a></b></li>",
         "<li><b><a href='/a'>Perro rojo</a><a href='/b'>Gato viejo</a></b></li>"),
        # Escaped tags: a pair stays around its words, and a single tag is a word.
        ("<p>&lt;i&gt;The dog&lt;/i&gt; runs</p>", "<p>&lt;i&gt;El perro&lt;/i&gt; corre</p>"),
        # Entities are decoded for the model, and encoded again.
        ("<p>The dog &amp; the cat</p>", "<p>El perro &amp; el gato</p>"),
        ("<p>The man&nbsp;reads and the dog runs to the&nbsp;house and here</p>",
         "<p>El hombre&nbsp;lee y el perro corre a&nbsp;el casa y aquí</p>"),
        ("<p>The &rsquo;dog&#8217; runs</p>", "<p>El &#8217;perro&#8217; corre</p>"),
        ('<p title="The &quot;dog&quot;">x</p>', '<p title="El &quot;perro&quot;">X</p>'),
        ("<p>The dog&nbsp;runs</p>", "<p>El perro&nbsp;corre</p>"),
        ("<p>page&nbsp;5.</p>", "<p>Página&nbsp;5.</p>"),
    ],
)  # fmt: skip
def test_html(text, translation, placeholders):
    assert result(text, placeholders=placeholders, texts="html") == (translation, ())


def test_mark_that_the_model_adds_is_encoded_in_html():
    assert result("<p>a cat</p>", lexicon={"cat": "<gato> & co"})[0] == (
        "<p>Un &lt;gato&gt; &amp; co</p>"
    )
    assert result("<p>a cat & a <</p>", lexicon={"cat": "<gato> & co"})[0] == (
        "<p>Un <gato&gt; & co & un <</p>"
    ), "the source writes these marks without entities"
    assert result('<img alt="a cat">', lexicon={"cat": 'gato "x"'})[0] == (
        '<img alt="Un gato &quot;x&quot;">'
    )


@pytest.mark.parametrize("placeholders", [0, 8])
def test_code_inside_a_sentence_stays(placeholders):
    flags = () if placeholders else ("pieces",)
    for text, translation in (
        ("The <code>the dog</code> runs.", "El <code>the dog</code> corre."),
        ("See the `the dog` now.", "Vea el `the dog` ahora."),
        ("The <b>dog <kbd>the</kbd></b> runs.", "El <b>perro <kbd>the</kbd></b> corre."),
    ):
        found = result(text, placeholders=placeholders)
        assert found == (translation, flags)
    assert (
        translate("The <code>the</code> &amp; dog").translation == "El <code>the</code> &amp; perro"
    )


# --- short texts and titles ------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    ["N/A", "null", "NaN", "SKU-4711", "AB1234", "+", "true", "None", "XL", "en-US",
     "<br>", "&nbsp;", "<p>N/A</p>", "```\nthe dog", "<!-- the dog -->",
     "<script>the dog"],
)  # fmt: skip
def test_codes_and_missing_values_are_copied(text):
    translator = Dictionary()
    cell = translate(text, translator=translator)
    assert (cell.translation, cell.status, cell.flags) == (text, "copied", ())
    assert translator.translated == []


# --- capitals --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("THE DOG RUNS HERE.", "EL PERRO CORRE AQUÍ."),
        ("<b>THE DOG</b> RUNS HERE", "<b>EL PERRO</b> CORRE AQUÍ"),
        ("SEE THE DOG {name} HERE", "VEA EL PERRO {name} AQUÍ"),
        ("The New Art of the Green Book", "El Nuevo Arte de el Libro Verde"),
        ("The dog OK", "El perro OK"),
    ],
)
def test_capitals_are_restored(text, translation):
    assert result(text, placeholders=8) == (translation, ())


def test_capitals_can_be_kept():
    translator = Dictionary()
    translate("THE DOG RUNS HERE.", translator=translator, capitals="keep")
    translate("The New Art of the Green Book", translator=translator, capitals="keep")
    assert translator.translated == ["THE DOG RUNS HERE.", "The New Art of the Green Book"]


# --- figures, spans and flags ----------------------------------------------------------------


def test_wrong_figure_is_repaired_by_a_placeholder():
    translator = Dictionary(WRONG_FIGURES)
    found = result("a man with number 50 .", translator=translator, placeholders=8)
    assert found == ("Un hombre con número 50 .", ())
    assert translator.translated[-1] == "a man with number ⟦1⟧ ."


def test_wrong_figures_stay_without_protection():
    translator = Dictionary(WRONG_FIGURES)
    text, protection = "a man with number 50 .", Protection(protect=False)
    found = result(text, translator=translator, placeholders=8, protection=protection)
    assert found == ("Un hombre con número 5 5 55 .", ("number",))
    assert translator.translated == [text]


def test_number_is_flagged_if_no_repair_helps():
    class Inventor(Dictionary):
        def translate_text(self, text):
            return super().translate_text(text).replace("perro", "perro 99 98")

    found = result("the dog 5 runs .", translator=Inventor(), placeholders=8)
    assert found == ("El perro 99 98 5 corre .", ("number",))


@pytest.mark.parametrize(
    ("text", "translation"),
    [
        ("See https://example.com now.", "Vea https://example.com ahora."),
        ("The dog {name} runs here", "El perro {name} corre aquí"),
        ("<p>The <b>dog</b> {name} runs.</p>", "<p>El <b>perro</b> {name} corre.</p>"),
        ("He reads “The dog” {name} now", "Él lee “El perro” {name} ahora"),
    ],
)
def test_lost_span_gives_pieces(text, translation):
    lexicon = {":": ";", "{": "("}
    assert result(text, lexicon=lexicon) == (translation, ("pieces",))
    assert result(text, lexicon=lexicon, placeholders=8) == (translation, ())


def test_uncertain_tag_is_flagged():
    class Silent(Dictionary):
        def translate_text(self, text):
            return "Aquí viene él."

    cell = translate("The <b>dog</b> runs.", translator=Silent())
    assert (cell.translation, cell.flags) == ("<b>Aquí</b> viene él.", ("tags",))
    cell = translate("<b>The dog runs.</b>", translator=Silent())
    assert (cell.translation, cell.flags) == ("<b>Aquí viene él.</b>", ())


# --- options ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "plain", "markdown", "html"),
    [
        ("    the dog", "    El perro", "    the dog", "    El perro"),
        ("the &amp; dog", "El &amp; perro", "El &amp; perro", "El &amp; perro"),
        ("<p>the\n    dog</p>", "<p>El perro</p>", "<p>El\n    perro</p>",
         "<p>El\n    perro</p>"),
        ("![the dog](the)", "![el perro](el)", "![El perro](the)", "![el perro](el)"),
        ("*the* **red** dog", "*el* **rojo** perro", "*El* perro **rojo**", "*el* **rojo** perro"),
        ("<img alt='the dog'>", "<img alt='the dog'>", "<img alt='El perro'>",
         "<img alt='El perro'>"),
    ],
)  # fmt: skip
def test_format_of_texts(text, plain, markdown, html):
    found = [translate(text, texts=name).translation for name in ("plain", "markdown", "html")]
    assert found == [plain, markdown, html]
