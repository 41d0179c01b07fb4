"""Killed jobs on an object store resume, write the same bytes, and leave no other files."""

from __future__ import annotations

import os
import random

import pytest
from commands import Child
from engine_jobs import comparable, preprocess_arguments, run_tt, translate_arguments

KILLS = 10


@pytest.fixture(params=["preprocess", "translate-batch"])
def arguments(request, object_store, model_folder, tmp_path):
    if request.param == "preprocess":
        return preprocess_arguments(object_store.bucket)
    return translate_arguments(object_store.bucket, model_folder)


def run_job(store, arguments, output, *, cache, kill_at=None, is_lost=False):
    """Run a job in its own process, which is killed when the store gets a certain request.

    The store drops or executes this request. Return the exit code and the number of requests.
    """
    names = ("STORAGE_EMULATOR_HOST", "GOOGLE_APPLICATION_CREDENTIALS", "NO_GCE_CHECK")
    environment = {name: os.environ[name] for name in names} | {"XDG_CACHE_HOME": str(cache)}
    store.forget()
    child = None

    def count_or_kill(number):
        if number == kill_at:
            child.kill_group()
        return not (number == kill_at and is_lost)

    store.on_request = count_or_kill
    child = Child(run_tt, (*arguments, "--output", output), environment=environment)
    ended = child.wait()
    store.on_request = None
    assert ended.result in (None, 0), ended.lines
    return ended.code, store.count()


def test_a_killed_job_resumes_and_writes_the_same_bytes(arguments, object_store, tmp_path):
    job = {"cache": tmp_path / "cache"}
    code, requests = run_job(object_store, arguments, "gs://bucket/whole", **job)
    assert code == 0
    whole = comparable(object_store.objects("gs://bucket/whole/"), "gs://bucket/whole")
    assert len(whole) >= 6
    chooser = random.Random(7)
    # Only the first job copies the model, and a slow job checks its progress more often.
    moments = sorted(chooser.sample(range(2, requests * 3 // 4), KILLS))
    for number, moment in enumerate(moments):
        output = f"gs://bucket/killed-{number}"
        is_lost = chooser.random() < 0.5
        code, _ = run_job(object_store, arguments, output, kill_at=moment, is_lost=is_lost, **job)
        assert code == -9, moment
        assert run_job(object_store, arguments, output, **job)[0] == 0
        objects = object_store.objects(f"{output}/")
        assert comparable(objects, output) == whole, moment
        assert not [path for path in objects if "/_work/" in path or path.endswith(".tmp")], moment
