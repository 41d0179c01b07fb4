"""The dry run of a job on Dataflow matches the request that the job then sends."""

from __future__ import annotations

import re

import pytest
from command_line import run
from dataflow_service import DATAFLOW, IMAGE
from engine_jobs import preprocess_arguments, translate_arguments

WORKERS = (*DATAFLOW, *IMAGE, "--max-workers", "5")


def facts_in(printed):
    """Return the facts in the output of a dry run by name; a value may take several lines."""
    facts, last = {}, ""
    for line in printed.splitlines():
        name, value = [*re.split(r"\s{2,}", line.rstrip(), maxsplit=1), ""][:2]
        last = name or last
        facts[last] = f"{facts.get(last, '')} {value.strip()}".strip()
    return facts


@pytest.fixture
def jobs(object_store, model_folder, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket = object_store.bucket
    translate = translate_arguments(bucket, model_folder, files=5, rows=200)
    # A local model, because a remote model would first be copied, once per machine.
    index = translate.index(f"{bucket}/model")
    translate = (*translate[:index], str(model_folder), *translate[index + 1 :])
    return {"preprocess": preprocess_arguments(bucket, pairs=4000), "translate-batch": translate}


@pytest.mark.parametrize("name", ["preprocess", "translate-batch"])
def test_a_dry_run_matches_the_request_to_dataflow(
    jobs, object_store, dataflow_service, model_folder, capsys, name
):
    arguments = [*jobs[name], "--output", "gs://bucket/out", *WORKERS]
    if name == "translate-batch":
        arguments[arguments.index(str(model_folder))] = "gs://bucket/model"
    beam = ("--", *dataflow_service.arguments, "--labels=team=mine")
    assert run(*arguments, "--dry-run", *beam) == 0
    lines = facts_in(capsys.readouterr().out)
    assert dataflow_service.body is None
    assert lines["runner"] == "DataflowRunner"
    dataflow_service.is_run = False
    run(*arguments, *beam)
    names = {name.partition("/")[0] for name in dataflow_service.steps()}
    steps = lines["steps"].split(", ")
    assert names <= set(steps)
    assert len(steps) - len(names) <= 2, "steps that only group have no worker"
    told = dataflow_service.options
    for flag in lines["Beam options"].split():
        option, _, value = flag.removeprefix("--").partition("=")
        found = told.get(option)
        if option in ("experiments", "labels"):
            assert value in found
        elif option not in ("job_name", "temp_location", "staging_location"):
            assert str(found).removesuffix(".0") == value, option
