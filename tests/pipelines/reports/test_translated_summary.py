"""Summaries of translated folders, and the recognition of kinds of folders."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pytest
from translation_jobs import translate, write

from tt.model.errors import UserError
from tt.model.inspection.blocks import Histograms, as_json
from tt.pipelines.reports.folders import kind_of_folder
from tt.pipelines.reports.tfds_names import DATASETS, tfds_section
from tt.pipelines.reports.translated import translated_sections

TEXTS = ["one two three", None, "", "12", "a b c d e f", "one two three"]


@pytest.fixture(scope="module")
def translated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("job")
    table = {"text": pa.array(TEXTS), "tags": pa.array([["x y"], [], None, ["z"], [], []])}
    write(folder / "in.parquet", table)
    options = {"text_columns": ("text", "tags"), "unit_rows": 4}
    translate(folder / "in.parquet", folder / "out", **options)
    return folder / "out"


def look(folder, **options):
    """Return the facts of the overview, and the sections by anchor."""
    sections = {each.anchor: each for each in translated_sections(folder, **options)}
    return dict(sections["overview"].blocks[0].rows), sections


def shown(section):
    """Return the examples of a column: the text, translation, row and reasons of each."""
    return [(row[1], row[2], row[5], row[0].split(", ")) for row in section.blocks[-1].rows]


def histograms(section):
    """Return the number of values in each histogram of a column."""
    return [
        sum(histogram.counts)
        for block in section.blocks
        if isinstance(block, Histograms)
        for _, histogram in block.series
    ]


def test_all_rows_are_counted(translated):
    facts, sections = look(translated)
    json.dumps(as_json(list(sections.values())))
    assert (facts["rows"], facts["units"], facts["state"]) == ("6 of 6", "2 of 2", "finished")
    assert facts["rows examined below"] == 6
    workers = sections["work"].blocks[1]
    assert sum(row[workers.header.index("units")] for row in workers.rows) == 2
    assert sum(row[workers.header.index("rows")] for row in workers.rows) == 6
    text, tags = sections["column-0"], sections["column-1"]
    assert dict(text.blocks[0].counts) == {"ok": 3, "null": 1, "empty": 1, "copied": 1}
    assert histograms(text)[:2] == [4, 4]
    assert histograms(tags)[:2] == [2, 2]


def test_examples_have_the_numbers_of_their_rows(translated):
    _, sections = look(translated, examples=1)
    text = shown(sections["column-0"])
    assert [each[:3] for each in text if "status copied" in each[3]] == [("12", "12", 3)]
    reasons = {reason for each in text for reason in each[3]}
    assert "status ok" not in reasons
    assert reasons == {"sample", "status copied", "status null", "status empty"}
    assert [each[0] for each in shown(sections["column-1"]) if "sample" in each[3]] == ["x y"]
    _, sections = look(translated)
    assert [each[2] for each in shown(sections["column-1"]) if "sample" in each[3]] == [0, 3]


def test_a_repeated_text_is_shown_once(tmp_path):
    texts = [*["a longer text by far"] * 9, "one two three four", "two", "three"]
    write(tmp_path / "in.parquet", {"text": texts})
    translate(tmp_path / "in.parquet", tmp_path / "out", unit_rows=4)
    found = shown(look(tmp_path / "out")[1]["column-0"])
    assert [each[0] for each in found] == ["a longer text by far", "one two three four", "two"]


def test_no_more_rows_are_examined_than_requested(translated):
    facts, sections = look(translated, rows=5)
    assert (facts["rows examined below"], facts["rows"]) == (5, "6 of 6")
    assert histograms(sections["column-0"])[0] == 3


def test_a_job_in_progress_is_summarized(translated, tmp_path):
    shutil.copytree(translated, tmp_path / "out")
    (tmp_path / "out/_tt/manifest.json").unlink()
    first, second = sorted((tmp_path / "out/_tt/units").iterdir())
    second.unlink()
    facts, _ = look(tmp_path / "out")
    assert (facts["rows"], facts["units"], facts["state"]) == ("4 of 6", "1 of 2", "not finished")
    assert facts["rows examined below"] == 4
    damaged = tmp_path / "out" / f"{first.stem}.parquet"
    damaged.write_bytes(b"PAR1")
    with pytest.raises(UserError, match=r"cannot be read: .* again to write the file"):
        translated_sections(tmp_path / "out")


def test_jsonl_is_read(tmp_path):
    write(tmp_path / "in.parquet", {"text": ["one two", "three"]})
    translate(tmp_path / "in.parquet", tmp_path / "out", format="jsonl")
    found = shown(look(tmp_path / "out")[1]["column-0"])
    assert {each[0] for each in found} == {"one two", "three"}


def test_kinds_of_folders_are_recognized(translated, dataset, trained_toy, tmp_path):
    assert kind_of_folder(translated) == "translated"
    assert kind_of_folder(dataset) == "dataset"
    assert kind_of_folder(trained_toy.run) == "run"
    assert kind_of_folder(trained_toy.run / "model") == "model"
    for path, message in {
        tmp_path / "nowhere": "nowhere does not exist",
        dataset / "dataset.json": r"is a file\. Choose the folder",
        tmp_path: "contains no finished dataset, run, model or translation",
    }.items():
        with pytest.raises(UserError, match=message):
            kind_of_folder(path)


def test_tfds_names_are_listed_without_the_network(tmp_path):
    [table] = tfds_section("", data_dir=str(tmp_path)).blocks
    assert ["tfds:ted_hrlr_translate", False] in table.rows
    [table] = tfds_section("opus", data_dir=str(tmp_path)).blocks
    assert not any(row[table.header.index("prepared here")] for row in table.rows)
    [table] = tfds_section("ted_hrlr_translate/ru_to_en", data_dir=str(tmp_path)).blocks
    [row] = table.rows
    assert dict(zip(table.header, row, strict=True)) == {
        "name": "tfds:ted_hrlr_translate/ru_to_en", "languages": "ru en", "prepared here": False,
        "splits": "train, validation, test", "download": "131.0 MB",
    }  # fmt: skip
    for name in ("no_such_thing", "opus/no-such", "ted_hrlr_translate/ru"):
        with pytest.raises(UserError, match=f"has no tfds:{name}"):
            tfds_section(name, data_dir=str(tmp_path))


def test_each_dataset_except_wmt_has_splits(tmp_path):
    for name in (name for name in DATASETS if not name.startswith("wmt")):
        [table] = tfds_section(name, data_dir=str(tmp_path)).blocks
        assert table.rows
        assert all(row[table.header.index("splits")] for row in table.rows), name


def test_other_names_and_columns_without_texts_are_shown(tmp_path):
    table = {"text": TEXTS, "tags": [["x y"], [], None, ["z"], [], []], "id": list(range(6))}
    source = write(tmp_path / "in.parquet", table)
    options = {"text_columns": ("text", "tags"), "output_column": "german", "where": "id < 5"}
    translate(source, tmp_path / "out", drop_columns=("text",), **options)
    _, sections = look(tmp_path / "out")
    text = shown(sections["column-0"])
    assert {each[0] for each in text} == {None}
    assert any("status skipped" in each[3] for each in text)
    assert "eerht owt eno" in {each[1] for each in text}
    assert ("x y", "y x", 0) in [each[:3] for each in shown(sections["column-1"])]
    # The column with the name of a dropped text contains its translation.
    replaced = {"drop_columns": ("text",), "output_column": "text"}
    translate(source, tmp_path / "replaced", text_columns=("text",), **replaced)
    _, sections = look(tmp_path / "replaced")
    examples = [each[:2] for each in shown(sections["column-0"])]
    assert (None, "eerht owt eno") in examples
    assert {text for text, _ in examples} == {None}
