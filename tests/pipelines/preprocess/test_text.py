"""Text pairs, TSV and JSONL files that are cut into units and read, also compressed or damaged."""

import bz2
import gzip
import json

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from unit_reading import cut, read, rows_of

from tt.model.errors import BadFileError, UserError
from tt.pipelines.preprocess import sources as corpora_rows
from tt.pipelines.preprocess import units
from tt.pipelines.preprocess.corpora import open_corpora
from tt.pipelines.preprocess.sources import Jsonl, TextPair, Tsv
from tt.pipelines.tables import jsonl, text_files
from tt.pipelines.tables import lines as lines_module

COMPRESS = {
    "": lambda content: content,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(write_checksum=True).compress,
}
COMPRESSED = [".gz", ".bz2", ".zst"]


def text_pair(tmp_path, source, target, *, suffix=""):
    paths = [tmp_path / f"corpus.en{suffix}", tmp_path / f"corpus.de{suffix}"]
    for path, content in zip(paths, (source, target), strict=True):
        path.write_bytes(COMPRESS[suffix](content))
    return TextPair(*map(str, paths))


def text_file(tmp_path, name, content):
    path = tmp_path / name
    path.write_bytes(content)
    return str(path)


# Lines.


@pytest.mark.parametrize("suffix", COMPRESS)
def test_text_pair(tmp_path, suffix):
    source = text_pair(tmp_path, b"a\nb\nc\n\n", b"x\ny\nz\n\n", suffix=suffix)
    expected = [("a", "x", None), ("b", "y", None), ("c", "z", None), ("", "", None)]
    assert read(source, tmp_path, max_pairs=2) == expected
    empty = text_pair(tmp_path, b"", b"", suffix=suffix)
    (tmp_path / "again").mkdir()
    assert read(empty, tmp_path / "again") == []


def test_only_a_line_feed_ends_a_line(tmp_path):
    source = text_pair(
        tmp_path,
        "\ufeffa\u2028b\r\n\nc\rd\x0b\x0c\x85e\x1c\n".encode(),
        "\ufeff1\r\n2\n\ufeff3\r\n".encode(),
    )
    assert read(source, tmp_path) == [
        ("a\u2028b", "1", None),
        ("", "2", None),
        ("c\rd\x0b\x0c\x85e\x1c", "\ufeff3", None),
    ]


def test_invalid_utf8_is_a_fault_of_its_line_only(tmp_path):
    source = text_pair(tmp_path, b"a\nb\xff\nc\n", b"x\ny\nz\xe4\n")
    assert read(source, tmp_path) == [
        ("a", "x", None),
        ("b\ufffd", "y", "invalid_utf8"),
        ("c", "z\ufffd", "invalid_utf8"),
    ]


@settings(max_examples=25)
@given(
    lines=st.lists(
        st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=8)
    ),
    max_pairs=st.integers(1, 7),
    slice_bytes=st.integers(1, 40),
)
def test_any_text_is_read_back(tmp_path_factory, lines, max_pairs, slice_bytes):
    folder = tmp_path_factory.mktemp("lines")
    content = "".join(line + "\n" for line in lines).encode()
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = expected[0].removeprefix("\ufeff")
    targets = [str(i) for i in range(len(lines))]  # shorter or longer than their sources
    source = text_pair(folder, content, "".join(f"{t}\n" for t in targets).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(corpora_rows, "SLICE_BYTES", slice_bytes)
        patch.setattr(lines_module, "BLOCK_BYTES", slice_bytes)
        patch.setattr(units, "MAX_UNIT_BYTES", 2 * slice_bytes)
        rows = read(source, folder, max_pairs=max_pairs)
    assert rows == [(line, target, None) for line, target in zip(expected, targets, strict=True)]


# Unequal and damaged files.


@pytest.mark.parametrize("counts", [(0, 1), (40_000, 40_001)])
def test_error_for_files_of_unequal_length_has_both_counts(tmp_path, counts):
    source = text_pair(tmp_path, b"a\n" * counts[0], b"x\n" * counts[1])
    with pytest.raises(UserError) as caught:
        cut(source, tmp_path, max_pairs=256 * 1024)
    assert f"corpus.en has {counts[0]:,} lines" in str(caught.value)
    assert f"corpus.de has {counts[1]:,}" in str(caught.value)
    assert not list((tmp_path / "work").glob("units-*"))


LINES = b"".join(b"%d\t%d\n" % (i, i * 7919 % 10_007) for i in range(60_000))


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(lines_module, "BLOCK_BYTES", 64 << 10)


def assert_is_damaged(tmp_path, name, content):
    source = Tsv(text_file(tmp_path, name, content))
    with pytest.raises(UserError) as caught:
        cut(source, tmp_path, max_pairs=10_000)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(f"{source.path} is cut off")
    assert message.endswith(BadFileError.remedy)
    assert not list((tmp_path / "work").glob("units-*"))
    return message


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda member: member[:-1], "after row"),
        (lambda member: member[: len(member) // 2], "after row"),
        (lambda member: member + member[:40], "after row"),  # in the second member
        (lambda member: b"", "the file is empty"),
        (lambda member: b"a\tx\nb\ty\n", "damaged: "),  # not compressed
    ],
)
def test_damaged_file_is_a_user_error(tmp_path, small_blocks, suffix, damage, reason):
    content = damage(COMPRESS[suffix](LINES))
    if suffix == ".bz2":  # a whole member is a single block
        reason = reason.replace("after row", "damaged")
    assert reason in assert_is_damaged(tmp_path, f"a.tsv{suffix}", content)


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("where", [0.5, 1.5])  # in the first or in the second member
def test_error_for_changed_bytes_has_the_last_good_row(tmp_path, small_blocks, suffix, where):
    member = COMPRESS[suffix](LINES)
    content = bytearray(member + member)
    place = int(where * len(member))
    content[place : place + 3] = bytes(byte ^ 0xFF for byte in content[place : place + 3])
    message = assert_is_damaged(tmp_path, f"a.tsv{suffix}", content)
    last_good = message.partition(" row ")[2].partition(":")[0].replace(",", "")
    assert int(last_good or 0) <= (where + 0.5) * 60_000


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_several_members_are_one_file(tmp_path, suffix):
    compress = COMPRESS[suffix]
    empty = b"" if suffix == ".bz2" else compress(b"")
    content = compress(b"a\tx\nb") + compress(b"\ty\n") + empty + compress(b"c\tz")
    rows = read(Tsv(text_file(tmp_path, f"a.tsv{suffix}", content)), tmp_path)
    assert rows == [("a", "x", None), ("b", "y", None), ("c", "z", None)]


def test_missing_file_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match=r"gone\.tsv cannot be opened: .*No such file"):
        cut(Tsv(str(tmp_path / "gone.tsv")), tmp_path)


# Long lines.


def test_long_line_does_not_affect_its_neighbors(tmp_path):
    long = b"abc " * 5_000_000  # 20 MB
    source = text_pair(tmp_path, b"a\n" + long + b"\nc\n", b"x\ny\nz\n", suffix=".zst")
    [unit] = cut(source, tmp_path)
    rows = rows_of(unit)
    assert [row["target"] for row in rows] == ["x", "y", "z"]
    assert [len(row["source"]) for row in rows] == [1, len(long), 1]


def test_slices_have_limited_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(corpora_rows, "SLICE_BYTES", 1000)
    lines = [b"a" * 90] * 30
    source = text_pair(tmp_path, b"\n".join(lines), b"x\n" * 30)
    tables = list(source.read_all())
    assert sum(table.num_rows for table in tables) == 30
    assert max(table["source"].nbytes for table in tables) < 1000
    path = text_file(tmp_path, "a.tsv", b"\n".join(line + b"\tx" for line in lines))
    tables = list(Tsv(path).read_all())
    assert sum(table.num_rows for table in tables) == 30
    assert 4 <= max(table.num_rows for table in tables) <= 24


# TSV.


@pytest.mark.parametrize("suffix", COMPRESS)
def test_tsv(tmp_path, suffix):
    content = b"a\tx\tV\nno tab\nb\ty\nc\tz\xff\tV\n\n"
    path = text_file(tmp_path, f"corpus.tsv{suffix}", COMPRESS[suffix](content))
    assert read(Tsv(path), tmp_path) == [
        ("a", "x", None),
        ("no tab", "", "malformed"),
        ("b", "y", None),
        ("c", "z\ufffd", "invalid_utf8"),
        ("", "", "malformed"),
    ]


# JSONL.


@pytest.mark.parametrize("suffix", COMPRESS)
def test_jsonl(tmp_path, suffix):
    rows = [{"en": "a\nb\u2028", "de": "x\ty"}, {"de": "", "en": None, "id": 3}, {"en": "ä"}]
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path = text_file(tmp_path, f"corpus.jsonl{suffix}", COMPRESS[suffix](content))
    assert read(Jsonl(path, "en", "de"), tmp_path) == [
        ("a\nb\u2028", "x\ty", None),
        (None, "", None),
        ('{"en": "\\u00e4"}', "", "malformed"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"en: a",
        b'{"en": "a", "de": "x"} {}',
        b'["en", "de"]',
        b"null",
        b'{"en": "a"}',
        b'{"en": "a", "de": 3}',
        b'{"en": "a", "de": {"text": "x"}}',
        b'{"en": "a", "de": "\\ud800"}',
        b"[" * 50_000,
        b'{"en": "a", "de": ' + b"1" * 5000 + b"}",
    ],
)
def test_unexpected_json_is_malformed(tmp_path, line):
    good = b'{"en": "a", "de": "x"}\n'
    path = text_file(tmp_path, "corpus.jsonl", good + line + b"\n" + good)
    assert read(Jsonl(path, "en", "de"), tmp_path) == [
        ("a", "x", None),
        (line.decode(), "", "malformed"),
        ("a", "x", None),
    ]


def test_invalid_utf8_in_jsonl_is_a_fault_of_its_line_only(tmp_path):
    path = text_file(
        tmp_path,
        "c.jsonl",
        b'\xef\xbb\xbf{"s": "a", "t": "x"}\r\n{"s": "\xff"}\n{"s": "", "t": ""}',
    )
    assert read(Jsonl(path, "s", "t"), tmp_path) == [
        ("a", "x", None),
        ('{"s": "\ufffd"}', "", "invalid_utf8"),
        ("", "", None),
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ({"translation": {"en": "a", "de": "x"}}, ("a", "x", None)),
        ({"translation": {"en": "a", "de": None}}, ("a", None, None)),
        ({"translation.en": "a", "translation": {"en": "b", "de": "x"}}, ("a", "x", None)),
        ({"translation": None}, "malformed"),
        ({"translation": {"en": "a"}}, "malformed"),
        ({"translation": ["en", "de"]}, "malformed"),
        ({"translation": "en de"}, "malformed"),
    ],
)
def test_dotted_keys_reach_into_objects(tmp_path, line, expected):
    text = json.dumps(line)
    path = text_file(tmp_path, "corpus.jsonl", text.encode())
    [row] = read(Jsonl(path, "translation.en", "translation.de"), tmp_path)
    assert row == ((text, "", expected) if expected == "malformed" else expected)


# Real corpora, in their original state.


@pytest.mark.parametrize("name", ["c.jsonl:a:b", "c.tsv"])
def test_a_line_beyond_the_limit_has_too_many_characters(tmp_path, monkeypatch, name):
    for module in (text_files, lines_module, jsonl, corpora_rows):
        monkeypatch.setattr(module, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / name.partition(":")[0]
    good = b'{"a": "x", "b": "y"}\n' if "jsonl" in name else b"x\ty\n"
    with path.open("wb") as file:
        file.write(good + b"[")
        file.seek(64 << 20)  # a sparse file: the zeros use no disk space
        file.write(b"\n" + good)
    [source] = open_corpora([f"{tmp_path}/{name}"])
    rows = [tuple(row.values()) for table in source.read_all() for row in table.to_pylist()]
    assert rows[::2] == [("x", "y", None)] * 2
    assert rows[1][1:] == ("", "too_many_characters")
    assert len(rows[1][0] or "") <= 64 << 10
