"""Added columns, file systems, progress and prices of a translation job."""

import dataclasses
import os
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from block_reading import facts_of, table_of
from fakes import Reverser, fail_at
from memory_store import MemoryStore
from translation_jobs import (
    ADDED,
    NO_ROWS,
    manifest,
    numbered,
    output_bytes,
    outputs,
    read,
    read_all,
    refused,
    request,
    translate,
    turned,
    unit_statistics,
    without_run,
    write,
)

from tt.model.formats.model_card import TrainingData
from tt.model.storage.files import open_binary
from tt.model.text.spans import Protection
from tt.model.transformer.search_options import Decoding
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.manifest import summary_blocks

# Columns.


def test_each_column_is_checked_for_texts_in_another_language(tmp_path):
    english, german = "This is the dog that I had.", "Das ist der Hund, den ich hatte."
    table = pa.table({"title": [english] * 900, "body": [german] * 900})
    source = write(tmp_path / "in.parquet", table)
    data = TrainingData(source_language="en")
    model = SimpleNamespace(folder="run", data=data, check=lambda *_, **__: [])
    for columns, names in ((("title", "body"), ["body: "]), (("body",), [""]), (("title",), [])):
        job = request(source, tmp_path / "out", text_columns=columns).plan()
        lines = dataclasses.replace(job, model=model).check_start()
        assert [
            line.partition("900 of 900 texts whose language tt detected")[0] for line in lines
        ] == names


def test_with_several_text_columns_the_added_columns_have_prefixes(tmp_path):
    table = pa.table({"a": ["ab", None, "cd"], "id": [1, 2, 3], "b": ["ab", "xy", ""]})
    source = write(tmp_path / "in.parquet", table)
    summary = translate(source, tmp_path / "out", text_columns=("b", "a"))
    found = read_all(tmp_path / "out")
    added = [f"{column}_{kind}" for column in "ba" for kind in ADDED]
    assert found.column_names == ["a", "id", "b", *added]
    assert found.select(["a", "id", "b"]).equals(table)
    assert found["a_translation"].to_pylist() == ["ba", None, "dc"]
    assert found["b_translation"].to_pylist() == ["ba", "yx", ""]
    assert found["b_translation_score"].to_pylist() == [-2.0, -2.0, None]
    assert found["a_translation_status"].to_pylist() == ["ok", "null", "ok"]
    assert summary.manifest["rows_by_status"] == {
        "b": {**NO_ROWS, "ok": 2, "empty": 1},
        "a": {**NO_ROWS, "ok": 2, "null": 1},
    }
    # "ab" occurs in both columns and is translated only once.
    assert (summary.manifest["texts"], summary.manifest["distinct_texts"]) == (4, 3)
    assert "belongs to another job: `text_columns` was b, a and is now a." in refused(
        source, tmp_path / "out", text_columns=("a",)
    )
    write(source, {"a": ["x"], "b": ["y"], "a_translation_error": [1]})
    assert "already has a column 'a_translation_error'" in refused(
        source, tmp_path / "other", text_columns=("a", "b")
    )
    translate(source, tmp_path / "other", text_columns=("a",))  # a single column adds no prefix


def load_three_best():
    return Reverser(n_best=3)


def test_n_best_is_a_list_of_texts_and_scores(tmp_path):
    fail_at.add("bad")
    source = write(tmp_path / "in.parquet", {"text": ["ab", None, "", "bad", "c"]})
    decoding = Decoding(n_best=3)
    translate(source, tmp_path / "out", decoding=decoding, load=load_three_best)
    found = read_all(tmp_path / "out")
    assert found.column_names[-1] == "translation_n_best"
    kind = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float32())]))
    assert found.schema.field("translation_n_best").type == kind
    best = [{"text": "ba", "score": -2.0}, {"text": "ba'", "score": -3.0}]
    assert found["translation_n_best"].to_pylist() == [
        [*best, {"text": "ba''", "score": -4.0}],
        *(None, None, None),
        [{"text": f"c{marks}", "score": -1.0 - len(marks)} for marks in ("", "'", "''")],
    ]
    assert found["translation"].to_pylist() == ["ba", None, "", None, "c"]
    assert "`n_best` was 3 and is now 1" in refused(source, tmp_path / "out")
    fail_at.clear()
    translate(source, tmp_path / "out", decoding=decoding, load=load_three_best, retry_failed=True)
    assert read_all(tmp_path / "out")["translation_n_best"].to_pylist()[3] == [
        {"text": f"dab{marks}", "score": -3.0 - len(marks)} for marks in ("", "'", "''")
    ]
    clash = write(tmp_path / "clash.parquet", {"text": ["a"], "translation_n_best": [1]})
    assert "already has a column 'translation_n_best'" in refused(
        clash, tmp_path / "other", decoding=decoding, text_columns=("text",)
    )


def test_partition_columns_are_kept_in_folder_names(tmp_path):
    for year, rows in ((2023, 2), (2024, 3)):
        write(tmp_path / f"in/year={year}/part.parquet", numbered(rows))
    translate(tmp_path / "in", tmp_path / "out", unit_rows=2)
    assert outputs(tmp_path / "out") == [
        "year=2023/part-00000-of-00001.parquet",
        *(f"year=2024/part-0000{i}-of-00002.parquet" for i in range(2)),
    ]
    assert "year" not in read(tmp_path / "out" / outputs(tmp_path / "out")[0]).column_names
    table = pq.read_table(tmp_path / "out")  # PyArrow ignores the folder _tt
    assert table["year"].to_pylist() == [2023, 2023, 2024, 2024, 2024]
    assert table["translation"].to_pylist() == [*turned(2), *turned(3)]


@pytest.mark.parametrize("compression", ["gzip", "none", "snappy"])
def test_output_files_have_the_requested_compression(tmp_path, compression):
    source = write(tmp_path / "in.parquet", numbered(3))
    translate(source, tmp_path / "out", compression=compression)
    column = pq.read_metadata(tmp_path / "out/in-00000-of-00001.parquet").row_group(0).column(1)
    assert column.compression == {"none": "UNCOMPRESSED"}.get(compression, compression.upper())


# Workers.


def test_two_processes_write_the_same_files_as_a_single_process(tmp_path, monkeypatch):
    root = Path(__file__).parents[3]
    monkeypatch.setenv("PYTHONPATH", f"{root}{os.pathsep}{root / 'tests/support'}")
    source = write(tmp_path / "in.parquet", numbered(200), row_group_size=200)
    processes = ["--direct_num_workers=2", "--direct_running_mode=multi_processing"]
    translate(source, tmp_path / "two", unit_rows=20, arguments=processes)
    assert len({unit["worker"]["process"] for unit in unit_statistics(tmp_path / "two")}) == 2
    translate(source, tmp_path / "one", unit_rows=20)
    assert output_bytes(tmp_path / "two") == output_bytes(tmp_path / "one")
    manifests = [without_run(manifest(tmp_path / name)) for name in ("one", "two")]
    assert manifests[0] == manifests[1]


# Other file systems.


def test_input_and_output_can_be_on_a_remote_file_system(tmp_path):
    MemoryStore.clear()
    table = pa.table({"text": ["ab", None, "cd"], "n": [1, 2, 3]})
    for name in ("year=1/a", "year=2/b"):
        local = write(tmp_path / "in" / f"{name}.parquet", table)
        MemoryStore.put(f"mem://data/in/{name}.parquet", local.read_bytes())
    MemoryStore.put("mem://data/in/c.parquet", b"not Parquet")
    assert refused("mem://data/in", "mem://out/all").startswith("mem://data/in/c.parquet is not")
    for source, folder in (("mem://data/in/year=*/*.parquet", "glob"), ("mem://data/in", "all")):
        out = f"mem://out/{folder}"
        for already_finished in (False, True):
            summary = translate(source, out, unit_rows=2, on_bad_file="skip")
            assert (summary.rows, summary.already_finished) == (6, already_finished)
        found = [path for path in MemoryStore.paths() if path.startswith(f"{out}/")]
        local = tmp_path / folder
        translate(tmp_path / "in", local, unit_rows=2)
        assert [path.removeprefix(f"{out}/") for path in found if path.endswith(".parquet")] == (
            outputs(local)
        )
        assert not [path for path in found if path.endswith(".tmp")]
        for name in outputs(local):
            with open_binary(f"{out}/{name}") as handle:
                assert handle.read() == (local / name).read_bytes()
    MemoryStore.put("mem://out/all/notes.txt", b"mine")
    assert "contains other files (notes.txt)" in refused(
        "mem://data/in", "mem://out/all", overwrite=True, on_bad_file="skip"
    )
    other = {"overwrite": True, "unit_rows": 3}
    assert (
        translate("mem://data/in/year=1/a.parquet", "mem://out/glob", **other).manifest["units"]
        == 1
    )
    left = [path for path in MemoryStore.paths() if path.startswith("mem://out/glob/")]
    assert len([path for path in left if path.endswith(".parquet")]) == 1


# Progress and prices.


class Watched(Reverser):
    """Records the progress of the run during translation."""

    def translate(self, inputs):
        seen.append(watches[-1].measure().done)
        return super().translate(inputs)


watches = []
seen = []


def test_the_progress_counts_the_rows_of_finished_units(tmp_path):
    source = write(tmp_path / "in.parquet", numbered(40))
    job = request(source, tmp_path / "out", unit_rows=10, load=Watched).plan()
    watch = job.watch()
    assert watch.measure(0).describe() == "translating: 0 of 40 rows"
    watches.append(watch)
    job.run()
    assert seen == [0, 10, 20, 30]
    assert watch.measure().phase == "writing the manifest"


def test_the_summary_shows_counts_time_and_prices(tmp_path):
    texts = [*["abcd"] * 3, "ab", None, ""]
    source = write(tmp_path / "in.parquet", {"text": texts})
    summary = translate(source, tmp_path / "out", unit_rows=4)
    summary = dataclasses.replace(summary, seconds=90.0)
    blocks = summary_blocks(summary, price_per_hour=3.0)
    # 90 s at 3 dollars per hour cost 7.5 cents, for 6 rows with 14 characters in total.
    assert {name: value for name, value in facts_of(blocks).items() if value is not None} == {
        "rows": "6 of 1 file in 2 units",
        "sentences": "4 in all texts, 2 translated",
        "source tokens": "10, 16.7% padding",  # a batch of two sentences with 6 and 4 tokens
        "target tokens": 10,
        "time": "1:30",
        "price": "0.075",
        "price per million rows": "12,500.00",
        "price per million source characters": "5,357.14",
    }
    assert table_of(blocks, "column") == [
        ["text", "ok", 4], ["text", "null", 1], ["text", "empty", 1],
    ]  # fmt: skip
    again = facts_of(
        summary_blocks(translate(source, tmp_path / "out", unit_rows=4), price_per_hour=3.0)
    )
    assert (again["rows"], again["time"]) == ("6 of 1 file in 2 units", None)
    assert "price per million rows" not in again
    assert not any("price" in name for name in facts_of(summary_blocks(summary)))


def test_protected_spans_and_glossary_terms_are_kept_and_counted(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": ["<b>ab</b> {x}", "My tea", "12345", "tea"]})
    terms = tmp_path / "terms.tsv"
    terms.write_text("tea\tTee\n")
    summary = translate(source, tmp_path / "out", texts=TextOptions(glossary=str(terms)))
    table = read(tmp_path / "out/in-00000-of-00001.parquet")
    assert table["translation"].to_pylist() == ["<b>ba</b> {x}", "yM Tee", "12345", "Tee"]
    assert table["translation_status"].to_pylist() == ["ok", "ok", "copied", "ok"]
    assert summary.manifest["terms"] == {"found": 2, "kept": 2}
    assert facts_of(summary_blocks(summary))["glossary terms"] == "2 of 2"
    # A glossary is identified by its content, so renaming the file does not matter.
    moved = terms.rename(tmp_path / "moved.tsv")
    again = translate(source, tmp_path / "out", texts=TextOptions(glossary=str(moved)))
    assert again.already_finished
    moved.write_text("tea\tTEE\n")
    assert "`glossary` was " in refused(
        source, tmp_path / "out", texts=TextOptions(glossary=str(moved))
    )
    assert "`protect` was on and is now off" in refused(
        source, tmp_path / "out", texts=TextOptions(protection=Protection(protect=False))
    )


def test_a_long_text_is_split_and_counted(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": ["One. Two. Three. Four.", "x"]})
    options = {"texts": TextOptions(max_source_tokens=9)}
    summary = translate(source, tmp_path / "out", **options)
    assert summary.manifest["rows_by_status"] == {"text": {**NO_ROWS, "ok": 2}}
    assert summary.manifest["texts"] == summary.manifest["distinct_texts"] == 5
    assert "`on_too_long` was split and is now skip" in refused(
        source, tmp_path / "out", texts=TextOptions(max_source_tokens=9, on_too_long="skip")
    )
