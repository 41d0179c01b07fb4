"""Damaged and hostile texts with structure have a translation or a status, in linear time."""

from __future__ import annotations

import re
import time

import pytest
from dictionary import Copier, Dictionary
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import STATUSES
from tt.pipelines.texts.translating import translate_texts


def translate(text, *, translator=None, **options):
    """Return the result for one text from English to Spanish."""
    [cell] = translate_texts(
        [text.encode() if isinstance(text, str) else text],
        translator=translator or Dictionary(),
        options=TextOptions(source_language="en", target_language="es", **options),
    ).translations
    return cell


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    ("text", "translation"),
    [
        # Tags without partners, and pairs that cross each other.
        ("<b>The dog runs", "<b>El perro corre"),
        ("The dog</b> runs", "El perro</b> corre"),
        ("<b>The <i>dog</b> runs</i>", "<b>El <i>perro</b> corre</i>"),
        ("<p><b>The dog</p><p>runs</b></p>", "<p><b>El perro</p><p>Corre</b></p>"),
        ("*the **dog* runs**", "*el **perro* corre**"),
        ("&lt;b&gt;the dog", "&lt;b&gt;el perro"),
        # Marks without an end.
        ('<a href="x>The dog', '<a href="x>El perro'),
        ("The dog <b", "El perro <b"),
        ("`the dog", "`el perro"),
        # Tables whose rows have different numbers of cells.
        (
            "| a | dog |\n|---|---|\n| the dog | cat | man |\n| the |\n",
            "| Un | Perro |\n|---|---|\n| El perro | Gato | man |\n| El |\n",
        ),
        # Entities that do not exist.
        ("<p>The &bogus; dog</p>", "<p>El &bogus; perro</p>"),
        ("<p>The &; dog &#; runs &#x;</p>", "<p>El &; perro &#; corre &#x;</p>"),
        ("<p>The dog &bogus; &amp; cat</p>", "<p>El perro &bogus; &amp; gato</p>"),
        # Zero-width characters between and inside words.
        ("<p>\u200bThe \u200bdog runs.\u200d</p>", "<p>El perro corre.</p>"),
        # NUL and other control characters.
        ("<p>The \0dog</p>", "<p>El perro</p>"),
    ],
)
def test_damaged_texts_are_translated(text, translation, placeholders):
    cell = translate(text, placeholders=placeholders)
    assert (cell.translation, cell.status) == (translation, "ok")


@pytest.mark.parametrize("character", ["\U000f0000", "\U00100000"])
def test_characters_for_private_use_are_text(character):
    source = f"<img alt='the dog' src=x> the dog {character} <b>runs</b> to {{x}} &amp; the cat."
    made = "<img alt='El perro' src=x> El perro <b>corre</b> a {x} &amp; el gato."
    for placeholders in (0, 8):
        copied = translate(source, translator=Copier(), placeholders=placeholders)
        assert copied.translation == source
        assert translate(source, placeholders=placeholders).translation == made


def test_text_with_lone_surrogates_fails():
    cell = translate("<b>\ud800 the dog</b>".encode("utf-8", "surrogatepass"))
    assert (cell.translation, cell.status) == (None, "failed")
    assert cell.error == "not UTF-8: invalid continuation byte"


@pytest.mark.parametrize(
    "text",
    [
        "[" * 10_000,
        "[" * 10_000 + "the dog" + "]" * 10_000,
        "<b>" * 10_000 + "the dog" + "</b>" * 10_000,
        "> " * 1_000 + "the dog",
        "<div>" * 10_000 + "the dog",
        "&lt;b&gt;" * 3_000 + "the dog",
        "**" * 10_000 + "the dog",
    ],
    ids=lambda text: f"{text[:8]}…",
)
def test_ten_thousand_nested_marks_take_seconds(text):
    start = time.process_time()
    cell = translate(text, translator=Copier(), placeholders=8)
    assert time.process_time() - start < 20
    assert cell.status in ("ok", "split", "copied")
    assert sorted(cell.translation) == sorted(text)


def test_time_is_linear_in_the_number_of_attributes():
    def seconds(count):
        texts = [f"<p>hello x{i} <a title='word x{i}'>a</a> b</p>" for i in range(count)]
        start = time.process_time()
        translate("".join(texts), texts="html", translator=Copier())
        return time.process_time() - start

    few, many = seconds(250), seconds(2_000)
    assert many < 8 * 2.5 * few + 0.2  # quadratic time would be 64 times as long


# --- properties ------------------------------------------------------------------------------

MARKUP = st.sampled_from(
    ["the dog ", "A cat.", "runs", "5 ", " ", "\n", "\n\n", "# ", "- ", "1. ", "> ", "| a | b |\n",
     "|---|---|\n", "*", "**", "_x_ ", "`the`", "[the](u)", '![a](b "the t")', "<b>", "</b>",
     "<i>", "</i>", "<br>", "<p>", "</p>", "<img alt='a dog' src=x>", "<code>x</code>",
     "<!-- x -->", "{x} ", "https://a.b/c ", "&amp;", "&lt;b&gt;", "&lt;/b&gt;", "DOG CAT HERE ",
     "\u200b", "[", "](", "<", "&", "&bogus;", "\U000f0000", "\U00100000", "\0", "\t", "\r\n",
     "<table>", "<td>", "<a href=\"", "'", "⟦1⟧", "<pre>", "<svg>", "---\n", "```\n"]
)  # fmt: skip
TEXTS = st.lists(MARKUP, max_size=25).map("".join)
FORMATS = st.sampled_from(["auto", "plain", "markdown", "html"])
_TAG = re.compile(r"<(/?)(b|i|p)>")


def count_unmatched(text):
    """Return the number of tags without a partner. Closing tags close the last such tag."""
    stack, unmatched = [], 0
    for is_close, name in _TAG.findall(text):
        if not is_close:
            stack.append(name)
        elif name in stack:
            while stack.pop() != name:
                unmatched += 1
        else:
            unmatched += 1
    return unmatched + len(stack)


@given(
    text=TEXTS,
    format=FORMATS,
    placeholders=st.sampled_from([0, 2, 8]),
    split=st.sampled_from(["sentences", "long", "never"]),
    is_copy=st.booleans(),
)
def test_no_text_raises(text, format, placeholders, split, is_copy):  # noqa: A002
    translator = Copier() if is_copy else Dictionary()
    cell = translate(
        text,
        translator=translator,
        texts=format,
        placeholders=placeholders,
        split=split,
        max_source_tokens=60,
    )
    assert cell.status in STATUSES
    if cell.translation is None:
        assert cell.error
        return
    assert sorted(_TAG.findall(cell.translation)) == sorted(_TAG.findall(text)) or (
        cell.status == "empty" and cell.translation == ""
    )
    assert count_unmatched(cell.translation) <= count_unmatched(text)


# Well-formed texts. Each pair of tags surrounds whole words, spaces surround each pair, and no pair
# is empty.
WORDS = st.sampled_from(
    ["dog", "the", "cat,", "runs", "it", "(two)", "café", "你好", "5", "{x}", "https://a.b/c",
     "&amp;"]
)  # fmt: skip


def join_between(start, end):
    return lambda inner: f"{start}{' '.join(inner)}{end}"


HTML_WORDS = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        *(
            st.lists(inner, min_size=1, max_size=4).map(join_between(start, end))
            for start, end in (("<b>", "</b>"), ("<i>", "</i>"), ("<a href='u'>", "</a>"))
        )
    ),
    max_leaves=10,
)
MARKDOWN_WORDS = st.one_of(
    WORDS,
    st.lists(st.sampled_from(["dog", "the", "café"]), min_size=1, max_size=3).map(
        join_between("**", "**")
    ),
    st.lists(WORDS, min_size=1, max_size=3).map(join_between("[", "](u)")),
)


def blocks(words, forms):
    """Return a strategy for texts of several blocks; each form contains %s for the words."""
    sentence = st.lists(words, min_size=1, max_size=6).map(" ".join)
    return st.lists(
        st.tuples(st.sampled_from(forms), sentence).map(lambda pair: pair[0] % pair[1]),
        min_size=1, max_size=4,
    ).map("".join)  # fmt: skip


HTML = blocks(
    HTML_WORDS,
    ["<p>the %s.</p>", "<li>the %s</li>\n", "<td>it %s</td>", "<!-- x -->\n<p>it %s</p>",
     "the %s!<br>", "<div title='the cat'>\n  the %s.\n</div>\n"],
)  # fmt: skip
MARKDOWN = blocks(
    MARKDOWN_WORDS,
    ["# the %s\n\n", "the %s.\n\n", "> the %s.\n\n", "| a | b |\n|---|---|\n| the %s | c |\n\n",
     "- the %s.\n\n", "```\nx\n```\n\nit %s.\n\n"],
)  # fmt: skip


@pytest.mark.parametrize(("texts", "strategy"), [("html", HTML), ("markdown", MARKDOWN)])
@given(data=st.data(), placeholders=st.sampled_from([0, 8]))
def test_markup_stays_the_same_if_the_model_copies(texts, strategy, data, placeholders):
    text = data.draw(strategy)
    cell = translate(text, translator=Copier(), texts=texts, placeholders=placeholders)
    assert cell.translation == text


# --- texts that are copied, words with tags inside, and line breaks --------------------------


@pytest.mark.parametrize("placeholders", [0, 8])
@pytest.mark.parametrize(
    "text",
    [
        # Pieces without letters keep their tags in place.
        "5 <b>10</b>",
        "| 5 **10** | the dog |\n|---|---|\n| 1 <b>2</b> | cat |",
        "<b>https://a.b</b> https://c.d",
        # Tags inside a word.
        "The H<sub>2</sub>O is here.",
        "See C<sub>2</sub>H<sub>5</sub>OH and C<sub>6</sub>H<sub>12</sub>O<sub>6</sub> here.",
        "The dog[1](u) runs.",
        # Punctuation around a pair that ends with punctuation.
        "<b>Note:</b> (see the book)",
        "“<b>Stop!</b>” the dog.",
        # Spaces around empty pairs.
        "The dog<i class='x'></i> runs.",
        # Line breaks stay between the same words.
        "See [it](u) **now** and **the dog** of *the man*\nand the cat runs\nto it.",
        "The **dog** runs to https://example.com/a/long/path/to/it and\nthe cat reads.",
    ],
)
def test_text_stays_the_same_if_the_model_copies(text, placeholders):
    found = translate(text, translator=Copier(), placeholders=placeholders)
    assert found.translation == text


def test_line_break_does_not_begin_a_list():
    translator = Dictionary({"teacher": "x"})
    text = "This teacher\nworks + a dog runs now."
    found = translate(text, translator=translator, texts="markdown").translation
    assert found.replace("\n", " ") == "Este x funciona + un perro corre ahora."
    assert "\n+" not in found


@pytest.mark.parametrize("capitals", ["THE DOG {a} RUNS {b} HERE", "<b>THE DOG</b> RUNS {a} HERE"])
def test_pieces_of_a_sentence_in_capitals_are_in_lower_case(capitals):
    translator = Dictionary({"{": "("})
    cell = translate(capitals, translator=translator)
    assert cell.flags == ("pieces",)
    expected = capitals.replace("THE DOG", "EL PERRO").replace("RUNS", "CORRE")
    assert cell.translation == expected.replace("HERE", "AQUÍ")
