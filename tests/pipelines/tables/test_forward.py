"""Limits of the readers, and tables that do not depend on how their rows were decoded."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.tables import text_files
from tt.pipelines.tables.forward import ForwardReader, row_bytes
from tt.pipelines.tables.parquet import read_footer

LIMIT = 5


def test_bytes_of_maps_are_those_of_their_keys_and_values():
    maps = [None, [("key", {"a": "text", "b": 1})], []]
    kind = pa.map_(pa.string(), pa.struct({"a": pa.string(), "b": pa.int64()}))
    assert row_bytes(pa.array(maps, kind)).tolist() == [0, len("keytext") + 8, 0]


def test_rows_of_two_batches_are_in_one_chunk(tmp_path):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"text": list("abcdefghij")}), path, row_group_size=5)
    checksum = read_footer(path).checksum
    with ForwardReader(path, footer_checksum=checksum, end=10, most_rows=4) as reader:
        found = reader.read(first_row=3, rows=4).column("text")
    assert (found.to_pylist(), found.num_chunks) == (list("defg"), 1)


@given(content=st.text("ab\n", max_size=40), size=st.integers(1, 12))
def test_lines_that_are_too_long_are_cut_off_behind_the_limit(content, size):
    stream = io.BufferedReader(io.BytesIO(content.encode()))
    blocks = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(text_files, "MAX_LINE_BYTES", LIMIT)
        while block := text_files.read_whole_lines(stream, size=size):
            blocks.append(block)
    found, lines = b"".join(blocks).decode(), content.split("\n")
    if len(lines[-1]) > LIMIT:
        found = found.removesuffix("\n")
    for line, read in zip(lines, found.split("\n"), strict=True):
        assert read == line if len(line) <= LIMIT else line.startswith(read)
        assert (len(read) > LIMIT) == (len(line) > LIMIT)
    for block in blocks[:-1]:
        assert block.endswith(b"\n")
        assert len(block) >= min(size, LIMIT)
