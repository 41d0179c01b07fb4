"""Translating the files of a watched folder, with restarts, kills and errors."""

from __future__ import annotations

import errno
import functools
import json
import os
import random
import signal
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Child
from fakes import Reverser

from tt.cli.commands.translate_stream import draining_on_signals
from tt.model.errors import UserError
from tt.pipelines.inference.model_loading import CustomModel
from tt.pipelines.storage.paths import lookup_error
from tt.pipelines.streams.options import StreamOptions
from tt.pipelines.tables import reading
from tt.pipelines.translate import inputs
from tt.pipelines.translate.watching import WatchRequest

PATIENCE = 60.0
POLL = 0.2


class Slow(Reverser):
    """Takes one second per batch."""

    def translate_ids(self, source_ids, **settings):
        time.sleep(1)
        return super().translate_ids(source_ids)


def watch(options, *, load=Reverser):
    """Watch until a signal arrives; return the final counts."""
    model = CustomModel(load=load, fingerprint="reverser")
    job = WatchRequest(options=StreamOptions(**options, poll=POLL), model=model).plan(print)
    for line in job.lines:
        print(line, flush=True)
    with draining_on_signals(job.stop.set):
        return job.run(lambda line: print(line, flush=True))._asdict()


@pytest.fixture
def start(tmp_path):
    (tmp_path / "inbox").mkdir()
    children = []

    def start(load=Reverser, **fields):
        options = {"input": str(tmp_path / "inbox"), "output": str(tmp_path / "outbox"), **fields}
        child = Child(functools.partial(watch, load=load), options)
        children.append(child)
        return child

    yield start
    for child in children:
        child.kill_group()


def put(tmp_path, name, texts):
    """Move a complete file into the inbox."""
    path = tmp_path / "inbox" / name
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": range(len(texts)), "text": texts}), tmp_path / "new")
    (tmp_path / "new").rename(path)


def records(tmp_path):
    found = [json.loads(path.read_text()) for path in tmp_path.glob("outbox/_tt/files/*.json")]
    return {Path(each["path"]).name: each for each in found}


def wait_for(tmp_path, count, child):
    end = time.monotonic() + PATIENCE
    while len(found := list(tmp_path.glob("outbox/_tt/files/*.json"))) < count:
        assert child.is_alive()
        assert time.monotonic() < end, found
        time.sleep(0.05)


def end(child, number=signal.SIGTERM):
    os.kill(child.pid, number)
    ended = child.wait(PATIENCE)
    assert ended.code == 0, ended.lines
    return ended


def translated(tmp_path, name):
    table = pq.read_table(tmp_path / "outbox" / name)
    assert [int(each) for each in table["id"].to_pylist()] == list(range(table.num_rows))
    return table["translation"].to_pylist()


def test_files_are_translated_as_they_arrive_and_only_once(tmp_path, start):
    put(tmp_path, "a.parquet", ["one two", "three"])
    child = start(fields=("text",))
    wait_for(tmp_path, 1, child)
    put(tmp_path, "deep/b.parquet", ["four"])
    (tmp_path / "inbox/c.csv").write_text("id,text\n0,five six\n")
    wait_for(tmp_path, 3, child)
    ended = end(child)
    assert translated(tmp_path, "a.parquet") == ["owt eno", "eerht"]
    assert translated(tmp_path, "deep/b.parquet") == ["ruof"]
    assert translated(tmp_path, "c.csv") == ["xis evif"]
    assert {each["status"] for each in records(tmp_path).values()} == {"done"}
    assert (ended.result["messages"], ended.result["failed"]) == (4, 0)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("outbox/**/*.parquet")}
    child = start()
    put(tmp_path, "d.parquet", ["seven"])
    wait_for(tmp_path, 4, child)
    lines = end(child).lines
    assert any("3 files already finished" in line for line in lines)
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_damaged_file_is_reported_and_does_not_stop_the_others(tmp_path, start):
    (tmp_path / "inbox").joinpath("broken.parquet").write_bytes(b"PAR1 and nothing")
    put(tmp_path, "good.parquet", ["one"])
    child = start()
    wait_for(tmp_path, 2, child)
    ended = end(child)
    lines = ended.lines
    found = records(tmp_path)
    done = [ended.result[name] for name in ("messages", "failed", "files_left_out")]
    assert done == [1, 0, 1], "no text has failed, and one file is skipped"
    assert found["good.parquet"]["status"] == "done"
    assert found["broken.parquet"]["status"] == "failed"
    assert "broken.parquet" in found["broken.parquet"]["reason"]
    assert any("broken.parquet is skipped" in line for line in lines)
    child = start()
    put(tmp_path, "broken.parquet", ["two"])  # replaces the damaged file
    wait_for(tmp_path, 3, child)
    end(child)
    assert translated(tmp_path, "broken.parquet") == ["owt"]


def test_a_replaced_file_is_translated_again(tmp_path, start):
    put(tmp_path, "a.parquet", ["one"])
    child = start()
    wait_for(tmp_path, 1, child)
    put(tmp_path, "a.parquet", ["two", "three"])
    wait_for(tmp_path, 2, child)
    end(child)
    assert translated(tmp_path, "a.parquet") == ["owt", "eerht"]


def test_kills_neither_lose_files_nor_leave_partial_files(tmp_path, start):
    count = 12  # the killed processes run for 6.8 s in total, and can finish at most 6 files
    for number in range(count):
        put(tmp_path, f"{number}.parquet", [f"text {number} {n}" for n in range(50)])
    moments = random.Random(11)
    for _ in range(4):
        child = start(load=Slow)
        time.sleep(moments.uniform(0.5, 2.5))
        os.kill(child.pid, signal.SIGKILL)
        assert child.wait(PATIENCE).code == -signal.SIGKILL
    assert len(records(tmp_path)) < count, "the killed processes must not finish all files"
    child = start()
    wait_for(tmp_path, count, child)
    end(child)
    for number in range(count):
        assert translated(tmp_path, f"{number}.parquet") == [
            f"text {number} {n}"[::-1] for n in range(50)
        ]
    assert not [path for path in tmp_path.glob("outbox/**/*") if ".tmp" in path.name]


def test_a_second_run_with_the_same_output_is_refused(tmp_path, start):
    put(tmp_path, "a.parquet", ["one"])
    child = start()
    wait_for(tmp_path, 1, child)
    second = start().wait(PATIENCE)
    assert second.code == 1
    assert "choose another `output`" in second.lines[-1]
    end(child)


@pytest.mark.parametrize(
    ("options", "beam", "said"),
    [
        ({"input": "missing"}, (), "must be an existing folder to watch"),
        ({"output": "inbox/out"}, (), "must not contain each other"),
        ({}, ("--runner=FlinkRunner",), "Remove --runner"),
    ],
)
def test_invalid_folders_and_runners_are_refused(tmp_path, monkeypatch, options, beam, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbox").mkdir()
    given = StreamOptions(**{"input": "inbox", "output": "outbox", **options})
    model = CustomModel(load=Reverser, fingerprint="reverser")
    with pytest.raises(UserError, match=said):
        WatchRequest(options=given, model=model, beam=beam).plan()
    assert not (tmp_path / "outbox").exists()


def test_a_file_whose_output_folder_is_a_file_does_not_stop_the_others(tmp_path, start):
    (tmp_path / "outbox").mkdir()
    (tmp_path / "outbox/a.parquet").write_text("another's")
    put(tmp_path, "a.parquet", ["one"])
    child = start()
    time.sleep(3 * POLL)
    put(tmp_path, "b.parquet", ["two"])
    wait_for(tmp_path, 1, child)
    lines = end(child).lines
    assert translated(tmp_path, "b.parquet") == ["owt"]
    assert records(tmp_path).keys() == {"b.parquet"}  # a.parquet will be tried again
    assert len([line for line in lines if "a.parquet will be tried again" in line]) == 1


def test_an_output_that_is_a_file_is_refused(tmp_path, start):
    (tmp_path / "outbox").write_text("another's")
    ended = start().wait(PATIENCE)
    assert ended.code == 1
    assert "cannot be written" in ended.lines[-1]


def plan(tmp_path):
    """Plan to watch the inbox in this process."""
    options = StreamOptions(input=str(tmp_path / "inbox"), output=str(tmp_path / "outbox"))
    model = CustomModel(load=Reverser, fingerprint="reverser")
    return WatchRequest(options=options, model=model).plan()


def look_twice(job):
    """Look twice, after which files count as complete; return the known files and the lines."""
    known, lines = set(), []
    for _ in range(2):
        job._translate_new(known, set(), lines.append)
    return known, lines


def test_a_growing_file_is_not_translated_until_it_is_complete(tmp_path):
    (tmp_path / "inbox").mkdir()
    job, known, lines = plan(tmp_path), set(), []
    with (tmp_path / "inbox/a.csv").open("w") as file:
        file.write("text\n")
        for _ in range(8):
            file.write("one\n")
            file.flush()
            job._translate_new(known, set(), lines.append)
            assert (known, lines) == (set(), [])
    job._translate_new(known, set(), lines.append)
    assert len(known) == 1
    assert lines == ["a.csv: 8 rows translated"]
    assert translated_texts(tmp_path / "outbox/a.csv") == ["eno"] * 8


def test_a_file_is_inspected_only_once(tmp_path, monkeypatch):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/a.csv").write_text("text\none\n")
    looked = []

    def inspect_file(path):
        looked.append(path)
        return reading.inspect_file(path)

    monkeypatch.setattr(inputs, "inspect_file", inspect_file)
    job = plan(tmp_path)
    known, _ = look_twice(job)
    assert (len(known), len(looked)) == (1, 1)
    (tmp_path / "inbox/a.csv").write_text("text\ntwo\nthree\n")  # replaces the file
    known, _ = look_twice(job)
    assert len(looked) == 2
    assert translated_texts(tmp_path / "outbox/a.csv") == ["owt", "eerht"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[1]", "the value is not an object: '[1]'"),
        ('{"text": "a", "translation": "b"}', "Rename or remove the column"),
    ],
)
def test_damage_after_the_head_is_recorded_and_reported_once(tmp_path, monkeypatch, line, reason):
    monkeypatch.setattr(reading, "HEAD_BYTES", 600)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox/a.jsonl").write_text('{"text": "one"}\n' * 100 + f"{line}\n")
    job = plan(tmp_path)
    known, lines = look_twice(job)
    job._translate_new(known, set(), lines.append)
    [told] = lines
    assert told.startswith("tt: warning: a.jsonl is skipped: ")
    assert reason in told
    assert records(tmp_path)["a.jsonl"]["status"] == "failed"
    assert job.metrics.snapshot().files_left_out == 1


def translated_texts(folder):
    return pq.read_table(folder)["translation"].to_pylist()


def test_a_file_is_tried_again_if_its_file_system_does_not_answer(tmp_path, monkeypatch):
    put_inbox(tmp_path)
    job = plan(tmp_path)
    answers = iter([False, True])

    def find(options, **settings):
        if not next(answers):
            raise lookup_error(options.input[0], OSError("no answer"))
        return inputs.inspect_input(options, **settings)

    monkeypatch.setattr("tt.pipelines.translate.watching.inspect_input", find)
    known, lines = look_twice(job)
    assert not known
    assert records(tmp_path) == {}
    assert "a.parquet will be tried again" in lines[0]
    known, _ = look_twice(job)
    assert len(known) == 1
    assert records(tmp_path)["a.parquet"]["status"] == "done"


def test_a_file_is_tried_again_if_its_record_cannot_be_written(tmp_path, monkeypatch):
    put_inbox(tmp_path)
    job = plan(tmp_path)
    with monkeypatch.context() as patch:

        def fail(*_, **__):
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr("tt.pipelines.translate.inbox.write_text", fail)
        known, lines = look_twice(job)
    assert not known
    assert "a.parquet will be tried again: [Errno 5] Input/output error" in lines[0]
    assert len(look_twice(job)[0]) == 1
    assert records(tmp_path)["a.parquet"]["rows"] == 1
    assert job.metrics.snapshot().messages == 1, "the file counts only after its record is written"


def put_inbox(tmp_path):
    (tmp_path / "inbox").mkdir()
    put(tmp_path, "a.parquet", ["one"])
