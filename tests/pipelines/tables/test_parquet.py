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
from tt.pipelines.tables.forward import ForwardReader, read_rows
from tt.pipelines.tables.parquet import read_footer


def opened(path, *, end, most_rows):
    checksum = read_footer(str(path)).checksum
    return ForwardReader(str(path), footer_checksum=checksum, end=end, most_rows=most_rows)


def chunks(table):
    return [[len(chunk) for chunk in column.chunks] for column in table.columns]


def written(table):
    content = io.BytesIO()
    with parquet.table_writer(content, table.schema, compression="none") as write:
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
        table = table.append_column("kind", pa.array(texts).dictionary_encode())
    return table


@given(
    rows=st.integers(1, 120),
    row_group_size=st.integers(1, 130),
    unit_rows=st.integers(1, 60),
    has_dictionary=st.booleans(),
    use_dictionary=st.booleans(),
    data=st.data(),
)
def test_reading_forward_gives_the_same_chunks_as_reading_a_run_by_itself(
    tmp_path_factory, rows, row_group_size, unit_rows, has_dictionary, use_dictionary, data
):
    """The chunks matter because they determine the pages and dictionaries of the output file."""
    path = tmp_path_factory.mktemp("t") / "t.parquet"
    table = some_table(rows, has_dictionary=has_dictionary)
    pq.write_table(table, path, row_group_size=row_group_size, use_dictionary=use_dictionary)
    checksum = read_footer(str(path)).checksum
    first_rows = range(0, rows, unit_rows)
    first, last = sorted(data.draw(st.tuples(*[st.sampled_from(first_rows)] * 2)))
    units = [(first_row, min(unit_rows, rows - first_row)) for first_row in first_rows]
    run = [unit for unit in units if first <= unit[0] <= last]
    wanted = [unit for unit in run if data.draw(st.booleans())]  # the unfinished units of the run
    with opened(path, end=sum(run[-1]), most_rows=max(count for _, count in run)) as reader:
        for first_row, count in wanted:
            found = reader.read(first_row=first_row, rows=count)
            alone = read_rows(
                path=str(path), first_row=first_row, rows=count, footer_checksum=checksum
            )
            assert found.equals(alone)
            assert found.to_pylist() == table.slice(first_row, count).to_pylist()
            assert found.schema.equals(alone.schema, check_metadata=True)
            assert chunks(found) == chunks(alone)
            assert written(found) == written(alone)


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
