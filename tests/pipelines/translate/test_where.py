"""Jobs that translate only the rows for which a condition is true."""

import json

import duckdb
import pyarrow.dataset as ds
import pytest
from fakes import Reverser, fail_at
from translation_jobs import (
    NO_ROWS,
    manifest,
    output_bytes,
    outputs,
    read,
    read_all,
    refused,
    translate,
    write,
)

from tt.model.errors import UserError, require

ROWS = {
    "id": [1, 2, 3, 4, 5],
    "lang": ["en", "de", None, "en", "en"],
    "text": ["one", "zwei", "three", None, "five"],
    "tags": [["a b"], ["c"], ["d"], [], ["e", None]],
}
models: list[Reverser] = []


def load_recorded() -> Reverser:
    models.append(Reverser())
    return models[-1]


def test_only_chosen_rows_are_translated(tmp_path):
    models.clear()
    source = write(tmp_path / "in.parquet", ROWS)
    translate(source, tmp_path / "out", text_columns=("text",), where="lang = 'en'",
              load=load_recorded)  # fmt: skip
    found = read_all(tmp_path / "out")
    assert found.select(list(ROWS)).equals(read(source))
    assert found["translation"].to_pylist() == ["eno", None, None, None, "evif"]
    statuses = ["ok", "skipped", "skipped", "null", "ok"]
    assert found["translation_status"].to_pylist() == statuses
    scores = found["translation_score"].to_pylist()
    assert [score is None for score in scores] == [status != "ok" for status in statuses]
    assert found["translation_error"].null_count == 5
    assert found["translation_flags"].to_pylist() == [[]] * 5
    totals = manifest(tmp_path / "out")
    assert (totals["skipped_unit_rows"], totals["skipped_file_rows"]) == (0, 0)
    counts = {**NO_ROWS, "ok": 2, "null": 1, "skipped": 2}
    assert totals["rows_by_status"] == {"text": counts}
    assert (totals["failed_rows"], totals["has_failed"]) == (0, False)
    assert (totals["texts"], totals["source_characters"]) == (2, len("onefive"))
    assert sorted(text for model in models for text in model.translated) == ["five", "one"]


def test_the_condition_applies_to_all_texts_of_a_row(tmp_path):
    source = write(tmp_path / "in.parquet", ROWS)
    translate(source, tmp_path / "out", text_columns=("text", "tags"), where="id IN (1, 5)")
    found = read_all(tmp_path / "out")
    skipped = ["skipped"]
    assert found["tags_translation_status"].to_pylist() == [
        ["ok"], skipped, skipped, [], ["ok", "null"],
    ]  # fmt: skip
    assert found["tags_translation"].to_pylist() == [["b a"], [None], [None], [], ["e", None]]
    assert found["text_translation"].to_pylist() == ["eno", None, None, None, "evif"]


def test_the_condition_applies_to_tables_of_other_formats(tmp_path):
    path = tmp_path / "in.csv"
    path.write_text("id,text\n" + "".join(f"{i},row {i}\n" for i in range(9)))
    translate(path, tmp_path / "out", text_columns=("text",), where="CAST(id AS INT) % 2 = 0",
              unit_rows=4)  # fmt: skip
    assert read_all(tmp_path / "out")["translation_status"].to_pylist() == [
        "skipped" if i % 2 else "ok" for i in range(9)
    ]


def test_columns_of_the_condition_may_occur_only_after_the_head_of_jsonl(tmp_path):
    path = tmp_path / "in.jsonl"
    lines = [json.dumps({"text": "a" * 1000}) for _ in range(600)]
    path.write_text("\n".join([*lines, json.dumps({"text": "b", "late": 1})]) + "\n")
    translate(path, tmp_path / "out", text_columns=("text",), where="late = 1")
    rows = manifest(tmp_path / "out")["rows_by_status"]["text"]
    assert rows == {**NO_ROWS, "skipped": 600, "ok": 1}
    assert "`where` uses the column 'never'" in refused(
        path, tmp_path / "no", text_columns=("text",), where="never = 1"
    )


def test_a_job_with_a_condition_resumes_only_with_the_same_condition(tmp_path):
    source = write(tmp_path / "in.parquet", ROWS)
    options = {"text_columns": ("text",), "unit_rows": 2}
    translate(source, tmp_path / "out", where="id > 2", **options)
    before = output_bytes(tmp_path / "out")
    (tmp_path / "out" / outputs(tmp_path / "out")[0]).unlink()
    (tmp_path / "out/_tt/manifest.json").unlink()
    resumed = translate(source, tmp_path / "out", where="id > 2", **options)
    assert resumed.reused_units == 2
    assert output_bytes(tmp_path / "out") == before
    assert "`where` was id > 2 and is now id > 1" in refused(
        source, tmp_path / "out", where="id > 1", **options
    )


def test_a_retry_keeps_skipped_rows(tmp_path):
    source = write(tmp_path / "in.parquet", ROWS)
    options = {"text_columns": ("text",), "where": "lang = 'en'"}
    fail_at.add("five")
    assert translate(source, tmp_path / "out", **options).manifest["failed_rows"] == 1
    fail_at.clear()
    models.clear()
    translate(source, tmp_path / "out", retry_failed=True, load=load_recorded, **options)
    assert [model.translated for model in models] == [["five"]]
    assert read_all(tmp_path / "out")["translation_status"].to_pylist() == [
        "ok", "skipped", "skipped", "null", "ok",
    ]  # fmt: skip


def test_a_limit_also_counts_skipped_rows(tmp_path):
    source = write(tmp_path / "in.parquet", ROWS)
    translate(source, tmp_path / "out", text_columns=("text",), where="lang = 'en'", limit=2)
    statuses = read_all(tmp_path / "out")["translation_status"].to_pylist()
    assert statuses == ["ok", "skipped"]


def test_wrong_conditions_are_refused_before_anything_is_written(tmp_path):
    good = write(tmp_path / "in/a.parquet", ROWS)
    other = write(tmp_path / "in/b.parquet", {"id": ["x"], "text": ["a"]})
    out = tmp_path / "out"
    options = {"text_columns": ("text",)}
    for where, message in (
        ("lang = 'en'", f"`where` uses the column 'lang', but {other} has no such column"),
        ("id", f"but its values are int64 in {good}"),
        ("id + 1 > 2", f"`where` does not match the columns of {other}"),
    ):
        assert message in refused(tmp_path / "in", out, where=where, **options)
    assert not out.exists()
    translate(tmp_path / "in", out, where="lang = 'en'", on_bad_file="skip", **options)
    [skipped] = manifest(out)["skipped_files"]
    assert skipped["file"] == "b.parquet"


def test_a_value_at_which_the_condition_fails_stops_the_job(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": [str(i) for i in range(900)] + ["x"]})
    where = "CAST(text AS INT) > 5"
    with pytest.raises(UserError, match="`where` fails at a row: Could not convert string 'x'"):
        translate(source, tmp_path / "out", where=where, unit_rows=500)
    assert "manifest.json" not in {path.name for path in (tmp_path / "out/_tt").iterdir()}


# Hive-partitioned folders.


def write_partitioned(folder):
    for lang, year in (("en", 2024), ("de", 2024), ("en", 1999)):
        path = folder / f"lang={lang}/year={year}/part.parquet"
        write(path, {"id": [year], "text": [f"{lang} {year}"]})
    return folder


def test_partition_columns_are_used_but_not_written(tmp_path):
    source, out = write_partitioned(tmp_path / "in"), tmp_path / "out"
    translate(source, out, text_columns=("text",), where="lang = 'en' AND year >= 2000")
    assert outputs(out) == [
        f"lang={lang}/year={year}/part-00000-of-00001.parquet"
        for lang, year in (("de", 2024), ("en", 1999), ("en", 2024))
    ]
    assert {"lang", "year"}.isdisjoint(read(out / outputs(out)[0]).column_names)
    expected = [
        ("de", 2024, "skipped", None), ("en", 1999, "skipped", None), ("en", 2024, "ok", "2024 ne"),
    ]  # fmt: skip
    columns = ["lang", "year", "translation_status", "translation"]
    read_by_duckdb = duckdb.sql(
        f"SELECT {', '.join(columns)} FROM read_parquet('{out}/*/*/*.parquet', "
        "hive_partitioning = true) ORDER BY ALL"
    )
    assert read_by_duckdb.fetchall() == expected
    table = ds.dataset(out, partitioning="hive").to_table(columns=columns)
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert sorted(rows, key=lambda row: row[:2]) == expected
    # Folders above the input are no partition columns.
    above = {"text_columns": ("text",), "where": "lang = 'en'"}
    message = refused(source / "lang=en", tmp_path / "no", **above)
    assert "`where` uses the column 'lang'" in message


class Monolingual(Reverser):
    """Translates only to Spanish, so that the error shows the language of each row."""

    def prepare(self, texts, *, languages=("", ""), most_tokens=None):
        require(languages[1] in ("", "es"), "`target_language` must be es", languages[1])
        return super().prepare(texts, languages=languages, most_tokens=most_tokens)


def test_a_partition_column_can_name_the_target_language(tmp_path):
    source = write_partitioned(tmp_path / "in")
    options = {"text_columns": ("text",), "target_language_column": "lang", "load": Monolingual}
    translate(source, tmp_path / "out", **options)
    errors = set(read_all(tmp_path / "out")["translation_error"].to_pylist())
    assert errors == {f"`target_language` must be es. Received: {code}" for code in ("de", "en")}
    again = translate(source, tmp_path / "out", retry_failed=True, **options)
    assert again.manifest["failed_rows"] == 3
    assert "must be a column of strings" in refused(
        source, tmp_path / "no", text_columns=("text",), target_language_column="year"
    )


def test_the_partition_replaces_a_column_of_the_file_in_conditions(tmp_path):
    source = write(tmp_path / "in/lang=de/a.parquet", {"lang": ["en", "de"], "text": ["a b", "b"]})
    translate(tmp_path / "in", tmp_path / "out", text_columns=("text",), where="lang = 'de'")
    found = read_all(tmp_path / "out")
    assert found["translation"].to_pylist() == ["b a", "b"]
    assert found.select(["lang", "text"]).equals(read(source))
