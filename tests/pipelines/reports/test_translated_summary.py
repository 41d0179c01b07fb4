"""Summaries of translated folders, and what kind a folder is."""

from __future__ import annotations

import dataclasses
import json

import pyarrow as pa
import pytest
from translation_jobs import translate, write

from model.errors import UserError
from pipelines.reports.folders import kind_of_folder
from pipelines.reports.tfds_names import list_tfds
from pipelines.reports.translated import summarize_translated

TEXTS = ["one two three", None, "", "12", "a b c d e f", "one two three"]


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    table = {"text": pa.array(TEXTS), "tags": pa.array([["x y"], [], None, ["z"], [], []])}
    write(folder / "in.parquet", table)
    options = {"text_columns": ("text", "tags"), "unit_rows": 4}
    translate(folder / "in.parquet", folder / "out", **options)
    return folder / "out"


def test_all_rows_are_counted(translated):
    summary = summarize_translated(translated)
    json.dumps(dataclasses.asdict(summary))
    assert (summary.totals["rows"], summary.planned_rows, summary.looked_at) == (6, 6, 6)
    assert (summary.units, summary.planned_units, summary.is_finished) == (2, 2, True)
    assert sum(worker["units"] for worker in summary.workers) == 2
    assert sum(worker["rows"] for worker in summary.workers) == 6
    text, tags = summary.columns
    assert text.rows_by_status == {"ok": 3, "null": 1, "empty": 1, "copied": 1}
    assert (text.texts, tags.texts) == (6, 2)
    assert text.source_lengths.total == text.target_lengths.total == 4
    assert tags.source_lengths.total == 2


def test_examples_stand_where_their_rows_are(translated):
    text, tags = summarize_translated(translated, examples=1).columns
    [copied] = text.examples["status copied"]
    assert (copied.text, copied.translation, copied.row) == ("12", "12", 3)
    assert "status ok" not in text.examples
    assert tags.examples["sample"][0].text == "x y"
    assert summarize_translated(translated).columns[1].examples["sample"][1].row == 3
    assert text.examples["longest for its text"] or text.examples["shortest for its text"]


def test_an_outlier_that_occurs_often_is_named_once(tmp_path):
    texts = ["one two three four", "two", *["a longer text by far"] * 9]
    write(tmp_path / "in.parquet", {"text": texts})
    translate(tmp_path / "in.parquet", tmp_path / "out", unit_rows=4)
    [column] = summarize_translated(tmp_path / "out").columns
    examples = column.examples
    ratios = examples["longest for its text"] + examples["shortest for its text"]
    assert sorted(each.text for each in ratios) == ["a longer text by far", "one two three four"]
    least = examples["least probable per character"]
    assert len({each.text for each in least}) == len(least)


def test_so_many_rows_are_looked_at_and_no_more(translated):
    summary = summarize_translated(translated, rows=5)
    assert summary.looked_at == 5
    assert summary.columns[0].texts == 5
    assert summary.totals["rows"] == 6


def test_a_job_under_way_is_summed_up(translated, tmp_path):
    import shutil

    shutil.copytree(translated, tmp_path / "out")
    (tmp_path / "out/_tt/manifest.json").unlink()
    first, second = sorted((tmp_path / "out/_tt/units").iterdir())
    second.unlink()
    summary = summarize_translated(tmp_path / "out")
    assert (summary.is_finished, summary.units, summary.planned_units) == (False, 1, 2)
    assert (summary.totals["rows"], summary.looked_at) == (4, 4)
    damaged = tmp_path / "out" / f"{first.stem}.parquet"
    damaged.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"cannot be read: .* makes it again"):
        summarize_translated(tmp_path / "out")


def test_jsonl_is_read_too(tmp_path):
    write(tmp_path / "in.parquet", {"text": ["one two", "three"]})
    translate(tmp_path / "in.parquet", tmp_path / "out", format="jsonl")
    [column] = summarize_translated(tmp_path / "out").columns
    assert [sample.text for sample in column.examples["sample"]] == ["one two", "three"]
    assert column.texts == 2


def test_folders_are_told_apart(translated, dataset, trained_toy, tmp_path):
    assert kind_of_folder(translated) == "translated"
    assert kind_of_folder(dataset) == "dataset"
    assert kind_of_folder(trained_toy.run) == "run"
    assert kind_of_folder(trained_toy.run / "model") == "model"
    for path, message in {
        tmp_path / "nowhere": "there is no folder",
        dataset / "dataset.json": "is a file: name the folder",
        tmp_path: "holds no dataset, run, model or translation",
    }.items():
        with pytest.raises(UserError, match=message):
            kind_of_folder(path)
    (tmp_path / "_work").mkdir()
    with pytest.raises(UserError, match="is an unfinished dataset"):
        kind_of_folder(tmp_path)


def test_names_of_tfds_are_listed_without_the_network(tmp_path):
    names = [subset.name for subset in list_tfds("", data_dir=str(tmp_path))]
    assert "ted_hrlr_translate" in names
    subsets = {each.name: each for each in list_tfds("opus", data_dir=str(tmp_path))}
    assert all(not each.is_prepared for each in subsets.values())
    [ted] = list_tfds("ted_hrlr_translate/ru_to_en", data_dir=str(tmp_path))
    assert (ted.languages, ted.splits) == (["ru", "en"], [])
    assert ted.download_bytes > 1e8
    with pytest.raises(UserError, match=r"knows no tfds:no_such_thing"):
        list_tfds("no_such_thing", data_dir=str(tmp_path))
