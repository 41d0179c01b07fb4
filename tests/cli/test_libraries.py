"""Loaded objects are frozen before a job starts."""

from __future__ import annotations

import gc
import importlib

import pytest
from command_line import TEXTS, run, write_corpus
from commands import Child

from tt.cli.libraries import freeze_loaded_objects


def keep_twice():
    """Return the numbers of frozen objects after a first and a second call."""
    counts = []
    for _ in range(2):
        freeze_loaded_objects()
        counts.append(gc.get_freeze_count())
    return counts


def test_loaded_objects_are_frozen_once():
    first, second = Child(keep_twice).wait().result
    assert first == second > 10_000


@pytest.mark.parametrize("name", ["preprocess", "translate_batch"])
def test_jobs_freeze_loaded_objects(name, tmp_path, monkeypatch, trained_toy):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    (tmp_path / "in.jsonl").write_text('{"text": "one two"}\n')
    calls = []
    module = importlib.import_module(f"tt.cli.commands.{name}")
    monkeypatch.setattr(module, "freeze_loaded_objects", lambda: calls.append(name))
    command = {
        "preprocess": ("preprocess", *TEXTS),
        "translate_batch": ("translate-batch", "in.jsonl", "--model", trained_toy.run),
    }[name]
    assert run(*command, "--output", "out") == 0
    assert calls == [name]
