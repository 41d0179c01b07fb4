"""Parts of the translation job, tested individually."""

from __future__ import annotations

import collections
import dataclasses
import itertools
import json
import pickle

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import Reverser
from hypothesis import given, settings
from hypothesis import strategies as st
from translation_jobs import NO_ROWS, numbered, request, translate, write

from tt.model.engines.translator import Work
from tt.model.errors import (
    BadFileError,
    DiskFullError,
    NoAccessError,
    NotFiniteError,
    ServiceError,
    UserError,
)
from tt.pipelines.jobs.running import AddUp
from tt.pipelines.runners.beam_options import with_local_defaults
from tt.pipelines.runners.failures import find_user_error
from tt.pipelines.runners.runner import make_pipeline
from tt.pipelines.tables.forward import read_rows
from tt.pipelines.tables.parquet import read_footer
from tt.pipelines.translate.job_folder import read_input, write_input
from tt.pipelines.translate.manifest import SkippedFile, UnitStatistics, UnitTotals, make_manifest
from tt.pipelines.translate.plan import InputFile, plan_units, record_of
from tt.pipelines.translate.table import TableOptions, translate_table


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary("int8", "string")])
def test_only_the_cell_that_is_not_utf8_fails(tmp_path, kind):
    latin = pa.array([b"abc", b"caf\xe9", None], pa.binary())
    column = pa.Array.from_buffers(pa.string(), 3, latin.buffers()).cast(pa.large_string())
    column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
    pq.write_table(pa.table({"text": column}), tmp_path / "in.parquet")
    summary = translate(tmp_path / "in.parquet", tmp_path / "out")
    assert summary.manifest["rows_by_status"] == {
        "text": {**NO_ROWS, "ok": 1, "null": 1, "failed": 1}
    }
    found = pq.read_table(tmp_path / "out")
    assert found["translation"].to_pylist() == ["cba", None, None]
    assert found["translation_error"].to_pylist() == [
        None,
        "not UTF-8: unexpected end of data",
        None,
    ]
    assert found["text"].to_pylist() == ["abc", None, None]


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
def test_translate_table_accepts_every_string_type(column):
    table, work = translate_table(
        pa.table({"x": column}),
        options=TableOptions(fields=("x",)),
        translator=Reverser(),
    )
    assert table.column("x").chunk(0).equals(column)
    assert table.drop(["x"]).to_pydict() == {
        "translation": ["ba", None, "ba"],
        "translation_score": [-2.0, None, -2.0],
        "translation_status": ["ok", "null", "ok"],
        "translation_error": [None, None, None],
        "translation_flags": [[], [], []],
    }
    assert [field.type for field in table.schema][1:] == [
        *(pa.string(), pa.float32(), pa.string(), pa.string(), pa.list_(pa.string()))
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


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.one_of(st.none(), st.text(max_size=3)), max_size=40),
    row_group_size=st.integers(1, 45),
    unit_rows=st.integers(1, 45),
)
def test_units_contain_all_rows_in_order(tmp_path_factory, texts, row_group_size, unit_rows):
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


def test_reading_more_rows_than_a_file_has_is_an_error(tmp_path):
    path = str(write(tmp_path / "t.parquet", numbered(5)))
    with pytest.raises(BadFileError, match="lacks 3 of 3 rows, starting at row 5"):
        read_rows(path=path, first_row=4, rows=4, footer_checksum=read_footer(path).checksum)


def compare(theirs, ours):
    return record_of(theirs).compare(record_of(ours))


def test_differences_between_plans_are_described_for_the_user():
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
    assert compare(theirs, ours) == []
    assert compare({**theirs, "format": 0}, ours) == ["`format` was 0 and is now 1"]
    ours["model_fingerprint"] = "n"
    ours["engine"]["name"] = "ctranslate2"
    ours["decoding"]["beam_size"] = 5
    ours["options"].update(text_columns=["y"], unit_rows=8)
    ours["input"]["a"]["size"] = 2
    ours["input"]["d"] = ours["input"].pop("b")
    assert compare(theirs, ours) == [
        "the model has changed",
        "`text_columns` was x, y and is now y",
        "`unit_rows` was 9 and is now 8",
        "`beam_size` was 4 and is now 5",
        "`name` was tensorflow and is now ctranslate2",
        "the input a has changed",
        "the input b is missing",
        "the input d is new",
    ]
    ours["input"]["bad"] = ours["input"]["d"]
    ours["bad_files"] = {"c": "lost", "worse": "eaten"}
    del ours["input"]["c"]
    assert compare(theirs, ours)[5:] == [
        "the input a has changed", "the input b is missing", "the input c has changed",
        "2 more inputs",
    ]  # fmt: skip


def some_units(count):
    """Return statistics of units of three files, which two versions of tt translated."""
    return [
        UnitStatistics(
            output_path=f"year=2024/month={i % 3}/part-{i:05d}-of-{count:05d}.snappy.parquet",
            relative_path=f"year=2024/month={i % 3}/part.snappy.parquet",
            first_row=10 * i,
            rows=10,
            skipped="" if i % 7 else "damaged",
            output_bytes=1000 + i,
            rows_by_status={"text": {**NO_ROWS, "ok": 9, "failed": 1}} if i % 7 else {},
            rows_by_flag={"text": {"copy": i % 2}},
            failed_rows=1 if i % 7 else 0,
            texts=i,
            work=Work(sources=i, source_tokens=2 * i, padded_tokens=3 * i),
            seconds=0.001 * i,
            run_rows=i,
            versions={"tt-translate": "1" if i % 5 else "2"},
            was_reused=i % 2 == 0,
        )
        for i in range(count)
    ]


def add_up(units):
    totals = UnitTotals()
    for unit in units:
        totals.add(unit)
    return totals


def plan_of(units):
    rows = collections.Counter()
    for unit in units:
        rows[unit.relative_path] += unit.rows
    return {
        "input": {name: {"rows": count} for name, count in rows.items()},
        "bad_files": {"bad.csv": "it is empty"},
        "options": {"text_columns": ["text"]},
        **dict.fromkeys(("model_fingerprint", "decoding", "engine")),
    }


@given(data=st.data(), count=st.integers(0, 40))
def test_the_manifest_does_not_depend_on_the_order_of_adding_units(data, count):
    units = some_units(count)
    known = {"plan": plan_of(units), "bad_rows": {"bad.csv": 3}, "max_failed": 0.5}
    expected = make_manifest(totals=add_up(units), **known)
    ok = sum(unit.rows_by_status.get("text", {}).get("ok", 0) for unit in units)
    assert expected["rows_by_status"]["text"]["ok"] == ok
    assert expected["rows"] == 10 * count
    assert expected["work"]["source_tokens"] == sum(unit.work.source_tokens for unit in units)
    assert expected["unit_seconds"] == round(sum(unit.seconds for unit in units), 3)
    assert expected["last_run"]["units"] == count // 2
    shuffled = data.draw(st.permutations(units))
    cuts = sorted(data.draw(st.lists(st.integers(0, count), max_size=3)))
    combine = AddUp(UnitTotals)
    parts = [combine.create_accumulator()]
    for first, end in itertools.pairwise((0, *cuts, count)):
        parts.append(pickle.loads(pickle.dumps(add_up(shuffled[first:end]))))
    totals = combine.extract_output(combine.merge_accumulators(reversed(parts)))
    found = make_manifest(totals=totals, **known)
    assert found == expected
    assert json.dumps(found) == json.dumps(expected), "in the same order, with the same types"


def test_the_totals_keep_little_more_than_the_output_path_of_each_unit():
    """The statistics of 100,000 units would need hundreds of megabytes in the last step."""
    less, more = (add_up(some_units(count)) for count in (1_000, 3_000))
    grown = (len(pickle.dumps(more)) - len(pickle.dumps(less))) / 2_000
    path = len(some_units(1)[0].output_path)
    skipped = 250 / 7  # a seventh of the units is skipped, and the totals keep the reasons
    assert grown < path + 30 + skipped
    assert grown < len(pickle.dumps(some_units(2)[1])) / 5


def test_the_manifest_refuses_lost_rows():
    options = {"text_columns": ["text"]}
    plan = {"input": {"a.parquet": {"rows": 3}}, "bad_files": {}, "options": options}
    unit = UnitStatistics(
        output_path="a-00000-of-00001.parquet",
        relative_path="a.parquet",
        first_row=0,
        rows=2,
        rows_by_status={"text": {**NO_ROWS, "ok": 2}},
    )
    with pytest.raises(RuntimeError, match="3 rows in, 2 out, 0 dropped and 0 skipped"):
        make_manifest(plan=plan, totals=add_up([unit]), bad_rows={}, max_failed=0)


def test_pipelines_run_on_this_machine_by_default():
    assert type(make_pipeline([]).runner).__name__ == "FnApiRunner"
    flink = make_pipeline(["--runner", "FlinkRunner"])
    assert type(flink.runner).__name__ == "FlinkRunner"


def test_the_direct_runner_gets_the_default_number_of_workers():
    for arguments in ((), ("--runner=DirectRunner",)):
        assert "--direct_num_workers=3" in with_local_defaults(arguments, workers=3)
    assert with_local_defaults(["--runner=FlinkRunner"], workers=3) == ["--runner=FlinkRunner"]


def test_user_errors_are_found_inside_other_errors():
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

    for kind in (DiskFullError, NoAccessError, NotFiniteError, ServiceError):
        found = find_user_error(RuntimeError(f"Traceback ...\nmodel.errors.{kind.__name__}: why"))
        assert (type(found), str(found)) == (kind, "why")

    class OtherError(UserError):
        pass

    inner.__cause__ = OtherError("of a subclass [while running 'Translate']")
    found = find_user_error(inner)
    assert (type(found), str(found)) == (OtherError, "of a subclass")


def test_the_pipeline_does_not_grow_with_the_input(tmp_path):
    job = request(write(tmp_path / "in.parquet", numbered(3)), tmp_path / "out").plan()
    sizes = []
    for count in (1, 100_000):
        files = [
            input_file(rows=5_000_000, name=f"year=2024/month=11/part-{i:06d}.snappy.parquet")
            for i in range(count)
        ]
        bad = {f"bad/{i}.parquet": "it does not end in PAR1" for i in range(count)}
        skipped = [SkippedFile(relative_path=name, reason=bad[name], rows=None) for name in bad]
        found = dataclasses.replace(job.found, files=files, skipped=skipped)
        large = dataclasses.replace(job, found=found, plan={**job.plan, "bad_files": bad})
        pipeline = make_pipeline([])
        large._build(pipeline, is_exclusive=True)
        program = pipeline.to_runner_api()
        sizes.append(len(program.SerializeToString()))
        # Flink omits the second of two consecutive reshuffles. `Create` contains its own reshuffle.
        reshuffles = {step.unique_name for step in program.components.transforms.values()
                      if step.spec.urn == "beam:transform:reshuffle:v1"}  # fmt: skip
        own = {name for name in reshuffles if not name.endswith("MaybeReshuffle/Reshuffle")}
        assert own == {"Spread units"}
    assert sizes[1] < 1.01 * sizes[0] < 200_000


def test_workers_read_the_planned_input_files(tmp_path):
    schema = pa.schema([("x", pa.list_(pa.string())), ("é", pa.int8())], metadata={"a": "b"})
    files = [
        input_file(rows=3),
        dataclasses.replace(input_file(rows=0, name="x/\u2028.csv"), schema=schema),
        SkippedFile(relative_path="bad.csv", reason="line 3 has\u2028 two cells", rows=None),
    ]
    (tmp_path / "_tt").mkdir()
    write_input(files, output=str(tmp_path), plan_digest="d", run_id="1")
    found = list(read_input(str(tmp_path), plan_digest="d"))
    assert found == files
    assert found[1].schema.equals(schema, check_metadata=True)
    with pytest.raises(UserError, match="another run has overwritten the output folder"):
        list(read_input(str(tmp_path), plan_digest="e"))
