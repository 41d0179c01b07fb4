"""Quality flags in the output, the statistics, the manifest and the summary."""

import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from block_reading import table_of
from fakes import Reverser, fail_at
from translation_jobs import (
    NO_FLAGS,
    NO_ROWS,
    manifest,
    read_all,
    refused,
    translate,
    unit_statistics,
    write,
)

from tt.model.engines.translator import Hypothesis, Translation
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.manifest import summary_blocks


class CutOff(Reverser):
    """Reports the translations of all texts with an "x" as cut off."""

    def translate(self, inputs):
        found, work = super().translate(inputs)
        return [
            Translation((Hypothesis(each.text, each.score, "x" not in each.text),))
            for each in found
        ], work


ROWS = ["ax", None, "", "12", "ж", "ab", "ax", "bad"]
FLAGS_OF_ROWS = [["incomplete"], [], [], [], [], [], ["incomplete"], []]


def test_each_row_has_a_list_of_flags_and_flags_are_counted(tmp_path):
    fail_at.add("bad")
    source = write(tmp_path / "in.parquet", {"text": ROWS, "note": ["no"] * 8})
    summary = translate(
        source, tmp_path / "out", load=CutOff, text_columns=("text", "note"), unit_rows=6
    )
    table = read_all(tmp_path / "out")
    assert table["text_translation_flags"].to_pylist() == FLAGS_OF_ROWS
    assert table["note_translation_flags"].to_pylist() == [[]] * 8
    is_flagged = pc.list_value_length(pc.field("text_translation_flags")) > 0
    flagged = pq.read_table(tmp_path / "out", filters=is_flagged)
    assert flagged["text"].to_pylist() == ["ax", "ax"]
    counts = {"text": {**NO_FLAGS, "incomplete": 2}, "note": NO_FLAGS}
    assert summary.manifest["rows_by_flag"] == manifest(tmp_path / "out")["rows_by_flag"] == counts
    assert manifest(tmp_path / "out")["files"]["in.parquet"]["rows_by_flag"] == counts
    assert [
        unit["rows_by_flag"]["text"]["incomplete"] for unit in unit_statistics(tmp_path / "out")
    ] == [1, 1]
    assert table_of(summary_blocks(summary), "flag") == [["text", "incomplete", 2]]
    fail_at.clear()
    again = translate(
        source, tmp_path / "out", load=CutOff, text_columns=("text", "note"), unit_rows=6,
        retry_failed=True,
    )  # fmt: skip
    assert read_all(tmp_path / "out")["text_translation_flags"].to_pylist() == FLAGS_OF_ROWS
    assert again.manifest["rows_by_flag"] == counts


ENGLISH = "The teacher reads the book on the small table in the house."
GERMAN = "Der Lehrer liest das Buch am kleinen Tisch in seinem Haus."


@pytest.mark.parametrize(
    ("choice", "status", "is_empty"),
    [
        (None, "ok", False),
        ("flag", "ok", False),
        ("null", "flagged", True),
        ("copy", "copied", False),
    ],
)
def test_the_language_of_each_text_is_detected(tmp_path, choice, status, is_empty):
    source = write(tmp_path / "in.parquet", {"text": [ENGLISH, GERMAN, None, "12"]})
    texts = TextOptions(
        source_language="en", target_language="es", detect_language=True, on_wrong_language=choice
    )
    translate(source, tmp_path / "out", texts=texts)
    found = read_all(tmp_path / "out")
    assert found["translation_source_language"].to_pylist() == ["en", "de", None, None]
    assert found["translation_status"].to_pylist() == ["ok", status, "null", "copied"]
    assert found["translation"].is_null().to_pylist() == [False, choice == "null", True, False]
    assert ("wrong_source" in found["translation_flags"].to_pylist()[1]) == (choice is not None)
    if choice == "copy":
        assert found["translation"].to_pylist()[1] == GERMAN


def test_flagged_translations_can_be_left_out_and_the_options_belong_to_the_job(tmp_path):
    source = write(tmp_path / "in.parquet", {"text": ["ax", "b"]})
    first = TextOptions(flags=("incomplete",), on_flag="null")
    summary = translate(source, tmp_path / "out", load=CutOff, texts=first)
    assert summary.manifest["rows_by_status"] == {"text": {**NO_ROWS, "ok": 1, "flagged": 1}}
    assert manifest(tmp_path / "out")["rows_by_status"] == summary.manifest["rows_by_status"]
    table = read_all(tmp_path / "out")
    assert table["translation"].to_pylist() == [None, "b"]
    assert table["translation_status"].to_pylist() == ["flagged", "ok"]
    assert table["translation_score"].to_pylist() == [None, -1.0]
    assert table["translation_error"].to_pylist() == [
        "left out because of its flags: incomplete", None,
    ]  # fmt: skip
    assert "`flags` was incomplete and is now copy" in refused(
        source, tmp_path / "out", texts=TextOptions(flags=("copy",), on_flag="null")
    )
    assert "`on_flag` was null and is now keep" in refused(
        source, tmp_path / "out", texts=TextOptions(flags=("incomplete",))
    )
