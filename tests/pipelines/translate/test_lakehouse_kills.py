"""Killed jobs that write tables leave exactly one commit, and never a part of their rows.

`TT_LAKE_KILLS=50` kills more jobs than `make test` has time for.
"""

from __future__ import annotations

import os
import random
import signal
import time

import pytest
from commands import Child
from lake_jobs import translate_to_table
from lake_tables import LAKE, iceberg_catalog
from translation_jobs import numbered, turned

KILLS = int(os.environ.get("TT_LAKE_KILLS", "4"))
ROWS = 600


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_killed_jobs_leave_one_commit(kind, tmp_path, monkeypatch):
    catalog = iceberg_catalog(tmp_path / "lake", monkeypatch)
    environment = {name: os.environ[name] for name in os.environ if name.startswith("PYICEBERG")}
    lake = LAKE[kind](tmp_path / "lake", catalog)
    lake.append("in", numbered(ROWS))

    def start(name, delay=None):
        job = (lake.address("in"), lake.address(name), delay)
        return Child(translate_to_table, *job, environment=environment)

    def check(name):
        """Check the rows of a table; return whether it exists."""
        if not lake.exists(name):
            return False
        assert lake.commits(name) == 1
        assert lake.read(name).sort_by("id").column("translation").to_pylist() == turned(ROWS)
        return True

    for name in ("first", "undisturbed"):  # the first child also imports libraries
        began = time.monotonic()
        assert start(name).wait().code == 0
        seconds = time.monotonic() - began
        assert check(name)
    chooser = random.Random(7)
    kills = jobs = 0
    while True:
        name = f"out{jobs}"
        if kills == KILLS:
            child = start(name)
        elif kills % 2:  # during the commit, or between the commit and the manifest
            child = start(name, delay=chooser.uniform(0, 0.05))
        else:
            child = start(name)
            time.sleep(chooser.uniform(0, seconds))
            child.kill_group()
        ended = child.wait()
        exists = check(name)
        if ended.code == -signal.SIGKILL:
            kills += 1
            continue
        assert ended.code == 0, ended.lines
        assert exists
        if kills == KILLS:
            return
        jobs += 1
