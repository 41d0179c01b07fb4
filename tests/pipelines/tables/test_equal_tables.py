"""A table is the same in every format that can hold it, however its file is written."""

import bz2
import csv
import gzip
import io
import json
import string

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tt.pipelines.tables import delimited, jsonl
from tt.pipelines.tables.faults import split_faults
from tt.pipelines.tables.parquet import read_rows
from tt.pipelines.tables.reading import OpenTable, scan_file
from tt.pipelines.tables.writing import TableWriter

COMPRESS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": lambda content: pa.compress(content, "zstd", asbytes=True),
}


def read_table(path):
    """Return the rows of a file, and the reasons of the faults by row."""
    contents = scan_file(str(path))
    if contents.has_random_access:
        rows = read_rows(
            path=str(path),
            first_row=0,
            rows=contents.rows,
            footer_checksum=contents.checksum,
        )
        return rows, {}
    batches, reasons, rows = [], {}, 0
    with OpenTable(str(path), schema=contents.schema) as table:
        for batch in table.batches():
            kept, faults = split_faults(batch)
            batches.append(kept)
            reasons |= {rows + row: fault.reason for row, fault in faults.items()}
            rows += batch.num_rows
    return pa.Table.from_batches(batches, schema=contents.schema), reasons


# Tables of all types, in Parquet, Arrow and Feather.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
TYPES = {
    pa.int8(): st.integers(-128, 127),
    pa.uint64(): st.integers(0, 2**64 - 1),
    pa.float32(): st.floats(width=32, allow_nan=False),
    pa.bool_(): st.booleans(),
    pa.string(): TEXT,
    pa.large_string(): TEXT,
    pa.binary(): st.binary(max_size=4),
    pa.date32(): st.dates(),
    pa.timestamp("us", "UTC"): st.integers(0, 2**50),
    pa.decimal128(9, 2): st.decimals(-9999, 9999, places=2),
    pa.null(): st.none(),
}


def types():
    return st.recursive(
        st.sampled_from(list(TYPES)),
        lambda inner: (
            inner.map(lambda kind: pa.list_(pa.field("element", kind)))
            | st.lists(inner, min_size=1, max_size=2).map(
                lambda kinds: pa.struct([(f"f{i}", kind) for i, kind in enumerate(kinds)])
            )
        ),
        max_leaves=3,
    )


def values_of(kind):
    if pa.types.is_list(kind):
        values = st.lists(values_of(kind.value_type), max_size=3)
    elif pa.types.is_struct(kind):
        values = st.fixed_dictionaries({field.name: values_of(field.type) for field in kind})
    else:
        values = TYPES[kind]
    return st.none() | values


@st.composite
def tables(draw):
    """Draw a table, whose names may differ only in case or in their Unicode form."""
    name = st.text(string.ascii_letters + "é\u0301 .=", min_size=1, max_size=4)
    names = draw(st.lists(name, min_size=1, max_size=4, unique=True))
    rows = draw(st.integers(0, 6))
    columns = []
    for _ in names:
        kind = draw(types())
        cells = st.lists(values_of(kind), min_size=rows, max_size=rows)
        columns.append(pa.array(draw(cells), kind))
    return pa.table(columns, names=names)


@settings(max_examples=60, deadline=None)
@given(table=tables(), rows=st.integers(1, 4))
def test_binary_formats_keep_a_table(tmp_path_factory, table, rows):
    folder = tmp_path_factory.mktemp("tables")
    pq.write_table(table, folder / "a.PARQUET", row_group_size=rows)
    feather.write_feather(table, folder / "a.feather", chunksize=rows)
    for name, new in (("a.arrow", pa.ipc.new_file), ("b.ipc", pa.ipc.new_stream)):
        with new(folder / name, table.schema) as writer:
            writer.write_table(table, max_chunksize=rows)
    for path in folder.iterdir():
        found, faults = read_table(path)
        assert not faults
        assert found.equals(table), path


def test_a_table_may_have_thousands_of_columns(tmp_path):
    row = {f"column {i}": str(i) for i in range(3000)}
    table = pa.Table.from_pylist([row, row])
    pq.write_table(table, tmp_path / "a.parquet")
    content = io.StringIO()
    csv.writer(content).writerows([row, row.values(), row.values()])
    (tmp_path / "a.csv").write_text(content.getvalue(), "utf-8")
    (tmp_path / "a.json").write_text(json.dumps([row, row]), "utf-8")
    for path in tmp_path.iterdir():
        assert read_table(path)[0].equals(table), path


# Tables of strings, in all formats.

CELL = st.text(
    st.sampled_from("ab\"'\\,;\t\n\r é\U0001f600\u2028\ufeff\x00")
    | st.characters(exclude_categories=["Cs"]),
    max_size=6,
)
LINE_ENDS = st.sampled_from(["\n", "\r\n"])


@st.composite
def string_tables(draw):
    names = [f"n{i}" for i in range(draw(st.integers(2, 3)))]
    row = st.lists(CELL, min_size=len(names), max_size=len(names))
    return names, draw(st.lists(row, min_size=1, max_size=8))


def csv_of(names, rows, *, line_end="\n", delimiter=","):
    text = io.StringIO()
    csv.writer(text, lineterminator=line_end, quoting=csv.QUOTE_ALL, delimiter=delimiter).writerows(
        [names, *rows]
    )
    return text.getvalue()


@settings(max_examples=80, deadline=None)
@given(
    table=string_tables(),
    line_end=LINE_ENDS,
    compression=st.sampled_from(list(COMPRESS)),
    has_bom=st.booleans(),
    has_end=st.booleans(),
    block_bytes=st.sampled_from([40, 300, 8 << 20]),
)
def test_the_form_of_a_text_file_does_not_change_its_table(
    tmp_path_factory, table, line_end, compression, has_bom, has_end, block_bytes
):
    names, rows = table
    folder = tmp_path_factory.mktemp("texts")
    objects = [dict(zip(names, row, strict=True)) for row in rows]
    contents = {
        "a.csv": csv_of(names, rows, line_end=line_end),
        "b.csv": csv_of(names, rows, line_end=line_end, delimiter=";"),
        "a.jsonl": "".join(json.dumps(each) + line_end for each in objects),
        "b.ndjson": "".join(json.dumps(each, ensure_ascii=False) + line_end for each in objects),
    }
    for name, text in contents.items():
        whole = ("\ufeff" * has_bom) + (text if has_end else text.removesuffix(line_end))
        (folder / f"{name}{compression}").write_bytes(COMPRESS[compression](whole.encode()))
    array = json.dumps(objects, indent=1 if has_end else None, ensure_ascii=has_bom)
    (folder / f"a.json{compression}").write_bytes(COMPRESS[compression](array.encode()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_BYTES", block_bytes)
        patch.setattr(jsonl, "BLOCK_BYTES", block_bytes)
        for path in folder.iterdir():
            if path.name.startswith("b.csv"):  # the first block must contain whole rows
                patch.setattr(delimited, "BLOCK_BYTES", 8 << 20)
            found, faults = read_table(path)
            assert not faults, path
            assert (found.column_names, found.to_pylist()) == (names, objects), path
            patch.setattr(delimited, "BLOCK_BYTES", block_bytes)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.text("ab\t ,é\r", max_size=5), min_size=1, max_size=8), at=st.integers(0, 8)
)
def test_splitting_a_file_changes_nothing(tmp_path_factory, texts, at):
    texts = [text.rstrip("\r") for text in texts]
    folder = tmp_path_factory.mktemp("split")
    cells = [text.replace("\t", " ").replace("\r", " ") for text in texts]
    forms = {
        "txt": ("", texts, "text"),
        "tsv": ("id\ttext\n", [f"1\t{cell}" for cell in cells], "text"),
        "jsonl": ("", [json.dumps({"text": text}) for text in texts], "text"),
    }
    for ending, (header, lines, column) in forms.items():
        expected = cells if ending == "tsv" else texts
        found = []
        for index, part in enumerate((lines[:at], lines[at:])):
            if part:
                path = folder / f"{index}.{ending}"
                path.write_text(header + "".join(f"{line}\n" for line in part), "utf-8", newline="")
                found += read_table(path)[0][column].to_pylist()
        assert found == expected, ending


RAGGED = st.text('ab,"\n', max_size=12)


@settings(max_examples=150, deadline=None)
@given(
    lines=st.lists(RAGGED, max_size=12),
    before=st.lists(RAGGED, max_size=3),
    block_bytes=st.sampled_from([20, 60, 200]),
)
def test_bad_rows_do_not_depend_on_blocks(tmp_path_factory, lines, before, block_bytes):
    path = tmp_path_factory.mktemp("bad") / "a.csv"
    path.write_text("\n".join(["x,y", "1,2", *before, *lines, "3,4"]), "utf-8")
    whole = read_table(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(delimited, "BLOCK_BYTES", block_bytes)
        patch.setattr(delimited, "_TAIL_BYTES", block_bytes)
        found = read_table(path)
    assert found[1] == whole[1]
    assert found[0].to_pylist() == whole[0].to_pylist()


@settings(max_examples=60, deadline=None)
@given(table=string_tables(), file_format=st.sampled_from(["parquet", "csv", "jsonl"]))
def test_written_tables_can_be_read(tmp_path_factory, table, file_format):
    names, rows = table
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=names)
    path = tmp_path_factory.mktemp("written") / f"a.{file_format}"
    compression = "zstd" if file_format == "parquet" else "none"
    writer = TableWriter(
        file_format=file_format, compression=compression, temporary_folder=str(path.parent)
    )
    writer.write([table], str(path))
    found, faults = read_table(path)
    assert not faults
    assert found.to_pylist() == table.to_pylist()
