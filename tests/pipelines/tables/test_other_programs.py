"""Both jobs read the tables that other programs write, and other programs read those of a job.

Each program writes the same rows in each of its formats, with its defaults and with odd options.
"""

from __future__ import annotations

import datetime as dt
import decimal
import functools
import shutil

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import open_named
from deltalake import DeltaTable, convert_to_deltalake
from fakes import reverse
from lake_tables import LAKE, iceberg_catalog
from translation_jobs import outputs, read, read_all, translate
from unit_reading import read as read_units

from tt.pipelines.tables.formats import ReadOptions

SOURCES = [
    'say "so"',
    "two\nlines",
    'a;b,c\t"d"',
    "é 名 😀",
    "",
    "in\r\nhere",
    None,
    "NA",
    "null",
    "7",
]
TARGETS = ["x", None, "y\nz", "", 'q""q', ";", ",", "w", "next\u2028line\x85", "true"]
NUMBERS = list(range(len(SOURCES)))
PLAIN = pa.table({"source": SOURCES, "target": TARGETS, "n": NUMBERS})
WHEN = dt.datetime(2024, 2, 29, 12, 30, 1, 123456)
# Values that JSON keeps, and other values.
IN_JSON = {
    "kind": ["a", "b", None, "a", "b"] * 2,
    "tags": [["x", None], None, [], ["y"], ["a", "b"]] * 2,
    "deep": [[[1, 2], None], None, [], [[]], [[3]]] * 2,
    "info": [
        {"a": 1, "b": ["q"], "c": None}, None, {"a": None, "b": None, "c": None},
        {"a": 2, "b": [], "c": None}, {"a": 3, "b": [None], "c": None},
    ] * 2,
    "flag": [True, None] * 5,
    "ratio": [1.5, None] * 5,
}  # fmt: skip
OTHERS = {
    "when": [WHEN, None] * 5,
    "day": [WHEN.date(), None] * 5,
    "amount": [decimal.Decimal("1.25"), None] * 5,
    "took": [dt.timedelta(seconds=1, microseconds=5), None] * 5,
    "bytes": [b"\x00\xff", None] * 5,
}
TYPES = IN_JSON | OTHERS
ALL = pa.table({**PLAIN.to_pydict(), **TYPES})


# Programs that write the rows.

pandas_plain = pd.DataFrame(PLAIN.to_pydict())
pandas_types = pd.DataFrame(ALL.to_pydict()).astype(
    {"source": "category", "kind": "category", "when": "datetime64[ns]"}
)
polars_plain = pl.DataFrame(PLAIN.to_pydict())
polars_types = pl.DataFrame(ALL.to_pydict()).with_columns(
    pl.col("source").cast(pl.Categorical),
    pl.col("kind").cast(pl.Enum(["a", "b"])),
    pl.col("when").cast(pl.Datetime("ns")),
    pl.col("amount").cast(pl.Decimal(10, 2)),
)
pandas_json = pandas_types[[*PLAIN.column_names, *IN_JSON]]
polars_json = polars_types.select([*PLAIN.column_names, *IN_JSON])
DUCKDB_TYPES = """
    select * exclude (took) replace (kind::enum('a', 'b') as kind, amount::decimal(6, 2) as amount),
        timestamp_ns '2024-01-01 00:00:00.123456789' as ns, map {'k': n} as m, uuid() as id,
        1::hugeint as huge, interval 3 days as span, json('{"a": 1}') as j, time '12:00:00' as t,
        timestamptz '2024-01-01 00:00:00+00' as zoned, 3::uinteger as u, '101'::bit as bits
    from ALL_ROWS"""


def with_duckdb(query, options=""):
    """Return a function that writes the result of a query to a file."""

    def write(path):
        with duckdb.connect() as database:
            database.register("PLAIN", PLAIN).register("ALL_ROWS", ALL)
            database.sql(f"copy ({query}) to '{path}' {options}")

    return write


def of(method, **options):
    """Return a function that writes a frame to a file."""
    return functools.partial(method, **options)


def write_arrow(path, *, kind, **options):
    schema = pa.schema([("source", kind), ("target", pa.large_string()), ("n", pa.int64())])
    pq.write_table(PLAIN.cast(schema), path, **options)


to_csv = functools.partial(pandas_plain.to_csv, index=False)
to_json = functools.partial(pandas_plain.to_json, orient="records")
excel = {"lineterminator": "\r\n", "encoding": "utf-8-sig", "sep": ";", "quoting": 1}
WRITERS = {
    "pandas.parquet": pandas_plain.to_parquet,
    "pandas-types.parquet": of(pandas_types.to_parquet, compression="zstd", row_group_size=3),
    "pandas-old.parquet": of(
        pandas_plain.to_parquet, version="1.0", use_dictionary=False, data_page_version="2.0",
        compression="brotli", index=True,
    ),
    "pandas.csv": to_csv,
    "pandas-excel.csv": of(to_csv, **excel),
    "pandas-index.csv.gz": pandas_plain.to_csv,
    "pandas.csv.bz2": to_csv,
    "pandas.csv.zst": to_csv,
    "pandas.jsonl": of(to_json, lines=True),
    "pandas-utf8.ndjson": of(to_json, lines=True, force_ascii=False),
    "pandas.jsonl.gz": of(to_json, lines=True),
    "pandas.jsonl.bz2": of(to_json, lines=True),
    "pandas.jsonl.zst": of(to_json, lines=True),
    "pandas-json.jsonl": of(pandas_json.to_json, orient="records", lines=True),
    "pandas.json": to_json,
    "pandas-lines.json": of(to_json, indent=2, force_ascii=False),
    "pandas.feather": pandas_plain.to_feather,
    "pandas-types.feather": of(pandas_types.to_feather, compression="zstd", chunksize=3),
    "polars.parquet": polars_plain.write_parquet,
    "polars-types.parquet": of(polars_types.write_parquet, compression="lz4", row_group_size=3),
    "polars-arrow.parquet": of(polars_types.write_parquet, use_pyarrow=True, compression="gzip"),
    "polars-pages.parquet": of(
        polars_plain.write_parquet, data_page_size=10, compression="uncompressed", statistics="full"
    ),
    "polars.csv": polars_plain.write_csv,
    "polars-excel.csv": of(
        polars_plain.write_csv, separator=";", include_bom=True, line_terminator="\r\n",
        quote_style="always",
    ),
    "polars.csv.gz": of(polars_plain.write_csv, compression="gzip"),
    "polars.csv.zst": of(polars_plain.write_csv, compression="zstd"),
    "polars.ndjson": polars_plain.write_ndjson,
    "polars.ndjson.gz": of(polars_plain.write_ndjson, compression="gzip"),
    "polars.ndjson.zst": of(polars_plain.write_ndjson, compression="zstd"),
    "polars-json.ndjson": polars_json.write_ndjson,
    "polars.json": polars_plain.write_json,
    "polars.arrow": polars_plain.write_ipc,
    "polars-types.arrow": of(polars_types.write_ipc, compression="zstd"),
    "polars-types.feather": of(
        polars_types.write_ipc, compression="lz4", compat_level=pl.CompatLevel.oldest(),
        record_batch_size=3,
    ),
    "polars-types.ipc": of(polars_types.write_ipc_stream, compression="zstd"),
    "duckdb.parquet": with_duckdb("from PLAIN"),
    "duckdb-2.parquet": with_duckdb(
        "from PLAIN",
        "(format parquet, parquet_version v2, compression zstd, row_group_size 4)",
    ),
    "duckdb-types.parquet": with_duckdb(DUCKDB_TYPES, "(format parquet, compression lz4_raw)"),
    "duckdb.csv": with_duckdb("from PLAIN"),
    "duckdb-quoted.csv": with_duckdb("from PLAIN", "(format csv, delimiter ';', force_quote *)"),
    "duckdb.csv.gz": with_duckdb("from PLAIN", "(format csv)"),
    "duckdb.csv.zst": with_duckdb("from PLAIN", "(format csv)"),
    "duckdb.jsonl": with_duckdb("from PLAIN", "(format json)"),
    "duckdb.jsonl.gz": with_duckdb("from PLAIN", "(format json, compression gzip)"),
    "duckdb.jsonl.zst": with_duckdb("from PLAIN", "(format json, compression zstd)"),
    "duckdb.json": with_duckdb("from PLAIN", "(format json, array true)"),
    "duckdb-json.jsonl": with_duckdb(
        'select * exclude ("when", day, amount, took, bytes) from ALL_ROWS', "(format json)"
    ),
    "arrow-view.parquet": of(write_arrow, kind=pa.string_view(), row_group_size=4),
    "arrow-dictionary.parquet": of(write_arrow, kind=pa.dictionary(pa.int8(), pa.string())),
    "arrow-delta.parquet": of(
        write_arrow, kind=pa.string(), use_dictionary=False, compression="none",
        column_encoding={"source": "DELTA_BYTE_ARRAY", "target": "DELTA_LENGTH_BYTE_ARRAY"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    """Let each program write a file, and translate all files in one job."""
    folder = tmp_path_factory.mktemp("programs")
    for name, write in WRITERS.items():
        (folder / "in" / name).mkdir(parents=True)
        write(folder / "in" / name / name)
    options = {"text_columns": ("source",), "unit_rows": 6, "on_bad_file": "skip"}
    translate(f"{folder}/in/*/*", folder / "out", **options)
    return folder


@pytest.mark.parametrize("name", WRITERS)
def test_jobs_read_the_files_of_every_program(translated, tmp_path, name):
    has_null = ".csv" not in name
    sources, targets = (
        [text if has_null else text or "" for text in texts] for texts in (SOURCES, TARGETS)
    )
    found = read_all(translated / "out" / name)
    assert found["source"].to_pylist() == sources
    assert found["target"].to_pylist() == targets
    assert [int(number) for number in found["n"].to_pylist()] == NUMBERS
    assert "failed" not in found["translation_status"].to_pylist()
    types = {key: TYPES[key] for key in found.column_names if key in TYPES}
    assert bool(types) == ("-types" in name or "-json" in name or "-arrow" in name)
    assert found.select([*types]).to_pydict() == types
    [source] = open_named(corpora=[f"{translated}/in/{name}/{name}:source:target"])
    pairs = list(zip(sources, targets, [None] * len(sources), strict=True))
    assert read_units(source, tmp_path, max_pairs=4) == pairs
    is_cut = name.endswith((".csv", ".jsonl", ".ndjson"))
    ranges = source.find_ranges(max_pairs=3, max_bytes=60) if source.may_have_ranges() else []
    assert bool(ranges) == is_cut
    rows = [
        row for each in ranges for table in source.read_ranges(each) for row in table.to_pylist()
    ]
    assert [tuple(row.values()) for row in rows] == pairs * is_cut


latin = pd.DataFrame({"source": ["é|è", "«a»\n1", ""], "target": ['"ü"', "|", "x;,y"]})
OPTIONS = {
    "latin.csv": (
        of(latin.to_csv, index=False, sep="|", encoding="cp1252"),
        {"delimiter": "|", "encoding": "cp1252"},
    ),
    "utf-16.csv.gz": (of(latin.to_csv, index=False, encoding="utf-16"), {"encoding": "utf-16"}),
    "quoted.tsv": (
        of(latin.to_csv, index=False, sep="\t"), {"input_format": "csv", "delimiter": "\t"}
    ),
    "data": (of(latin.to_json, orient="records"), {"input_format": "json"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPTIONS)
def test_options_read_other_files(tmp_path, name):
    write, options = OPTIONS[name]
    write(tmp_path / name)
    translate(
        tmp_path / name, tmp_path / "out", read=ReadOptions(**options), text_columns=("source",)
    )
    found = read_all(tmp_path / "out")
    assert found.select(["source", "target"]).to_pydict() == latin.to_dict("list")
    [source] = open_named(corpora=[f"{tmp_path / name}:source:target"], **options)
    rows = latin.assign(fault=None).itertuples(index=False, name=None)
    assert read_units(source, tmp_path) == list(rows)


def test_large_arrow_files_of_polars_have_a_schema_only_in_the_footer(tmp_path):
    texts = [f"a text with the long number {number:030}" for number in range(20_000)]
    kind = pl.Struct({"nothing": pl.Null, "word": pl.String})  # Arrow cannot take such values
    words = [{"nothing": None, "word": text[-3:]} for text in texts]
    frame = pl.DataFrame({"source": texts, "target": texts, "info": pl.Series(words, dtype=kind)})
    frame.with_columns(pl.col("target").cast(pl.Categorical)).write_ipc(tmp_path / "a.arrow")
    translate(tmp_path / "a.arrow", tmp_path / "out", text_columns=("source",), limit=5)
    found = read_all(tmp_path / "out").select(["source", "target", "info"])
    assert found.to_pylist() == frame.head(5).to_dicts()
    [source] = open_named(corpora=[f"{tmp_path}/a.arrow:source:target"])
    assert source.first_pair() == [texts[0], texts[0]]
    rows = [row for table in source.read_all() for row in table["target"].to_pylist()]
    assert rows == texts


# Programs that read the output of a job.

NESTED = ("tags", "deep", "info", "bytes", "took")
COMPRESSIONS = {
    "parquet": ("zstd", "snappy", "gzip", "brotli", "lz4", "none"),
    "csv": ("none", "gzip", "zstd"),
    "jsonl": ("none", "gzip", "zstd"),
}
DROPPED = {"parquet": (), "csv": NESTED, "jsonl": ("bytes", "took")}


def read_with_pandas(paths, file_format):
    method = {
        "parquet": functools.partial(pd.read_parquet, dtype_backend="pyarrow"),
        "csv": functools.partial(
            pd.read_csv,
            keep_default_na=False,
            na_values=dict.fromkeys(("flag", "ratio", "translation_score"), ""),
            dtype_backend="pyarrow",
        ),
        "jsonl": functools.partial(pd.read_json, lines=True, dtype_backend="pyarrow"),
    }
    frame = pd.concat([method[file_format](path) for path in paths], ignore_index=True)
    return pa.Table.from_pandas(frame).to_pydict()


def read_with_polars(paths, file_format):
    method = {"parquet": pl.read_parquet, "csv": pl.read_csv, "jsonl": pl.read_ndjson}
    frames = [method[file_format](path) for path in paths]
    return pl.concat(frames, how="vertical_relaxed").to_dict(as_series=False)


def read_with_duckdb(paths, file_format):
    method = {"parquet": "read_parquet(?)", "csv": "read_csv(?, allow_quoted_nulls = false)",
              "jsonl": "read_json(?)"}  # fmt: skip
    with duckdb.connect() as database:
        found = database.execute(f"from {method[file_format]}", [[str(path) for path in paths]])
        names = [name for name, *_ in found.description]
        return dict(zip(names, map(list, zip(*found.fetchall(), strict=True)), strict=True))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """Return a function that runs a job once, and returns its output files."""
    folder = tmp_path_factory.mktemp("written")
    pq.write_table(ALL, folder / "in.parquet")

    @functools.cache
    def run(file_format, compression):
        output = folder / f"{file_format}-{compression}"
        translate(
            folder / "in.parquet", output, text_columns=("source",), unit_rows=6,
            format=file_format, compression=compression, drop_columns=DROPPED[file_format],
        )  # fmt: skip
        return sorted(output.glob("in-*"))

    return run


@pytest.mark.parametrize("reader", [read_with_pandas, read_with_polars, read_with_duckdb])
@pytest.mark.parametrize(
    ("file_format", "compression"),
    [(each, compression) for each, some in COMPRESSIONS.items() for compression in some],
)
def test_every_program_reads_the_output(written, reader, file_format, compression):
    expected = pa.concat_tables(map(read, written("parquet", "none"))).to_pydict()
    assert expected.items() >= ALL.to_pydict().items()
    found = reader(written(file_format, compression), file_format)
    assert list(found) == [name for name in expected if name not in DROPPED[file_format]]
    if file_format != "parquet":  # the programs guess the types of dates and of lists of no texts
        for name in ("when", "day", "amount", "translation_error", "translation_flags"):
            del found[name]
    if reader is read_with_duckdb and file_format == "parquet":
        found["took"] = expected["took"]  # DuckDB reads durations as numbers
    if reader is read_with_pandas and file_format == "csv":  # pandas reads null as an empty text
        for name in ("source", "target", "kind", "translation"):
            expected[name] = [text or "" for text in expected[name]]
    assert found == {name: expected[name] for name in found}


# Tables of Delta Lake and Iceberg.

LAKE_ROWS = pa.table(
    {
        "id": NUMBERS,
        "text": SOURCES,
        "target": TARGETS,
        "amount": pa.array(OTHERS["amount"], pa.decimal128(10, 2)),
        **{name: TYPES[name] for name in TYPES.keys() - {"info", "took", "amount"}},
    }
)


def rows_of(table):
    return sorted(table.select(LAKE_ROWS.column_names).to_pylist(), key=lambda row: row["id"])


@pytest.mark.parametrize("kind", LAKE)
def test_jobs_read_and_write_tables(tmp_path, monkeypatch, kind):
    """delta-rs writes the type `string_view` when it updates a row."""
    lake = LAKE[kind](tmp_path / "lake", iceberg_catalog(tmp_path / "lake", monkeypatch))
    lake.append("in", LAKE_ROWS.slice(0, 6))
    lake.append("in", LAKE_ROWS.slice(6))
    lake.update("in", 2, "new")
    expected = LAKE_ROWS.to_pylist()
    expected[2]["text"] = "new"
    translate(lake.address("in"), lake.address("out"), text_columns=("text",), unit_rows=4)
    found = lake.read("out")
    assert rows_of(found) == rows_of(lake.read("in")) == expected
    by_number = dict(zip(found["id"].to_pylist(), found["translation"].to_pylist(), strict=True))
    assert by_number[2] == reverse("new")
    pairs = []
    for number, path in enumerate(lake.paths("in")):
        copy = shutil.copy(path.removeprefix("file://"), tmp_path / f"{number}.parquet")
        [source] = open_named(corpora=[f"{copy}:text:target"])
        pairs += read_units(source, tmp_path / str(number))
    assert sorted(pairs, key=repr) == sorted(
        [(row["text"], row["target"], None) for row in expected], key=repr
    )


def test_output_files_become_tables(tmp_path, monkeypatch):
    pq.write_table(LAKE_ROWS, tmp_path / "in.parquet")
    translate(tmp_path / "in.parquet", tmp_path / "out", text_columns=("text",), unit_rows=4)
    written = read_all(tmp_path / "out")
    catalog = iceberg_catalog(tmp_path / "lake", monkeypatch)
    table = catalog.create_table("ns.out", schema=written.schema)
    table.add_files([str(tmp_path / "out" / name) for name in outputs(tmp_path / "out")])
    convert_to_deltalake(str(tmp_path / "out"))
    for found in (table.scan().to_arrow(), DeltaTable(tmp_path / "out").to_pyarrow_table()):
        assert found.sort_by("id").to_pylist() == written.to_pylist()
