"""Errors of translation jobs, with a translator that reverses texts."""

from __future__ import annotations

import os

import obstore
import pyarrow as pa
import pytest
from fakes import Reverser
from memory_store import MemoryStore
from obstore.exceptions import GenericError
from translation_jobs import (
    TWO_WORKERS,
    files_below,
    load_nothing,
    numbered,
    read_all,
    refused,
    translate,
    write,
)

from tt.model.errors import UserError
from tt.pipelines.translate.options import TranslateOptions


def test_a_job_with_another_plan_is_refused(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    out = tmp_path / "out"
    translate(source, out)
    before = files_below(out)
    start = f"the output folder {out} belongs to another job: "
    end = ". Run that job's command, choose another `output`, or set `overwrite`"
    assert refused(source, out, unit_rows=2) == (f"{start}`unit_rows` was 8192 and is now 2{end}")
    assert refused(source, out, fingerprint="f1") == (f"{start}the model has changed{end}")
    write(tmp_path / "input.parquet", {"id": [7, 8, 9], "text": ["row 0", "row 1", "row 2"]})
    assert refused(source, out) == (
        "1 input file changed since the last run: input.parquet. tt compares the size, the content "
        "and, except in small text files, the modification time. Set `changed=redo` to translate "
        "changed files again, or choose another `output`"
    )
    other = write(tmp_path / "other.parquet", numbered(3))
    missing = "the input input.parquet is missing; the input other.parquet is new"
    assert refused(other, out) == f"{start}{missing}{end}"
    assert files_below(out) == before


def test_another_plan_replaces_a_plan_without_finished_units(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    out = tmp_path / "out"

    def load():
        raise UserError("these weights are damaged")

    assert refused(source, out, load=load) == "these weights are damaged"
    (out / "notes.txt").write_text("mine")
    assert "contains other files (notes.txt)" in refused(source, out, unit_rows=2)
    (out / "notes.txt").unlink()
    assert translate(source, out, unit_rows=2).rows == 3
    assert "belongs to another job" in refused(source, out)


def test_names_with_glob_characters_are_names_on_object_stores_too(tmp_path):
    MemoryStore.clear()
    MemoryStore.put("mem://bucket/a1.tmp", b"another's")
    for name, out in (("a[1].parquet", "mem://bucket/new"), ("a.parquet", "mem://bucket/o?")):
        assert translate(write(tmp_path / name, numbered(3)), out).rows == 3
        assert [path for path in MemoryStore.paths() if path.startswith(f"{out}/a")]
    assert MemoryStore.read("mem://bucket/a1.tmp") == b"another's"
    assert translate(tmp_path / "a[1].parquet", tmp_path / "o[1]").rows == 3


def test_a_store_that_does_not_answer_is_a_one_line_error(tmp_path, monkeypatch):
    local = write(tmp_path / "input.parquet", numbered(3))
    MemoryStore.clear()
    MemoryStore.put("mem://bucket/in/a.parquet", local.read_bytes())

    def fail(*_, **__):
        raise GenericError("no network\nDebug source: of no use")

    monkeypatch.setattr(obstore, "list", fail)
    for places in (("mem://bucket/in", tmp_path / "out"), ("mem://bucket/in/*.parquet", "x"),
                   (local, "mem://bucket/out")):  # fmt: skip
        assert refused(*places) == (
            "mem://bucket does not answer (no network). Check the network, and run the same "
            "command again"
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("path", ["hdfs://b/x", "azfs://a/b/x", "nosuch://b/*"])
def test_the_error_for_another_scheme_names_the_schemes_that_tt_supports(tmp_path, path):
    source = write(tmp_path / "input.parquet", numbered(3))
    for where in ((path, tmp_path / "out"), (source, path)):
        assert refused(*where).startswith(
            f"{path} cannot be looked up: tt does not support {path.partition(':')[0]}://. Choose "
            "a local path, or a path on abfss://, az://, gs://, "
        )


def test_an_output_that_is_a_file_or_is_inside_the_input_is_refused(tmp_path):
    source = write(tmp_path / "in/input.parquet", numbered(3))
    assert refused(source, source) == (
        f"the output must be a folder; {source} is a file. Choose another `output`"
    )
    inside = tmp_path / "in/out"
    assert refused(tmp_path / "in", inside) == (
        f"the output folder {inside} is inside the input folder {tmp_path / 'in'}. "
        "Choose another `output`"
    )
    assert refused(f"{tmp_path}/in/*.parquet", tmp_path) == (
        f"the input file {source} is in the output folder. Choose another `output`"
    )
    below_file = source / "out"
    assert refused(source, below_file) == (
        f"{below_file} cannot be written: Not a directory. Choose another `output`"
    )


def test_an_output_that_a_second_run_would_read_is_refused(tmp_path):
    write(tmp_path / "in/input.parquet", numbered(3))
    (tmp_path / "link").symlink_to(tmp_path / "in")
    inside = tmp_path / "in/out"
    for source in (f"{tmp_path}/in/**", f"{tmp_path}/in/**.parquet"):
        assert refused(source, inside) == (
            f"the input glob {source} matches files in the output folder {inside}. "
            "Choose another `output`"
        )
    assert refused(tmp_path / "link", inside) == (
        f"the output folder {inside} is inside the input folder {tmp_path / 'link'}. "
        "Choose another `output`"
    )
    assert "matches files in the output folder" in refused(f"{tmp_path}/link/**", inside)
    assert not inside.exists()
    assert translate(f"{tmp_path}/in/*.parquet", inside).rows == 3


def test_each_row_is_read_once_even_if_several_links_point_to_it(tmp_path):
    write(tmp_path / "in/part=1/input.parquet", numbered(3))
    write(tmp_path / "other/input.parquet", numbered(2))
    (tmp_path / "in/latest").symlink_to(tmp_path / "in/part=1")
    (tmp_path / "in/part=2").symlink_to(tmp_path / "other")
    (tmp_path / "in/part=1/back").symlink_to(tmp_path / "in")
    assert translate(tmp_path / "in", tmp_path / "out").rows == 5
    assert (tmp_path / "out/part=2/input-00000-of-00001.parquet").is_file()
    assert not (tmp_path / "out/latest").exists()


def test_dangling_links_are_bad_files(tmp_path):
    write(tmp_path / "in/input.parquet", numbered(3))
    lost = tmp_path / "in/lost.parquet"
    lost.symlink_to(tmp_path / "nowhere")
    assert str(lost) in refused(tmp_path / "in", tmp_path / "out")
    summary = translate(tmp_path / "in", tmp_path / "out", on_bad_file="skip")
    assert summary.rows == 3
    assert [file["file"] for file in summary.manifest["skipped_files"]] == ["lost.parquet"]


def test_inputs_with_impossible_output_names_are_refused(tmp_path):
    out = tmp_path / "out"
    # 232 bytes and "-00000-of-00001.parquet" have 255 bytes together.
    fits = write(tmp_path / f"a/{'x' * 232}.parquet", numbered(1))
    assert translate(fits, tmp_path / "fits").rows == 1
    long = write(tmp_path / f"a/{'x' * 234}.parquet", numbered(1))
    assert refused(long, out) == (
        f"the name of {long} is too long, because tt appends numbers to it for the output files. "
        "Shorten it by 2 bytes"
    )
    strange = os.fsencode(tmp_path / "in") + b"/\xff.parquet"
    write(tmp_path / "in/input.parquet", numbered(1)).rename(os.fsdecode(strange))
    message = refused(tmp_path / "in", out)
    assert message.startswith("the path of the input file ")
    assert message.endswith(" is not UTF-8. Rename it")
    write(tmp_path / "b/_tt/input.parquet", numbered(1))
    assert "would be in _tt/, the folder of the job's own files" in refused(
        f"{tmp_path}/b/*/*.parquet", out
    )
    assert not out.exists()


def test_a_damaged_plan_is_refused(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    translate(source, tmp_path / "out")
    for content in ("[]", '{"input": {}, "options": null}'):
        (tmp_path / "out/_tt/plan.json").write_text(content)
        for overwrite in (False, True):
            message = refused(source, tmp_path / "out", overwrite=overwrite)
            assert "_tt/plan.json does not have format 1. Choose another `output`" in message
    translate(source, tmp_path / "other")
    (tmp_path / "other/_tt/manifest.json").write_text('{"rows": 3}')
    assert "manifest.json does not have format 1" in refused(source, tmp_path / "other")


def test_missing_input_is_refused(tmp_path):
    out = tmp_path / "out"
    missing = tmp_path / "none.parquet"
    assert refused(missing, out) == f"no file matches the input {missing}. Check the path"
    glob = tmp_path / "*.parquet"
    assert refused(glob, out) == f"no file matches the input {glob}. Check the path"
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", out) == (
        f"the input folder {tmp_path / 'empty'} contains no *.parquet, *.csv, *.tsv, *.jsonl or "
        "*.arrow file. Choose another folder, or set `input_format` to read its other files"
    )
    assert not out.exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not a Parquet file (it does not end in PAR1)"),
        (b"id,text\n1,hello there\n", "is not a Parquet file (it does not end in PAR1)"),
        (b"PAR1....\x04\x00\x00\x00PAR1", "is not a readable Parquet file: "),
        (b"PAR1....\xff\xff\xff\x00PAR1", "is not a readable Parquet file: "),
    ],
)
def test_a_file_that_is_not_parquet_is_refused(tmp_path, content, message):
    good = write(tmp_path / "good.parquet", numbered(3))
    bad = tmp_path / "bad.parquet"
    bad.write_bytes(content)
    found = refused([good, bad], tmp_path / "out")
    assert f"{bad} {message}" in found
    assert found.endswith(". Check the file, or skip such files with `on_bad_file=skip`")
    assert refused(bad, tmp_path / "out").endswith(". Check the file")
    assert not (tmp_path / "out").exists()


def test_inputs_with_the_same_name_are_refused(tmp_path):
    a = write(tmp_path / "a/part.parquet", numbered(1))
    b = write(tmp_path / "b/part.parquet", numbered(1))
    rest = (
        "would have the same output files, part-*.parquet. Choose the folder that contains both, "
        "or translate them into separate folders"
    )
    assert refused([a, b], tmp_path / "out") == f"{a} and {b} {rest}"
    for inputs in ([a, tmp_path / "a"], [tmp_path / "a", f"{tmp_path}/*/*.parquet"]):
        assert refused(inputs, tmp_path / "out") == (
            f"the input contains {a} twice. Choose each file only once"
        )


def test_the_text_column_must_exist_and_contain_strings(tmp_path):
    source = write(tmp_path / "input.parquet", {"id": [1], "text": ["a"], "note": ["b"]})
    out = tmp_path / "out"
    choose = "Set `text_columns`"
    columns = f"Its columns: id: int64, text: string, note: string. {choose}"
    assert refused(source, out, text_columns=("txt",)) == f"{source} has no column 'txt'. {columns}"
    assert refused(source, out, text_columns=("id",)) == (
        f"a text column must contain strings or lists of strings; 'id' of {source} is int64. "
        f"{columns}"
    )
    assert refused(source, out) == (
        f"{source} has 2 columns of strings: text, note. Set `text_columns`"
    )
    numbers = write(tmp_path / "numbers.parquet", {"id": [1]})
    assert refused(numbers, out) == (
        f"{numbers} has no column of strings to translate. Its columns: id: int64. {choose}"
    )
    twice = write(tmp_path / "twice.parquet", pa.table([["a"], ["b"]], names=["text", "text"]))
    assert refused(twice, out, text_columns=("text",)) == (
        f"{twice} has 2 columns named 'text'. "
        "Its columns: text: string, text: string. Set `text_columns`"
    )
    assert not out.exists()
    translate(source, out, text_columns=("note",))
    assert read_all(out).column("translation").to_pylist() == ["b"]


def test_all_files_must_have_the_same_text_column(tmp_path):
    a = write(tmp_path / "in/a.parquet", {"text": ["a"]})
    b = write(tmp_path / "in/b.parquet", {"body": ["a"]})
    assert refused(tmp_path / "in", tmp_path / "out") == (
        "all input files must have the same column to translate, but it is 'text' in "
        f"{a} and 'body' in {b}. Translate these files into separate folders"
    )
    assert refused(tmp_path / "in", tmp_path / "out", text_columns=("text",)) == (
        f"{b} has no column 'text'. Its columns: body: string. Set `text_columns`, "
        "or skip such files with `on_bad_file=skip`"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit_rows": 0}, "`unit_rows` must be at least 1. Received: 0"),
        ({"input": ()}, "`input` is empty. Choose files, folders or globs"),
        ({"output": ""}, "`output` is empty. Choose a folder"),
        (
            {"format": "csv", "compression": "snappy"},
            "`compression` of csv must be one of none, gzip, zstd. Received: snappy",
        ),
        ({"limit": 0}, "`limit` must be at least 1; remove it to translate all rows. Received: 0"),
        (
            {"text_columns": ("a", "b", "a")},
            "`text_columns` must name each column once. Received: a twice",
        ),
        (
            {"overwrite": True, "retry_failed": True},
            "`overwrite` deletes the translations that `retry_failed` needs. Remove either option",
        ),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UserError) as caught:
        TranslateOptions(**{"input": ("x",), "output": "o", **options})
    assert str(caught.value) == message


@pytest.mark.parametrize("arguments", [(), TWO_WORKERS], ids=["one worker", "two workers"])
def test_a_user_error_in_a_worker_is_a_one_line_error(tmp_path, caplog, arguments):
    source = write(tmp_path / "input.parquet", numbered(30))
    message = refused(
        source, tmp_path / "out", unit_rows=10, load=load_nothing, arguments=arguments
    )
    assert message == "no model folder at nowhere. Train a model with `tt train`"
    assert caplog.text == ""


def test_an_interrupt_in_a_worker_interrupts_the_job(tmp_path, monkeypatch, caplog):
    def interrupt(self, inputs):
        raise KeyboardInterrupt

    monkeypatch.setattr(Reverser, "translate", interrupt)
    source = write(tmp_path / "input.parquet", numbered(3))
    with pytest.raises(KeyboardInterrupt):
        translate(source, tmp_path / "out")
    assert caplog.text == ""
