"""Texts are read in any encoding, and a wrong encoding is an error that suggests the right one."""

import gzip
import re

import pytest
from corpora import open_named, options, preprocess, rejected, texts, write_pairs
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_reading import read

from tt.model.errors import UserError
from tt.pipelines.preprocess.description import describe_doubts
from tt.pipelines.preprocess.sources import TextPair, Tsv
from tt.pipelines.tables.formats import find_encoding
from tt.pipelines.tables.text_files import is_other_encoding, without_bom

ENCODINGS = ["cp1252", "gb18030", "shift_jis", "big5", "utf-16", "utf-32"]


def encodable(encoding):
    # Each sample has characters whose bytes include \ or |, or the neighbors of a tab.
    samples = {
        "gb18030": "狗乗\U00020000表", "shift_jis": "犬ソ表能", "big5": "狗功許蓋",
        "utf-16": "Ċ犬𝄞", "utf-32": "Ċ犬𝄞",
    }  # fmt: skip
    return st.text('ab \\"|' + samples.get(encoding, "éßñ"), min_size=1, max_size=9)


@pytest.mark.parametrize("encoding", ENCODINGS)
@settings(max_examples=15)
@given(data=st.data())
def test_lines_in_any_encoding_are_read_back(tmp_path_factory, encoding, data):
    folder = tmp_path_factory.mktemp("texts")
    text = encodable(encoding)
    # The first line of a TSV file could otherwise be a header of language codes, such as "aa".
    pairs = [("a", "b"), *data.draw(st.lists(st.tuples(text, text), min_size=1, max_size=5))]
    rows = [(source, target, None) for source, target in pairs]
    for side, column in (("en", 0), ("xx", 1)):
        lines = "".join(f"{pair[column]}\r\n" for pair in pairs).encode(encoding)
        (folder / f"a.{side}.gz").write_bytes(gzip.compress(lines))
    tsv = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (folder / "a.tsv").write_bytes(tsv.encode(encoding))
    name = find_encoding(encoding)
    pair = TextPair(str(folder / "a.en.gz"), str(folder / "a.xx.gz"), encoding=name)
    assert read(pair, folder) == rows
    (folder / "work").rename(folder / "done")
    assert read(Tsv(str(folder / "a.tsv"), encoding=name), folder) == rows


@pytest.mark.parametrize(
    ("encoding", "content", "expected"),
    [
        ("cp1252", b"a\x81b\tx\n\xe4\t\xf6\n", [("a\ufffdb", "x"), ("ä", "ö")]),
        ("shift_jis", b"\xff\tx\nb\ty\n", [("\ufffd", "x"), ("b", "y")]),
        ("utf-16-le", "a\tx\nb\t".encode("utf-16-le") + b"\x00\xd8", [("a", "x"), ("b", "\ufffd")]),
    ],
)
def test_invalid_bytes_are_a_fault_of_their_line_only(tmp_path, encoding, content, expected):
    (tmp_path / "a.tsv").write_bytes(content)
    rows = read(Tsv(str(tmp_path / "a.tsv"), encoding=encoding), tmp_path)
    # Decoders differ in the number of replacement characters per invalid sequence.
    shown = [tuple(re.sub("\ufffd+", "\ufffd", side) for side in row[:2]) for row in rows]
    assert shown == expected
    assert [row[2] for row in rows] == [
        "invalid_utf8" if "\ufffd" in "".join(row) else None for row in expected
    ]


@pytest.mark.parametrize("name", ["nosuch", "hex", "undefined", "", "a\0b", "idna"])
def test_names_that_are_not_text_encodings_are_errors(name):
    with pytest.raises(UserError, match=r"`encoding` must be one that Python knows.*Received: '"):
        find_encoding(name)


# Wrong encodings.


def read_named(corpus, **options):
    [source] = open_named(corpora=[corpus], **options)
    return list(source.read_all())


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("a.tsv", "utf-16"), ("a.tsv.gz", "utf-16-le"), ("a.jsonl", "utf-16-be"),
        ("a.en+a.de", "utf-32"), ("fra.txt:0:1", "utf-16-be"),
    ],
)  # fmt: skip
def test_utf_16_is_recognized_and_the_suggested_option_works(tmp_path, encoding, name):
    content = {"a.jsonl": '{"source": "Hund", "target": "dog"}\n'}.get(name, "Hund\tdog\n")
    pair = "Hund", "dog"
    if "+" in name:
        pair, content = ("Hund", "Hund"), "Hund\n"
    data = content.encode(encoding)
    path = name.removesuffix(":0:1")
    for each in path.split("+"):
        (tmp_path / each).write_bytes(gzip.compress(data) if each.endswith("z") else data)
    corpus = "+".join(f"{tmp_path}/{each}" for each in name.split("+"))
    with pytest.raises(UserError, match=r"is UTF-16 or UTF-32\. Set `encoding`"):
        read_named(corpus)
    [source] = open_named(corpora=[corpus], encoding=encoding)
    assert read(source, tmp_path) == [(*pair, None)]


def test_files_of_two_encodings_are_a_user_error(tmp_path):
    encoding = "utf-16"
    (tmp_path / "p.en").write_text("dog\n")
    (tmp_path / "p.de").write_bytes("Hund\n".encode(encoding))
    corpus = f"{tmp_path}/p.en+{tmp_path}/p.de"
    with pytest.raises(UserError, match=r"p\.de must be UTF-8; it is UTF-16 or UTF-32"):
        read_named(corpus)
    expected = (
        f"{tmp_path}/p.en is not {encoding} ({encoding.upper()} stream does not start with BOM). "
        "Set `encoding`"
    )
    with pytest.raises(UserError) as caught:
        read_named(corpus, encoding=encoding)
    assert str(caught.value) == expected
    (tmp_path / "p.en").write_bytes("dog\n".encode(encoding))
    [source] = open_named(corpora=[corpus], encoding=encoding)
    assert read(source, tmp_path) == [("dog", "Hund", None)]


@pytest.mark.parametrize(
    "head", ["day\n", "Ä犬\tb", "", "a", "\ufeffa", "a\0b\0c some longer text" * 9, "ab\0" * 99]
)
def test_utf_8_is_not_mistaken_for_another_encoding(head):
    assert without_bom(head.encode(), path="a.txt").decode() == head.lstrip("\ufeff")


def test_many_invalid_lines_suggest_latin_1(tmp_path):
    pairs = [(f"the dog {i}", f"das {'Pferd' if i % 3 else 'Kälbchen'} {i}") for i in range(60)]
    corpus = write_pairs(tmp_path, pairs)
    (tmp_path / "corpus.de").write_bytes(
        "".join(f"{target}\n" for _, target in pairs).encode("latin-1")
    )
    chosen = options(tmp_path / "out", vocabulary_type="char")
    manifest = preprocess(sources=[corpus], options=chosen)
    assert manifest.rejected == {"invalid_utf8": 20}
    [warning] = describe_doubts(manifest)
    assert warning == (
        f"20 of 60 lines of {corpus.name} are not UTF-8. Choose the right `encoding`, such "
        "as latin-1 or cp1252, and make the dataset again"
    )
    paths = {"source_texts": [corpus.source_path], "target_texts": [corpus.target_path]}
    [source] = open_named(**paths, encoding="Latin-1")
    assert source.identity() == corpus.identity() | {"encoding": "iso8859-1"}
    assert source.describe().endswith(", iso8859-1")
    chosen = options(tmp_path / "mended", vocabulary_type="char")
    manifest = preprocess(sources=[source], options=chosen)
    both = texts(tmp_path / "mended", "train") + texts(tmp_path / "mended", "validation")
    assert sorted(both) == sorted(pairs)
    assert describe_doubts(manifest) == []
    assert not rejected(tmp_path / "mended")


def test_excluded_texts_are_read_in_the_given_encoding(tmp_path):
    pairs = [(f"the dog {i}", f"das Kälbchen {i}") for i in range(60)]
    (tmp_path / "test.de").write_bytes("das Kälbchen 7\n".encode("latin-1"))
    chosen = options(
        tmp_path / "out", vocabulary_type="char", encoding="latin1",
        exclude=(str(tmp_path / "test.de"),),
    )  # fmt: skip
    manifest = preprocess(sources=[write_pairs(tmp_path, pairs)], options=chosen)
    assert manifest.rejected == {"held_out_target": 1}
    assert manifest.options["encoding"] == "iso8859-1"
    assert "encoding" not in options(tmp_path, encoding="UTF8").resolved()


@pytest.mark.parametrize(
    ("invalid", "lines", "expected"),
    [(1, 100, True), (1, 101, False), (0, 9, False), (0, 0, False)],
)
def test_few_invalid_lines_do_not_suggest_another_encoding(invalid, lines, expected):
    assert is_other_encoding(invalid=invalid, lines=lines) is expected


@pytest.mark.parametrize(
    ("name", "marks"), [("a.tsv", 1), ("a.csv", 2), ("a.jsonl", 2), ("a.en", 3)]
)
def test_byte_order_marks_are_no_text(tmp_path, name, marks):
    lines = {
        "a.tsv": "one\ttwo\n", "a.csv": "en,de\none,two\n",
        "a.jsonl": '{"en": "one", "de": "two"}\n', "a.en": "one\n",
    }  # fmt: skip
    (tmp_path / name).write_text("\ufeff" * marks + lines[name], "utf-8")
    (tmp_path / "a.de").write_text("two\n")
    columns = {"a.tsv": ":0:1", "a.en": f"+{tmp_path}/a.de"}.get(name, ":en:de")
    [source] = open_named(corpora=[f"{tmp_path}/{name}{columns}"])
    assert [table.to_pylist() for table in source.read_all()] == [
        [{"source": "one", "target": "two", "fault": None}]
    ]
