"""Entities are decoded for the model, and the translation gets the same entities."""

from __future__ import annotations

import html

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.texts.markup.entities import ENTITY, decode_entities

ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def decode(piece, *, is_attribute=False, **options):
    text, spans, entities = decode_entities(piece, [], is_attribute=is_attribute, **options)
    assert spans == []
    return text, entities


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
