"""Truncated files in an output folder, which the next run writes again."""

from __future__ import annotations

import shutil

import pytest
from translation_jobs import (
    files_below,
    load_nothing,
    manifest,
    numbered,
    read_all,
    refused,
    translate,
    turned,
    unit_statistics,
    without_run,
    write,
)

from tt.model.errors import UserError
from tt.pipelines.reports.translated import translated_sections
from tt.pipelines.texts.options import TextOptions

ROWS, UNITS = 40, 4
TIMES = ("seconds", "run_id", "worker")  # the fields of a unit's record that differ between runs

PLAN, MANIFEST, INPUT = "_tt/plan.json", "_tt/manifest.json", "_tt/input.jsonl"
RECORD, OUTPUT = "_tt/units/in-00000-of-00004.json", "in-00000-of-00004{suffix}"
PARTIAL, TEMPORARY = "in-00003-of-00004{suffix}", "_tt/unfinished.0.1.tmp"

FORMATS = {".parquet": {}, ".jsonl": {"format": "jsonl"}}
SIZES = {"empty": lambda size: 0, "half": lambda size: size // 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write(tmp_path_factory.mktemp("source") / "in.parquet", numbered(ROWS))


@pytest.fixture(scope="module", params=FORMATS)
def suffix(request):
    return request.param


@pytest.fixture(scope="module")
def options(suffix, tmp_path_factory):
    terms = tmp_path_factory.mktemp("terms") / "terms.tsv"
    terms.write_text("row\trow\n")
    texts = TextOptions(glossary=str(terms))
    return {"unit_rows": ROWS // UNITS, "texts": texts, **FORMATS[suffix]}


@pytest.fixture(scope="module")
def finished(source, options, tmp_path_factory):
    """A finished folder, which the tests copy."""
    out = tmp_path_factory.mktemp("finished") / "out"
    translate(source, out, **options)
    return out


def result(out):
    """Return the content of a folder, without the parts that differ between runs."""
    names = files_below(out)
    outputs = {name: (out / name).read_bytes() for name in names if not name.startswith("_tt/")}
    records = [{key: unit[key] for key in unit.keys() - {*TIMES}} for unit in unit_statistics(out)]
    return names, outputs, records, without_run(manifest(out))


def truncate(path, size):
    content = path.read_bytes()
    path.write_bytes(content[: SIZES[size](len(content))])


def stop(out):
    """Leave three finished units, an output without record and a temporary file."""
    [last] = out.glob("_tt/units/in-00003-*.json")
    last.unlink()
    (out / MANIFEST).unlink()
    (out / TEMPORARY).write_bytes(b"a part of something")


def check_resumed(source, out, *, options, reused, kept, fresh):
    """Run the job, and check that it keeps finished units and gives the result of a fresh run."""
    before = {name: (out / name).stat().st_mtime_ns for name in kept}
    summary = translate(source, out, **options)
    assert (summary.rows, summary.manifest["units"], summary.reused_units) == (ROWS, UNITS, reused)
    assert {name: (out / name).stat().st_mtime_ns for name in kept} == before
    assert result(out) == fresh
    assert translate(source, out, load=load_nothing, **options).already_finished


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("name", "reused"),
    [(PLAN, 3), (INPUT, 3), (RECORD, 2), (OUTPUT, 2), (PARTIAL, 3), (TEMPORARY, 3)],
)
def test_a_truncated_file_in_an_unfinished_folder_affects_at_most_its_own_unit(
    source, options, suffix, finished, tmp_path, name, reused, size
):
    out = shutil.copytree(finished, tmp_path / "out")
    stop(out)
    truncate(out / name.format(suffix=suffix), size)
    kept = [f"in-0000{index}-of-00004{suffix}" for index in range(3 - reused, 3)]
    check_resumed(source, out, options=options, reused=reused, kept=kept, fresh=result(finished))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("name", "reused"), [(PLAN, 4), (MANIFEST, 4), (INPUT, 4), (OUTPUT, 3)])
def test_a_truncated_file_in_a_finished_folder_affects_at_most_its_own_unit(
    source, options, suffix, finished, tmp_path, name, reused, size
):
    out = shutil.copytree(finished, tmp_path / "out")
    truncate(out / name.format(suffix=suffix), size)
    kept = [f"in-0000{index}-of-00004{suffix}" for index in range(4 - reused, 4)]
    check_resumed(source, out, options=options, reused=reused, kept=kept, fresh=result(finished))


def test_a_finished_folder_does_not_need_the_records_of_units(source, options, finished, tmp_path):
    """The manifest lists the sizes of all output files, which is enough."""
    out = shutil.copytree(finished, tmp_path / "out")
    truncate(out / RECORD, "half")
    assert translate(source, out, load=load_nothing, **options).already_finished
    (out / MANIFEST).unlink()
    assert translate(source, out, **options).reused_units == 3
    assert result(out) == result(finished)


@pytest.fixture(scope="module")
def plain(source, tmp_path_factory):
    """A finished folder without other options."""
    out = tmp_path_factory.mktemp("plain") / "out"
    translate(source, out, unit_rows=10)
    return out


@pytest.mark.parametrize("size", SIZES)
def test_a_folder_of_another_job_with_a_truncated_plan_is_refused(source, plain, tmp_path, size):
    out = shutil.copytree(plain, tmp_path / "out")
    truncate(out / PLAN, size)
    before = files_below(out)
    for other in ({"unit_rows": 10, "fingerprint": "other"}, {"unit_rows": 20}):
        message = refused(source, out, **other)
        assert "is truncated, and the folder contains units of another job" in message
    assert files_below(out) == before
    assert translate(source, out, unit_rows=20, overwrite=True).reused_units == 0
    assert [name for name in files_below(out) if not name.startswith("_tt/")] == [
        "in-00000-of-00002.parquet",
        "in-00001-of-00002.parquet",
    ]


def test_overwrite_resumes_a_folder_with_a_truncated_manifest(source, plain, tmp_path):
    out = shutil.copytree(plain, tmp_path / "out")
    stop(out)
    (out / MANIFEST).write_text('{"rows": ')
    assert translate(source, out, unit_rows=10, overwrite=True).reused_units == 3
    assert translate(source, out, unit_rows=10, overwrite=True).reused_units == 0


def test_a_foreign_table_in_a_folder_with_a_truncated_plan_is_refused(source, plain, tmp_path):
    out = shutil.copytree(plain, tmp_path / "out")
    stop(out)
    truncate(out / PLAN, "half")
    write(out / "x/stray.parquet", numbered(2))
    assert "is not part of this job (x/stray.parquet)" in refused(source, out, unit_rows=10)
    (out / "x/stray.parquet").rename(out / "x/report.html")
    assert translate(source, out, unit_rows=10).reused_units == 3
    assert read_all(out)["translation"].to_pylist() == turned(ROWS)


def test_the_report_of_a_folder_with_truncated_files(plain, tmp_path):
    out = shutil.copytree(plain, tmp_path / "out")
    truncate(out / MANIFEST, "half")
    facts = dict(translated_sections(out)[0].blocks[0].rows)
    assert [facts[name] for name in ("state", "units", "rows")] == [
        "not finished", "4 of 4", "40 of 40",
    ]  # fmt: skip
    truncate(out / PLAN, "half")
    with pytest.raises(UserError) as caught:
        translated_sections(out)
    assert str(caught.value) == (f"{out}/{PLAN} is truncated. Run the job's command again")
