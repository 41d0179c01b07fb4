"""Reading runs of rows of a Parquet file from front to back."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from damage import damage
from hypothesis import given
from hypothesis import strategies as st

from tt.model.errors import BadFileError, UserError
from tt.pipelines.tables import parquet
from tt.pipelines.tables.forward import ForwardReader
from tt.pipelines.tables.parquet import read_footer


def opened(path, *, end, most_rows):
    checksum = read_footer(str(path)).checksum
    return ForwardReader(str(path), footer_checksum=checksum, end=end, most_rows=most_rows)


def written(*tables):
    content = io.BytesIO()
    with parquet.table_writer(content, tables[0].schema, compression="none") as write:
        for table in tables:
            write(table)
    return content.getvalue()


def some_table(rows, *, has_dictionary):
    texts = [None if i % 7 == 3 else f"row {i % 11}" * (i % 3) for i in range(rows)]
    table = pa.table(
        {
            "id": pa.array(range(rows)),
            "text": pa.array(texts),
            "words": pa.array([[text, "x"] if text else None for text in texts]),
            "pair": pa.array([{"a": text, "b": i} for i, text in enumerate(texts)]),
        }
    )
    if has_dictionary:
        kind = pa.array(texts).dictionary_encode()
        table = table.append_column("kind", kind)
        small = kind.cast(pa.dictionary(pa.int8(), pa.string()))
        table = table.append_column("nested", pa.ListArray.from_arrays(range(rows + 1), small))
    return table


@given(
    rows=st.integers(1, 120),
    row_group_size=st.integers(1, 130),
    unit_rows=st.integers(1, 60),
    has_dictionary=st.booleans(),
    use_dictionary=st.booleans(),
    most_bytes=st.sampled_from([1 << 62, 200, 40]),
    data=st.data(),
)
def test_equal_rows_give_equal_bytes_at_any_start_of_a_reader(
    tmp_path_factory,
    rows,
    row_group_size,
    unit_rows,
    has_dictionary,
    use_dictionary,
    most_bytes,
    data,
):
    """A second attempt at a unit reads its rows first; other readers also have other batches."""
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    table = some_table(rows, has_dictionary=has_dictionary)
    pq.write_table(table, path, row_group_size=row_group_size, use_dictionary=use_dictionary)
    first_rows = range(0, rows, unit_rows)
    first, last = sorted(data.draw(st.tuples(*[st.sampled_from(first_rows)] * 2)))
    units = [(first_row, min(unit_rows, rows - first_row)) for first_row in first_rows]
    run = [unit for unit in units if first <= unit[0] <= last]
    wanted = [unit for unit in run if data.draw(st.booleans())]  # the unfinished units of the run
    of_run = {"end": sum(run[-1]), "most_rows": max(count for _, count in run)}
    with opened(path, **of_run) as reader:
        for first_row, count in wanted:
            unit = {"first_row": first_row, "rows": count, "most_bytes": most_bytes}
            found = list(reader.pieces(**unit))
            assert all(piece.schema.equals(table.schema) for piece in found)
            assert pa.concat_tables(found).to_pylist() == table.slice(first_row, count).to_pylist()
            others = [of_run]
            if not has_dictionary:
                others.append({"end": first_row + count, "most_rows": data.draw(st.integers(1, 9))})
            for other in others:
                with opened(path, **other) as second:
                    again = list(second.pieces(**unit))
                assert [each.num_rows for each in again] == [each.num_rows for each in found]
                assert written(*again) == written(*found)


def test_no_row_is_decoded_twice_or_needlessly(tmp_path, monkeypatch):
    path = tmp_path / "t.parquet"
    pq.write_table(some_table(100, has_dictionary=False), path, row_group_size=50)
    begun, iter_batches = [], pq.ParquetFile.iter_batches
    decoded = []

    def counted(self, **options):
        begun.append(list(options["row_groups"]))
        for batch in iter_batches(self, **options):
            decoded.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", counted)
    with opened(path, end=80, most_rows=10) as reader:
        for first_row in range(0, 80, 10):
            reader.read(first_row=first_row, rows=10)
    assert (begun, sum(decoded)) == ([[0, 1]], 80)
    begun.clear()
    decoded.clear()
    with opened(path, end=80, most_rows=10) as reader:  # skips the rest of the first row group
        reader.read(first_row=0, rows=10)
        reader.read(first_row=60, rows=10)
    assert (begun, sum(decoded)) == ([[0, 1], [1]], 10 + 20)


def test_damage_does_not_affect_rows_that_are_readable_by_themselves(tmp_path):
    path = tmp_path / "t.parquet"
    table = pa.table({"text": [f"row {i:03d}" for i in range(40)]})
    options = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    pq.write_table(table, path, row_group_size=10, **options)
    damage(path, row=12)
    with opened(path, end=40, most_rows=5) as reader:
        for first_row in range(0, 40, 5):
            if first_row in (10, 15):
                message = rf"cannot be read \(rows {first_row} to {first_row + 4}, counted from 0\)"
                with pytest.raises(BadFileError, match=message):
                    reader.read(first_row=first_row, rows=5)
            else:
                found = reader.read(first_row=first_row, rows=5)
                assert found.equals(table.slice(first_row, 5))


def test_empty_files_are_read_and_changed_files_are_refused(tmp_path):
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"text": pa.array([], pa.string())}), path)
    with opened(path, end=0, most_rows=0) as reader:
        assert reader.read(first_row=0, rows=0).num_rows == 0
    with opened(path, end=1, most_rows=1) as reader:
        pq.write_table(pa.table({"text": ["new"]}), path)
        with pytest.raises(UserError, match="has changed since the job was planned"):
            reader.read(first_row=0, rows=1)
