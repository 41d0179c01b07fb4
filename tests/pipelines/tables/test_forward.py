"""Limits of the readers, and tables that do not depend on how their rows were decoded."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tt.model.errors import BadFileError
from tt.pipelines.tables import text_files
from tt.pipelines.tables.forward import ForwardReader, row_bytes
from tt.pipelines.tables.parquet import read_footer


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


def test_at_most_one_byte_beyond_the_limit_of_a_line_is_read(monkeypatch):
    monkeypatch.setattr(text_files, "MAX_LINE_BYTES", 5)
    stream = io.BufferedReader(io.BytesIO(b"ab\n" + b"x" * 20))
    with pytest.raises(BadFileError, match="line 2 is longer"):
        text_files.read_whole_lines(stream, size=5, path="f", first_line=1)
    assert stream.tell() == len("ab\n") + 5 + 1
