"""Repeating the last step of a job, and deleting files of killed runs."""

from __future__ import annotations

import json
import threading

import pytest
from fakes import Reverser
from memory_filesystem import MemoryFileSystem
from translation_jobs import load_nothing, loads, new_loader, request, translate

from tt.pipelines.jobs import running
from tt.pipelines.storage.files import read_bytes
from tt.pipelines.translate import job_folder, last_step, units
from tt.pipelines.translate.job import _prepare_folder

OUT = "mem://b/out"
ASKED = {"text_columns": ("text",), "unit_rows": 4}


@pytest.fixture(autouse=True)
def source():
    """A JSONL file, whose rows the job copies to separate files for its workers."""
    MemoryFileSystem.clear()
    lines = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(20))
    MemoryFileSystem.put("mem://b/in.jsonl", lines.encode())
    yield "mem://b/in.jsonl"
    MemoryFileSystem.clear()


def files_of_runs():
    return [
        path for path in MemoryFileSystem.paths() if "/_tt/rows/" in path or "/_tt/model/" in path
    ]


def planned(source, **options):
    """Return a job that loads its model from its folder, like workers on other machines."""
    place = []

    def load():
        read_bytes(f"{place[0]}/model.bin")
        return Reverser()

    job = request(source, OUT, load=load, **ASKED, **options).plan()
    place.append(job_folder.model_place(OUT, plan_digest=job.plan_digest))
    return job


def put_model(job):
    MemoryFileSystem.put(
        job_folder.model_place(OUT, plan_digest=job.plan_digest) + "/model.bin", b"m"
    )


def run_with_model(job, monkeypatch, *, run_pipeline):
    """Run a job, and put the model into its folder after the pipeline is built."""

    def run(pipeline, report, **options):
        put_model(job)
        return run_pipeline(pipeline, report, **options)

    monkeypatch.setattr(running, "run_pipeline", run)
    return job.run()


def failing_once(function, failed):
    def called(*arguments, **options):
        if not failed:
            failed.append(True)
            raise OSError("the last step is out")
        return function(*arguments, **options)

    return called


@pytest.mark.parametrize(
    "where", ["make_manifest", "delete_folder"], ids=["before", "after the manifest"]
)
def test_a_runner_can_repeat_a_job_after_the_last_step_failed(source, monkeypatch, where):
    failed = []
    module = last_step if where == "make_manifest" else job_folder
    monkeypatch.setattr(module, where, failing_once(getattr(module, where), failed))
    run_pipeline = running.run_pipeline
    seen = []

    def run_twice(pipeline, report, **options):
        with pytest.raises(Exception, match="the last step is out"):
            run_pipeline(pipeline, report, **options)
        seen.extend(files_of_runs())
        return run_pipeline(pipeline, report, **options)

    job = planned(source)
    summary = run_with_model(job, monkeypatch, run_pipeline=run_twice)
    assert failed
    assert len([path for path in seen if "/_tt/rows/" in path]) == 5
    assert [path for path in seen if path.endswith("model.bin")]
    assert (summary.rows, summary.reused_units) == (20, 0)
    assert not files_of_runs()


def test_the_model_is_loaded_only_if_units_are_missing(source, monkeypatch):
    loads.clear()
    translate(source, OUT, load=new_loader(), **ASKED)
    assert len(loads) == 1
    [manifest] = [path for path in MemoryFileSystem.paths() if path.endswith("manifest.json")]
    MemoryFileSystem._files.pop(manifest)
    assert translate(source, OUT, load=load_nothing, **ASKED).reused_units == 5


def test_the_next_run_deletes_files_of_a_run_killed_after_its_manifest(source, monkeypatch):
    monkeypatch.setattr(last_step, "delete_temporary_folders", lambda *_, **__: None)
    translate(source, OUT, **ASKED)
    assert files_of_runs()
    monkeypatch.undo()
    assert translate(source, OUT, **ASKED).already_finished
    assert not files_of_runs()


def test_the_next_run_deletes_files_of_a_run_killed_before_its_manifest(source, monkeypatch):
    def killed(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(last_step, "make_manifest", killed)
    job = planned(source)
    with pytest.raises(BaseException):  # noqa: B017, PT011 -- simulates a kill
        run_with_model(job, monkeypatch, run_pipeline=running.run_pipeline)
    before = files_of_runs()
    assert len(before) == 6
    monkeypatch.undo()
    translate(source, OUT, **ASKED)
    assert not files_of_runs()


def test_a_job_deletes_files_of_another_plan_without_finished_units(source):
    job = request(source, OUT, **ASKED).plan()
    _prepare_folder(job)
    put_model(job)
    translate(source, OUT, **(ASKED | {"unit_rows": 5}))
    assert not files_of_runs()


def test_a_run_ends_even_if_another_run_deletes_files_that_it_reads(source, monkeypatch):
    """The slow run waits in its first unit until the other run has ended."""
    is_in_unit, may_go_on = threading.Event(), threading.Event()
    read_rows = units.read_unit_rows

    def slowly(unit, *, options, reader):
        if options.run_id == slow.run_id:
            is_in_unit.set()
            assert may_go_on.wait(60)
        yield from read_rows(unit, options=options, reader=reader)

    monkeypatch.setattr(units, "read_unit_rows", slowly)
    slow = request(source, OUT, **ASKED).plan()
    found = []
    thread = threading.Thread(target=lambda: found.append(slow.run()))
    thread.start()
    assert is_in_unit.wait(60)
    first = translate(source, OUT, **ASKED)
    assert first.rows == 20
    assert not files_of_runs()
    may_go_on.set()
    thread.join(60)
    [second] = found
    assert (second.rows, second.reused_units) == (20, 5)
