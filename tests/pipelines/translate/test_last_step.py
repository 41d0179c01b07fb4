"""The last step of a job: a repetition after an error, and the deletion of temporary files."""

from __future__ import annotations

import json
import threading

import obstore
import pytest
from fakes import Reverser
from memory_store import MemoryStore, without_locks
from translation_jobs import load_nothing, request, translate

from tt.model.errors import UserError

OUT = "mem://b/out"
ASKED = {"text_columns": ("text",), "unit_rows": 4}


@pytest.fixture
def source():
    """A JSONL file, whose rows the job copies to separate files for its workers."""
    MemoryStore.clear()
    lines = "".join(json.dumps({"text": f"row {number}"}) + "\n" for number in range(20))
    MemoryStore.put("mem://b/in.jsonl", lines.encode())
    yield "mem://b/in.jsonl"
    MemoryStore.clear()


is_in_unit, may_go_on = threading.Event(), threading.Event()


class Slow(Reverser):
    """Waits in its first unit until the other run has ended."""

    def translate(self, inputs):
        is_in_unit.set()
        assert may_go_on.wait(60)
        return super().translate(inputs)


def copied_rows():
    return [path for path in MemoryStore.paths() if "/_tt/rows/" in path]


def test_a_job_whose_manifest_cannot_be_written_is_finished_by_the_next_run(source, monkeypatch):
    open_writer = obstore.open_writer

    def fail(store, path, **options):
        if path.endswith("manifest.json"):
            raise OSError("the store is gone")
        return open_writer(store, path, **options)

    with monkeypatch.context() as patch:
        patch.setattr(obstore, "open_writer", fail)
        with pytest.raises(Exception, match="the store is gone"):
            translate(source, OUT, **ASKED)
    assert len(copied_rows()) == 5
    summary = translate(source, OUT, load=load_nothing, **ASKED)
    assert (summary.rows, summary.reused_units) == (20, 5)
    assert not copied_rows()


def test_a_run_ends_even_if_another_run_deletes_files_that_it_reads(source, monkeypatch):
    slow = request(source, OUT, load=Slow, **ASKED).plan()
    found = []
    thread = threading.Thread(target=lambda: found.append(slow.run()))
    thread.start()
    assert is_in_unit.wait(60)
    with pytest.raises(UserError, match=f"another process works in {OUT}/_tt"):
        translate(source, OUT, **ASKED)
    with without_locks(monkeypatch):
        assert translate(source, OUT, **ASKED).rows == 20
    assert not copied_rows()
    may_go_on.set()
    thread.join(60)
    [second] = found
    assert second.rows == 20
    assert second.reused_units >= 4, "the slow run translated at most its first unit"
    assert translate(source, OUT, load=load_nothing, **ASKED).already_finished
