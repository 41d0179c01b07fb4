"""Two simultaneous attempts at a unit, on processors that round scores differently."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import sys
import threading
from pathlib import Path

import pytest
from fakes import Reverser
from translation_jobs import load_nothing, manifest, numbered, translate, write

from tt.model.errors import UnfinishedError
from tt.pipelines.tables.writing import file_state
from tt.pipelines.translate import steps, unit_records, units
from tt.pipelines.translate.job_folder import statistics_path
from tt.pipelines.translate.manifest import read_statistics
from tt.pipelines.translate.options import TranslateOptions
from tt.pipelines.translate.plan import InputFile, TableUnit
from tt.pipelines.translate.table import TableOptions
from tt.pipelines.translate.unit_records import UnitOptions, find_finished
from tt.pipelines.translate.unit_rows import open_run
from tt.pipelines.translate.units import finish_unit

ROWS = 6
NAMES = ("first", "second")
# The steps of an attempt that interact with another attempt: it checks whether the unit is
# finished, renames its output, reads the state of the output, writes the record, and reads the
# state again.
STEPS = 5


class OtherScores(Reverser):
    """A Reverser with different scores, which need more bytes in the output file."""

    def translate_ids(self, source_ids):
        found, work = super().translate_ids(source_ids)
        for number, translation in enumerate(found):
            [best] = translation.hypotheses
            other = dataclasses.replace(best, score=best.score - number / 7)
            found[number] = dataclasses.replace(translation, hypotheses=(other,))
        return found, work


TRANSLATORS = dict(zip(NAMES, (Reverser, OtherScores), strict=True))


class Turns:
    """Executes the steps of two threads in a given order.

    A thread with more steps than turns waits until the other thread has used all its turns.
    """

    def __init__(self, order):
        self._order = list(order)
        self._changed = threading.Condition()
        self._taking = None  # the name of the thread that is executing a step

    def take(self, step):
        name = threading.current_thread().name
        with self._changed:
            if self._taking == name:  # a step within a step
                return step()
            self._changed.wait_for(lambda: not self._order or self._order[0] == name)
            del self._order[:1]
            self._taking = name
            try:
                return step()
            finally:
                self._taking = None
                self._changed.notify_all()

    def leave(self):
        """Give up the remaining turns of the current thread."""
        with self._changed:
            name = threading.current_thread().name
            self._order = [each for each in self._order if each != name]
            self._changed.notify_all()


def in_turns(monkeypatch, turns):
    """Make each step of an attempt wait for its turn."""

    def step(module, name):
        function = getattr(module, name)
        monkeypatch.setattr(
            module,
            name,
            lambda *arguments, **options: turns.take(lambda: function(*arguments, **options)),
        )

    is_recorded = threading.local()

    def write_statistics(statistics, **options):
        turns.take(lambda: write(statistics, **options))
        is_recorded.now = True

    def state(path):
        """Wait for the turn only if the attempt has just written a record."""
        if not getattr(is_recorded, "now", False):
            return file_state(path)
        is_recorded.now = False
        return turns.take(lambda: file_state(path))

    write = unit_records.write_statistics
    monkeypatch.setattr(unit_records, "write_statistics", write_statistics)
    monkeypatch.setattr(unit_records, "file_state", state)

    @contextlib.contextmanager
    def write_whole(path, **options):
        opened = original(path, **options)
        handle = opened.__enter__()
        try:
            yield handle
        except BaseException:
            if not opened.__exit__(*sys.exc_info()):
                raise
        else:
            turns.take(lambda: opened.__exit__(None, None, None))

    original = units.write_whole
    monkeypatch.setattr(units, "write_whole", write_whole)
    for name in ("_check_unfinished", "file_state"):
        step(units, name)


def unit_options(output, **options):
    return UnitOptions(
        output=str(output),
        table=TableOptions(fields=("text",)),
        job=TranslateOptions(input=("in.parquet",), output=str(output), compression="none"),
        run_id="run",
        plan_digest="digest",
        **options,
    )


@pytest.fixture
def unit(tmp_path):
    path = str(write(tmp_path / "in.parquet", numbered(ROWS)))
    size, checksum = file_state(path)
    file = InputFile(
        path=path, relative_path="in.parquet", size=size, rows=ROWS, footer_checksum=checksum
    )
    return TableUnit(file=file, first_row=0, rows=ROWS, output_path="in-00000-of-00001.parquet")


def attempt(unit, *, options, translator):
    with open_run([unit], options=options) as reader:
        return finish_unit(unit, options=options, load_translator=lambda: translator, reader=reader)


def race(unit, *, options, turns):
    """Translate a unit in two threads; return the statistics of both attempts."""
    found = {}

    def work(name):
        try:
            found[name] = attempt(unit, options=options, translator=TRANSLATORS[name]())
        finally:
            turns.leave()

    threads = [
        threading.Thread(target=work, args=(name,), name=name, daemon=True) for name in NAMES
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found.keys() == set(NAMES)
    return found


def orders():
    """Yield every possible order of the steps of two attempts."""
    for chosen in itertools.combinations(range(2 * STEPS), STEPS):
        yield [NAMES[index not in chosen] for index in range(2 * STEPS)]


def test_record_matches_the_output_file_for_any_order_of_two_attempts(unit, tmp_path, monkeypatch):
    outcomes = set()
    for number, order in enumerate(orders()):
        options = unit_options(tmp_path / str(number))
        with monkeypatch.context() as patch:
            turns = Turns(order)
            in_turns(patch, turns)
            race(unit, options=options, turns=turns)
        record = read_statistics(output=options.output, path=statistics_path(unit.output_path))
        path = f"{options.output}/{unit.output_path}"
        assert file_state(path) == (record.output_bytes, record.output_checksum), order
        assert find_finished(unit, options=options) == record, order
        assert record.rows_by_status["text"]["ok"] == ROWS
        outcomes.add(record.output_checksum)
    assert len(outcomes) == 2  # each attempt won in some orders, and their bytes differ


def test_second_attempt_keeps_the_files_of_the_first(unit, tmp_path, monkeypatch):
    """The second attempt began before the first one ended, and ends after it."""
    options = unit_options(tmp_path / "out")
    turns = Turns([NAMES[0]] * STEPS + [NAMES[1]])
    in_turns(monkeypatch, turns)
    found = race(unit, options=options, turns=turns)
    assert found["first"] == found["second"]
    alone = unit_options(tmp_path / "alone")
    assert attempt(unit, options=alone, translator=OtherScores()) != found["second"]
    assert not list((tmp_path / "out").rglob("*.tmp"))


def changing_outputs(monkeypatch, change):
    """Make a job call `change(unit, options)` after each unit."""

    def finish(unit, *, options, **arguments):
        statistics = finish_unit(unit, options=options, **arguments)
        change(unit, options)
        return statistics

    monkeypatch.setattr(steps, "finish_unit", finish)


def replace_files(unit, options):
    """Translate a unit again, like an attempt that did not notice the finished unit."""
    path = Path(options.output, statistics_path(unit.output_path))
    path.unlink()
    attempt(unit, options=options, translator=OtherScores())


def test_job_is_finished_if_the_runner_keeps_the_statistics_of_the_first_attempt(
    tmp_path, monkeypatch
):
    source, out = write(tmp_path / "in.parquet", numbered(40)), tmp_path / "out"
    options = {"unit_rows": 10, "compression": "none"}
    with monkeypatch.context() as patch:
        changing_outputs(patch, replace_files)
        translate(source, out, **options)
    sizes = {path.name: path.stat().st_size for path in out.glob("*.parquet")}
    assert manifest(out)["output_bytes"] == sizes
    assert translate(source, out, load=load_nothing, **options).already_finished
    translate(source, tmp_path / "undisturbed", **options)
    undisturbed = manifest(tmp_path / "undisturbed")["output_bytes"]
    assert undisturbed.keys() == sizes.keys()
    assert all(undisturbed[name] != sizes[name] for name in sizes)


def test_a_deleted_output_is_a_one_line_error(tmp_path, monkeypatch):
    source, out = write(tmp_path / "in.parquet", numbered(40)), tmp_path / "out"
    with monkeypatch.context() as patch:
        changing_outputs(
            patch,
            lambda unit, options: (
                Path(options.output, unit.output_path).unlink() if unit.first_row == 20 else None
            ),
        )
        with pytest.raises(UnfinishedError) as caught:
            translate(source, out, unit_rows=10)
    assert str(caught.value) == (
        f"{out}/in-00002-of-00004.parquet was changed or deleted while the job was running. Run "
        "the same command again to translate this unit again"
    )
    assert translate(source, out, unit_rows=10).reused_units == 3
