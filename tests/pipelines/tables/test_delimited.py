"""CSV and TSV files: cells are read without changes, and error messages have line numbers."""

import csv
import gzip
import io
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from table_scans import read_runs, scan_file

from tt.model.errors import BadFileError
from tt.pipelines.tables import delimited
from tt.pipelines.tables.reading import OpenTable


def look(path, content):
    path.write_bytes(content)
    return scan_file(path)


def rows_of(path, content):
    """Return the column names and the rows of a good file, read in runs of two rows."""
    found = look(path, content)
    assert not isinstance(found, BadFileError), found
    assert set(found.schema.types) <= {pa.string()}
    with OpenTable(str(path), schema=found.schema) as table:
        sizes = [min(2, found.rows - first) for first in range(0, found.rows, 2)]
        tables = read_runs(table, sizes)
        assert [each.num_rows for each in tables] == sizes
        assert table.finish() == (found.size, found.checksum)
    columns = [[cell for each in tables for cell in each.column(i).to_pylist()]
               for i in range(len(found.schema))]  # fmt: skip
    return found.schema.names, list(zip(*columns, strict=True))


@pytest.mark.parametrize(
    ("content", "names", "rows"),
    [
        (b"a,b\n", ["a", "b"], []),
        (b"a,b", ["a", "b"], []),
        (b"a,b\n007,1.10\n", ["a", "b"], [("007", "1.10")]),
        (b"a,b\nNA,\ntrue,2024-01-01", ["a", "b"], [("NA", ""), ("true", "2024-01-01")]),
        (b'a,b\n1,"x\ny"\n\n2,"say ""so"""\n', ["a", "b"], [("1", "x\ny"), ("2", 'say "so"')]),
        (b'a,b\n5" disk,it"s\n', ["a", "b"], [('5" disk', 'it"s')]),
        # As in Python's csv module, text after a closing quotation mark belongs to the cell.
        (b'a,b\n"x"y,"x"y"\n"x" ,"""x"""y\n', ["a", "b"], [("xy", 'xy"'), ("x ", '"x"y')]),
        (b"\xef\xbb\xbfa,b\r1,2\r\n3,4", ["a", "b"], [("1", "2"), ("3", "4")]),
        (b"a\nx\n\ny\n", ["a"], [("x",), ("",), ("y",)]),
        ("a\ufffd,b\nx,y\n".encode(), ["a\ufffd", "b"], [("x", "y")]),
        (b"a\nx\n", ["a"], [("x",)]),  # equals the row that the reader appends to a block
        (b'a\n"x"', ["a"], [("x",)]),
        (b",b\nx,\n", ["", "b"], [("x", "")]),
        (b'"a\nb",c\n1,2\n', ["a\nb", "c"], [("1", "2")]),
        (b'"a,b"\n"x,y"\n', ["a,b"], [("x,y",)]),
        (b'"a;b"\nx;y\n', ["a;b"], [("x;y",)]),
        (b"Question | answer\nx | y\nz\n", ["Question | answer"], [("x | y",), ("z",)]),
        (b"a;b\n", ["a;b"], []),
    ],
)
def test_csv_cells_are_not_changed(tmp_path, content, names, rows):
    assert rows_of(tmp_path / "t.csv", content) == (names, rows)


def test_quotation_marks_have_no_meaning_in_tsv(tmp_path):
    content = b'a\tb\n"x\ty"\n"z\t1,2\n'
    assert rows_of(tmp_path / "t.tsv", content) == (["a", "b"], [('"x', 'y"'), ('"z', "1,2")])


@pytest.mark.parametrize(
    ("ending", "compress"),
    [
        (".gz", gzip.compress),
        (".gz", lambda data: gzip.compress(data[:9]) + gzip.compress(data[9:])),
        (".gz", lambda data: gzip.compress(data) + bytes(5)),  # padding, as on some tapes
        (".zst", lambda data: pa.compress(data, "zstd", asbytes=True)),
    ],
)
def test_compressed_files_are_read_unless_they_are_damaged(tmp_path, ending, compress):
    content = b"a,b\n" + b"".join(b"%d,row %d\n" % (i, i) for i in range(5000))
    path = tmp_path / f"t.csv{ending}"
    assert rows_of(path, compress(content))[1][-1] == ("4999", "row 4999")
    assert "is cut off or damaged: " in str(look(path, compress(content)[:-9]))


def line_of(number, cells=2, megabytes=8):
    noun = "cell" if cells == 1 else "cells"
    return (
        f"must have {cells} {noun} in each row, closed quotation marks, and rows of less than "
        f"{megabytes} MB; see the row that begins in line {number}"
    )


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the first line of PATH must contain the column names, but it is empty"),
        (b"\na,b\n", "the first line of PATH must contain the column names, but it is empty"),
        (b"a,b\n1,2\n3\n", f"PATH {line_of(3)}"),
        (b"a,b\n1,2\n3,4,5\n", f"PATH {line_of(3)}"),
        (b'a,b\n"x\n\ny",2\n\n3\n', f"PATH {line_of(6)}"),
        (b'a,b\n1,2\n3,"x\n5,6\n', f"PATH {line_of(3)}"),
        (b'a\nx\n"', f"PATH {line_of(3, cells=1)}"),
        (b'a,b\n"1\n",\xff\n', "PATH must be UTF-8; the row that begins in line 2 is not"),
        (b"a,\xff\n1,2\n", "PATH must be UTF-8; line 1 is not"),
        ("a,b\n1,2\n".encode("utf-16-le"), "PATH must be UTF-8; it is UTF-16 or UTF-32"),
        (
            b"a;b\n1;2\n",
            "PATH must have commas between its columns, but its first line has only ';': 'a;b'",
        ),
        (
            b"a," + b"x" * (64 << 10) + b"\n1,2\n",
            "the first line of PATH must contain the column names in less than 64 KiB; it is "
            "longer, or a quotation mark is not closed",
        ),
        (
            b'a,"b\n' + b"1,2\n" * (16 << 10),
            "the first line of PATH must contain the column names in less than 64 KiB; it is "
            "longer, or a quotation mark is not closed",
        ),
    ],
)
def test_csv_errors_name_the_bad_line(tmp_path, content, message):
    path = tmp_path / "t.csv"
    assert str(look(path, content)) == message.replace("PATH", str(path))


def test_tsv_requires_tabs(tmp_path):
    path = tmp_path / "t.tsv"
    assert str(look(path, b"a\tb\nx\n")) == f"{path} {line_of(2)}"
    assert "must have tabs between its columns, but its first line has only ','" in str(
        look(path, b"a,b\nx,y\n")
    )


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([b"1,2"] * 999 + [b"1,2,3"] + [b"1,2"] * 999, f"PATH {line_of('1,001', megabytes=0)}"),
        (
            [b"1,2"] * 999 + [b"1,\xff"],
            "PATH must be UTF-8; the row that begins in line 1,001 is not",
        ),
        ([b"1,2"] * 999 + [b'1,"2'] + [b"1,2"] * 999, line_of("1,001", megabytes=0)),
        ([b"1,2"] * 9 + [b'1,"' + b"x" * 2000 + b'"'] + [b"1,2"] * 999, line_of(11, megabytes=0)),
    ],
)
def test_errors_name_the_line_in_later_blocks(tmp_path, monkeypatch, lines, message):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    path = tmp_path / "t.csv"
    content = b"a,b\n" + b"\n".join(lines) + b"\n"
    assert message.replace("PATH", str(path)) in str(look(path, content))


def test_many_threads_can_read_long_cells(tmp_path):
    cell = "x" * 200_000  # longer than the default limit of Python's csv module
    paths = [tmp_path / f"{i}.csv" for i in range(32)]
    for path in paths:
        path.write_text(f"a,b\n1,{cell}\n2\n")
    with ThreadPoolExecutor(16) as pool:
        for path, found in zip(paths, pool.map(scan_file, paths), strict=True):
            assert str(found) == f"{path} {line_of(3)}"


CELL = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), columns=st.integers(1, 3), block_bytes=st.integers(80, 300))
def test_csv_round_trip(tmp_path_factory, data, columns, block_bytes):
    rows = data.draw(st.lists(st.lists(CELL, min_size=columns, max_size=columns), max_size=20))
    names = [f"column {i}" for i in range(columns)]
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL).writerows([names, *rows])
    path = tmp_path_factory.mktemp("csv") / "t.csv"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_BYTES", block_bytes)
        assert rows_of(path, text.getvalue().encode()) == (names, [tuple(row) for row in rows])


@pytest.mark.parametrize("content", [b"a,b\n1,2\n3,", b'a,b\n1,2\n3,"'], ids=["line", "cell"])
def test_a_row_beyond_the_limit_is_refused_without_reading_it(tmp_path, content):
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with path.open("r+b") as file:
        file.truncate(128 << 20)  # a sparse file: the zeros use no disk space
    tracemalloc.start()
    try:
        found = scan_file(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert str(found) == f"{path} {line_of(3)}"
    assert peak < 128 << 20
