"""Entities are decoded for the model, and the translation gets the same entities."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.text.spans import Span
from tt.pipelines.texts.entities import ENTITY, decode_entities

ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def decode(piece, *, is_attribute=False, **options):
    text, spans, entities = decode_entities(piece, [], is_attribute=is_attribute, **options)
    assert spans == []
    return text, entities


@pytest.mark.parametrize(
    ("piece", "text", "entities"),
    [
        ("Tom", "Tom", ESCAPES),
        ("", "", ESCAPES),
        ("Tom &amp; Ann", "Tom & Ann", ESCAPES),
        ("Tom & Ann", "Tom & Ann", {"<": "&lt;", ">": "&gt;"}),
        ("a < b", "a < b", {"&": "&amp;", ">": "&gt;"}),
        ("&uuml;ber", "über", ESCAPES | {"ü": "&uuml;"}),
        ("&#252;ber", "über", ESCAPES | {"ü": "&#252;"}),
        ("&#xFC;ber", "über", ESCAPES | {"ü": "&#xFC;"}),
        ("&copy; 2024", "© 2024", ESCAPES | {"©": "&copy;"}),
        ("&#38; &#x3c;", "& <", {"&": "&#38;", "<": "&#x3c;", ">": "&gt;"}),
        ("&quot;x&quot;", '"x"', ESCAPES | {'"': "&quot;"}),
        ("&amp;amp;", "&amp;", ESCAPES),  # an entity is decoded once
        ("& amp; &amp", "& amp; &amp", {"<": "&lt;", ">": "&gt;"}),
    ],
)
def test_decoded_pieces(piece, text, entities):
    assert decode(piece) == (text, entities)


@pytest.mark.parametrize("piece", ["&bogus;", "&nothing;", "&notit;", "&x;", "&;", "&#;", "&#x;"])
def test_entity_that_does_not_exist_stays(piece):
    text, entities = decode(f"a {piece} b")
    assert text == f"a {piece} b"
    assert "".join(entities.get(c, c) for c in text) == text


def test_attributes_encode_quotation_marks():
    quotes = {'"': "&quot;", "'": "&#39;"}
    assert decode("Tom", is_attribute=True) == ("Tom", ESCAPES | quotes)
    assert decode("Tom's", is_attribute=True) == ("Tom's", ESCAPES | {'"': "&quot;"})
    assert decode("Tom&apos;s", is_attribute=True) == (
        "Tom's", ESCAPES | quotes | {"'": "&apos;"},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("piece", "text", "entity"),
    [
        ("Tom&rsquo;s", "Tom's", ("'", "&rsquo;")),
        ("&ldquo;x&rdquo;", '"x"', ('"', "&rdquo;")),
        ("a &ndash; b", "a - b", ("-", "&ndash;")),
    ],
)
def test_mark_that_the_model_does_not_know_becomes_plain(piece, text, entity):
    found, entities = decode(piece, is_known=str.isascii)
    assert (found, entities) == (text, ESCAPES | dict([entity]))
    assert decode(piece)[0] == html.unescape(piece)


def test_spans_keep_their_text_and_move():
    piece = "&amp; <b>x &lt;</b> &uuml; &copy;"
    spans = [
        Span(6, 9, "<b>", True, "open"),
        Span(15, 19, "</b>", True, "close"),
        Span(27, 33, "&copy;"),
    ]
    text, moved, entities = decode_entities(piece, spans, is_attribute=False)
    assert text == "& <b>x <</b> ü &copy;"
    assert moved == [
        Span(2, 5, "<b>", True, "open"),
        Span(8, 12, "</b>", True, "close"),
        Span(15, 21, "&copy;"),
    ]
    assert [text[span.start : span.end] for span in moved] == ["<b>", "</b>", "&copy;"]
    assert entities == ESCAPES | {"ü": "&uuml;"}, "the marks of tags are no text"


def test_adjacent_spans_and_spans_at_the_ends():
    spans = [Span(0, 3, "<b>"), Span(3, 7, "</b>"), Span(12, 15, "<i>")]
    text, moved, _ = decode_entities("<b></b>&amp;<i>", spans, is_attribute=False)
    assert (text, moved) == (
        "<b></b>&<i>",
        [Span(0, 3, "<b>"), Span(3, 7, "</b>"), Span(8, 11, "<i>")],
    )


PIECES = st.lists(
    st.sampled_from(["a", " ", "&amp;", "&lt;", "&gt;", "&quot;", "&uuml;", "&#8217;", "b"]),
    max_size=12,
).map("".join)


@given(piece=PIECES, is_attribute=st.booleans())
def test_copied_piece_is_the_same(piece, is_attribute):
    """Each character has only one entity here, and no character also occurs without its entity."""
    text, entities = decode(piece, is_attribute=is_attribute)
    assert not ENTITY.search(text)
    assert "".join(entities.get(character, character) for character in text) == piece


@given(piece=st.text("ab<>&;#x1\"'ü ampltgquo", max_size=20), is_attribute=st.booleans())
def test_copied_piece_has_the_same_meaning(piece, is_attribute):
    text, entities = decode(piece, is_attribute=is_attribute)
    encoded = "".join(entities.get(character, character) for character in text)
    assert html.unescape(encoded) == html.unescape(piece)
