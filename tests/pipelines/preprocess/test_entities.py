"""HTML entities of a corpus are decoded before its texts are normalized, and never elsewhere."""

import gzip
import html
import json

import pyarrow as pa
import pytest
from block_reading import facts_of
from corpora import ONE_THREAD, options, preprocess, rejected, texts
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.preprocess.description import dataset_blocks
from tt.pipelines.preprocess.entities import decode_entities
from tt.pipelines.preprocess.sources import Tsv

UNCHANGED = [
    "AT&T", "a &b", "Q&A;", "&nothing;", "&amp", "R&D; &c.", "?a=1&lt=2", "&;", "&#;", "&#0;",
    "&#xD800;", "&#1114112;", "&#x7f;", "&#129;", "&#x8d;", "&#1;", "fish & chips;", "&AMPERSAND;",
]  # fmt: skip
CHANGED = {
    "Tom &amp; Jerry": "Tom & Jerry",
    "&quot;Ja&quot;, it&#39;s &#x27;": "\"Ja\", it's '",
    "&amp;quot;Ja&amp;quot;": '"Ja"',
    "&amp;#39;": "'",
    "1 &lt; 2 &amp;&amp; 3 &gt; 2": "1 < 2 && 3 > 2",
    "&amp;amp;quot;": "&quot;",  # escaped three times
    "caf&eacute; &hellip; &#8211; &#150;": "café … – –",
    "&nothing; &uuml;": "&nothing; ü",
    "&lt;b&gt;bold&lt;/b&gt;": "<b>bold</b>",
}


def decode(found):
    decoded, is_changed = decode_entities(pa.chunked_array([pa.array(found, pa.large_string())]))
    return decoded.to_pylist(), is_changed.tolist()


def test_texts_without_valid_entities_do_not_change():
    assert decode(UNCHANGED) == (UNCHANGED, [False] * len(UNCHANGED))


def test_entities_that_were_escaped_once_or_twice_are_decoded():
    found = [*CHANGED, *UNCHANGED]
    expected = [*CHANGED.values(), *UNCHANGED]
    assert decode(found) == (expected, [a != b for a, b in zip(found, expected, strict=True)])


@given(st.lists(st.text("ab<>\"'&é;# \n", max_size=12), max_size=5), st.integers(1, 2))
def test_escaped_texts_are_read_back(plain, rounds):
    # Otherwise, the plain text would contain an entity itself.
    plain = [text.replace(";", ",") for text in plain]
    found = plain
    for _ in range(rounds):
        found = [html.escape(text) for text in found]
    assert decode(found)[0] == plain


PAIRS = [(f"dog {chr(97 + i)} &amp; cat", f"Hund {chr(97 + i)} &amp;amp; Katze") for i in range(26)]
PLAIN = [("AT&T bird", "AT&T Vogel"), ("a &lt;b&gt;bee&lt;/b&gt;", "eine &lt;b&gt;Biene&lt;/b&gt;")]


def write(path, pairs):
    path.write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    return Tsv(str(path))


def make(folder, *, beam_arguments=ONE_THREAD, **changes):
    folder.mkdir(exist_ok=True)
    # The last pair is the first one without entities, so it is a duplicate after decoding.
    corpus = write(folder / "a.tsv", [*PAIRS, *PLAIN, ("dog a & cat", "Hund a & Katze")])
    (folder / "exclude.txt").write_text("dog b &amp; cat\n")
    return preprocess(
        sources=[corpus],
        options=options(
            folder / "out", vocabulary_type="char", shards=1, held_out_by="side",
            exclude=(str(folder / "exclude.txt"),), **changes,
        ),
        beam_arguments=beam_arguments,
    )  # fmt: skip


def test_dataset_has_decoded_texts_and_counts_them(tmp_path):
    manifest = make(tmp_path)
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert not any("&amp;" in text or "&lt;" in text for pair in found for text in pair)
    assert ("AT&T bird", "AT&T Vogel") in found
    assert ("a ⟦1⟧bee⟦2⟧", "eine ⟦1⟧Biene⟦2⟧") in found  # the tags are spans
    assert manifest.sources[0]["decoded"] == len(PAIRS) + 1
    assert manifest.rejected == {"duplicate_pair": 1, "held_out_source": 1}
    assert facts_of(dataset_blocks(manifest))["decoded entities"] == "in 27 pairs"
    written = json.loads((tmp_path / "out/dataset.json").read_text())
    assert written["options"]["decode_entities"] is True
    [row] = [row for row in rejected(tmp_path / "out") if row["reason"] == "held_out_source"]
    assert row["source"] == "dog b &amp; cat"  # as the file contains it


def test_entities_remain_with_the_option(tmp_path):
    manifest = make(tmp_path, decode_entities=False, protect=False, placeholder_share=None)
    found = texts(tmp_path / "out", "train") + texts(tmp_path / "out", "validation")
    assert ("a &lt;b&gt;bee&lt;/b&gt;", "eine &lt;b&gt;Biene&lt;/b&gt;") in found
    assert manifest.sources[0]["decoded"] == 0
    assert facts_of(dataset_blocks(manifest))["decoded entities"] is None  # not displayed


@pytest.mark.parametrize("name", ["tatoeba_de_en/dev.de.gz", "multi30k/val.en.gz"])
def test_clean_corpora_do_not_change(shared_data, name):
    found = gzip.decompress((shared_data / name).read_bytes()).decode().split("\n")
    assert decode(found) == (found, [False] * len(found))
