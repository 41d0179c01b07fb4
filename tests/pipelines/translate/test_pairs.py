"""Back-translations: the pairs, the reasons for other rows, and the job that writes them."""

from __future__ import annotations

import itertools

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import fail_at, reverse
from translation_jobs import (
    manifest,
    output_bytes,
    read_all,
    refused,
    translate,
    unit_statistics,
    without_run,
    write,
)

from tt.model.errors import UserError
from tt.pipelines.preprocess import sources
from tt.pipelines.texts.flags import FLAGS, TRANSLATED
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.texts.results import FROM_MEMORY, OK, STATUSES, TextFields
from tt.pipelines.translate.options import BackTranslation, TranslateOptions
from tt.pipelines.translate.pairs import PAIR_SCHEMA, make_pairs

CORPUS = BackTranslation()


def pairs_of(rows, *, tag="<BT>"):
    """Return the pairs and the dropped rows of (text, translation, status, flags) rows."""
    names = ("text", "translation", "translation_status", "translation_flags")
    kinds = (pa.string(), pa.string(), pa.string(), pa.list_(pa.string()))
    columns = zip(*rows, strict=True)
    arrays = [pa.array(list(c), kind) for c, kind in zip(columns, kinds, strict=True)]
    table = pa.Table.from_arrays(arrays, names=names)
    pairs, dropped = make_pairs(
        table, fields=TextFields(fields=("text",)), options=BackTranslation(tag=tag)
    )
    assert pairs.schema == PAIR_SCHEMA
    return [(row["source"], row["target"]) for row in pairs.to_pylist()], dropped


def test_a_row_is_a_pair_or_has_one_reason():
    rows = [
        ("ein", "one", "ok", []),
        ("zwei", "two", "from_memory", []),
        ("drei", "three", "ok", ["short", "number"]),
        ("vier", "four", "incomplete", ["incomplete"]),
        ("fünf", None, "failed", []),
        (None, None, "null", []),
        ("sechs", " ", "ok", []),
        ("sieben", "", "empty", []),
    ]
    assert pairs_of(rows) == (
        [("<BT> one", "ein"), ("<BT> two", "zwei")],
        {"flag_short": 1, "translation_empty": 2, "translation_failed": 1,
         "translation_incomplete": 1, "translation_null": 1},
    )  # fmt: skip
    assert pairs_of(rows[:1], tag="") == ([("one", "ein")], {})
    assert pairs_of(rows[-1:]) == ([], {"translation_empty": 1})


def test_the_reasons_are_those_of_preprocessing():
    """`tt preprocess` rejects the same rows of a translated table, for the same reasons."""
    assert TRANSLATED == (OK, FROM_MEMORY)
    for status, flag in itertools.product(STATUSES, [None, *FLAGS]):
        _, dropped = pairs_of([("a", "b", status, [flag] if flag else [])])
        fault = None
        if status not in TRANSLATED:
            fault = sources.STATUS_FAULTS[status]
        elif flag:
            fault = sources.FLAG_FAULTS[flag]
        assert list(dropped) == [each for each in [fault] if each]


def test_a_tag_is_a_text_without_outer_spaces():
    for tag in (" <BT>", "<BT> ", "a\tb", "a\nb", "a  b"):
        with pytest.raises(UserError, match="`tag` must not begin or end with a space"):
            BackTranslation(tag=tag)
    with pytest.raises(UserError, match="`tag` must be UTF-8"):
        BackTranslation(tag="\udcff")
    assert [BackTranslation(tag=tag).tag for tag in ("", "<BT>", "a b")] == ["", "<BT>", "a b"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"text_columns": ("a", "b")}, "a corpus needs one text column"),
        ({"format": "csv"}, "a corpus needs the format parquet. Remove `format`"),
        ({"keep_columns": ("a",)}, "a corpus has no other columns"),
        ({"drop_columns": ("a",)}, "a corpus has no other columns"),
        ({"key": ("a",)}, "a corpus cannot be compared by `key`"),
    ],
)
def test_options_that_a_corpus_cannot_have(options, problem):
    with pytest.raises(UserError, match=problem):
        TranslateOptions(input=("a",), output="out", corpus=CORPUS, **options)


def test_a_corpus_is_not_a_delta_table(tmp_path):
    source = write(tmp_path / "a.parquet", {"text": ["ab"]})
    problem = refused(source, f"delta:{tmp_path}/out", corpus=CORPUS)
    assert "a corpus needs a folder" in problem


TEXTS = ["row one", None, "", "poor text", "abba abba abba", "12", "last row"]


def test_a_job_counts_every_row_and_reads_no_other_column(tmp_path):
    """The column "translation" of the input does not collide with the translations."""
    fail_at.add("poor text")
    table = {"translation": [{"de": text, "en": "x"} for text in TEXTS], "source": list("abcdefg")}
    source = write(tmp_path / "a.parquet", table)
    options = {"text_columns": ("translation.de",), "unit_rows": 3, "corpus": CORPUS}
    summary = translate(source, tmp_path / "out", **options)
    pairs = [(f"<BT> {reverse(text)}", text) for text in ("row one", "last row")]
    found = read_all(tmp_path / "out")
    assert found.schema == PAIR_SCHEMA
    assert [tuple(row.values()) for row in found.to_pylist()] == pairs
    saved = manifest(tmp_path / "out")
    dropped = {
        "flag_copy": 1, "translation_copied": 1, "translation_empty": 1, "translation_failed": 1,
        "translation_null": 1,
    }  # fmt: skip
    for counts in (saved, saved["files"]["a.parquet"]):
        assert (counts["rows"], counts["rows_out"], counts["skipped_unit_rows"]) == (7, 2, 0)
        assert counts["rows_dropped"] == dropped
    assert [sum(unit["rows_dropped"].values()) for unit in unit_statistics(tmp_path / "out")] == [
        2, 3, 0,
    ]  # fmt: skip
    assert saved["options"]["corpus"] == {"tag": "<BT>"}
    assert saved["failed_rows"] == 1
    assert not summary.has_failed
    fail_at.clear()
    again = translate(source, tmp_path / "out", **options, retry_failed=True)
    assert again.run_rows == 3
    assert "translation_failed" not in again.manifest["rows_dropped"]
    assert [row["target"] for row in read_all(tmp_path / "out").to_pylist()] == [
        "row one", "poor text", "last row",
    ]  # fmt: skip


def test_without_flags_only_statuses_drop_rows(tmp_path):
    source = write(tmp_path / "a.parquet", {"text": ["abba abba abba", "12"]})
    texts = TextOptions(flags=("none",))
    summary = translate(source, tmp_path / "out", corpus=CORPUS, texts=texts)
    assert summary.manifest["rows_dropped"] == {"translation_copied": 1}


def test_another_tag_or_a_table_is_another_job(tmp_path):
    source = write(tmp_path / "a.parquet", {"text": ["row one", "row two"] * 20})
    options = {"unit_rows": 10}
    translate(source, tmp_path / "out", corpus=CORPUS, **options)
    files = output_bytes(tmp_path / "out")
    assert len(files) == 4
    other = refused(source, tmp_path / "out", corpus=BackTranslation(tag="x"), **options)
    assert "`tag` was <BT> and is now x" in other
    table = refused(source, tmp_path / "out", **options)
    assert "`tag` was <BT> and is now not set" in table
    assert output_bytes(tmp_path / "out") == files
    (tmp_path / "out/a-00002-of-00004.parquet").unlink()
    (tmp_path / "out/_tt/manifest.json").unlink()
    summary = translate(source, tmp_path / "out", corpus=CORPUS, **options)
    assert summary.reused_units == 3
    assert output_bytes(tmp_path / "out") == files
    assert translate(source, tmp_path / "out", corpus=CORPUS, **options).already_finished


def test_skipped_units_and_bad_files_are_not_dropped_rows(tmp_path):
    write(tmp_path / "in/a.parquet", {"text": ["row one", "12"]})
    (tmp_path / "in/b.parquet").write_bytes(b"PAR1 is cut off")
    summary = translate(tmp_path / "in", tmp_path / "out", corpus=CORPUS, on_bad_file="skip")
    assert summary.manifest["rows_out"] == 1
    assert summary.manifest["rows_dropped"] == {"translation_copied": 1}
    assert [each["file"] for each in summary.manifest["skipped_files"]] == ["b.parquet"]


def test_a_corpus_needs_a_column_of_strings(tmp_path):
    source = write(tmp_path / "a.parquet", {"tags": [["a"], ["b"]]})
    options = {"text_columns": ("tags",), "corpus": CORPUS}
    problem = f"pairs need a column of strings; 'tags' of {source} has lists. Set `text_columns`"
    assert refused(source, tmp_path / "out", **options) == problem
    assert not (tmp_path / "out").exists()


def test_threads_do_not_change_a_corpus(tmp_path):
    source = tmp_path / "a.txt"
    source.write_text("".join(f"row {i}\n" for i in range(60)) + "12\n")
    one = translate(source, tmp_path / "one", corpus=CORPUS, unit_rows=7)
    two = translate(
        source, tmp_path / "two", corpus=CORPUS, unit_rows=7,
        arguments=("--direct_num_workers=2", "--direct_running_mode=multi_threading"),
    )  # fmt: skip
    assert output_bytes(tmp_path / "one") == output_bytes(tmp_path / "two")
    assert without_run(one.manifest)["rows_dropped"] == two.manifest["rows_dropped"]
    assert pq.ParquetFile(tmp_path / "one/a-00000-of-00009.parquet").schema_arrow == PAIR_SCHEMA
