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
from table_scans import read_faults, read_runs, scan_file

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
    with OpenTable(str(path), schema=found.schema, has_checksum=True) as table:
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
        # Excel writes semicolons in countries with a decimal comma.
        (b'\xef\xbb\xbfa;b\r\n1,5;"x;\n""y"""\r\n', ["a", "b"], [("1,5", 'x;\n"y"')]),
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


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the first line of PATH must contain the column names, but it is empty"),
        (b"\na,b\n", "the first line of PATH must contain the column names, but it is empty"),
        (b"a,\xff\n1,2\n", "PATH must be UTF-8; line 1 is not"),
        ("a,b\n1,2\n".encode("utf-16-le"), "PATH must be UTF-8; it is UTF-16 or UTF-32"),
        (
            b"a|b\n1|2\n",
            "PATH must have commas between its columns, but its first line has only '|': 'a|b'",
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
def test_a_file_without_column_names_is_refused(tmp_path, content, message):
    path = tmp_path / "t.csv"
    assert str(look(path, content)) == message.replace("PATH", str(path))


ONE, THREE, OPEN = "1 cell instead of 2", "3 cells instead of 2", "a quotation mark is not closed"


@pytest.mark.parametrize("block_bytes", [40, 1000, 8 << 20])
@pytest.mark.parametrize(
    ("lines", "faults"),
    [
        (["1,2", "3"], [(1, 3, ONE)]),
        (["1,2", "3,4,5"], [(1, 3, THREE)]),
        (['"x', "", 'y",2', "", "3"], [(1, 6, ONE)]),
        (["1,2", '3,"x', "5,6"], [(1, 3, OPEN)]),
        (['"1', '",\udcff'], [(0, 2, "invalid UTF-8")]),
        (["1,2"] * 99 + ["1,2,3"] + ["1,2"] * 99, [(99, 101, THREE)]),
        (["1,2"] * 99 + ['1,"2'] + ["1,2"] * 99 + ['"3",4'], [(99, 101, OPEN)]),
        (["1,2", '1,"' + "x\n" * 1000 + '"', "1,2"], []),
        (["1,2", '1,"' + "\n" * 1001 + '"', "1,2"], [(1, 3, OPEN), (2, 1004, OPEN)]),
        (['"x"y,2', '1,"a', 'b"'], []),
        (['"x"y,"2', 'b"', "3,4"], [(0, 2, OPEN), (1, 3, ONE)]),
    ],
)
def test_only_bad_rows_are_faults(tmp_path, monkeypatch, block_bytes, lines, faults):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(delimited, "_SUSPECT_BYTES", block_bytes // 4)
    path = tmp_path / "t.csv"
    path.write_bytes("\n".join(["a,b", *lines, "5,6"]).encode(errors="surrogateescape"))
    assert read_faults(path)[0] == faults


def test_tsv_requires_tabs(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_bytes(b"a\tb\nx\n\ny\tz\n")
    assert read_faults(path) == ([(0, 2, "1 cell instead of 2")], 2)
    assert "must have tabs between its columns, but its first line has only ','" in str(
        look(path, b"a,b\nx,y\n")
    )


def test_many_threads_can_read_long_cells(tmp_path):
    cell = "x" * 200_000  # longer than the default limit of Python's csv module
    paths = [tmp_path / f"{i}.csv" for i in range(32)]
    for path in paths:
        path.write_text(f"a,b\n1,{cell}\n2\n")
    with ThreadPoolExecutor(16) as pool:
        assert [*pool.map(read_faults, paths)] == [([(1, 3, ONE)], 2)] * len(paths)


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
        patch.setattr(delimited, "_SUSPECT_BYTES", block_bytes // 3)
        assert rows_of(path, text.getvalue().encode()) == (names, [tuple(row) for row in rows])


@pytest.mark.parametrize("block_bytes", [41, 1000])
def test_a_quotation_mark_inside_a_cell_does_not_split_a_row(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
    monkeypatch.setattr(delimited, "_TAIL_BYTES", block_bytes // 2)
    rows = [('5" disk', "x"), ("a\nb", "y"), ("z", 'it"s')] * 900
    lines = [b'5" disk,x\n', b'"a\nb",y\n', b'z,it"s\n'] * 900
    assert rows_of(tmp_path / "t.csv", b"a,b\n" + b"".join(lines)) == (["a", "b"], rows)


def test_a_row_may_extend_over_two_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", 1000)
    rows = [("1", "x\n" * 450), ("2", "y" * 900), ("3", "z\n" * 450)] * 3
    content = b"".join(f'{a},"{b}"\n'.encode() for a, b in rows)
    assert rows_of(tmp_path / "t.csv", b"a,b\n" + content) == (["a", "b"], rows)


@pytest.mark.parametrize("line_end", [b"", b"\n5,6\n"])
@pytest.mark.parametrize("start", [b"3,", b'3,"'], ids=["line", "cell"])
def test_a_row_beyond_the_limit_is_bad_and_is_not_in_memory(tmp_path, monkeypatch, start, line_end):
    monkeypatch.setattr(delimited, "MAX_LINE_BYTES", 10 << 20)
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"a,b\n1,2\n" + start)
        file.seek(128 << 20)  # a sparse file: the zeros use no disk space
        file.write(b"x" + line_end)
    tracemalloc.start()
    try:
        found = read_faults(path)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == ([(1, 3, "longer than 64 MB")], 3 if line_end else 2)
    assert peak < 128 << 20


@pytest.mark.parametrize("block_bytes", [8, 1000])
@pytest.mark.parametrize("ending", ["csv", "tsv"])
def test_a_byte_order_mark_inside_a_file_remains(tmp_path, monkeypatch, block_bytes, ending):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
    mark = "," if ending == "csv" else "\t"
    content = f"a{mark}b\n1{mark}2\n\ufeffc{mark}d\n".encode()
    _, rows = rows_of(tmp_path / f"a.{ending}", content)
    assert rows == [("1", "2"), ("\ufeffc", "d")]


@pytest.mark.parametrize("block_bytes", [8, 1000])
def test_a_row_that_ends_at_a_return_does_not_hide_an_open_mark(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(delimited, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "a.csv"
    path.write_bytes(b'a,b\n1,2\r"\n"3,4\n5,6\n')
    [fault, *others], _ = read_faults(path)
    assert fault[-1] == "a quotation mark is not closed", others
