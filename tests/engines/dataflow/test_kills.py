"""Killed jobs on object stores resume, write the bytes of a local run, and leave no other files."""

from __future__ import annotations

import os
import random

import pytest
from commands import Child
from engine_jobs import comparable, preprocess_arguments, run_tt, translate_arguments

KILLS = 3
GOOGLE = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK")


@pytest.fixture(params=["gs", "s3"])
def store(request):
    """A store, with the variables and Beam's flags for processes that use it."""
    if request.param == "s3":
        return request.getfixturevalue("s3_bucket")
    store = request.getfixturevalue("object_store")
    store.environment = {name: os.environ[name] for name in GOOGLE}
    return store


@pytest.fixture(params=["preprocess", "translate-batch"])
def arguments(request, store, model_folder):
    if request.param == "preprocess":
        return preprocess_arguments(store.bucket)
    return translate_arguments(store.bucket, model_folder)


def run_job(store, arguments, output, *, cache, kill_at=None, is_lost=False):
    """Run a job in its own process, which is killed when the store gets a certain request.

    The store drops or executes this request. Return the exit code and the number of requests.
    """
    child = None
    requests = 0

    def count_or_kill(number):
        nonlocal requests
        requests += 1
        if requests == kill_at:
            child.kill_group()
        return not (requests == kill_at and is_lost)

    store.on_request = count_or_kill
    given = (*arguments, "--output", output)
    child = Child(run_tt, given, environment=store.environment | {"XDG_CACHE_HOME": str(cache)})
    ended = child.wait()
    store.on_request = lambda number: True
    assert ended.result in (None, 0), ended.lines
    return ended.code, requests


def test_a_killed_job_resumes_and_writes_the_bytes_of_a_local_run(arguments, store, tmp_path):
    job = {"cache": tmp_path / "cache"}
    # The local run needs its own process, too. In the process of other tests, TensorFlow may have
    # other threads, and sums then have other last bits.
    assert run_job(store, arguments, str(tmp_path / "here"), **job)[0] == 0
    local = {
        f"here/{path.relative_to(tmp_path / 'here').as_posix()}": path.read_bytes()
        for path in (tmp_path / "here").rglob("*")
        if path.is_file()
    }
    code, requests = run_job(store, arguments, f"{store.bucket}/whole", **job)
    assert code == 0
    whole = comparable(store.objects(f"{store.bucket}/whole/"), f"{store.bucket}/whole")
    here = comparable(local, "here")
    assert len(whole) >= 6
    assert whole.keys() == here.keys()
    for name in here.keys() - {"_tt/manifest.json"}:
        assert whole[name] == here[name], name
    chooser = random.Random(7)
    # Only the first job copies the model, and a slow job checks its progress more often.
    for number, moment in enumerate(sorted(chooser.sample(range(9, requests * 2 // 3), KILLS))):
        output = f"{store.bucket}/killed-{number}"
        is_lost = chooser.random() < 0.5
        code, _ = run_job(store, arguments, output, kill_at=moment, is_lost=is_lost, **job)
        assert code == -9, moment
        assert run_job(store, arguments, output, **job)[0] == 0
        objects = store.objects(f"{output}/")
        assert comparable(objects, output) == whole, moment
        assert not [path for path in objects if "/_work/" in path or path.endswith(".tmp")], moment
        assert b"secret" not in b"".join(objects.values())
