"""Computing the memory of rows, and cutting tables into pieces of limited memory."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tt.pipelines.tables.forward import cut_by_bytes, row_bytes

TEXTS = st.lists(st.none() | st.text(max_size=9), max_size=30)


def bytes_of(value):
    """Return the bytes of the texts in a Python value, plus 8 for each number."""
    if isinstance(value, str):
        return len(value.encode())
    if isinstance(value, list):
        return sum(map(bytes_of, value))
    if isinstance(value, dict):
        return sum(map(bytes_of, value.values()))
    return 8 if isinstance(value, int) else 0


@given(texts=TEXTS, first=st.integers(0, 5))
def test_row_bytes_is_the_sum_of_the_values(texts, first):
    lists = [None if text is None else [text, "x" * index] for index, text in enumerate(texts)]
    arrays = [
        pa.array(texts, pa.string()),
        pa.array(texts, pa.large_string()),
        pa.array(texts, pa.string_view()),
        pa.array(texts, pa.string()).dictionary_encode(),
        pa.array(lists, pa.list_(pa.string())),
        pa.array(
            [{"a": text, "b": 1} for text in texts], pa.struct({"a": pa.string(), "b": "int64"})
        ),
        pa.array(range(len(texts)), pa.int64()),
        pa.array(
            [None if text is None else [text, "x"] for text in texts], pa.list_(pa.string(), 2)
        ),
    ]
    maps = [None if text is None else [(str(at), text)] for at, text in enumerate(texts)]
    array = pa.array(maps, pa.map_(pa.string(), pa.string())).slice(first)
    assert row_bytes(array).tolist() == [
        sum(len(key) + bytes_of(value) for key, value in row or ()) for row in array.to_pylist()
    ]
    for array in arrays:
        array = array.slice(first)
        assert row_bytes(array).tolist() == [bytes_of(value) for value in array.to_pylist()]


@given(texts=TEXTS, most_bytes=st.integers(1, 40), cuts=st.lists(st.integers(1, 6)), data=st.data())
def test_pieces_have_limited_bytes_and_do_not_depend_on_batches(texts, most_bytes, cuts, data):
    array = pa.array(texts, pa.string())
    if data.draw(st.booleans()):
        array = array.dictionary_encode()
    whole = pa.record_batch({"text": array})
    batches, first = [], 0
    for size in cuts:
        batches.append(whole.slice(first, size))
        first += size
    batches.append(whole.slice(first))
    found = [
        pa.Table.from_batches(piece, schema=whole.schema)
        for piece in cut_by_bytes(batches, most_bytes=most_bytes)
    ]
    assert pa.concat_tables(found).to_pylist() == whole.to_pylist()
    sizes = [sum(map(bytes_of, table["text"].to_pylist())) for table in found]
    for table, size in zip(found, sizes, strict=True):
        assert size <= most_bytes or table.num_rows == 1
    for size, table in zip(sizes, found[1:], strict=False):
        assert size + bytes_of(table["text"][0].as_py()) > most_bytes, "another row would fit"
    alone = cut_by_bytes([whole], most_bytes=most_bytes)
    assert [sum(map(len, piece)) for piece in alone] == [table.num_rows for table in found]
