"""What a dry run says of a job on an object store, against what the job then does."""

from __future__ import annotations

import re
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import run
from dataflow_service import DATAFLOW, IMAGE
from engine_jobs import preprocess_arguments, translate_arguments, upload
from toy import toy_sentences

WORKERS = (*DATAFLOW, *IMAGE, "--max-workers", "5")


def lines_of(capsys, *arguments):
    assert run(*arguments, "--dry-run") == 0
    return dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())


@pytest.fixture
def jobs(object_store, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    # The line of progress looks every 15 s, and so more often on a slow machine.
    for name in ("translate", "preprocess"):
        monkeypatch.setattr(f"pipelines.{name}.job.look_seconds", lambda **_: 3600)
    bucket = object_store.bucket
    translate = translate_arguments(bucket, model_folder, files=5, rows=200)
    # A model of this machine, as a remote one is copied first, once in a machine's life.
    index = translate.index(f"{bucket}/model")
    translate = (*translate[:index], str(model_folder), *translate[index + 1 :])
    return {"preprocess": preprocess_arguments(bucket, pairs=4000), "translate-batch": translate}


def expected_requests(lines):
    return int(re.match(r"about ([\d,]+) to", lines["requests"])[1].replace(",", ""))


@pytest.mark.parametrize("name", ["preprocess", "translate-batch"])
def test_the_requests_that_are_expected_are_those_that_come(jobs, object_store, capsys, name):
    arguments = (*jobs[name], "--output", "gs://bucket/out")
    before = object_store.objects()
    expected = expected_requests(lines_of(capsys, *arguments))
    assert object_store.objects() == before
    object_store.forget()
    assert run(*arguments) == 0
    print(f"{name}: {expected} requests expected, {object_store.count()} came")
    # Planning a corpus takes a few more or fewer, by its format and how it is named.
    assert object_store.count() == pytest.approx(expected, rel=0.05 if name == "preprocess" else 0)


def write_files(bucket, *, kind, files):
    """Writes a corpus; returns what it is called."""
    for number in range(files):
        sources, targets = zip(*toy_sentences(1000, seed=number), strict=True)
        if kind == "tsv":
            lines = zip(sources, targets, strict=True)
            content = "".join(f"{source}\t{target}\n" for source, target in lines).encode()
        else:
            table = BytesIO()
            pq.write_table(pa.table({"source": sources, "target": targets}), table)
            content = table.getvalue()
        upload(f"{bucket}/many/{number}.{kind}", content)
    return f"{bucket}/many/*.{kind}"


@pytest.mark.parametrize(("kind", "shards"), [("tsv", 3), ("parquet", 2)])
def test_the_requests_of_a_dataset_of_many_files_and_units(
    object_store, capsys, tmp_path, monkeypatch, kind, shards
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("pipelines.preprocess.job.look_seconds", lambda **_: 3600)
    corpus = write_files(object_store.bucket, kind=kind, files=6)
    arguments = ("preprocess", corpus, "--vocabulary-size", "36", "--shards", shards)
    arguments = (*arguments, "--output", "gs://bucket/out")
    expected = expected_requests(lines_of(capsys, *arguments))
    object_store.forget()
    assert run(*arguments) == 0
    print(f"{kind}: {expected} requests expected, {object_store.count()} came")
    assert object_store.count() == pytest.approx(expected, rel=0.05)


@pytest.mark.parametrize("name", ["preprocess", "translate-batch"])
def test_a_dry_run_says_what_dataflow_would_be_told(
    jobs, object_store, dataflow_service, model_folder, capsys, name
):
    arguments = [*jobs[name], "--output", "gs://bucket/out", *WORKERS]
    if name == "translate-batch":
        arguments[arguments.index(str(model_folder))] = "gs://bucket/model"
    beam = ("--", *dataflow_service.arguments, "--labels=team=mine")
    assert run(*arguments, "--dry-run", "--price-per-hour", "1.5", *beam) == 0
    lines = dict(line.split(": ", 1) for line in capsys.readouterr().out.splitlines())
    assert dataflow_service.body is None
    assert lines["runner"] == "DataflowRunner"
    assert lines["time"].endswith("on 5 workers of 4 cores, without start and end")
    assert lines["price"].endswith(", at 1.50 an hour")
    dataflow_service.is_run = False
    run(*arguments, *beam)
    names = {name.partition("/")[0] for name in dataflow_service.steps()}
    steps = lines["steps"].split(", ")
    assert names <= set(steps)
    assert len(steps) - len(names) <= 2, "those that only group have no worker"
    told = dataflow_service.options
    for flag in lines["Beam options"].split():
        option, _, value = flag.removeprefix("--").partition("=")
        found = told.get(option)
        if option in ("experiments", "labels"):
            assert value in found
        elif option not in ("job_name", "temp_location", "staging_location"):
            assert str(found).removesuffix(".0") == value, option
