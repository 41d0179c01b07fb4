"""TMX files: a round trip, the languages, and invalid files."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import BadFileError
from tt.pipelines.memory.tmx import TmxUnit, read_tmx, write_tmx

# XML 1.0 contains all these characters.
TEXTS = st.text(st.characters(exclude_categories=("Cs", "Cc", "Cn")) | st.sampled_from("\t\n\r"))


def read(content, *, source="en", target="de"):
    """Return the pairs and the languages of a file, given as str or bytes."""
    content = content.encode() if isinstance(content, str) else content
    pairs = []
    languages = read_tmx(
        io.BytesIO(content),
        path="a.tmx",
        source_language=source,
        target_language=target,
        add=lambda *pair: pairs.append(pair),
    )
    return pairs, languages


def tmx(body, *, start=""):
    return f'{start}<tmx version="1.4"><header/><body>{body}</body></tmx>'


def unit(**segments):
    """Return a translation unit, given its segments as XML by language."""
    variants = "".join(
        f'<tuv xml:lang="{code.replace("_", "-")}"><seg>{text}</seg></tuv>'
        for code, text in segments.items()
    )
    return f"<tu>{variants}</tu>"


@given(st.lists(st.tuples(TEXTS, TEXTS), max_size=5))
def test_written_units_are_read_again(pairs):
    file = io.BytesIO()
    units = [TmxUnit(*pair, "en", "de", "human") for pair in pairs]
    assert write_tmx(file, units) == (len(pairs), 0)
    assert read(file.getvalue())[0] == pairs


def test_texts_that_xml_cannot_contain_are_left_out():
    file = io.BytesIO()
    pairs = [("a\x00", "b"), ("a", "b\x1b"), ("a\ufffe", "b"), ("a", "b")]
    assert write_tmx(file, [TmxUnit(*pair, "en", "de", "human") for pair in pairs]) == (1, 3)
    assert read(file.getvalue())[0] == [("a", "b")]


def test_regions_do_not_matter_and_other_languages_are_skipped():
    body = unit(en_US="a", de_AT="b", fr="c") + unit(en="d", fr="e") + unit(DE="g", EN="f")
    pairs, languages = read(tmx(body))
    assert pairs == [("a", "b"), ("f", "g")]
    assert languages == {"en-US", "de-AT", "fr", "en", "DE", "EN"}
    assert read(tmx(body), source="fr-CA", target="eng")[0] == [("c", "a"), ("e", "d")]


def test_scripts_matter():
    body = unit(en="a", zh_Hant="b", zh_CN="c")
    assert read(tmx(body), target="zh-TW")[0] == [("a", "b")]
    assert read(tmx(body), target="zh-Hans")[0] == [("a", "c")]


def test_text_of_inline_elements_is_kept():
    source = 'a <bpt i="1">&lt;b&gt;</bpt>b<ept i="1">&lt;/b&gt;</ept> <hi>c</hi><ph x="1"/>'
    assert read(tmx(unit(en=source, de="d")))[0] == [("a <b>b</b> c", "d")]


def test_old_attribute_doctype_and_utf16():
    body = '<tu><tuv lang="en"><seg>ä</seg></tuv><tuv lang="de"><seg>ö</seg></tuv></tu>'
    start = '<?xml version="1.0" encoding="UTF-16"?><!DOCTYPE tmx SYSTEM "tmx11.dtd">'
    assert read(tmx(body, start=start).encode("utf-16"))[0] == [("ä", "ö")]


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tmx(unit(en="&b;", de="b"), start=BOMB), "declares the entity 'a'"),
        (tmx(unit(en="a", de="b"))[:-6], "not well-formed XML: no element found"),
        ("<html><tmx/></html>", "is not TMX: its first element is <html>"),
        ("", "not well-formed XML: no element found"),
        (b"\xff\xff\x00", "not well-formed XML"),
        ('<?xml version="1.0" encoding="klingon"?><tmx/>', "not well-formed XML: unknown encoding"),
    ],
)
def test_invalid_files_are_refused(content, message):
    with pytest.raises(BadFileError, match=message) as caught:
        read(content)
    assert str(caught.value).startswith("a.tmx ")
