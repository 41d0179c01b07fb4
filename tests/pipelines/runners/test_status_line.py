"""The progress of a run, mainly without a terminal."""

from __future__ import annotations

import dataclasses
import functools
import io
import re
import time
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import translation_jobs
from command_line import TEXTS, run, write_corpus
from fakes import Reverser
from models import model_texts
from trainers import eagerly
from translation_jobs import load_reverser, request

from tt.model.engines import loading
from tt.model.engines.batching import TokenBudget, translate_in_batches
from tt.model.long_work import long_work
from tt.pipelines.runners import status_line
from tt.pipelines.runners.status_line import StatusLine, TimeLine
from tt.pipelines.translate.job_folder import TranslateWatch

BETWEEN_LINES = status_line.PLAIN_SECONDS


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    monkeypatch.setattr(status_line, "PLAIN_SECONDS", 0.05)
    monkeypatch.setattr(status_line, "UPDATE_SECONDS", 0.06)


def wait_for(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "the condition was not met in time"
        time.sleep(0.01)


def test_plain_lines_are_periodic_and_have_no_control_characters():
    stream = io.StringIO()
    looks = iter(range(10**6))
    with StatusLine(lambda: f"look {next(looks)}", stream=stream):
        wait_for(lambda: stream.getvalue().count("\n") >= 3)
    lines = stream.getvalue().splitlines()
    assert lines == [f"look {i}" for i in range(1, len(lines) + 1)], "the first line is not due"
    assert stream.getvalue().isprintable() is False
    assert all(line.isprintable() for line in lines)
    time.sleep(0.1)
    assert stream.getvalue().splitlines() == lines, "no line follows the end"


def test_a_run_that_prints_lines_delays_the_next_plain_line(monkeypatch):
    now = 0
    monkeypatch.setattr(status_line, "PLAIN_SECONDS", 60)
    monkeypatch.setattr(status_line, "time", SimpleNamespace(monotonic=lambda: now))
    stream = io.StringIO()
    with StatusLine(stream=stream) as line:
        for now in range(0, 200, 10):
            if now in (50, 100):
                line.note_line()
            line.show(f"look at {now} s")
    assert stream.getvalue() == "look at 160 s\n"


def test_a_failed_update_prints_nothing():
    stream = io.StringIO()
    looks = iter(["too early", "first", None, "third"])

    def look():
        for line in looks:
            if line:
                return line
            break
        raise OSError

    with StatusLine(look, stream=stream):
        wait_for(lambda: "third" in stream.getvalue())
    assert stream.getvalue() == "first\nthird\n"


def test_a_closed_stream_causes_no_error(capfd):
    class Gone(io.StringIO):
        def write(self, text):
            raise BrokenPipeError

    with TimeLine("exporting", stream=Gone()):
        time.sleep(0.2)
    assert capfd.readouterr().err == ""


def test_nothing_is_shown_on_a_terminal_with_other_lines():
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    stream = Terminal()
    look = functools.partial(str, "look")
    with StatusLine(look, stream=stream, is_shown_on_terminals=False):
        time.sleep(0.2)
    assert stream.getvalue() == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_time_line_shows_the_current_work(is_terminal):
    stream = io.StringIO()
    stream.isatty = lambda: is_terminal
    with TimeLine("scoring", stream=stream):
        wait_for(lambda: "scoring: 0:00" in stream.getvalue())
    begin = "\r" if is_terminal else ""
    with TimeLine("scoring", stream=stream), long_work("reading", total=8, unit="rows") as work:
        told = f"{begin}reading: "
        wait_for(lambda: f"{told}0 of 8 rows" in stream.getvalue())
        work.add(4)
        wait_for(lambda: re.search(rf"{told}4 of 8 rows, .*, 0:\d\d left", stream.getvalue()))
    if is_terminal:
        assert re.search(r"\r +\r$", stream.getvalue()), "the line is removed"
    else:
        assert stream.getvalue().endswith("left\n")
        assert "\r" not in stream.getvalue()


class Watched(Reverser):
    """Translates in batches of 10 tokens, and looks at the job's progress after each batch."""

    def __init__(self):
        super().__init__()
        self.look = None
        self.seen = []

    def translate(self, inputs):
        def translate(rows):
            found = super(Watched, self).translate([inputs[number] for number, *_ in rows])
            self.seen.append(self.look())
            return found

        rows = [(number, *each.encoded, "end") for number, each in enumerate(inputs)]
        return translate_in_batches(
            rows, budget=TokenBudget(10), translate_batch=translate,
            is_memory_error=lambda error: False,
        )  # fmt: skip


def test_progress_is_visible_within_a_unit(tmp_path, monkeypatch):
    texts = [f"n{chr(97 + i)}o" for i in range(20)] * 2  # 5 ids each, each text twice
    pq.write_table(pa.table({"text": texts}), tmp_path / "in.parquet")
    load = functools.partial(getattr, translation_jobs, "watched")
    job = request(tmp_path / "in.parquet", tmp_path / "out", load=load).plan()
    watch = TranslateWatch(
        output=job.output, unit_rows={"_tt/units/in-00000-of-00001.json": job.rows}
    )
    translator = Watched()
    translator.look = watch.measure
    monkeypatch.setattr(translation_jobs, "watched", translator, raising=False)
    job.run()
    found = [seen.done for seen in translator.seen]
    assert found == [4 * i for i in range(10)], "4 of 40 rows per batch: 2 texts, each twice"
    assert dataclasses.replace(translator.seen[5], seconds=2.0).describe() == (
        "translating: 20 of 40 rows, 10 rows/s, 0:02 left"
    )
    assert watch.measure().phase == "writing the manifest"


def lines_of(capsys, pattern):
    return [line for line in capsys.readouterr().err.splitlines() if re.fullmatch(pattern, line)]


def test_commands_without_a_terminal_print_plain_lines(
    tmp_path, monkeypatch, capsys, random_model, shallow_presets
):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path)
    monkeypatch.setattr(status_line, "PLAIN_SECONDS", 0.001)
    assert run("preprocess", *TEXTS) == 0
    assert lines_of(capsys, r"cutting: 0 of 1 .*|training the vocabulary: .*|encoding: .*")
    pq.write_table(pa.table({"text": model_texts(2)}), "in.parquet")
    model = ("--model", str(random_model))
    assert run("translate-batch", "in.parquet", *model) == 0
    assert lines_of(capsys, r"translating: \d of 2 rows.*")
    with eagerly():
        assert run("train", "--preset", "tiny", "--steps", "1", "--warmup-steps", "1") == 0
    assert lines_of(capsys, r"at step 0 of 1, 0:\d\d since the start")
    monkeypatch.setattr(loading, "load_translator", lambda *_, **__: load_reverser())
    monkeypatch.setattr("tt.cli.commands.translate.prepare_engine", lambda *_: None)

    class Slow(io.BytesIO):
        def __next__(self):
            time.sleep(0.2)
            return super().__next__()

    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(Slow(b"a\nb\n")))
    assert run("translate", *model) == 0
    assert lines_of(capsys, r"translating: 0 lines, 0:00")


def test_the_first_line_is_printed_within_a_minute():
    assert BETWEEN_LINES <= 60
