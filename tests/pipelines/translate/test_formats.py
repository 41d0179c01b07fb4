"""Translation jobs with input and output of every format."""

import bz2
import csv
import gzip
import io
import json

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.feather as feather
import pytest
from block_reading import table_of
from fakes import crash_at, fail_at
from translation_jobs import (
    NO_ROWS,
    files_below,
    manifest,
    output_bytes,
    outputs,
    read,
    read_all,
    refused,
    request,
    translate,
    without_run,
    write,
)

from tt.model.errors import UserError
from tt.model.transformer.search_options import Decoding
from tt.pipelines.translate.manifest import summary_blocks

TEXTS = ["ab", "", "row 2", "x\ny", 'say "so"', "a, b", "ж", "7", *(f"n {i}" for i in range(40))]
ROWS = {"id": [f"{i:03d}" for i in range(len(TEXTS))], "text": TEXTS}
OPTIONS = {"unit_rows": 10, "text_columns": ("text",)}


def csv_of(rows):
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(rows)
    writer.writerows(zip(*rows.values(), strict=True))
    return text.getvalue().encode()


def jsonl_of(rows):
    lines = [dict(zip(rows, row, strict=True)) for row in zip(*rows.values(), strict=True)]
    return "".join(f"{json.dumps(line)}\n" for line in lines).encode()


def zstd(data):
    return pa.compress(data, "zstd", asbytes=True)


def arrow_of(rows):
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.table(rows).schema) as writer:
        writer.write_table(pa.table(rows), max_chunksize=7)
    return sink.getvalue().to_pybytes()


def feather_of(rows):
    file = io.BytesIO()
    feather.write_feather(pa.table(rows), file)
    return file.getvalue()


CONTENTS = {
    "in.csv": csv_of,
    "in.csv.gz": lambda rows: gzip.compress(csv_of(rows)),
    "in.csv.bz2": lambda rows: bz2.compress(csv_of(rows)),
    "in.jsonl": jsonl_of,
    "in.jsonl.zst": lambda rows: zstd(jsonl_of(rows)),
    "in.arrow": arrow_of,
    "in.feather": feather_of,
}


def put(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


@pytest.fixture(scope="module")
def of_parquet(tmp_path_factory):
    """The output for the rows in a Parquet file."""
    folder = tmp_path_factory.mktemp("parquet")
    summary = translate(write(folder / "in.parquet", ROWS), folder / "out", **OPTIONS)
    return summary, [read(folder / "out" / name) for name in outputs(folder / "out")]


@pytest.mark.parametrize("name", CONTENTS)
def test_the_same_rows_give_the_same_output_in_any_input_format(tmp_path, of_parquet, name):
    source = put(tmp_path / "a" / name, CONTENTS[name](ROWS))
    summary = translate(source, tmp_path / "out", **OPTIONS)
    expected, tables = of_parquet
    assert summary.manifest["rows_by_status"] == expected.manifest["rows_by_status"]
    assert summary.rows == expected.rows == len(TEXTS)
    for output, table in zip(outputs(tmp_path / "out"), tables, strict=True):
        assert read(tmp_path / "out" / output).equals(table)
    assert not list((tmp_path / "out").rglob("*.arrow"))
    again = translate(source, tmp_path / "out", **OPTIONS)
    assert (again.already_finished, again.manifest) == (True, summary.manifest)


def test_cells_of_tsv_contain_quotation_marks(tmp_path):
    source = put(tmp_path / "in.tsv", b'id\ttext\n1\t"ab\n2\tcd\n')
    translate(source, tmp_path / "out", text_columns=("text",))
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ['ba"', "dc"]


def test_a_folder_may_contain_several_formats(tmp_path):
    folder = tmp_path / "in"
    write(folder / "a.parquet", {"text": ["one"]})
    put(folder / "b.csv", b"text\ntwo\n")
    put(folder / "year=1/c.tsv.gz", gzip.compress(b"text\nthree\n"))
    put(folder / "year=2/d.jsonl", b'{"text":"four","n":{"x":[1]}}\n{"text":null}\n')
    put(folder / "e.arrow", arrow_of({"text": ["five"]}))
    put(folder / "_hidden.csv", b"other\n1\n")
    put(folder / "notes.txt", b"no table")
    summary = translate(folder, tmp_path / "out")
    assert outputs(tmp_path / "out") == [
        "a-00000-of-00001.parquet",
        "b-00000-of-00001.parquet",
        "e-00000-of-00001.parquet",
        "year=1/c-00000-of-00001.parquet",
        "year=2/d-00000-of-00001.parquet",
    ]
    assert summary.manifest["rows_by_status"] == {"text": {**NO_ROWS, "ok": 5, "null": 1}}
    found = read(tmp_path / "out/year=2/d-00000-of-00001.parquet")
    assert found["n"].to_pylist() == [{"x": [1]}, None]
    assert found["translation"].to_pylist() == ["ruof", None]


def test_files_without_rows_have_an_output_file_with_all_columns(tmp_path):
    put(tmp_path / "in/a.csv", b"text,id\n")
    put(tmp_path / "in/b.arrow", arrow_of({"text": pa.array([], pa.string())}))
    summary = translate(tmp_path / "in", tmp_path / "out", text_columns=("text",))
    assert (summary.rows, summary.manifest["units"]) == (0, 2)
    found = read(tmp_path / "out/a-00000-of-00001.parquet")
    assert found.column_names[:3] == ["text", "id", "translation"]


def test_endings_may_be_uppercase(tmp_path):
    folder = tmp_path / "in"
    put(folder / "UP.CSV", b"text\ntwo\n")
    put(folder / "b.Csv.GZ", gzip.compress(b"text\nthree\n"))
    write(folder / "C.PARQUET", {"text": ["one"]})
    translate(folder, tmp_path / "out")
    assert outputs(tmp_path / "out") == [
        "C.PARQUET-00000-of-00001.parquet",  # keeps .PARQUET for compatibility
        "UP-00000-of-00001.parquet",
        "b-00000-of-00001.parquet",
    ]
    assert read_all(tmp_path / "out")["translation"].to_pylist() == ["eno", "owt", "eerht"]


def test_files_with_other_endings_are_read_as_parquet_if_they_are_named(tmp_path):
    write(tmp_path / "in/a.parquet", {"text": ["one"]}).rename(tmp_path / "in/a.snappy")
    for number, source in enumerate(("in/a.snappy", "in/*.snappy")):
        output = tmp_path / f"out{number}"
        translate(tmp_path / source, output)
        assert read_all(output)["translation"].to_pylist() == ["eno"]
    assert "contains no *.parquet" in refused(tmp_path / "in", tmp_path / "no")


def test_the_error_for_an_unknown_ending_lists_all_endings(tmp_path):
    source = put(tmp_path / "plain.de", b"hello\n")
    assert refused(source, tmp_path / "out") == (
        f"{source} must have the ending of its format, .jsonl, .ndjson, .csv, .tsv, .tab, .json, "
        ".txt (also .gz, .bz2, .zst) or .parquet, .parq, .arrow, .feather, .ipc; tt reads files "
        "with other endings as Parquet, and this file is not Parquet. Set `input_format`"
    )


@pytest.mark.parametrize("name", ["a.txt", "a.TXT.gz"])
def test_each_line_of_a_text_file_is_a_row(tmp_path, name):
    """Only line feeds end lines, after an optional carriage return."""
    content = b"\xef\xbb\xbfone\r\n\ntwo\tx\r y\x85\xff\nthree"
    source = put(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    translate(source, tmp_path / "out", unit_rows=2)
    assert outputs(tmp_path / "out") == [
        "a-00000-of-00002.parquet", "a-00001-of-00002.parquet",
    ]  # fmt: skip
    found = read_all(tmp_path / "out")
    assert found["text"].to_pylist() == ["one", "", None, "three"]
    assert found["translation"].to_pylist() == ["eno", "", None, "eerht"]
    assert found["translation_status"].to_pylist() == ["ok", "empty", "failed", "ok"]


def test_a_folder_does_not_stand_for_its_text_files(tmp_path):
    put(tmp_path / "in/README.txt", b"about the table\n")
    assert "contains no *.parquet" in refused(tmp_path / "in", tmp_path / "out")
    write(tmp_path / "in/a.parquet", {"text": ["one"]})
    translate(tmp_path / "in", tmp_path / "out")
    assert outputs(tmp_path / "out") == ["a-00000-of-00001.parquet"]
    translate(f"{tmp_path}/in/*.txt", tmp_path / "texts")
    assert outputs(tmp_path / "texts") == ["README-00000-of-00001.parquet"]


def test_empty_files_are_errors(tmp_path):
    for name, content, lacks in (
        ("a.jsonl", b"", "columns"),
        ("a.jsonl.gz", gzip.compress(b"\n"), "columns"),
        ("a.txt", b"", "texts"),
    ):
        source = put(tmp_path / name, content)
        problem = f"{source} is empty, so it has no {lacks}. Check the file"
        assert refused(source, tmp_path / "out") == problem


def test_inputs_that_differ_only_in_their_endings_are_refused(tmp_path):
    a = put(tmp_path / "in/part.csv", b"text\nx\n")
    b = write(tmp_path / "in/part.parquet", {"text": ["x"]})
    assert refused(tmp_path / "in", tmp_path / "out") == (
        f"{a} and {b} would have the same output files, part-*.parquet. Rename a file, or "
        "translate them into separate folders"
    )


def test_a_job_resumes_after_a_crash_and_keeps_finished_units(tmp_path):
    source, out, options = put(tmp_path / "in.jsonl", jsonl_of(ROWS)), tmp_path / "out", OPTIONS
    repeated = ["--direct_runner_bundle_repeat=1"]  # which must not change anything
    translate(source, tmp_path / "undisturbed", **options, arguments=repeated)
    crash_at.add("n 25")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, **options)
    crash_at.clear()
    kept = outputs(out)
    times = {each: (out / each).stat().st_mtime_ns for each in kept}
    assert 0 < len(kept) < 5
    summary = translate(source, out, **options)
    assert (summary.manifest["units"], summary.reused_units) == (5, len(kept))
    assert {each: (out / each).stat().st_mtime_ns for each in kept} == times
    assert output_bytes(out) == output_bytes(tmp_path / "undisturbed")
    assert without_run(manifest(out)) == without_run(manifest(tmp_path / "undisturbed"))
    assert not list(out.rglob("*.arrow"))


@pytest.mark.parametrize(
    "change", [lambda data: data + b"9,more\n", lambda data: data[:-4] + b"x,y\n"]
)
def test_a_file_that_changes_after_the_plan_is_refused(tmp_path, change):
    source, out = put(tmp_path / "in.csv", csv_of(ROWS)), tmp_path / "out"
    job = request(source, out, text_columns=("text",)).plan()
    source.write_bytes(change(source.read_bytes()))
    with pytest.raises(UserError) as caught:
        job.run()
    assert str(caught.value) == (
        f"{source} has changed since the job was planned. Restore the file, or translate the new "
        "file into another folder"
    )
    assert outputs(out) == []
    source.write_bytes(csv_of(ROWS))
    assert translate(source, out, text_columns=("text",)).rows == len(TEXTS)
    source.write_bytes(csv_of({**ROWS, "text": [*TEXTS[:-1], "n 98"]}))  # has the same size
    assert "1 input file changed since the last run: in.csv. " in refused(
        source, out, text_columns=("text",)
    )


def test_a_bad_file_is_an_error_with_the_line_or_is_skipped(tmp_path):
    put(tmp_path / "in/a.csv", b"id,text\n1,2,one\n")
    put(tmp_path / "in/b.csv", b"id,text\n1,two\n")
    put(tmp_path / "in/c.jsonl", b"[4]\n")
    put(tmp_path / "in/d.tsv", b"id\n1\n")
    out, options = tmp_path / "out", {"text_columns": ("text",)}
    reason = (
        f"{tmp_path}/in/a.csv has no row that tt can read. The first one is in line 2: 3 cells "
        "instead of 2"
    )
    assert refused(tmp_path / "in", out, **options) == (
        f"{reason}. Check the file, or skip such files with `on_bad_file=skip`"
    )
    assert refused(tmp_path / "in/a.csv", out, **options) == f"{reason}. Check the file"
    assert not out.exists()
    summary = translate(tmp_path / "in", out, on_bad_file="skip", max_failed=0.4, **options)
    assert (summary.rows, summary.has_failed) == (1, True)
    skipped = manifest(out)["skipped_files"]
    assert [(each["file"], each["rows"]) for each in skipped] == [
        ("a.csv", 1),
        ("c.jsonl", 1),
        ("d.tsv", 1),
    ]
    assert ["a.csv", 1, reason] in table_of(summary_blocks(summary), "skipped")


def test_types_that_parquet_cannot_store_are_refused(tmp_path):
    source = put(tmp_path / "in.jsonl", b'{"text":"a","meta":{}}\n')
    assert refused(source, tmp_path / "out") == (
        f"parquet cannot store the column 'meta' (struct<>) of {source}. Leave the column "
        "out with `drop_columns`"
    )
    translate(source, tmp_path / "out", format="jsonl")
    [line] = (tmp_path / "out/in-00000-of-00001.jsonl").read_text().splitlines()
    assert json.loads(line)["meta"] == {}


# Lists and fields of structs.


def test_each_text_of_a_list_is_translated(tmp_path):
    kind = pa.large_list(pa.large_string())
    lists = [["ab", None, "", "7"], None, [], ["cd", "ab"], [None], ["жж"]]
    source = write(tmp_path / "in.parquet", pa.table({"tags": pa.array(lists, kind)}))
    summary = translate(source, tmp_path / "out", unit_rows=4, text_columns=("tags",))
    found = read_all(tmp_path / "out")
    kind = found.schema.field("translation").type
    assert pa.types.is_large_list(kind)
    assert kind.value_type == pa.string()
    assert found["tags"].to_pylist() == lists
    assert found["translation"].to_pylist() == [
        ["ba", None, "", "7"], None, [], ["dc", "ba"], [None], [None]
    ]  # fmt: skip
    assert found["translation_score"].to_pylist() == [
        [-2.0, None, None, None], None, [], [-2.0, -2.0], [None], [None]
    ]  # fmt: skip
    assert found["translation_status"].to_pylist() == [
        ["ok", "null", "empty", "copied"], None, [], ["ok", "ok"], ["null"], ["unknown"]
    ]  # fmt: skip
    assert found["translation_flags"].to_pylist() == [
        [[], [], [], []], None, [], [[], []], [[]], [[]]
    ]  # fmt: skip
    assert summary.manifest["rows_by_status"] == {
        "tags": {**NO_ROWS, "ok": 2, "null": 2, "empty": 1, "unknown": 1}
    }
    assert (summary.rows, summary.manifest["failed_rows"]) == (6, 0)


def test_fixed_size_lists_are_kept_and_get_plain_lists_of_translations(tmp_path):
    lists = [["ab", None], ["cd", "ab"], [None, None], ["7", "ef"]]
    table = pa.table({"tags": pa.array(lists, pa.list_(pa.string(), 2))})
    source = write(tmp_path / "in.parquet", table)
    translate(source, tmp_path / "out", unit_rows=3, text_columns=("tags",))
    found = read_all(tmp_path / "out")
    assert found.schema.field("tags").type == table.schema.field("tags").type
    assert found["tags"].to_pylist() == lists
    assert found.schema.field("translation").type == pa.list_(pa.field("element", pa.string()))
    assert found["translation"].to_pylist() == [
        ["ba", None],
        ["dc", "ba"],
        [None, None],
        ["7", "fe"],
    ]


def test_a_row_fails_if_a_text_of_its_list_fails_and_only_that_text_is_retried(tmp_path):
    fail_at.update(["bad", "worse"])
    lists = [["ab", "bad"], ["cd"], ["bad", "worse", None], None]
    table = {"tags": lists, "text": ["ab", "bad", "cd", "ef"]}
    source, out = write(tmp_path / "in.parquet", table), tmp_path / "out"
    options = {"text_columns": ("tags", "text")}
    summary = translate(source, out, **options)
    assert summary.manifest["rows_by_status"]["tags"] == {
        **NO_ROWS,
        "failed": 2,
        "ok": 1,
        "null": 1,
    }
    assert summary.manifest["failed_rows"] == 3
    errors = read_all(out)["tags_translation_error"].to_pylist()
    assert errors[0] == [None, "ValueError: cannot take bad"]
    fail_at.remove("bad")
    assert translate(source, out, retry_failed=True, **options).manifest["failed_rows"] == 1
    found = read_all(out)
    assert found["tags_translation"].to_pylist() == [
        ["ba", "dab"],
        ["dc"],
        ["dab", None, None],
        None,
    ]
    assert found["text_translation"].to_pylist() == ["ba", "dab", "dc", "fe"]
    fail_at.clear()
    assert translate(source, out, retry_failed=True, **options).manifest["failed_rows"] == 0
    translate(source, tmp_path / "undisturbed", **options)
    assert output_bytes(out) == output_bytes(tmp_path / "undisturbed")


def test_a_field_of_a_struct_is_translated(tmp_path):
    product = [{"title": "ab", "tags": ["x", "yz"], "n": 1}, None, {"title": None, "tags": None}]
    table = {"product": product, "product.n": ["cd", "ef", "gh"]}
    source, out = write(tmp_path / "in.parquet", table), tmp_path / "out"
    columns = ("product.title", "product.tags", "product.n")
    translate(source, out, text_columns=columns)
    found = read_all(out)
    assert found["product"].to_pylist()[1:] == [None, {"title": None, "tags": None, "n": None}]
    assert found["product.title_translation"].to_pylist() == ["ba", None, None]
    assert found["product.title_translation_status"].to_pylist() == ["ok", "null", "null"]
    assert found["product.tags_translation"].to_pylist() == [["x", "zy"], None, None]
    assert found["product.n_translation"].to_pylist() == ["dc", "fe", "hg"], "the column wins"


def test_columns_without_texts_are_refused(tmp_path):
    table = {"items": [[{"title": "a"}]], "product": [{"n": 1}]}
    source, out = write(tmp_path / "in.parquet", table), tmp_path / "out"
    shape = (
        "Its columns: items: list<element: struct<title: string>>, product: struct<n: int64>. "
        "Set `text_columns`"
    )
    for name in ("items.title", "product.x", "product.n.x"):
        assert refused(source, out, text_columns=(name,)) == (
            f"{source} has no column {name!r}. {shape}"
        )
    for name, kind in (("items", "list<element: struct<title: string>>"), ("product.n", "int64")):
        assert refused(source, out, text_columns=(name,)) == (
            f"a text column must contain strings or lists of strings; {name!r} of {source} is "
            f"{kind}. {shape}"
        )


# Other formats of the output.

TYPED = pa.table(
    {
        "id": [1, 2, 3],
        "text": ["ab", None, 'x "y"\nж'],
        "price": pa.array([1, None, 3]).cast(pa.decimal128(21, 2)),
        "day": pa.array([0, None, 365], pa.int32()).cast(pa.date32()),
        "share": [0.5, float("nan"), None],
        "kind": pa.array(["a", "b", None]).dictionary_encode(),
    }
)
NESTED = {"tags": [["ab", None], [], None], "meta": [{"n": [1.5]}, None, {"n": None}]}


def test_jsonl_output_contains_all_columns(tmp_path):
    table = TYPED
    for name, values in NESTED.items():
        table = table.append_column(name, [values])
    source, out = write(tmp_path / "in.parquet", table), tmp_path / "out"
    options = {"text_columns": ("text", "tags"), "format": "jsonl", "compression": "gzip"}
    summary = translate(source, out, unit_rows=2, **options)
    names = [f"in-0000{i}-of-00002.jsonl.gz" for i in range(2)]
    assert [name for name in files_below(out) if not name.startswith("_tt/")] == names
    text = b"".join(gzip.decompress((out / name).read_bytes()) for name in names).decode()
    rows = [json.loads(line) for line in text.split("\n")[:-1]]
    assert rows[0]["tags_translation"] == ["ba", None]
    assert rows[0]["text_translation_flags"] == []
    assert [row["text_translation"] for row in rows] == ["ba", None, 'ж\n"y" x']
    assert [row["price"] for row in rows] == ["1.00", None, "3.00"]
    assert [row["day"] for row in rows] == ["1970-01-01", None, "1971-01-01"]
    assert [row["share"] for row in rows] == [0.5, None, None]
    assert [row["kind"] for row in rows] == ["a", "b", None]
    assert [row["meta"] for row in rows] == NESTED["meta"]
    assert summary.manifest["rows_out"] == 3
    assert translate(source, out, unit_rows=2, **options).already_finished


def test_csv_output_contains_flat_columns_and_flags(tmp_path):
    source, out = write(tmp_path / "in.parquet", TYPED), tmp_path / "out"
    translate(source, out, text_columns=("text",), format="csv")
    path = out / "in-00000-of-00001.csv"
    lines = list(csv.reader(io.StringIO(path.read_text(), newline="")))
    assert lines[0][:2] == ["id", "text"]
    assert lines[0][-1] == "translation_flags"
    assert lines[3][:6] == ["3", 'x "y"\nж', "3.00", "1971-01-01", "", ""]
    assert lines[2][6:] == ["", "", "null", "", ""]
    # Only empty strings have quotation marks, which distinguishes them from null.
    assert path.read_text().splitlines()[2].endswith(',,,"null",,""')
    read_back = pa_csv.read_csv(path)
    assert read_back["id"].to_pylist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("kind", "table", "column"),
    [
        ("csv", {"text": ["a"], "tags": [["x"]]}, "'tags' (list<element: string>)"),
        ("csv", {"text": ["a"], "meta": [{"n": 1}]}, "'meta' (struct<n: int64>)"),
        ("csv", {"text": ["a"], "raw": [b"a"]}, "'raw' (binary)"),
        ("jsonl", {"text": ["a"], "raw": [b"a"]}, "'raw' (binary)"),
        ("jsonl", {"text": ["a"], "raw": [[b"a"]]}, "'raw' (list<element: binary>)"),
        ("jsonl", {"text": ["a"], "raw": [{"x": b"a"}]}, "'raw' (struct<x: binary>)"),
    ],
)
def test_columns_that_a_format_cannot_store_are_refused_before_writing(
    tmp_path, kind, table, column
):
    source, out = write(tmp_path / "in.parquet", table), tmp_path / "out"
    assert refused(source, out, text_columns=("text",), format=kind) == (
        f"{kind} cannot store the column {column} of {source}. Leave the column out with "
        "`drop_columns`, or set `format=parquet`"
    )
    assert not out.exists()


def test_csv_cannot_store_n_best_and_jsonl_cannot_store_duplicate_names(tmp_path):
    source, out = write(tmp_path / "in.parquet", {"text": ["a"]}), tmp_path / "out"
    assert "csv cannot store the column 'translation_n_best' (list<" in refused(
        source, out, format="csv", decoding=Decoding(n_best=2)
    )
    twice = pa.table([pa.array(["a"]), pa.array([1]), pa.array([2])], names=["text", "n", "n"])
    source = write(tmp_path / "in.parquet", twice)
    assert refused(source, out, format="jsonl") == (
        f"jsonl cannot store several columns with the same name, such as 'n' in {source}. Rename "
        "them"
    )


def test_missing_and_damaged_text_outputs_are_written_again(tmp_path):
    source, out = put(tmp_path / "in.csv.gz", CONTENTS["in.csv.gz"](ROWS)), tmp_path / "out"
    options = {"unit_rows": 10, "text_columns": ("text",), "format": "csv"}
    translate(source, tmp_path / "undisturbed", **options)
    crash_at.add("n 25")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, **options)
    crash_at.clear()
    names = [f"in-0000{i}-of-00005.csv" for i in range(5)]
    assert not (out / names[3]).exists()
    content = (out / names[0]).read_bytes()
    (out / names[0]).write_bytes(content.replace(b"row", b"rows"))
    summary = translate(source, out, **options)
    assert summary.reused_units <= 3
    for name in names:
        assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    assert "`format` was" in refused(source, out, unit_rows=10, text_columns=("text",))


def test_a_retry_of_text_output_translates_whole_units_with_failed_rows(tmp_path):
    source, out = put(tmp_path / "in.jsonl", jsonl_of(ROWS)), tmp_path / "out"
    options = {"unit_rows": 10, "text_columns": ("text",), "format": "jsonl"}
    fail_at.add("n 25")
    assert translate(source, out, **options).manifest["failed_rows"] == 1
    fail_at.clear()
    summary = translate(source, out, retry_failed=True, **options)
    assert (summary.manifest["failed_rows"], summary.run_rows, summary.reused_units) == (0, 10, 4)
    translate(source, tmp_path / "undisturbed", **options)
    for name in files_below(tmp_path / "undisturbed"):
        if name.endswith(".jsonl"):
            assert (out / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
