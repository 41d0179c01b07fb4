"""Tags stay with their pieces, and protected spans are found between tags."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.text.spans import Span
from tt.pipelines.texts.markup import HTML, find_regions
from tt.pipelines.texts.tags import add_spans, find_single_tags, keep_pairs, spans_of_parts

_TAG = re.compile(r"<(/?)\w+(/?)>")


def tags_in(text):
    """Return a span for each tag; a void tag looks like <br/>."""
    return [
        Span(
            each.start(), each.end(), each[0], True,
            "close" if each[1] else "void" if each[2] else "open",
        )
        for each in _TAG.finditer(text)
    ]  # fmt: skip


def span_of(text, part, *, role=""):
    start = text.index(part)
    return Span(start, start + len(part), part, role != "", role)


# --- add_spans -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "parts", "found"),
    [
        ("<b>{x}</b>", ["<b>{x}</b>"], ["<b>", "{x}", "</b>"]),
        ("<b>{x}</b>", ["{x}"], ["<b>", "{x}", "</b>"]),
        ("{x}<b>{y}</b>{z}", ["{x}<b>{y}</b>{z}"], ["{x}", "<b>", "{y}", "</b>", "{z}"]),
        ("<b> </b>", ["<b> </b>"], ["<b>", "</b>"]),  # white space is no span
        ("a {x}", ["{x}"], ["{x}"]),
        ("<b>a", ["<b"], ["<b>"]),  # a span inside a tag
    ],
)
def test_spans_between_tags(text, parts, found):
    spans = add_spans(text, tags_in(text), [span_of(text, part) for part in parts])
    assert [text[span.start : span.end] for span in spans] == found
    assert [span.replacement for span in spans] == found
    assert [span.role != "" for span in spans] == [bool(_TAG.fullmatch(each)) for each in found]


# --- keep_pairs ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parts", "kept"),
    [
        (["a <b>b", "</b>", " ", "c"], ["a <b>b</b>", " ", "c"]),
        (["a", " ", "<b>", "b</b> c"], ["a", " ", "<b>b</b> c"]),
        (["<b>", "a", "</b>"], ["<b>", "a", "</b>"]),  # both tags are outside
        (["<b>", "a</b> b"], ["<b>a</b> b"]),
        (["a <i><b>b", "</b>", "</i>", " ", "c"], ["a <i><b>b</b></i>", " ", "c"]),
        (["a <b>b.", " ", "c</b> d"], ["a <b>b.", " ", "c</b> d"]),  # in different pieces
        (["a", "</b>", " ", "<b>", "c"], ["a", "</b>", " ", "<b>", "c"]),
        (["a <b>b", " ", "</b>", " ", "c"], ["a <b>b </b>", " ", "c"]),
    ],
)
def test_tags_move_to_the_piece_of_their_partner(parts, kept):
    text = "".join(parts)
    assert keep_pairs(parts, tags_in(text)) == kept


PIECES = st.lists(
    st.sampled_from(["a", "b c", " ", "<b>", "</b>", "<i>", "</i>", "<br/>", "a <b>b", "c</b> d"]),
    max_size=10,
)


@given(parts=PIECES)
def test_kept_pieces_are_the_same_text(parts):
    text = "".join(parts)
    kept = keep_pairs(parts, tags_in(text))
    assert "".join(kept) == text
    assert all(kept) or not text


# --- spans_of_parts --------------------------------------------------------------------------


def test_spans_of_parts_have_their_place_in_the_part():
    parts = ["a {x}", " ", "<b>b</b> {y}", "\n", "c"]
    text = "".join(parts)
    spans = sorted([*tags_in(text), span_of(text, "{x}"), span_of(text, "{y}")])
    assert list(spans_of_parts(parts, spans)) == [
        ("a {x}", [Span(2, 5, "{x}")]),
        (
            "<b>b</b> {y}",
            [
                Span(0, 3, "<b>", True, "open"),
                Span(4, 8, "</b>", True, "close"),
                Span(9, 12, "{y}"),
            ],
        ),
        ("c", []),
    ]


@given(parts=PIECES)
def test_spans_of_parts_are_texts_of_the_parts(parts):
    text = "".join(parts)
    spans = tags_in(text)
    found = list(spans_of_parts(parts, spans))
    assert [part for part, _ in found] == [part for part in parts if not part.isspace()]
    for part, inside in found:
        assert all(part[span.start : span.end] == span.replacement for span in inside)
    whole = sum(1 for part in parts for _ in _TAG.finditer(part))
    assert sum(len(inside) for _, inside in found) == whole == len(spans)


# --- find_single_tags ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "single"),
    [
        ("a <b>b</b> c", []),
        ("a <b>b c", ["<b>"]),
        ("a b</b> c", ["</b>"]),
        ("a <b><i>b</b> c</i> d", ["<i>", "</i>"]),
        ("a <br> b <b>c</b>", []),
        ("x &lt;b&gt; is a tag", ["&lt;b&gt;"]),
    ],
)
def test_single_tags(text, single):
    [region] = find_regions(text, format=HTML)
    found = find_single_tags(text[region.start : region.end], region)
    assert sorted(text[mark.start : mark.end] for mark in found) == sorted(single)
