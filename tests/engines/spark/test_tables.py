"""Spark writes tables, `tt` translates them, and Spark reads them; run by `make test-spark`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from corpora import open_named
from models import model_texts
from spark_program import find_missing_requirement, run_sql
from translation_jobs import read_all, translate
from unit_reading import read as read_units

from tt.pipelines.tables.formats import ReadOptions

if lack := find_missing_requirement():
    pytest.skip(lack, allow_module_level=True)

TEXT, TAG = model_texts(2)
ROWS = f"""
values
  (1, '{TEXT}', array('{TAG}', null), named_struct('n', 1Y),
   timestamp '9999-12-31 23:59:59.999999'),
  (2, null, null, null, timestamp '0001-01-01 00:00:00'),
  (3, '', array(), named_struct('n', 2Y), null)
  as t(id, text, tags, info, time)"""
COLUMNS = "id:int,text:string,tags:array<string>,info:struct<n:tinyint>,time:timestamp"
ADDED = {
    "translation": "string", "translation_score": "float", "translation_status": "string",
    "translation_error": "string", "translation_flags": "array<string>",
    "translation_n_best": "array<struct<text:string,score:float>>",
}  # fmt: skip
VALUES = "id, text, tags, info, unix_micros(time) as micros"
LAST, FIRST = 253402300799999999, -62135596800000000  # microseconds since 1970
# The type and the calendar of the timestamps by folder. LEGACY is the Julian calendar.
KINDS = {"int96": ("INT96", "CORRECTED"), "micros": ("TIMESTAMP_MICROS", "LEGACY")}


@pytest.mark.headline
def test_spark_reads_the_new_columns_and_the_old_values(tmp_path, model_folder, capsys):
    source, output = tmp_path / "in", tmp_path / "out"
    for_each_kind = (
        "set spark.sql.parquet.outputTimestampType={type}",
        "set spark.sql.parquet.int96RebaseModeInWrite={calendar}",
        "set spark.sql.parquet.datetimeRebaseModeInWrite={calendar}",
        f"insert overwrite directory '{source}/{{kind}}' using parquet "
        f"select /*+ coalesce(1) */ * from {ROWS}",
        f"select {VALUES} from parquet.`{source}/{{kind}}` order by id",
    )
    written = run_sql(
        *(
            statement.format(kind=kind, type=type_, calendar=calendar)
            for kind, (type_, calendar) in KINDS.items()
            for statement in for_each_kind
        ),
        folder=tmp_path,
    )
    code = run(
        "translate-batch", source, "--model", model_folder, "--output", output, "--n-best", 2,
        "--text-column", "text", "--text-column", "tags", "--unit-rows", 2,
    )  # fmt: skip
    assert code == 0, capsys.readouterr().err
    names = [f"{column}_{name}" for column in ("text", "tags") for name in ADDED]
    for_each_kind = (
        f"select * from parquet.`{output}/{{kind}}` limit 0",
        f"select {VALUES} from parquet.`{output}/{{kind}}` order by id",
        f"select {', '.join(names)} from parquet.`{output}/{{kind}}` order by id",
    )
    found = run_sql(
        *(statement.format(kind=kind) for kind in KINDS for statement in for_each_kind),
        folder=tmp_path,
    )
    added = [f"text_{name}:{kind}" for name, kind in ADDED.items()]
    added += [f"tags_{name}:array<{kind}>" for name, kind in ADDED.items()]
    for place, kind in enumerate(KINDS):
        old = written[5 * place + 4]
        schema, kept, new = found[3 * place : 3 * place + 3]
        assert schema["schema"] == f"struct<{','.join([COLUMNS, *added])}>"
        assert kept == old
        assert [row["micros"] for row in kept["rows"]] == [LAST, FIRST, None]
        files = sorted((output / kind).glob("*.parquet"))
        table = pa.concat_tables(pq.ParquetFile(file).read() for file in files)
        assert len(files) == 2
        assert new["rows"] == table.select(names).to_pylist()
        assert [row["text_translation_status"] for row in new["rows"]][1:] == ["null", "empty"]
        assert new["rows"][0]["text_translation"]


PAIRS = {
    "n": list(range(8)),
    "source": ['say "so"', "two\nlines", 'a;b,c\t"d"', "é 名 😀", "", None, "back\\slash", "7"],
    "target": ["x", None, "y\nz", "", 'q""q', ";", "end\\", "next\u2028line"],
}
# Spark escapes quotation marks by backslashes unless it has the option `escape`.
FORMATS = {
    "csv": "csv options (header true, escape '\"')",
    "csv-gzip": """csv options (
        header true, escape '"', sep ';', quoteAll true, compression 'gzip')""",
    "json": "json",
    "json-bzip2": "json options (ignoreNullFields false, compression 'bzip2')",
    "parquet": "parquet options (compression 'zstd')",
}


def test_spark_and_both_jobs_read_the_same_texts(tmp_path):
    pq.write_table(pa.table(PAIRS), tmp_path / "in.parquet")
    rows = f"select /*+ coalesce(1) */ * from parquet.`{tmp_path}/in.parquet`"
    run_sql(
        *(
            f"insert overwrite directory '{tmp_path}/{name}' using {options} {rows}"
            for name, options in FORMATS.items()
        ),
        folder=tmp_path,
    )
    for name in FORMATS:
        has_null = not name.startswith("csv")
        expected = [
            tuple(text if has_null else text or "" for text in pair)
            for pair in zip(PAIRS["source"], PAIRS["target"], strict=True)
        ]
        options = ReadOptions(input_format="json" if name.startswith("json") else None)
        output = tmp_path / f"read-{name}"
        translate(tmp_path / name, output, read=options, text_columns=("source",))
        found = read_all(output)
        texts = found["source"].to_pylist(), found["target"].to_pylist()
        assert list(zip(*texts, strict=True)) == expected
        [file] = (tmp_path / name).glob("part-*")
        [source] = open_named(corpora=[f"{file}:source:target"])
        rows = read_units(source, tmp_path / f"units-{name}")
        assert rows == [(*pair, None) for pair in expected]


def test_spark_reads_csv_and_jsonl(tmp_path):
    pq.write_table(pa.table(PAIRS), tmp_path / "in.parquet")
    reading = {"csv": "options (header true, escape '\"', multiLine true, ", "jsonl": "options ("}
    statements = []
    for file_format, options in reading.items():
        for compression in ("none", "gzip"):
            output = tmp_path / f"{file_format}_{compression}"
            translate(
                tmp_path / "in.parquet", output, text_columns=("source",), format=file_format,
                compression=compression,
            )  # fmt: skip
            view = f"create temporary view {output.name} using {file_format.removesuffix('l')}"
            statements += [
                f"{view} {options}path '{output}/in-*')",
                f"select source, target, translation, translation_status from {output.name}",
            ]
    found = run_sql(*statements, folder=tmp_path)[1::2]
    translate(tmp_path / "in.parquet", tmp_path / "parquet", text_columns=("source",))
    names = ["source", "target", "translation", "translation_status"]
    expected = read_all(tmp_path / "parquet").select(names).to_pylist()
    without_empty = [{name: row[name] or None for name in names} for row in expected]
    # Spark reads the empty texts of CSV as null.
    assert [each["rows"] for each in found] == [*[without_empty] * 2, *[expected] * 2]
