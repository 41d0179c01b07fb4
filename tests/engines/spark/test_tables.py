"""Spark writes tables, `tt` translates them, and Spark reads them; run by `make test-spark`."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from models import model_texts
from spark_program import find_missing_requirement, run_sql

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
