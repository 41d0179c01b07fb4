"""Input files that disappear, return, are damaged or are repaired between the runs of a job."""

import os
import sys

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from translation_jobs import output_bytes, outputs, read_all, refused, request, translate, write


def texts(name, rows=5):
    return {"text": [f"{name} {i}" for i in range(rows)]}


def write_csv(path, table):
    pacsv.write_csv(pa.table(table), path)


def padded(name, rows=5):
    """Return a table of texts, of which 600 rows are too large for the head of a file."""
    return {**texts(name, rows), "pad": ["x" * 1000] * rows}


# The job itself counts the rows of large text files.
@pytest.mark.parametrize(("suffix", "rows"), [("parquet", 20), ("csv", 20), ("csv", 600)])
def test_a_removed_file_that_returns_with_another_content_is_new(suffix, rows, tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    path = folder / f"a.{suffix}"
    put = write if suffix == "parquet" else write_csv
    write(folder / "b.parquet", padded("b"))
    put(path, padded("old", rows))
    options = {"text_columns": ("text",)}
    translate(folder, output, **options)
    path.unlink()
    write(folder / "c.parquet", padded("c"))
    assert translate(folder, output, **options).rows == rows + 10
    put(path, padded("new", rows))
    assert translate(folder, output, **options).run_rows == rows
    assert read_all(output)["text"].to_pylist()[:rows] == texts("new", rows)["text"]


def bad_footer(folder, *, is_bad):
    path = write(folder / "b.parquet", padded("b", 9))
    if is_bad:
        path.write_text("this is not Parquet")


def bad_page(folder, *, is_bad):
    """Damage the second unit of a file whose footer is sound."""
    path = write(folder / "b.parquet", padded("b", 9), row_group_size=4)
    content = bytearray(path.read_bytes())
    start = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    content[start - 30 : start + 30] = b"\xff" * 60
    if is_bad:
        path.write_bytes(content)


def bad_end(folder, *, is_bad):
    """Damage the end of a file, which the job finds when it counts the rows."""
    path = folder / "b.arrow"
    table = pa.table(padded("b", 600))
    with pa.ipc.new_stream(path, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)
    if is_bad:
        os.truncate(path, path.stat().st_size - 8)


damages = pytest.mark.parametrize("put", [bad_footer, bad_page, bad_end])


@damages
@pytest.mark.parametrize("on_bad_file", ["skip", "fail"])
def test_the_same_command_translates_a_repaired_file(on_bad_file, put, tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    options = {"unit_rows": 400 if put is bad_end else 4, "on_bad_file": on_bad_file}
    options["text_columns"] = ("text",)
    write(folder / "a.parquet", padded("a"))
    put(folder, is_bad=True)
    if on_bad_file == "skip":
        first = translate(folder, output, **options)
        assert first.manifest["skipped_files"] or first.manifest["skipped_units"]
    else:
        refused(folder, output, **options)
    put(folder, is_bad=False)
    if (on_bad_file, put) == ("fail", bad_page):  # other units of the file may be finished
        options["changed"] = "redo"
    second = translate(folder, output, **options)
    assert not second.manifest["skipped_files"]
    assert not second.manifest["skipped_units"]
    translate(folder, tmp_path / "fresh", **options)
    assert output_bytes(output) == output_bytes(tmp_path / "fresh")


@damages
def test_a_skipped_file_that_disappears_stops_nothing(put, tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    options = {"unit_rows": 400 if put is bad_end else 4, "text_columns": ("text",)}
    write(folder / "a.parquet", padded("a"))
    put(folder, is_bad=True)
    translate(folder, output, on_bad_file="skip", **options)
    next(folder.glob("b.*")).unlink()
    assert translate(folder, output, **options).run_rows == 0
    write(folder / "c.parquet", padded("c"))
    assert translate(folder, output, **options).run_rows == 5


def test_the_translations_of_a_removed_file_that_returns_damaged_stay(tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    options = {"text_columns": ("text",), "on_bad_file": "skip"}
    write(folder / "a.parquet", padded("a"))
    bad_footer(folder, is_bad=False)
    translate(folder, output, **options)
    before = output_bytes(output)
    (folder / "b.parquet").unlink()
    write(folder / "a.parquet", padded("a", 6))
    assert translate(folder, output, changed="redo", **options).rows == 15
    bad_footer(folder, is_bad=True)
    assert translate(folder, output, **options).rows == 15
    assert translate(folder, output, **options).already_finished
    assert output_bytes(output).items() & before.items() == {
        each for each in before.items() if each[0].startswith("b-")
    }


@pytest.mark.parametrize("options", [{"changed": "redo"}, {}])
def test_the_translations_of_a_file_that_is_damaged_today_stay(options, tmp_path):
    folder, output = tmp_path / "in", tmp_path / "out"
    options = {"text_columns": ("text",), "on_bad_file": "skip", **options}
    write(folder / "a.parquet", padded("a"))
    bad_footer(folder, is_bad=False)
    translate(folder, output, **options)
    bad_footer(folder, is_bad=True)
    job = request(folder, output, **options).plan()
    assert "1 damaged input file, translations kept: b.parquet" in job.notices
    found = job.run().manifest
    assert (found["rows"], [each["file"] for each in found["skipped_files"]]) == (14, ["b.parquet"])
    assert translate(folder, output, **options).already_finished
    write(folder / "c.parquet", padded("c"))
    assert translate(folder, output, **options).rows == 19
    assert {name[0] for name in outputs(output)} == {"a", "b", "c"}
    bad_footer(folder, is_bad=False)
    assert translate(folder, output, **options).rows == 19
    translate(folder, tmp_path / "fresh", **options)
    assert read_all(output) == read_all(tmp_path / "fresh")


def count_instructions(function):
    """Count the instructions of Python in the package of translation jobs during a call."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if "pipelines/translate" not in frame.f_code.co_filename:
            return None
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(before)
    return count


def test_the_work_to_plan_is_linear_in_the_number_of_removed_files(tmp_path):
    found = []
    for files in (10, 40):
        folder, output = tmp_path / f"in{files}", tmp_path / f"out{files}"
        folder.mkdir()
        for number in range(files):
            (folder / f"{number}.jsonl").write_text('{"text": "a"}\n')
        translate(folder, output)
        for number in range(files // 2):
            (folder / f"{number}.jsonl").unlink()
        found.append(count_instructions(request(folder, output).plan))
    assert found[1] / found[0] < 4.5  # four times the files
