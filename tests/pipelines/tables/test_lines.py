r"""Lines and their cells are the same in blocks of any size, and as a plain split finds them."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import UserError
from tt.pipelines.tables import lines
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.interface import ReadRequest
from tt.pipelines.tables.lines import AlignedRows, CellRows, TextRows

PARTS = [b"a", b"\t", b"\n", b"\r", b"\r\n", b"\x01", "ä".encode(), b"\xff", b'"', b",", b" "]
BOM = "\ufeff".encode()
contents = st.lists(st.sampled_from(PARTS), max_size=30).map(b"".join)


def split_lines(content):
    """Return the lines of a file; a missing last line end and CRLF change nothing."""
    found = content.split(b"\n")
    return [line.removesuffix(b"\r") for line in (found if found[-1] else found[:-1])]


def is_utf8(text):
    return text.decode(errors="replace").encode() == text


def replaced(*texts):
    return tuple(text.decode(errors="replace") for text in texts)


def open_stream(content):
    return io.BufferedReader(io.BytesIO(content))


def read(rows, *, block_bytes):
    """Return the cells of each row, or the fault of a bad row."""
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        for batch in rows:
            kept, faults = split_faults(batch)
            cells = [tuple(row.values()) for row in kept.to_pylist()]
            found += [
                (cell, faults[row]) if row in faults else cell for row, cell in enumerate(cells)
            ]
    return found


@given(content=contents, block_bytes=st.integers(1, 40))
def test_texts_are_whole_lines(content, block_bytes):
    rows = read(TextRows(open_stream(content), ReadRequest(path="a.txt")), block_bytes=block_bytes)
    assert rows == [
        (line.decode(),) if is_utf8(line) else ((None,), (number, "invalid UTF-8", line))
        for number, line in enumerate(split_lines(content), 1)
    ]


@given(content=contents, block_bytes=st.integers(1, 40))
def test_cells_are_the_parts_of_lines(content, block_bytes):
    rows = CellRows(open_stream(content), ReadRequest(path="a.tsv", columns=[2, 0]))
    expected = []
    for number, line in enumerate(split_lines(content), 1):
        cells = line.split(b"\t")
        if len(cells) < 3:
            some = "1 cell" if len(cells) == 1 else "2 cells"
            fault = number, f"{some} instead of at least 3", line
            expected.append(((None, None), fault))
            continue
        pair = replaced(cells[2], cells[0])
        is_good = is_utf8(cells[2]) and is_utf8(cells[0])
        expected.append(pair if is_good else (pair, (number, "invalid UTF-8", line)))
    assert read(rows, block_bytes=block_bytes) == expected


@pytest.mark.parametrize("block_bytes", [1, 1000])
@pytest.mark.parametrize(
    ("content", "second"),
    [
        (b"a\tb\tx\n\nc\td\tx\n", ((None, None), (2, "1 cell instead of at least 2", b""))),
        (b"a\tb\tx\n" + BOM + b"c\td\n", ("\ufeffc", "d")),
        (b"a\tb\tx\n1\t2\t\xff\nx\n", ("1", "2")),
        (b"a\tb\tx\n1\t2\t\xff\n1\t2\t\n", ("1", "2")),
    ],
)
def test_a_row_does_not_depend_on_the_other_lines_of_its_block(content, second, block_bytes):
    rows = CellRows(open_stream(content), ReadRequest(path="a.tsv", columns=[0, 1]))
    assert read(rows, block_bytes=block_bytes)[:2] == [("a", "b"), second]


@given(sides=st.tuples(contents, contents), block_bytes=st.integers(1, 40))
def test_lines_of_two_files_belong_together(sides, block_bytes):
    texts = [iter(TextRows(open_stream(side), ReadRequest(path="a.txt"))) for side in sides]
    rows = AlignedRows(texts, paths=["a.en", "a.de"])
    split = [split_lines(side) for side in sides]
    if len(split[0]) != len(split[1]):
        counts = f"a.en has {len(split[0])} lines, but a.de has {len(split[1])}"
        with pytest.raises(UserError, match=counts):
            read(rows, block_bytes=block_bytes)
        return
    expected = []
    for number, pair in enumerate(zip(*split, strict=True), 1):
        bad = next((text for text in pair if not is_utf8(text)), None)
        texts = replaced(*pair)
        expected.append(texts if bad is None else (texts, (number, "invalid UTF-8", bad)))
    assert read(rows, block_bytes=block_bytes) == expected
