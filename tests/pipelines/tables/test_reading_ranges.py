"""Reading a text file by ranges gives the same rows and faults as reading it in one go."""

from __future__ import annotations

import csv
import io
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.pipelines.tables import delimited, jsonl, ranges
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.formats import ReadOptions
from tt.pipelines.tables.reading import OpenTable, find_row_ranges, scan_file

CELL = st.text('ab,;" \té\n', max_size=4)
CELLS = st.lists(CELL, min_size=2, max_size=2) | st.lists(CELL, max_size=3)
ODD = st.text('ab,"\t\r ', max_size=5)
OBJECT = st.sampled_from(
    ['{"x":"a","y":"b"}', ' {"x":"é","y":null}', '{"x":"a"}', "[1]", "{", '{"x":1,"y":"b"}']
)
BLANK = st.sampled_from(["", "", " ", "\t"])
ROWS = st.integers(1, 4)
SIZES = st.integers(1, 60)


def quoted(cells):
    """Return a row of CSV in which each cell has quotation marks."""
    text = io.StringIO()
    csv.writer(text, lineterminator="", quoting=csv.QUOTE_ALL).writerow(cells)
    return text.getvalue()


LINES = {
    "csv": CELLS.map(quoted) | st.text("ab,", max_size=4) | BLANK,
    "odd.csv": CELLS.map(quoted) | ODD | BLANK,
    "tsv": st.text('ab"\t', max_size=4) | BLANK,
    "jsonl": OBJECT | BLANK,
    "txt": st.text('ab,"\t\r', max_size=5),
}
NAMES = {"csv": ["x,y", "x", '"x","y\nz"'], "tsv": ["x\ty", "x"], "jsonl": [""], "txt": [""]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


def read(path, **options):
    """Return the rows of a file or a range, and the fault of each row."""
    rows = []
    with OpenTable(path, **options) as table:
        for batch in table.batches():
            kept, faults = split_faults(batch)
            rows += zip(kept.to_pylist(), map(faults.get, range(len(kept))), strict=True)
    return rows


def check_ranges(path, *, size, most_rows, most_bytes, encoding, keys=()):
    """Compare the rows of the ranges with the rows of the file; return the number of ranges."""
    options = ReadOptions(encoding=encoding)
    schema = None if keys else scan_file(path, options=options).schema
    how = {"options": options, "columns": keys}
    found = find_row_ranges(path, **how, size=size, most_rows=most_rows, most_bytes=most_bytes)
    how |= {"schema": schema, "has_lines": path.endswith(".jsonl")}
    if found:
        rows = [read(path, part=each, **how) for each in found]
        assert [len(each) for each in rows] == [each.rows for each in found]
        assert list(itertools.chain(*rows)) == read(path, **how)
        assert all(each.rows <= most_rows for each in found)
    return len(found)


@pytest.mark.parametrize("kind", LINES)
@settings(max_examples=250, deadline=None)
@given(data=st.data())
def test_ranges_give_the_rows_faults_and_lines_of_the_file(folder, kind, data):
    draw, ending = data.draw, kind.rpartition(".")[2]
    lines = [draw(st.sampled_from(NAMES[ending])), *draw(st.lists(LINES[kind], max_size=12))]
    lines = lines if ending in ("csv", "tsv") else [*lines[1:], "a"]
    end = draw(st.sampled_from(["\n", "\r\n"]))
    text = end.join(lines) + end * draw(st.booleans())
    encoding = draw(st.sampled_from(["utf-8", "latin-1"]))
    content = text.encode(encoding)
    if encoding == "utf-8":
        content = b"\xef\xbb\xbf" * draw(st.integers(0, 2)) + content
        content = content.replace(b"b", b"\xff", draw(st.integers(0, 1)))
    path = folder / f"a.{ending}"
    path.write_bytes(content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK_BYTES", draw(SIZES))
        patch.setattr(delimited, "BLOCK_BYTES", 1000)
        patch.setattr(jsonl, "BLOCK_BYTES", draw(SIZES))
        if draw(st.booleans()):  # rows of CSV exceed the limits
            patch.setattr(delimited, "MOST_LINE_ENDS", 3)
            patch.setattr(ranges, "MOST_LINE_ENDS", 3)
            patch.setattr(delimited, "MAX_LINE_BYTES", 24)
            patch.setattr(ranges, "_MOST_ROW_BYTES", 12)
        keys = draw(st.sampled_from([(), ("x", "y")])) if ending == "jsonl" else ()
        limits = {"most_rows": draw(ROWS), "most_bytes": draw(SIZES)}
        check_ranges(str(path), size=len(content), encoding=encoding, keys=keys, **limits)


@pytest.mark.parametrize(
    ("name", "content", "count"),
    [
        ("a.csv", 'x,y\n1,"a\n""b"",c"\n\n2,3\n4\n', 3),
        ("a.csv", '"x\nx";y\r\n"";"1,5"\r\n"2";""""\r\n\r\n', 2),
        ("a.csv", "x\n1\n\n2\n", 3),
        ("a.tsv", 'x\ty\n"1\t2\n3\t4"\n', 2),
        ("a.jsonl", '{"x":"a"}\n \n\n{"x":"b"}\n[1]\n', 3),
        ("a.txt", 'a\r\n"b\n\nc', 4),
        # Only one worker can read these files.
        ("a.csv", 'x,y\n1,5" disk\n2,3\n', 0),
        ("a.csv", 'x,y\n1,"a" \n2,3\n', 0),
        ("a.csv", 'x,y\n1,"a\n2,3\n', 0),
        ("a.csv", "x,y\r1,2\r3,4\r", 0),
        ("a.csv", "x,y\n1,2\r3,4\n", 0),
        ("a.csv", 'x,y\n1,"' + "\n" * 1000 + '"\n', 0),
        ("a.tsv", "x\ty\n1\t2\r3\t4\n", 0),
        ("a.csv", "x,y\n", 0),
        ("a.json", '{"x":"a"}\n{"x":"b"}\n', 0),
    ],
)
def test_files_are_cut_at_the_ends_of_rows_unless_these_are_uncertain(
    tmp_path, name, content, count
):
    path = tmp_path / name
    path.write_bytes(content.encode())
    limits = {"size": len(content), "most_rows": 1, "most_bytes": 1 << 30}
    assert check_ranges(str(path), encoding="utf-8", **limits) == count


def test_a_huge_line_is_read_by_one_worker(tmp_path, monkeypatch):
    monkeypatch.setattr(ranges, "_MOST_ROW_BYTES", 10)
    monkeypatch.setattr(ranges, "_BLOCK_BYTES", 6)
    for name, other in (("a", "1\n2\n"), ("b", "1\n" + "2" * 11 + "\n")):
        (tmp_path / name).write_text(other)
    files = [(str(tmp_path / name), (tmp_path / name).stat().st_size) for name in "ab"]
    cut = {"most_rows": 1, "most_bytes": 1}
    assert ranges.find_aligned_ranges(files, **cut) == []
    assert ranges.find_aligned_ranges(files[::-1], **cut) == []
    (tmp_path / "b").write_text("1\n2\n3\n")
    files[1] = (str(tmp_path / "b"), 6)
    with pytest.raises(UserError, match="has 2 lines, but"):
        ranges.find_aligned_ranges(files, **cut)


def test_only_encodings_that_keep_ascii_can_be_cut():
    for name in ("cp1252", "koi8-r", "iso8859-15", "cp437", "mac-roman", "ascii"):
        assert ranges.can_be_cut("a.csv", encoding=name), name
    others = ["utf-16", "cp037", "utf-7", "shift_jis", "gb18030", "cp864", "hz"]
    for name in (*others, "iso2022_jp", "iso2022_kr", "unicode-escape", "raw-unicode-escape"):
        assert not ranges.can_be_cut("a.csv", encoding=name), name
