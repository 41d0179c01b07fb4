"""Bad files, failed rows, and existing output folders in a Parquet job."""

import json
import shutil

import pyarrow as pa
import pytest
from block_reading import facts_of, table_of
from damage import damage, damage_text
from fakes import Reverser, crash_at, fail_at
from translation_jobs import (
    NO_ROWS,
    TWO_WORKERS,
    files_below,
    load_nothing,
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
    write,
)

from tt.model.errors import UserError
from tt.model.folders import lock_folder
from tt.pipelines.texts.options import TextOptions
from tt.pipelines.translate.manifest import describe_failure, summary_blocks

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])


# Bad files.


def test_bad_files_are_skipped_and_reported(tmp_path):
    folder = tmp_path / "in"
    write(folder / "good.parquet", numbered(3))
    write(folder / "x=1/other.parquet", {"body": ["a"]})
    write(folder / "number.parquet", {"text": [1]})
    (folder / "text.parquet").write_text("id,text\n")
    (folder / "cut.parquet").write_bytes((folder / "good.parquet").read_bytes()[:-9])
    names = ["cut.parquet", "number.parquet", "text.parquet", "x=1/other.parquet"]
    out = tmp_path / "out"
    assert "cut.parquet is not a Parquet file" in refused(folder, out, text_columns=("text",))
    assert not out.exists()
    summary = translate(folder, out, text_columns=("text",), on_bad_file="skip")
    assert (summary.rows, summary.manifest["units"]) == (3, 1)
    assert outputs(out) == ["good-00000-of-00001.parquet"]
    written = manifest(out)
    assert [skipped["file"] for skipped in written["skipped_files"]] == names
    reasons = [skipped["reason"] for skipped in written["skipped_files"]]
    assert reasons[1] == (
        "a text column must contain strings or lists of strings; 'text' of "
        f"{folder}/number.parquet is int64. Its columns: text: int64"
    )
    assert [file["rows"] for file in written["skipped_files"]] == [None, 1, None, 1]
    assert table_of(summary_blocks(summary), "skipped") == [
        list(each) for each in zip(names, [None, 1, None, 1], reasons, strict=True)
    ]
    # A repaired file is a new file.
    write(folder / "number.parquet", {"text": ["1"]})
    assert translate(folder, out, text_columns=("text",), on_bad_file="skip").run_rows == 1


@pytest.mark.parametrize(
    ("rows", "limit", "skipped"), [(400, None, 400), (400, 100, 60), (9, 45, 5)]
)
def test_rows_of_skipped_files_count_as_lost(tmp_path, rows, limit, skipped):
    folder, out = tmp_path / "in", tmp_path / "out"
    write(folder / "a.parquet", numbered(40))
    write(folder / "b.parquet", {"body": ["a"] * rows})
    (folder / "c.parquet").write_text("not Parquet, so the number of rows is unknown")
    options = {"text_columns": ("text",), "on_bad_file": "skip", "limit": limit}
    summary = translate(folder, out, **options, max_failed=0.001)
    written = manifest(out)
    assert (written["rows"], written["skipped_unit_rows"]) == (40, 0)
    assert (written["skipped_file_rows"], written["has_failed"]) == (skipped, skipped > 0)
    assert [file["rows"] for file in written["skipped_files"]] == [skipped, None]
    assert summary.has_failed == (skipped > 0)
    unknown = ", and 1 of 3 files were skipped (with an unknown number of rows)"
    if skipped:
        assert describe_failure(summary).startswith(
            f"0 of {40 + skipped} rows failed and {skipped} were skipped"
            f"{'' if limit else unknown}, which exceeds `max_failed=0.001`. "
        )
        assert facts_of(summary_blocks(summary))["rows of skipped files"] == skipped
    share = skipped / (40 + skipped)
    assert not translate(folder, out, **options, max_failed=share).has_failed


def test_files_with_an_unknown_number_of_rows_count_by_their_share_of_all_files(tmp_path):
    folder, out = tmp_path / "in", tmp_path / "out"
    write(folder / "a.parquet", numbered(400))
    for name in ("b", "c", "d"):
        (folder / f"{name}.parquet").write_text("not Parquet")
    options = {"text_columns": ("text",), "on_bad_file": "skip"}
    summary = translate(folder, out, **options, max_failed=0.7)
    assert summary.has_failed
    assert manifest(out)["has_failed"]
    assert describe_failure(summary).startswith(
        "0 of 400 rows failed and 0 were skipped, and 3 of 4 files were skipped (with an unknown "
        "number of rows), which exceeds "
    )
    assert not translate(folder, out, **options, max_failed=0.75).has_failed


def test_a_job_without_a_good_file_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_text("text")
    message = refused(tmp_path / "a.parquet", tmp_path / "out", on_bad_file="skip")
    assert message.startswith("no input file can be translated, 1 file skipped. First reason: ")


@pytest.fixture
def damaged(tmp_path):
    """A folder with two files of 40 rows; in one file, the second of four row groups is damaged."""
    table = pa.table({"text": [f"row {i:03d}" for i in range(40)]})
    options = {"write_page_checksum": True, "use_dictionary": False, "compression": "none"}
    path = write(tmp_path / "in/a.parquet", table, row_group_size=10, **options)
    write(tmp_path / "in/b.parquet", table)
    damage(path, row=12)
    return tmp_path / "in"


def test_damaged_pages_are_a_one_line_error_or_skip_units(damaged, tmp_path):
    out, arguments = tmp_path / "out", TWO_WORKERS
    message = refused(damaged, out, unit_rows=10, arguments=arguments)
    assert f"{damaged}/a.parquet cannot be read (rows 10 to 19, counted from 0): " in message
    assert message.endswith(
        ". Fetch the file again, or write it again with another program, or skip such rows with "
        "`on_bad_file=skip`"
    )
    assert not (out / "_tt/manifest.json").exists()
    summary = translate(damaged, out, unit_rows=10, on_bad_file="skip", arguments=arguments)
    assert (summary.rows, summary.manifest["units"]) == (80, 8)
    assert "a-00001-of-00004.parquet" not in outputs(out)
    assert read_all(out).num_rows == 70
    written = manifest(out)
    [skipped] = written["skipped_units"]
    reason = skipped.pop("reason")
    assert skipped == {
        "file": "a.parquet", "first_row": 10, "rows": 10, "output": "a-00001-of-00004.parquet",
    }  # fmt: skip
    assert "cannot be read (rows 10 to 19, counted from 0)" in reason
    assert (written["rows"], written["rows_out"], written["skipped_unit_rows"]) == (80, 70, 10)
    assert (written["files"]["a.parquet"]["rows_out"], written["rows_by_status"]["text"]["ok"]) == (
        *(30, 70),
    )
    assert table_of(summary_blocks(summary), "skipped") == [["a.parquet", 10, reason]]
    assert not written["has_failed"], "all rows may be lost by default in these tests"
    again = translate(damaged, out, unit_rows=10, on_bad_file="skip", max_failed=0.12)
    assert (again.already_finished, again.has_failed) == (True, True)
    assert describe_failure(again).startswith(
        "0 of 80 rows failed and 10 were skipped, which exceeds `max_failed=0.12`. "
    )
    assert not translate(damaged, out, unit_rows=10, max_failed=0.125).has_failed
    assert translate(damaged, out, unit_rows=10).already_finished
    # An undamaged copy of the file has the same footer, but another time.
    content = (damaged / "a.parquet").read_bytes()
    (damaged / "a.parquet").write_bytes(content.replace(b"\xffow 012", b"row 012"))
    summary = translate(damaged, out, unit_rows=10, retry_failed=True, arguments=arguments)
    assert (summary.rows, summary.reused_units) == (80, 4)
    assert read_all(out).num_rows == 80
    assert manifest(out)["skipped_units"] == []


def test_a_file_that_changes_during_a_run_is_an_error(tmp_path):
    source = write(tmp_path / "a.parquet", numbered(3))

    def load():
        write(tmp_path / "a.parquet", numbered(4))
        return Reverser()

    message = refused(source, tmp_path / "out", on_bad_file="skip", load=load)
    assert f"{source} has changed since the job was planned" in message


# Failed rows.


@pytest.fixture
def source(tmp_path):
    """Thirty rows in units of ten; rows 3, 4 and 25 will fail."""
    fail_at.update({"row 3", "row 4", "row 25"})
    return write(tmp_path / "in.parquet", numbered(30))


def test_a_retry_translates_failed_rows_and_keeps_all_others(source, tmp_path):
    out = tmp_path / "out"
    first = translate(source, out, unit_rows=10)
    assert first.manifest["failed_rows"] == 3
    found = read_all(out).to_pylist()
    errors = {row["id"]: row["translation_error"] for row in found if row["translation_error"]}
    assert list(errors) == [3, 4, 25]
    assert all(f"cannot take row {i}" in error for i, error in errors.items())
    before = output_bytes(out)
    again = translate(source, out, unit_rows=10, retry_failed=True)  # they fail again
    assert again.manifest["failed_rows"] == 3
    last_run = {"units": 2, "rows": 3, "source_characters": 16}
    assert last_run.items() <= again.manifest["last_run"].items()
    assert read_all(out).to_pylist() == found
    fail_at.clear()
    third = translate(source, out, unit_rows=10, retry_failed=True)
    assert (third.manifest["failed_rows"], third.reused_units) == (0, 1)
    assert third.manifest["rows_by_status"] == {"text": {**NO_ROWS, "ok": 30}}
    assert (third.manifest["texts"], third.manifest["distinct_texts"]) == (30, 30)
    assert output_bytes(out)["in-00001-of-00003.parquet"] == before["in-00001-of-00003.parquet"]
    rows = read_all(out).to_pylist()
    assert [row["translation"] for row in rows] == turned(30)
    assert [row for row in rows if row["id"] not in (3, 4, 25)] == [
        row for row in found if row["id"] not in (3, 4, 25)
    ]
    # The result is the same as if no row had ever failed.
    translate(source, tmp_path / "whole", unit_rows=10)
    assert read_all(out).equals(read_all(tmp_path / "whole"))
    assert read(out / outputs(out)[0]).schema.equals(
        read(tmp_path / "whole" / outputs(out)[0]).schema, check_metadata=True
    )
    last = translate(source, out, unit_rows=10, retry_failed=True)
    assert last.already_finished


def test_a_retry_translates_the_whole_unit_if_its_output_is_damaged(source, tmp_path):
    out = tmp_path / "out"
    translate(source, out, unit_rows=10, compression="none")
    translate(source, tmp_path / "again", unit_rows=10, compression="none")
    path = out / "in-00000-of-00003.parquet"
    damage_text(path, b"7 wor")
    fail_at.clear()
    for folder in (out, tmp_path / "again"):
        translate(source, folder, unit_rows=10, compression="none", retry_failed=True)
    assert output_bytes(out) == output_bytes(tmp_path / "again")
    assert read_all(out)["translation"].to_pylist() == turned(30)


def test_rows_of_a_unit_without_an_ok_row_are_retried(tmp_path):
    """The first unit has a text that is split, and the second unit has no translated text."""
    texts = ["bad", "good long", None, "bad", "worse", ""]
    source = write(tmp_path / "in.parquet", {"text": texts})
    texts = TextOptions(max_source_tokens=8)
    options = {"unit_rows": 3, "texts": texts}
    fail_at.update({"bad", "worse"})
    out = tmp_path / "out"
    assert translate(source, out, **options).manifest["failed_rows"] == 3
    before = read_all(out)
    again = translate(source, out, **options, retry_failed=True)
    assert (again.manifest["failed_rows"], again.manifest["last_run"]["units"]) == (3, 2)
    assert read_all(out).equals(before)
    fail_at.remove("worse")
    third = translate(source, out, **options, retry_failed=True)
    assert third.manifest["failed_rows"] == 2
    found = read_all(out)["translation"].to_pylist()
    assert found == [None, "doog gnol", None, None, "esrow", ""]


def test_a_stopped_retry_resumes(source, tmp_path):
    out = tmp_path / "out"
    translate(source, out, unit_rows=10)
    crash_at.add("row 25")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, unit_rows=10, retry_failed=True)
    assert not (out / "_tt/manifest.json").exists(), "outputs may have changed"
    crash_at.clear()
    fail_at.clear()
    summary = translate(source, out, unit_rows=10, retry_failed=True)
    assert (summary.manifest["failed_rows"], summary.reused_units) == (0, 1)
    assert read_all(out)["translation"].to_pylist() == turned(30)
    assert files_below(out)[:3] == ["_tt/input.jsonl", "_tt/manifest.json", "_tt/plan.json"]
    assert not (out / "_tt/retry.json").exists()
    assert translate(source, out, unit_rows=10, retry_failed=True).already_finished


def test_a_retry_of_an_unfinished_folder_is_refused(source, tmp_path):
    out = tmp_path / "out"
    message = (
        f"{out} is not finished, so there is nothing to retry yet. Run the same command "
        "without `retry_failed` first"
    )
    assert refused(source, out, unit_rows=10, retry_failed=True) == message
    assert not out.exists()
    crash_at.add("row 15")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, unit_rows=10)
    assert refused(source, out, unit_rows=10, retry_failed=True) == message


def test_too_many_failed_rows_are_an_error_and_in_the_manifest(source, tmp_path):
    out = tmp_path / "out"
    summary = translate(source, out, unit_rows=10, max_failed=0.09)
    assert summary.has_failed
    assert (manifest(out)["failed_rows"], manifest(out)["has_failed"]) == (3, True)
    assert describe_failure(summary) == (
        "3 of 30 rows failed and 0 were skipped, which exceeds `max_failed=0.09`. All other rows "
        "are translated. Failed rows have the status 'failed'. Fix the input, and run "
        "the same command again; or set `retry_failed` to try the same failed rows and skipped "
        "units again"
    )
    again = translate(source, out, unit_rows=10, max_failed=0.09)
    assert (again.already_finished, again.has_failed) == (True, True)
    assert not translate(source, out, unit_rows=10, max_failed=0.1).has_failed


def test_a_row_fails_if_one_of_its_text_columns_fails(tmp_path):
    fail_at.add("bad")
    table = {"a": ["x", "bad", "bad", "y"], "b": ["x", "bad", "z", None]}
    source = write(tmp_path / "in.parquet", table)
    out = tmp_path / "out"
    summary = translate(source, out, text_columns=("a", "b"), max_failed=0)
    assert summary.manifest["failed_rows"] == 2
    assert summary.manifest["rows_by_status"] == {
        "a": {**NO_ROWS, "ok": 2, "failed": 2},
        "b": {**NO_ROWS, "ok": 2, "failed": 1, "null": 1},
    }
    fail_at.clear()
    translate(source, out, text_columns=("a", "b"), retry_failed=True)
    found = read_all(out)
    assert found["a_translation"].to_pylist() == ["x", "dab", "dab", "y"]
    assert found["b_translation"].to_pylist() == ["x", "dab", "z", None]
    assert found["a_translation_error"].null_count == 4


# Folders.


def test_overwrite_deletes_the_files_of_a_job_and_starts_again(tmp_path):
    out = tmp_path / "out"
    old = write(tmp_path / "old.parquet", numbered(9))
    translate(old, out, unit_rows=2)
    new = write(tmp_path / "new.parquet", numbered(3))
    assert "belongs to another job" in refused(new, out)
    summary = translate(new, out, overwrite=True)
    assert (summary.rows, summary.reused_units) == (3, 0)
    assert files_below(out) == [
        *("_tt/input.jsonl", "_tt/manifest.json", "_tt/plan.json"),
        "_tt/units/new-00000-of-00001.json",
        "new-00000-of-00001.parquet",
    ]
    assert translate(new, out, overwrite=True).reused_units == 0
    assert translate(new, tmp_path / "fresh", overwrite=True).rows == 3


def test_overwrite_resumes_an_unfinished_job_of_the_same_command(tmp_path):
    out = tmp_path / "out"
    translate(write(tmp_path / "old.parquet", numbered(9)), out, unit_rows=2)
    source = write(tmp_path / "new.parquet", numbered(40))
    crash_at.add("row 35")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, unit_rows=10, overwrite=True)
    crash_at.clear()
    kept = outputs(out)
    assert kept
    assert all(name.startswith("new-") for name in kept)
    times = {name: (out / name).stat().st_mtime_ns for name in kept}
    summary = translate(source, out, unit_rows=10, overwrite=True)
    assert (summary.manifest["units"], summary.reused_units) == (4, len(kept))
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == times
    assert read_all(out)["translation"].to_pylist() == turned(40)
    # A different command does not resume the job, and a finished job starts again.
    (out / "_tt/manifest.json").unlink()
    assert translate(source, out, unit_rows=20, overwrite=True).reused_units == 0
    assert translate(source, out, unit_rows=20, overwrite=True).reused_units == 0


def test_only_one_process_at_a_time_uses_a_folder(tmp_path):
    out = tmp_path / "out"
    source = write(tmp_path / "in.parquet", numbered(3))
    translate(source, out)
    with lock_folder(f"{out}/_tt", name="lock", remedy=""):
        before = files_below(out)
        message = refused(source, out, overwrite=True)
        assert message.startswith(f"another process works in {out}/_tt (process ")
        assert message.endswith("). Wait until it ends, or choose another `output`")
        assert files_below(out) == before
        assert translate(source, out).already_finished
    assert "_tt/lock" not in files_below(out)
    (out / "_tt/lock").touch()  # like a lock file of a killed process
    assert translate(source, out, overwrite=True).reused_units == 0
    assert "_tt/lock" not in files_below(out)


def test_a_run_checks_the_folder_again_after_the_plan(tmp_path):
    """Several jobs are planned with an empty folder, and then run one after the other."""
    out = tmp_path / "out"
    source = write(tmp_path / "in.parquet", numbered(100))

    def plan(**options):
        return request(source, out, **options).plan()

    first, same, other, over = (
        plan(unit_rows=10),
        plan(unit_rows=10, load=load_nothing),
        plan(unit_rows=50, load=load_nothing),
        plan(unit_rows=50, overwrite=True),
    )
    first.run()
    before = output_bytes(out)
    assert same.run().already_finished
    with pytest.raises(UserError, match="another job: `unit_rows` was 10 and is now 50"):
        other.run()
    assert output_bytes(out) == before
    over.run()
    assert outputs(out) == [f"in-0000{i}-of-00002.parquet" for i in range(2)]
    assert read_all(out)["translation"].to_pylist() == turned(100)


@pytest.mark.parametrize("name", ["notes.txt", "new-00000-of-00002.parquet"])
def test_a_folder_with_foreign_files_is_not_overwritten(tmp_path, name):
    out = tmp_path / "out"
    source = write(tmp_path / "new.parquet", numbered(3))
    translate(source, out)
    (out / name).write_text("mine")
    before = files_below(out)
    assert refused(source, out, overwrite=True) == (
        f"the output folder {out} contains other files ({name}). Choose an empty or a new folder"
    )
    assert files_below(out) == before
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / name).write_text("mine")
    assert "contains other files" in refused(source, alone, overwrite=True)


def test_a_foreign_table_in_the_output_folder_is_an_error(tmp_path):
    source, out = write(tmp_path / "new.parquet", numbered(3)), tmp_path / "out"
    translate(source, out)
    (out / "report.html").write_text("no table")
    assert translate(source, out).already_finished
    write(out / "x/stray.parquet", numbered(2))
    assert refused(source, out) == (
        f"the output folder {out} contains a table that is not part of this job (x/stray.parquet), "
        "and readers of the folder would mistake it for output. Move it to another folder"
    )
    (out / "x/stray.parquet").unlink()
    (out / "new-00000-of-00001.parquet").unlink()
    assert translate(source, out).rows == 3


def test_a_job_with_a_limit_is_a_different_job(tmp_path):
    for name, rows in (("a", 3), ("b", 0), ("c", 4), ("d", 5)):
        write(tmp_path / f"in/{name}.parquet", numbered(rows).cast(SCHEMA))
    out = tmp_path / "out"
    summary = translate(tmp_path / "in", out, unit_rows=2, limit=6)
    assert (summary.rows, summary.manifest["units"]) == (6, 2 + 1 + 2)
    assert read_all(out)["id"].to_pylist() == [0, 1, 2, 0, 1, 2]
    assert "another job: `limit` was 6 and is now not set. " in refused(
        tmp_path / "in", out, unit_rows=2
    )
    assert translate(tmp_path / "in", out, unit_rows=2, limit=6).already_finished
    assert translate(tmp_path / "in/c.parquet", tmp_path / "c", limit=9).rows == 4
    assert "`limit` was 9 and is now not set" in refused(tmp_path / "in/c.parquet", tmp_path / "c")


def test_a_job_resumes_with_other_versions_and_a_notice(tmp_path, monkeypatch):
    source = write(tmp_path / "in.parquet", numbered(30))
    out = tmp_path / "out"
    crash_at.add("row 25")
    with pytest.raises(Exception, match="the worker dies here"):
        translate(source, out, unit_rows=10)
    crash_at.clear()
    finished = [unit["output_path"] for unit in unit_statistics(out)]
    for path in [out / "_tt/plan.json", *out.glob("_tt/units/*.json")]:
        content = json.loads(path.read_text())
        content["versions"]["pyarrow"] = "1.0"
        path.write_text(json.dumps(content))
    [notice] = request(source, out, unit_rows=10).plan().notices
    assert f"`pyarrow` was 1.0 and is now {pa.__version__}" in notice
    summary = translate(source, out, unit_rows=10)
    assert summary.reused_units == len(finished)
    missing = [name for name in outputs(out) if name not in finished]
    expected = {"1.0": finished, pa.__version__: missing}
    assert {each["programs"]["pyarrow"]: each["outputs"] for each in manifest(out)["versions"]} == {
        version: names for version, names in expected.items() if names
    }


@pytest.mark.parametrize("is_made_again", [False, True])
def test_an_output_folder_that_is_deleted_during_the_job_is_an_error(tmp_path, is_made_again):
    source, output = write(tmp_path / "in.parquet", numbered(9)), tmp_path / "out"

    class Deleter(Reverser):
        def translate(self, inputs):
            translated = super().translate(inputs)
            if "row 4" in self.calls[-1]:
                shutil.rmtree(output)
                if is_made_again:  # another thread that writes a unit could create the folder
                    (output / "_tt").mkdir(parents=True)
            return translated

    with pytest.raises(UserError) as caught:
        translate(source, output, unit_rows=3, load=Deleter)
    assert str(caught.value) == (
        f"{output} was deleted while the job was running. Delete the rest of the folder, and run "
        "the same command again"
    )
    assert not (output / "_tt/manifest.json").exists()
    shutil.rmtree(output, ignore_errors=True)
    assert translate(source, output, unit_rows=3).rows == 9
    assert read_all(output)["translation"].to_pylist() == turned(9)


def test_the_error_contains_arrows_reason_why_a_file_cannot_be_read(tmp_path):
    path = write(tmp_path / "in.parquet", numbered(3), compression="snappy")
    codec = b"\x04text\x15"  # precedes twice the codec in the footer: 1 is Snappy, and 3 is LZO
    content = path.read_bytes()
    assert content.count(codec + b"\x02") == 1
    path.write_bytes(content.replace(codec + b"\x02", codec + b"\x06"))
    message = refused(path, tmp_path / "out", unit_rows=3)
    assert message.isprintable()
    assert message.startswith(f"{path} cannot be read (rows 0 to 2, counted from 0): ")
    assert "lzo" in message.lower()
    assert message.endswith(
        "or write it again with another program, or skip such rows with `on_bad_file=skip`"
    )
