"""Ranges of lines cover a text file, and keep its lines whole."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.tables import ranges
from tt.pipelines.tables.ranges import align_ranges, find_ranges

TEXTS = st.text("ab\n", max_size=60)


def lines_of(text):
    return io.BytesIO(text.encode()).readlines()


def write(folder, text):
    path = folder / "lines"
    path.write_text(text, newline="")
    return str(path)


def cut(text, found):
    return [text.encode()[each.begin : each.end] for each in found]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


@given(text=TEXTS, rows=st.integers(1, 7), size=st.integers(1, 12), block=st.integers(1, 30))
def test_ranges_have_as_many_whole_lines_as_the_limits_allow(folder, text, rows, size, block):
    path, lines = write(folder, text), lines_of(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK_BYTES", block)
        found = find_ranges(path, size=len(text), most_rows=rows, most_bytes=size)
    pieces = cut(text, found)
    assert b"".join(pieces) == text.encode()
    assert [lines_of(piece.decode()) for piece in pieces] == [
        lines[sum(each.rows for each in found[:i]) :][: found[i].rows] for i in range(len(found))
    ]
    for i, each in enumerate(found):
        assert each.rows <= rows
        assert each.end - each.begin <= size or each.rows == 1
        if each.rows < rows and i + 1 < len(found):
            following = lines[sum(range_.rows for range_ in found[: i + 1])]
            assert each.end - each.begin + len(following) > size, "another line has no room"


@given(text=TEXTS, other=TEXTS, rows=st.integers(1, 7), block=st.integers(1, 30))
def test_aligned_ranges_have_the_same_rows_unless_a_file_has_more_lines(
    folder, text, other, rows, block
):
    path, size = write(folder, text), len(text)
    found = find_ranges(path, size=size, most_rows=rows, most_bytes=1000)
    path = write(folder, other)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranges, "_BLOCK_BYTES", block)
        aligned = align_ranges(path, found, size=len(other))
    assert b"".join(cut(other, aligned)) == other.encode()
    counts = [[each.rows for each in some] for some in (found, aligned)]
    assert sum(counts[1]) == len(lines_of(other))
    assert (counts[0] == counts[1]) == (len(lines_of(text)) == len(lines_of(other)))
