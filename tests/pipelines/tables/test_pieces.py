"""Limits of the readers, and tables that do not depend on how their rows were decoded."""

import io
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import BadFileError
from tt.pipelines.tables import text_files
from tt.pipelines.tables.parquet import ForwardReader, read_footer, read_rows
from tt.pipelines.tables.pieces import row_bytes

LIMIT = 5


def test_bytes_of_maps_are_those_of_their_keys_and_values():
    maps = [None, [("key", {"a": "text", "b": 1})], []]
    kind = pa.map_(pa.string(), pa.struct({"a": pa.string(), "b": pa.int64()}))
    assert row_bytes(pa.array(maps, kind)).tolist() == [0, len("keytext") + 8, 0]


def test_rows_of_two_batches_are_in_one_chunk(tmp_path):
    path = str(tmp_path / "t.parquet")
    pq.write_table(pa.table({"text": list("abcdefghij")}), path, row_group_size=5)
    checksum = read_footer(path).checksum
    found = read_rows(path=path, first_row=3, rows=4, footer_checksum=checksum).column("text")
    assert (found.to_pylist(), found.num_chunks) == (list("defg"), 1)


def test_fields_of_structs_are_read_by_dotted_names(tmp_path):
    texts = [{"en": "a", "de": "x", "id": 1}, None]
    table = pa.table({"u": ["p", "q"], "t": pa.array(texts), "t.en": ["b", "c"]})
    pq.write_table(table, tmp_path / "t.parquet")
    for names, expected in [
        (["u", "t.de"], {"u": ["p", "q"], "t": [{"de": "x"}, None]}),
        (["t"], {"t": texts}),
        (["t.en"], {"t": [{"en": "a"}, None], "t.en": ["b", "c"]}),
        ([], {}),
    ]:
        found = read_rows(
            path=str(tmp_path / "t.parquet"),
            first_row=0,
            rows=2,
            choose_columns=lambda schema, names=names: names,
        )
        assert found.to_pydict() == expected


def test_rows_before_and_after_damage_are_read(tmp_path):
    """Rows 40 to 49 are damaged. The read of rows 30 to 39 decodes them, too, and reads again."""
    path = tmp_path / "t.parquet"
    texts = [f"text {number:03d}" for number in range(90)]
    kinds = pa.array(["a", "b", "c"] * 30).dictionary_encode()
    pq.write_table(
        pa.table({"text": texts, "kind": kinds}), path, row_group_size=30,
        write_batch_size=10, data_page_size=1,
        use_dictionary=["kind"], compression="none", write_page_checksum=True,
    )  # fmt: skip
    path.write_bytes(path.read_bytes().replace(b"text 045", b"text xxx", 1))
    found, errors = [], []
    with ForwardReader(path=str(path), end=90) as reader:
        for first, rows in [(0, 30), (30, 10), (40, 10), (50, 10), (60, 30)]:
            try:
                [table] = reader.pieces(first_row=first, rows=rows, most_bytes=1 << 20)
                found += table["text"].to_pylist()
            except BadFileError as error:
                errors.append(re.search(r"rows .* to .*, counted", str(error))[0])
    assert found == texts[:40] + texts[60:]
    assert errors == ["rows 40 to 49, counted", "rows 50 to 59, counted"]


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
