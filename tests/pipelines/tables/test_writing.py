"""The bytes of tables that are written, and random tables that other programs read."""

from __future__ import annotations

import datetime as dt
import decimal
import gzip
import hashlib
import io
import itertools
import json

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from memory_store import MemoryStore

from tt.pipelines.tables import writing
from tt.pipelines.tables.formats import output_suffix
from tt.pipelines.tables.parquet import schema_as_read
from tt.pipelines.tables.writing import TableWriter, file_state

NAMES = (
    "a", "A", "é", "e\u0301", "É", "ß", "ẞ", "ss", "İ", "i", "ı", "a.b", "a b", "", "_", 'x"y',
    "x,y", "\u202e", "名",
)  # fmt: skip
FORMATS = (
    ("parquet", "zstd"), ("parquet", "none"), ("csv", "none"), ("csv", "gzip"),
    ("jsonl", "none"), ("jsonl", "zstd"),
)  # fmt: skip

texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
floats = st.floats(allow_nan=False, allow_infinity=False, width=32)
days = st.dates(dt.date(1970, 1, 1), dt.date(2200, 1, 1))
times = st.datetimes(dt.datetime(1970, 1, 1), dt.datetime(2200, 1, 1))
seconds = times.map(lambda time: time.replace(microsecond=0))
clock = st.times().map(lambda time: time.replace(microsecond=0))

NUMBERS_AND_TEXTS = {
    pa.int8(): st.integers(-128, 127),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.uint16(): st.integers(0, 2**16 - 1),
    pa.float32(): floats,
    pa.float64(): floats,
    pa.bool_(): st.booleans(),
    pa.string(): texts,
    pa.large_string(): texts,
    pa.null(): st.none(),
}
WITH_TIMES = {
    **NUMBERS_AND_TEXTS,
    pa.date32(): days,
    pa.timestamp("us"): times,
    pa.decimal128(9, 2): st.integers(-(10**9) + 1, 10**9 - 1).map(
        lambda number: decimal.Decimal(number).scaleb(-2)
    ),
}
WITH_BYTES = {**WITH_TIMES, pa.binary(): st.binary(max_size=8)}
EVERY = {
    **WITH_BYTES,
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float16(): st.integers(-2048, 2048).map(float),
    pa.string_view(): texts,
    pa.large_binary(): st.binary(max_size=8),
    pa.binary_view(): st.binary(max_size=8),
    pa.binary(3): st.binary(min_size=3, max_size=3),
    pa.date64(): days,
    pa.time32("s"): clock,
    pa.time64("us"): st.times(),
    pa.timestamp("s"): seconds,
    pa.timestamp("ms", "UTC"): seconds.map(lambda time: time.replace(tzinfo=dt.UTC)),
    pa.timestamp("ns"): times.map(pd.Timestamp),
    pa.duration("ms"): st.integers(0, 10**9).map(lambda number: dt.timedelta(seconds=number)),
    pa.decimal256(50, 3): st.integers(-(10**40), 10**40).map(
        lambda number: decimal.Decimal(number).scaleb(-3, decimal.Context(60))
    ),
    pa.dictionary(pa.int32(), pa.string()): texts,
}

VIEWS = {pa.string_view(), pa.binary_view()}  # Arrow cannot write them inside other types
KINDS = {"parquet": EVERY, "csv": WITH_TIMES, "jsonl": NUMBERS_AND_TEXTS}
SHAPES = {
    "parquet": ("list", "large list", "struct", "map"),
    "csv": (),
    "jsonl": ("list", "large list", "struct"),
}


@st.composite
def types(draw, kinds, shapes, depth=2):
    """Draw a type, and a strategy for its values."""
    shape = draw(st.sampled_from(("", "", *shapes))) if depth else ""
    if not shape:
        kind = draw(st.sampled_from(sorted(kinds, key=str)))
        return kind, st.none() | kinds[kind]
    kinds = {kind: kinds[kind] for kind in kinds if kind not in VIEWS}
    kind, values = draw(types(kinds, shapes, depth - 1))
    if shape == "struct":
        other, others = draw(types(kinds, (), 0))
        kind = pa.struct([("x", kind), ("y", other)])
        return kind, st.none() | st.fixed_dictionaries({"x": values, "y": others})
    if shape == "map":
        pairs = st.dictionaries(texts, values, max_size=3).map(lambda each: list(each.items()))
        return pa.map_(pa.string(), kind), st.none() | pairs
    kind = pa.large_list(kind) if shape == "large list" else pa.list_(kind)
    return kind, st.none() | st.lists(values, max_size=3)


@st.composite
def tables(draw, kinds, shapes, *, most_rows=12):
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=5, unique=True))
    rows = draw(st.integers(0, most_rows))
    columns = {}
    for name in names:
        kind, values = draw(types(kinds, shapes))
        columns[name] = make_array(draw(st.lists(values, min_size=rows, max_size=rows)), kind)
    return pa.table(columns)


def make_array(cells, kind):
    if pa.types.is_dictionary(kind):
        return pa.array(cells, kind.value_type).dictionary_encode()
    return pa.array(cells, kind)


def write(parts, *, file_format="parquet", compression="zstd"):
    """Write tables to one file, check its recorded size and checksum, and return its bytes."""
    MemoryStore.clear()
    path = f"mem://b/a{output_suffix(file_format=file_format, compression=compression)}"
    writer = TableWriter(file_format=file_format, compression=compression, temporary_folder="")
    state = writer.write(parts, path)
    content = MemoryStore.read(path)
    assert state == file_state(path) == (len(content), hashlib.sha256(content).hexdigest())
    return content


def expanded(content, compression):
    if compression == "gzip":
        return gzip.decompress(content)
    if compression == "zstd":
        return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(content)).read()
    return content


def as_values(table):
    """Return the cells of each column in the form that all programs use."""
    return [[plain_value(cell) for cell in column.to_pylist()] for column in table.columns]


def plain_value(cell):
    if isinstance(cell, dict) and set(cell) == {"key", "value"}:
        return plain_value((cell["key"], cell["value"]))
    if isinstance(cell, dict):
        return [plain_value(value) for value in cell.values()]
    if isinstance(cell, list | tuple):
        return [plain_value(value) for value in cell]
    return cell


def read_with_duckdb(content, path):
    path.write_bytes(content)
    rows = duckdb.sql(f"select * from '{path}'").fetchall()
    return [list(map(plain_value, row)) for row in rows]


@pytest.mark.parametrize(("file_format", "compression"), FORMATS)
@given(data=st.data())
def test_any_division_of_the_rows_gives_equal_bytes(file_format, compression, data):
    table = data.draw(tables(KINDS[file_format], SHAPES[file_format], most_rows=40))
    ends = data.draw(st.lists(st.integers(0, table.num_rows), max_size=6).map(sorted))
    parts = [
        table.slice(begin, end - begin)
        for begin, end in itertools.pairwise([0, *ends, table.num_rows])
    ]
    group_bytes = data.draw(st.sampled_from((1, 30, 300, 1 << 26)))
    options = {"file_format": file_format, "compression": compression}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "_GROUP_BYTES", group_bytes)
        content = write(parts, **options)
        assert content == write([table], **options)
    if file_format == "parquet" and group_bytes == 1 << 26:
        assert pq.ParquetFile(io.BytesIO(content)).num_row_groups == 1


@given(table=tables(EVERY, SHAPES["parquet"]))
def test_pyarrow_reads_equal_parquet(table):
    found = pq.read_table(io.BytesIO(write([table])))
    assert found.schema.equals(schema_as_read(table.schema))
    assert as_values(found) == as_values(table)


@given(table=tables(WITH_BYTES, ("list", "struct")))
def test_pandas_polars_and_duckdb_read_equal_parquet(table, tmp_path_factory):
    content = write([table])
    frame = pd.read_parquet(io.BytesIO(content), dtype_backend="pyarrow")
    assert list(frame.columns) == table.column_names
    assert as_values(pa.Table.from_pandas(frame)) == as_values(table)
    polars_frame = pl.read_parquet(io.BytesIO(content))
    assert polars_frame.columns == table.column_names
    assert as_values(polars_frame.to_arrow()) == as_values(table)
    rows = read_with_duckdb(content, tmp_path_factory.getbasetemp() / "a.parquet")
    assert rows == [list(row) for row in zip(*as_values(table), strict=True)]


@pytest.mark.parametrize("compression", ["none", "gzip"])
@given(table=tables(WITH_TIMES, ()))
def test_programs_read_equal_csv(compression, table, tmp_path_factory):
    content = write([table], file_format="csv", compression=compression)
    content = expanded(content, compression)
    found = pa_csv.read_csv(
        io.BytesIO(content),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
        convert_options=pa_csv.ConvertOptions(
            column_types=table.schema, null_values=[""], strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )  # fmt: skip
    assert found.equals(table)
    frame = pd.read_csv(
        io.BytesIO(content), dtype=str, keep_default_na=False, skip_blank_lines=False
    )
    for index, (name, kind) in enumerate(zip(table.column_names, table.schema.types, strict=True)):
        if kind == pa.string():  # pandas does not distinguish null and ""
            expected = [cell or "" for cell in table[name].to_pylist()]
            assert frame.iloc[:, index].tolist() == expected


@pytest.mark.parametrize("compression", ["none", "zstd"])
@given(table=tables(NUMBERS_AND_TEXTS, SHAPES["jsonl"]))
def test_programs_read_equal_jsonl(compression, table, tmp_path_factory):
    content = write([table], file_format="jsonl", compression=compression)
    content = expanded(content, compression)
    assert [json.loads(line) for line in content.splitlines(keepends=True)] == table.to_pylist()
    path = tmp_path_factory.getbasetemp() / "a.jsonl"
    path.write_bytes(content)
    lines = duckdb.sql(f"select json from read_ndjson_objects('{path}')").fetchall()
    assert [json.loads(line) for (line,) in lines] == table.to_pylist()


@pytest.mark.parametrize("file_format", ["parquet", "csv", "jsonl"])
def test_many_columns(file_format):
    table = pa.table({f"column {number}": [number, None] for number in range(3000)})
    content = write([table], file_format=file_format, compression="none")
    read = {
        "parquet": pq.read_table,
        "csv": pa_csv.read_csv,
        "jsonl": lambda file: pa.Table.from_pylist([json.loads(line) for line in file]),
    }
    assert read[file_format](io.BytesIO(content)).equals(table)


def test_dictionaries_that_are_too_large_for_their_indices_are_kept(tmp_path):
    """The chunks have 100 values each, which a common dictionary with small indices cannot hold."""
    chunks = [
        pa.DictionaryArray.from_arrays(
            pa.array(range(100), pa.int8()), [f"{first + number}" for number in range(100)]
        )
        for first in (0, 100)
    ]
    table = pa.table({"a": pa.chunked_array(chunks)})
    assert read_with_duckdb(write([table]), tmp_path / "a.parquet") == [
        [str(number)] for number in range(200)
    ]


@pytest.mark.parametrize(("file_format", "compression"), FORMATS)
def test_an_error_while_writing_leaves_no_file(file_format, compression):
    table = pa.table({"a": [1]})

    def parts():
        yield table
        raise KeyError("the writer dies")

    options = {"file_format": file_format, "compression": compression}
    with pytest.raises(KeyError, match="the writer dies"):
        write(parts(), **options)
    assert not MemoryStore.paths()
