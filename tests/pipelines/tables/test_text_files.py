"""Reading whole lines up to a maximum length."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import BadFileError
from tt.pipelines.tables import text_files
from tt.pipelines.tables.text_files import read_whole_lines

LIMIT = 5


@given(content=st.text("ab\n", max_size=40), size=st.integers(1, 12))
def test_read_whole_lines_stops_at_a_line_that_is_too_long(content, size):
    lengths = [len(line) for line in content.split("\n")]
    first_long = next((n for n, length in enumerate(lengths, start=1) if length > LIMIT), None)
    stream = io.BufferedReader(io.BytesIO(content.encode()))
    blocks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "MAX_LINE_BYTES", LIMIT)
        try:
            while block := read_whole_lines(
                stream, size=size, path="f", first_line=1 + b"".join(blocks).count(b"\n")
            ):
                blocks.append(block)
        except BadFileError as error:
            found = str(error)
        else:
            found = ""
    if first_long is None:
        assert not found
        assert b"".join(blocks).decode() == content
    else:
        assert found.startswith(f"f must have lines of at most 0 MB; line {first_long} is longer")
        before = sum(length + 1 for length in lengths[: first_long - 1])
        assert stream.tell() <= before + LIMIT + 1
    for block in blocks[:-1]:
        assert block.endswith(b"\n")
        assert len(block) >= min(size, LIMIT)
