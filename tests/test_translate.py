"""The Parquet job, with a translator that needs no TensorFlow: it turns texts round."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.io.filesystem import BeamIOError
from hypothesis import given, settings
from hypothesis import strategies as st
from memory_filesystem import MemoryFileSystem
from translation_jobs import (
    ADDED,
    NO_ROWS,
    TWO_WORKERS,
    Reverser,
    crash_at,
    files_below,
    load_reverser,
    loads,
    manifest,
    numbered,
    outputs,
    read,
    read_all,
    refused,
    translate,
    turned,
    without_run,
    write,
)

import pipelines.translate
from model.config import Decoding
from model.errors import UserError
from pipelines.files import delete
from pipelines.parquet import (
    BadFileError,
    cell_bytes,
    overlapping_row_groups,
    read_footer,
    read_rows,
)
from pipelines.runner import check_places, find_user_error, make_pipeline
from pipelines.translate import (
    PlanUnits,
    TranslateOptions,
    TranslateUnits,
    _with_workers,
)
from pipelines.translation_manifest import make_manifest
from pipelines.translation_plan import (
    InputFile,
    describe_differences,
    installed_versions,
    plan_units,
)
from pipelines.translation_table import TableOptions, translate_table
from pipelines.translation_units import UnitOptions, UnitStatistics


def load_nothing() -> Reverser:
    raise UserError("no model folder at nowhere: train one with `tt train`")


# --- parts without Beam ---------------------------------------------------------------------


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int8", "string")])
def test_a_cell_that_is_not_utf8_fails_alone(tmp_path, kind):
    latin = pa.array([b"abc", b"caf\xe9", None], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, latin.buffers()).cast(pa.large_string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    pq.write_table(pa.table({"text": column}), tmp_path / "in.parquet")
    summary = translate(tmp_path / "in.parquet", tmp_path / "out")
    assert summary.rows_by_status == {"text": {**NO_ROWS, "ok": 1, "null": 1, "failed": 1}}
    found = pq.read_table(tmp_path / "out")
    assert found["translation"].to_pylist() == ["cba", None, None]
    assert found["translation_error"].to_pylist() == [
        None,
        "not UTF-8: unexpected end of data",
        None,
    ]
    assert cell_bytes(found["text"]) == [b"abc", b"caf\xe9", None]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ab", None, "ab"], pa.string()),
        pa.array(["ab", None, "ab"], pa.large_string()),
        pa.array(["ab", None, "ab"], pa.string_view()),
        pa.array(["ab", None, "ab"]).dictionary_encode(),
    ],
    ids=lambda column: str(column.type),
)
def test_translate_table_takes_every_kind_of_string(column):
    table, work = translate_table(
        pa.table({"x": column}),
        options=TableOptions(text_columns=("x",)),
        translator=Reverser(),
    )
    assert table.column("x").chunk(0).equals(column)
    assert table.drop(["x"]).to_pydict() == {
        "translation": ["ba", None, "ba"],
        "translation_score": [-2.0, None, -2.0],
        "translation_status": ["ok", "null", "ok"],
        "translation_error": [None, None, None],
    }
    assert [field.type for field in table.schema][1:] == [
        *(pa.string(), pa.float32(), pa.string(), pa.string())
    ]
    assert (work.texts, work.distinct_texts, work.source_characters) == (2, 1, 4)


def input_file(*, rows: int, name: str = "x/part.parquet") -> InputFile:
    return InputFile(path=f"/in/{name}", relative_path=name, size=1, rows=rows, footer_checksum="c")


@given(rows=st.integers(0, 300), unit_rows=st.integers(1, 100))
def test_units_are_consecutive_and_cover_a_file(rows, unit_rows):
    units = plan_units(input_file(rows=rows), unit_rows=unit_rows)
    covered = [i for unit in units for i in range(unit.first_row, unit.first_row + unit.rows)]
    assert covered == list(range(rows))
    assert all(0 < unit.rows <= unit_rows for unit in units) or (rows == 0 and len(units) == 1)
    assert units[-1].output_path == f"x/part-{len(units) - 1:05d}-of-{len(units):05d}.parquet"


@given(
    group_rows=st.lists(st.integers(0, 5), max_size=20),
    data=st.data(),
)
def test_overlapping_row_groups_hold_the_run_and_no_group_more(group_rows, data):
    total = sum(group_rows)
    first_row = data.draw(st.integers(0, total))
    rows = data.draw(st.integers(0, total - first_row))
    groups, skipped = overlapping_row_groups(group_rows=group_rows, first_row=first_row, rows=rows)
    group_of_row = [group for group, count in enumerate(group_rows) for _ in range(count)]
    run = group_of_row[first_row : first_row + rows]
    assert groups == sorted(set(run))
    if run:
        assert skipped == first_row - group_of_row.index(run[0])


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=40),
    row_group_size=st.integers(1, 45),
    unit_rows=st.integers(1, 45),
)
def test_any_cut_of_any_table_gives_back_all_rows_in_order(
    tmp_path_factory, texts, row_group_size, unit_rows
):
    table = pa.table(
        {
            "id": pa.array(range(len(texts)), pa.int32()),
            "text": pa.array(texts, pa.string()),
            "kind": pa.array(texts, pa.string()).dictionary_encode(),
        }
    )
    path = write(tmp_path_factory.mktemp("cut") / "t.parquet", table, row_group_size=row_group_size)
    units = plan_units(input_file(rows=len(texts)), unit_rows=unit_rows)
    checksum = read_footer(str(path)).checksum
    pieces = [
        read_rows(path=str(path), first_row=u.first_row, rows=u.rows, footer_checksum=checksum)
        for u in units
    ]
    assert [piece.num_rows for piece in pieces] == [unit.rows for unit in units]
    together = pa.concat_tables(pieces)
    assert together.schema.equals(table.schema)
    assert together.to_pydict() == table.to_pydict()


def test_read_rows_of_a_file_that_has_fewer(tmp_path):
    path = str(write(tmp_path / "t.parquet", numbered(5)))
    with pytest.raises(BadFileError, match="lacks 3 of 4 rows from row 4 on"):
        read_rows(path=path, first_row=4, rows=4, footer_checksum=read_footer(path).checksum)


def test_differences_of_plans_are_named_as_the_user_knows_them():
    theirs = {
        "format": 1,
        "input": {name: {"size": 1, "rows": 1, "footer_checksum": "c"} for name in "abc"},
        "bad_files": {"bad": "torn", "worse": "eaten"},
        "options": {"text_columns": ["x", "y"], "limit": None, "unit_rows": 9},
        "model_fingerprint": "m",
        "decoding": {"beam_size": 4},
        "engine": {"name": "tensorflow"},
        "versions": {"pyarrow": "1"},
    }
    ours = json.loads(json.dumps(theirs))
    ours["versions"]["pyarrow"] = ours["bad_files"]["bad"] = "other words"
    assert describe_differences(theirs, ours) == []
    assert describe_differences({**theirs, "format": 0}, ours) == [
        "it was begun by another version of tt"
    ]
    ours["model_fingerprint"] = "n"
    ours["engine"]["name"] = "ctranslate2"
    ours["decoding"]["beam_size"] = 5
    ours["options"].update(text_columns=["y"], unit_rows=8)
    ours["input"]["a"]["size"] = 2
    ours["input"]["d"] = ours["input"].pop("b")
    assert describe_differences(theirs, ours) == [
        "--model: another model now",
        "--engine: tensorflow then, ctranslate2 now",
        "--beam-size: 4 then, 5 now",
        "--text-column: x, y then, y now",
        "--unit-rows: 9 then, 8 now",
        "the input a has changed",
        "the input b is gone",
        "the input d is new",
    ]
    ours["input"]["bad"] = ours["input"]["d"]
    ours["bad_files"] = {"c": "lost", "worse": "eaten"}
    del ours["input"]["c"]
    assert describe_differences(theirs, ours)[-4:] == [
        "the input a has changed", "the input b is gone", "the input c is skipped now",
        "2 more inputs",
    ]  # fmt: skip
    ours["options"]["limit"] = 7
    assert describe_differences(theirs, ours)[-5:] == [
        "--limit: none then, 7 now", "--unit-rows: 9 then, 8 now", "the input a has changed",
        "the input c is skipped now", "the input bad was skipped then",
    ]  # fmt: skip


def test_the_manifest_refuses_lost_rows():
    plan = {"input": {"a.parquet": {"rows": 3}}, "options": {"text_columns": ["text"]}}
    unit = UnitStatistics(
        output_path="a-00000-of-00001.parquet",
        relative_path="a.parquet",
        first_row=0,
        rows=2,
        rows_by_status={"text": {**NO_ROWS, "ok": 2}},
    )
    with pytest.raises(RuntimeError, match=r"a\.parquet: 3 rows in, 2 out and 0 skipped"):
        make_manifest(plan=plan, statistics=[unit], max_failed=0)


def test_the_transforms_refuse_a_bad_configuration():
    with pytest.raises(ValueError, match=r"unit_rows must be at least 1\. Received: 0"):
        PlanUnits(unit_rows=0)
    good = {"compression": "zstd", "on_bad_file": "skip"}
    for bad in ({"compression": "rar"}, {"on_bad_file": "eat"}):
        options = UnitOptions(
            output="o",
            table=TableOptions(text_columns=("t",)),
            run_id="1",
            plan_digest="d",
            **{**good, **bad},
        )
        with pytest.raises(ValueError, match=r"Received: (rar|eat)"):
            TranslateUnits(load_translator=load_reverser, options=options)


def test_pipelines_run_on_this_machine_unless_told_otherwise():
    assert type(make_pipeline([]).runner).__name__ == "FnApiRunner"
    flink = make_pipeline(["--runner", "FlinkRunner"])
    assert type(flink.runner).__name__ == "FlinkRunner"


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        *([f"--runner={name}"] for name in ("FnApiRunner", "DirectRunner", "prismrunner",
          "BundleBasedDirectRunner", "apache_beam.runners.direct.direct_runner.DirectRunner",
          "SwitchingDirectRunner")),
        ("--runner", "PortableRunner", "--environment_type=LOOPBACK"),
        ("--runner=FlinkRunner", "--environment_type", "LOOPBACK"),
    ],
)  # fmt: skip
def test_local_files_are_for_runners_of_this_machine(arguments):
    assert check_places(arguments, paths=["gs://b/in", "out"]) is None


def test_workers_of_other_machines_have_no_local_files():
    flink, dataflow = ["--runner=FlinkRunner"], ["--runner", "DataflowRunner"]
    for arguments in (flink, dataflow):
        assert check_places(arguments, paths=["gs://b/in", "s3://b/out"]) is None
    assert check_places(flink, paths=["gs://b/in", "/data/out"]).startswith(
        "/data/out is of this machine: the workers of this --runner must have "
    )
    for loopback in ([], ["--environment_type=LOOPBACK"]):
        with pytest.raises(UserError, match=r"^run is of this machine, .*: name a path of gs://$"):
            check_places([*dataflow, *loopback], paths=["gs://b/in", "gs://b/out", "run"])


def test_the_direct_runner_has_as_many_workers_as_any_runner_here():
    for arguments in ((), ("--runner=DirectRunner",)):
        assert "--direct_num_workers=3" in _with_workers(arguments, workers=3)
    assert _with_workers(["--runner=FlinkRunner"], workers=3) == ["--runner=FlinkRunner"]


def test_user_errors_are_found_in_what_wraps_them():
    trace = (
        "Traceback ...\nmodel.errors.UserError: no model [while running 'Translate-ptransform-1']"
    )
    assert str(find_user_error(RuntimeError(trace + "\n"))) == "no model"
    inner = ValueError("outer")
    inner.__cause__ = UserError("inside")
    assert str(find_user_error(inner)) == "inside"
    assert find_user_error(RuntimeError("ValueError: something else")) is None
    bad = find_user_error(RuntimeError("Traceback ...\npipelines.parquet.BadFileError: x is cut"))
    assert (type(bad), str(bad)) == (BadFileError, "x is cut")

    class OtherError(UserError):
        pass

    inner.__cause__ = OtherError("of a subclass [while running 'Translate']")
    found = find_user_error(inner)
    assert (type(found), str(found)) == (OtherError, "of a subclass")


# --- the job --------------------------------------------------------------------------------


def test_a_large_row_group_is_cut_and_the_columns_stand_in_order(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(25), row_group_size=25)
    summary = translate(source, tmp_path / "out", unit_rows=10)
    assert (summary.rows, summary.units, summary.reused_units) == (25, 3, 0)
    assert summary.rows_by_status == {"text": {**NO_ROWS, "ok": 25}}
    assert not summary.already_finished
    assert files_below(tmp_path / "out") == [
        "_tt/manifest.json",
        "_tt/plan.json",
        "_tt/units/input-00000-of-00003.json",
        "_tt/units/input-00001-of-00003.json",
        "_tt/units/input-00002-of-00003.json",
        "input-00000-of-00003.parquet",
        "input-00001-of-00003.parquet",
        "input-00002-of-00003.parquet",
    ]
    tables = [read(tmp_path / "out" / name) for name in outputs(tmp_path / "out")]
    assert [table.num_rows for table in tables] == [10, 10, 5]
    assert read_all(tmp_path / "out").to_pydict() == {
        **numbered(25).to_pydict(),
        "translation": turned(25),
        "translation_score": [-float(len(text)) for text in turned(25)],
        "translation_status": ["ok"] * 25,
        "translation_error": [None] * 25,
    }


def test_five_thousand_row_groups_of_one_row_give_one_file(tmp_path):
    source = write(tmp_path / "small.parquet", numbered(5000), row_group_size=1)
    assert translate(source, tmp_path / "out", unit_rows=5000).units == 1
    [name] = outputs(tmp_path / "out")
    table = read(tmp_path / "out" / name)
    assert table.column("id").to_pylist() == list(range(5000))
    assert table.column("translation").to_pylist() == turned(5000)


def test_statuses_are_counted_by_file_and_in_all(tmp_path):
    folder = tmp_path / "in"
    write(folder / "a.parquet", {"text": ["x", None, "", "  ", "toolong"]})
    write(folder / "b.parquet", {"text": pa.array([], pa.string())})
    write(folder / "c.parquet", {"text": pa.array([None, None], pa.string())})
    summary = translate(folder, tmp_path / "out", max_source_tokens=8)
    counts = {**NO_ROWS, "ok": 1, "null": 3, "empty": 2, "too_long": 1}
    assert (summary.rows, summary.units) == (7, 3)
    assert summary.rows_by_status == {"text": counts}
    written = manifest(tmp_path / "out")
    assert written.pop("unit_seconds") > 0
    outputs_of = [f"{name}-00000-of-00001.parquet" for name in "abc"]
    kept = {"skipped_rows": 0, "failed_rows": 0}

    def of_file(rows, **by_status):
        rows_by_status = {"text": {**NO_ROWS, **by_status}}
        return {
            "units": 1, "rows": rows, "rows_out": rows, "rows_by_status": rows_by_status, **kept
        }  # fmt: skip

    assert written == {
        "format": 1,
        "files": {
            "a.parquet": of_file(5, ok=1, null=1, empty=2, too_long=1),
            "b.parquet": of_file(0),
            "c.parquet": of_file(2, null=2),
        },
        "rows": 7,
        "rows_out": 7,
        "rows_by_status": {"text": counts},
        **kept,
        "max_failed": 1.0,
        "has_failed": False,
        "units": 3,
        "output_bytes": {
            name: (tmp_path / "out" / name).stat().st_size for name in outputs(tmp_path / "out")
        },
        "skipped_files": [],
        "skipped_units": [],
        "texts": 1,
        "distinct_texts": 1,
        "source_characters": 10,  # "x", "  ", "toolong"
        "work": {
            "sources": 1,
            "source_tokens": 3,
            "padded_tokens": 3,
            "target_tokens": 3,
            "memory_backoffs": 0,
            "padding": 0.0,
        },
        "model_fingerprint": "f0",
        "decoding": dataclasses.asdict(Decoding()),
        "engine": {"name": "reverser"},
        "options": {
            "text_columns": ["text"],
            "unit_rows": 8192,
            "limit": None,
            "compression": "zstd",
            "max_source_tokens": 8,
            "on_too_long": "skip",
            "source_language": "",
        },
        "versions": [{"programs": installed_versions(), "outputs": outputs_of}],
        "last_run": {"units": 3, "rows": 7, "source_characters": 10},
    }
    empty = read(tmp_path / "out/b-00000-of-00001.parquet")
    assert empty.num_rows == 0
    assert empty.schema == pa.schema(
        [
            ("text", pa.string()),
            ("translation", pa.string()),
            ("translation_score", pa.float32()),
            ("translation_status", pa.string()),
            ("translation_error", pa.string()),
        ]
    )


def every_type() -> pa.Table:
    moment = datetime.datetime(2024, 2, 29, 12, 30, 1, 123456)
    cent = decimal.Decimal("-1.25")
    columns = {
        "text": pa.array(["a", None, "b", "a", "c"], pa.large_string()),
        "category": pa.array(["x", "y", None, "x", "z"]).dictionary_encode(),
        "ordered": pa.DictionaryArray.from_arrays(
            pa.array([0, 1, None, 0, 1], pa.int8()), ["low", "high"], ordered=True
        ),
        "view": pa.array([b"", None, b"\x00", b"1", b"2"], pa.binary_view()),
        "map": pa.array(
            [[("k", 1)], None, [], [("a", None), ("b", 2)], []], pa.map_(pa.string(), pa.int32())
        ),
        "nested": pa.array(
            [{"a": [1, 2], "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": [], "b": {}}, {}],
            pa.struct([("a", pa.list_(pa.int16())), ("b", pa.struct([("c", pa.large_string())]))]),
        ),
        "large_list": pa.array([[1.5], None, [], [None], [2.0]], pa.large_list(pa.float32())),
        "decimal": pa.array([cent, None, cent, cent, cent], pa.decimal128(20, 2)),
        "wide_decimal": pa.array([cent, None, cent, cent, cent], pa.decimal256(50, 2)),
        "zoned": pa.array([moment, None, moment, moment, moment], pa.timestamp("us", "Asia/Tokyo")),
        "nanoseconds": pa.array([1000, None, 3000, 4000, 5000], pa.timestamp("ns")),
        "duration": pa.array([1, None, 3, 4, 5], pa.duration("ms")),
        "time": pa.array([1, None, 3, 4, 5], pa.time32("ms")),
        "date": pa.array([1, None, 3, 4, 5], pa.date32()),
        "fixed": pa.array([b"ab", None, b"cd", b"ef", b"gh"], pa.binary(2)),
        "pair": pa.array([[1, 2], [3, 4], [5, 6], [7, 8], [9, None]], pa.list_(pa.int8(), 2)),
        "half": pa.array([1.5, None, 0.0, -1.0, 2.0], pa.float16()),
        "small": pa.array([1, None, 255, 0, 1], pa.uint8()),
        "truth": pa.array([True, None, False, True, True]),
        "nothing": pa.nulls(5),
    }
    fields = [pa.field(name, column.type) for name, column in columns.items()]
    fields.append(pa.field("required", pa.int64(), nullable=False, metadata={"unit": "m"}))
    columns["required"] = pa.array(range(5))
    schema = pa.schema(fields, metadata={"owner": "someone", "pandas": '{"columns": []}'})
    return pa.table(list(columns.values()), schema=schema)


def test_every_type_null_and_metadata_is_kept(tmp_path):
    source = write(tmp_path / "t.parquet", every_type(), row_group_size=3)
    translate(source, tmp_path / "out", text_columns=("text",), unit_rows=2)
    expected = read(source)
    assert expected.schema.field("zoned").type == pa.timestamp("us", "Asia/Tokyo")
    assert expected.schema.field("ordered").type == pa.dictionary(pa.int8(), pa.string(), True)
    for index, name in enumerate(outputs(tmp_path / "out")):
        table = read(tmp_path / "out" / name)
        kept = table.drop(ADDED)
        assert kept.schema.equals(expected.schema, check_metadata=True)
        assert kept.to_pylist() == expected.slice(2 * index, 2).to_pylist()
        assert table.column_names == [*expected.column_names, *ADDED]
    assert read_all(tmp_path / "out").column("translation").to_pylist() == [
        "a",
        None,
        "b",
        "a",
        "c",
    ]


def test_outputs_mirror_folders_and_leave_hidden_ones_out(tmp_path):
    folder = tmp_path / "in [1]"  # brackets are a pattern elsewhere
    write(folder / "top.parquet", numbered(1))
    write(folder / "lang=en" / "part.parquet", numbered(3))
    write(folder / "lang=de" / "part.parquet", numbered(2))
    write(folder / "_delta_log" / "x.parquet", {"other": [1]})
    write(folder / ".cache" / "x.parquet", {"other": [1]})
    (folder / "_SUCCESS").write_text("")
    (folder / "notes.txt").write_text("not Parquet")
    summary = translate(folder, tmp_path / "out", unit_rows=2)
    assert outputs(tmp_path / "out") == [
        "lang=de/part-00000-of-00001.parquet",
        "lang=en/part-00000-of-00002.parquet",
        "lang=en/part-00001-of-00002.parquet",
        "top-00000-of-00001.parquet",
    ]
    assert (len(summary.manifest["files"]), summary.rows) == (3, 6)


def test_a_glob_mirrors_what_lies_below_its_fixed_part(tmp_path):
    write(tmp_path / "in/x/a.parquet", numbered(1))
    write(tmp_path / "in/y/a.parquet", numbered(1))
    write(tmp_path / "in/y/b.parquet", numbered(1))
    translate(tmp_path / "in/*/a.parquet", tmp_path / "out")
    assert outputs(tmp_path / "out") == [
        "x/a-00000-of-00001.parquet",
        "y/a-00000-of-00001.parquet",
    ]


def test_relative_paths_and_several_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "one.parquet", numbered(1))
    write(tmp_path / "two.parquet", numbered(2))
    translate(["one.parquet", "./two.parquet"], "out/", compression="snappy")
    assert outputs(tmp_path / "out") == [
        "one-00000-of-00001.parquet",
        "two-00000-of-00001.parquet",
    ]
    metadata = pq.read_metadata(tmp_path / "out/two-00000-of-00001.parquet")
    assert metadata.row_group(0).column(0).compression == "SNAPPY"


def test_a_job_that_crashed_does_only_what_is_missing(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(40))
    crash_at.add("row 25")
    try:
        with pytest.raises(Exception, match="the worker dies here"):
            translate(source, tmp_path / "out", unit_rows=10)
    finally:
        crash_at.clear()
    out = tmp_path / "out"
    assert "input-00002-of-00004.parquet" not in outputs(out)
    assert not (out / "_tt/manifest.json").exists()
    (out / "_tt/left-by-a-kill.tmp").write_bytes(b"half")
    kept = outputs(out)
    times = {name: (out / name).stat().st_mtime_ns for name in kept}
    summary = translate(source, out, unit_rows=10)
    assert (summary.units, summary.reused_units) == (4, len(kept))
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == times
    assert read_all(out).column("translation").to_pylist() == turned(40)
    assert [name for name in files_below(out) if name.endswith(".tmp")] == []


def test_what_kills_left_is_deleted_before_the_manifest_ends_the_job(tmp_path, monkeypatch):
    source, out = write(tmp_path / "input.parquet", numbered(4)), tmp_path / "out"
    translate(source, out)
    (out / "_tt/manifest.json").unlink()
    (out / "_tt/left-by-a-kill.tmp").write_bytes(b"half")
    write_json = pipelines.translate.write_json

    def write_manifest(value, *, output, path, run_id):
        assert [name for name in files_below(out) if name.endswith(".tmp")] == []
        write_json(value, output=output, path=path, run_id=run_id)

    monkeypatch.setattr(pipelines.translate, "write_json", write_manifest)
    assert translate(source, out).reused_units == 1
    assert (out / "_tt/manifest.json").exists()


def test_missing_and_damaged_outputs_are_made_again_and_the_others_kept(tmp_path):
    source = write(tmp_path / "input.parquet", {"text": ["a", None, "", "b", "toolong", "c"]})
    out = tmp_path / "out"
    first = translate(source, out, unit_rows=2, max_source_tokens=8)
    names = outputs(out)
    before = [(out / name).read_bytes() for name in names]
    (out / names[0]).unlink()
    (out / names[1]).write_bytes(before[1][:-20])
    (out / "_tt/manifest.json").unlink()
    time = (out / names[2]).stat().st_mtime_ns
    second = translate(source, out, unit_rows=2, max_source_tokens=8)
    assert without_run(second.manifest) == without_run(first.manifest)
    assert second.manifest["last_run"] == {"units": 2, "rows": 4, "source_characters": 2}
    assert [(out / name).read_bytes() for name in names] == before
    assert (out / names[2]).stat().st_mtime_ns == time


def test_a_finished_job_says_so_and_loads_no_model(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    first = translate(source, tmp_path / "out", unit_rows=2)
    second = translate(source, tmp_path / "out", unit_rows=2, load=load_nothing)
    assert (second.already_finished, second.reused_units) == (True, 2)
    assert second.manifest == first.manifest


@pytest.mark.parametrize("loss", ["all", "a byte"])
def test_a_finished_job_that_lost_an_output_is_not_finished(tmp_path, loss):
    source = write(tmp_path / "input.parquet", numbered(3))
    translate(source, tmp_path / "out", unit_rows=2)
    path = tmp_path / "out/input-00001-of-00002.parquet"
    if loss == "all":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:-1])
    summary = translate(source, tmp_path / "out", unit_rows=2)
    assert (summary.already_finished, summary.reused_units) == (False, 1)
    assert read_all(tmp_path / "out").column("translation").to_pylist() == turned(3)


def test_bundles_that_run_twice_change_nothing(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(30))
    once = translate(source, tmp_path / "once", unit_rows=4)
    twice = translate(
        source, tmp_path / "twice", unit_rows=4, arguments=["--direct_runner_bundle_repeat=1"]
    )
    assert twice.manifest["last_run"] == once.manifest["last_run"]
    assert without_run(twice.manifest) == without_run(once.manifest)
    assert files_below(tmp_path / "twice") == files_below(tmp_path / "once")
    for name in outputs(tmp_path / "once"):
        content = (tmp_path / "twice" / name).read_bytes()
        assert content == (tmp_path / "once" / name).read_bytes()


def test_two_workers_share_one_model_and_give_the_same_files(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(200), row_group_size=200)
    translate(source, tmp_path / "one", unit_rows=10)
    loads.clear()
    translate(source, tmp_path / "two", unit_rows=10, arguments=TWO_WORKERS)
    assert len(loads) == 1
    for name in outputs(tmp_path / "one"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes()
    assert len(outputs(tmp_path / "two")) == 20


# --- what the user can mend -----------------------------------------------------------------


def test_another_plan_into_the_same_folder_is_refused(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    out = tmp_path / "out"
    translate(source, out)
    before = files_below(out)
    start = f"the output folder {out} belongs to another run: "
    end = ". Choose another folder, the same files and options, or --overwrite"
    assert refused(source, out, unit_rows=2) == (f"{start}--unit-rows: 8192 then, 2 now{end}")
    assert refused(source, out, fingerprint="f1") == (f"{start}--model: another model now{end}")
    write(tmp_path / "input.parquet", {"id": [7, 8, 9], "text": ["row 0", "row 1", "row 2"]})
    assert refused(source, out) == f"{start}the input input.parquet has changed{end}"
    other = write(tmp_path / "other.parquet", numbered(3))
    gone = "the input input.parquet is gone; the input other.parquet is new"
    assert refused(other, out) == f"{start}{gone}{end}"
    assert files_below(out) == before


def test_a_plan_of_which_nothing_is_finished_gives_way(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    out = tmp_path / "out"

    def load():
        raise UserError("these weights are damaged")

    assert refused(source, out, load=load) == "these weights are damaged"
    assert files_below(out) == ["_tt/plan.json"]
    (out / "notes.txt").write_text("mine")
    assert "holds something else (notes.txt)" in refused(source, out, unit_rows=2)
    (out / "notes.txt").unlink()
    (out / "_tt/units").mkdir()
    (out / "_tt/units/input-00000-of-00001.json").write_text("{}")
    assert "belongs to another run" in refused(source, out, unit_rows=2)
    (out / "_tt/units/input-00000-of-00001.json").unlink()
    assert translate(source, out, unit_rows=2).rows == 3
    assert "belongs to another run" in refused(source, out)


def test_names_that_an_object_store_takes_for_globs_are_refused(tmp_path):
    MemoryFileSystem.clear()
    MemoryFileSystem.put("mem://bucket/a1.tmp", b"another's")
    MemoryFileSystem.put("mem://bucket/out/a1.tmp", b"another's")
    with pytest.raises(UserError, match=r"^mem://bucket/a\[1\]\.tmp has one of the characters "):
        delete(["mem://bucket/out/a1.tmp", "mem://bucket/a[1].tmp"])
    assert len(MemoryFileSystem.paths()) == 2, "nothing is deleted before all names are known"
    for name, out in (("a[1].parquet", "mem://bucket/new"), ("a.parquet", "mem://bucket/o?")):
        source = write(tmp_path / name, numbered(3))
        assert refused(source, out).startswith(f"{out}/{name} has one of the characters * ? [ ], ")
    assert len(MemoryFileSystem.paths()) == 2
    assert translate(tmp_path / "a[1].parquet", tmp_path / "o[1]").rows == 3


def test_a_file_system_that_does_not_answer_is_one_line(tmp_path, monkeypatch):
    local = write(tmp_path / "input.parquet", numbered(3))
    MemoryFileSystem.clear()
    MemoryFileSystem.put("mem://bucket/in/a.parquet", local.read_bytes())

    def fail(*_):
        raise RuntimeError("no\nbucket")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFileSystem, "_list", fail)
        for name in ("in", "in/*.parquet"):
            source = f"mem://bucket/{name}"
            assert refused(source, tmp_path / "out").startswith(f"{source} cannot be looked up: ")
        remote = "mem://bucket/out"
        assert refused(local, remote).startswith(f"{remote} cannot be looked up: ")

    def does_not_answer(*_):
        raise BeamIOError("no\nanswer")

    monkeypatch.setattr(MemoryFileSystem, "exists", does_not_answer)
    for source, out in ((local, "mem://bucket/out"), ("mem://bucket/x*", tmp_path / "out")):
        assert "cannot be looked up: no answer" in refused(source, out)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("path", "package"),
    [("s3://b/x", "boto3"), ("hdfs://b/x", "hdfs"), ("azfs://a/b/x", "apache-beam[azure]")],
)
def test_what_a_file_system_lacks_is_named(tmp_path, path, package):
    source = write(tmp_path / "input.parquet", numbered(3))
    rest = f"cannot be looked up: it needs a package that is not installed: pip install '{package}'"
    for where in ((path, tmp_path / "out"), (source, path)):
        assert refused(*where) == f"{path} {rest}"


def test_an_output_that_holds_something_else_is_refused(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    assert refused(source, out) == (
        f"the output folder {out} holds something else (notes.txt): choose an empty or a new one"
    )
    assert files_below(out) == ["notes.txt"]
    (out / "notes.txt").unlink()
    assert translate(source, out).rows == 3  # an empty folder is taken


def test_an_output_that_is_a_file_or_lies_in_the_input_is_refused(tmp_path):
    source = write(tmp_path / "in/input.parquet", numbered(3))
    assert refused(source, source) == f"the output must be a folder; {source} is a file"
    inside = tmp_path / "in/out"
    assert refused(tmp_path / "in", inside) == (
        f"the output folder {inside} lies in the input folder {tmp_path / 'in'}: choose one outside"
    )
    assert refused(f"{tmp_path}/in/*.parquet", tmp_path) == (
        f"the input file {source} lies in the output folder: choose another folder"
    )
    below_file = source / "out"
    assert refused(source, below_file).startswith(f"cannot write into {below_file}: ")


def test_a_plan_that_is_damaged_is_refused(tmp_path):
    source = write(tmp_path / "input.parquet", numbered(3))
    translate(source, tmp_path / "out")
    (tmp_path / "out/_tt/plan.json").write_text("{")
    assert "_tt/plan.json is damaged (" in refused(source, tmp_path / "out")


def test_missing_input_is_refused(tmp_path):
    out = tmp_path / "out"
    missing = tmp_path / "none.parquet"
    assert refused(missing, out) == f"no such input file or folder: {missing} (check the path)"
    glob = tmp_path / "*.parquet"
    assert refused(glob, out) == f"no file matches the input {glob}: check the path"
    (tmp_path / "empty").mkdir()
    assert refused(tmp_path / "empty", out) == (
        f"the input folder {tmp_path / 'empty'} holds no *.parquet file: name another one, or "
        "files of other names by a glob"
    )
    assert refused("nosuch://b/x", out).startswith("nosuch://b/x cannot be looked up: Unable to")
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
    assert found.endswith(". Check the file, or leave such files out with --on-bad-file skip")
    assert refused(bad, tmp_path / "out").endswith(". Check the file")
    assert not (tmp_path / "out").exists()


def test_inputs_of_one_name_are_refused(tmp_path):
    a = write(tmp_path / "a/part.parquet", numbered(1))
    b = write(tmp_path / "b/part.parquet", numbered(1))
    rest = (
        "would have the same output files, part-*.parquet: name the folder that holds both, "
        "or translate them into two folders"
    )
    assert refused([a, b], tmp_path / "out") == f"{a} and {b} {rest}"
    for inputs in ([a, tmp_path / "a"], [tmp_path / "a", f"{tmp_path}/*/*.parquet"]):
        assert refused(inputs, tmp_path / "out") == (
            f"the input names {a} twice: name each file once"
        )


@pytest.mark.parametrize("name", ADDED)
def test_a_column_of_an_added_name_is_refused(tmp_path, name):
    source = write(tmp_path / "input.parquet", {"text": ["a"], name: [1]})
    assert refused(source, tmp_path / "out", text_columns=("text",)) == (
        f"{source} has a column '{name}' already, which is the name of a column that is added: "
        "rename or drop it"
    )


def test_the_text_column_must_be_there_and_hold_strings(tmp_path):
    source = write(tmp_path / "input.parquet", {"id": [1], "text": ["a"], "note": ["b"]})
    out = tmp_path / "out"
    choose = "Choose columns with --text-column"
    columns = f"Its columns: id: int64, text: string, note: string. {choose}"
    assert refused(source, out, text_columns=("txt",)) == f"{source} has no column 'txt'. {columns}"
    assert refused(source, out, text_columns=("id",)) == (
        f"the text column must hold strings; 'id' of {source} is int64. {columns}"
    )
    assert refused(source, out) == (
        f"{source} has 2 columns of strings: text, note. Choose with --text-column"
    )
    numbers = write(tmp_path / "numbers.parquet", {"id": [1]})
    assert refused(numbers, out) == (
        f"{numbers} has no column of strings to translate. Its columns: id: int64. {choose}"
    )
    twice = write(tmp_path / "twice.parquet", pa.table([["a"], ["b"]], names=["text", "text"]))
    assert refused(twice, out, text_columns=("text",)) == (
        f"{twice} has 2 columns 'text'. Its columns: text: string, text: string. {choose}"
    )
    assert not out.exists()
    translate(source, out, text_columns=("note",))
    assert read_all(out).column("translation").to_pylist() == ["b"]


def test_the_files_must_agree_on_the_text_column(tmp_path):
    a = write(tmp_path / "in/a.parquet", {"text": ["a"]})
    b = write(tmp_path / "in/b.parquet", {"body": ["a"]})
    assert refused(tmp_path / "in", tmp_path / "out") == (
        "the files must agree on the column to translate; "
        f"it is 'text' in {a} and 'body' in {b}. Translate them into two folders"
    )
    assert refused(tmp_path / "in", tmp_path / "out", text_columns=("text",)) == (
        f"{b} has no column 'text'. Its columns: body: string. Choose columns with --text-column, "
        "or leave such files out with --on-bad-file skip"
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"unit_rows": 0}, "--unit-rows must be at least 1. Received: 0"),
        (
            {"compression": "rar"},
            "--compression must be one of zstd, snappy, gzip, brotli, lz4, none. Received: 'rar'",
        ),
        ({"input": ()}, "no input: name Parquet files, folders or globs"),
        ({"output": ""}, "no output: name a folder"),
        (
            {"limit": 0},
            "--limit must be at least 1; leave it out to translate all rows. Received: 0",
        ),
        ({"on_bad_file": "eat"}, "--on-bad-file must be one of fail, skip. Received: 'eat'"),
        (
            {"max_failed": float("nan")},
            "--max-failed must be a share of the rows, 0 to 1. Received: nan",
        ),
        (
            {"text_columns": ("a", "b", "a")},
            "each --text-column must be another one. Received twice: a",
        ),
        (
            {"overwrite": True, "retry_failed": True},
            "--overwrite starts again and --retry-failed keeps what is there: choose one",
        ),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(UserError) as caught:
        TranslateOptions(**{"input": ("x",), "output": "o", **options})
    assert str(caught.value) == message


@pytest.mark.parametrize("arguments", [(), TWO_WORKERS], ids=["one worker", "two workers"])
def test_a_user_error_of_a_worker_reaches_the_user_as_one_line(tmp_path, caplog, arguments):
    source = write(tmp_path / "input.parquet", numbered(30))
    message = refused(
        source, tmp_path / "out", unit_rows=10, load=load_nothing, arguments=arguments
    )
    assert message == "no model folder at nowhere: train one with `tt train`"
    assert caplog.text == ""


def test_an_interrupt_that_meets_a_worker_of_this_thread_is_one(tmp_path, monkeypatch, caplog):
    def interrupt(self, source_ids):
        raise KeyboardInterrupt

    monkeypatch.setattr(Reverser, "translate_ids", interrupt)
    source = write(tmp_path / "input.parquet", numbered(3))
    with pytest.raises(KeyboardInterrupt):
        translate(source, tmp_path / "out")
    assert caplog.text == ""
