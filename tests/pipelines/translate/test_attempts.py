"""Units that are translated twice, at the same time or one after the other, with other scores."""

from __future__ import annotations

import dataclasses
import functools
import io
import itertools
import threading
import types
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fakes import Reverser
from memory_store import MemoryStore, without_locks
from translation_jobs import load_nothing, manifest, numbered, read_all, translate, turned, write

from tt.model.errors import UnfinishedError
from tt.model.storage.files import read_bytes
from tt.pipelines.tables.writing import TableWriter, file_state
from tt.pipelines.translate.manifest import UnitStatistics, read_statistics
from tt.pipelines.translate.unit_records import record_unit

OUT = "mem://bucket/out"


class OtherScores(Reverser):
    """A Reverser whose scores differ in each call, so that the output files have other bytes."""

    calls_of_all = 0

    def translate(self, inputs):
        found, work = super().translate(inputs)
        OtherScores.calls_of_all += 1
        for number, translation in enumerate(found):
            [best] = translation.hypotheses
            score = best.score - number / (7 + OtherScores.calls_of_all)
            hypotheses = (dataclasses.replace(best, score=score),)
            found[number] = dataclasses.replace(translation, hypotheses=hypotheses)
        return found, work


meeting = threading.Barrier(2)


class Meeting(OtherScores):
    """Translates a unit only while the other run translates the same unit."""

    def translate(self, inputs):
        meeting.wait(60)
        return super().translate(inputs)


def load_meeting(name):
    return Meeting()


@pytest.mark.parametrize("attempt", range(3))
def test_two_runs_at_the_same_time_leave_one_complete_output(tmp_path, attempt, monkeypatch):
    """The manifest must describe the files of the run that won."""
    MemoryStore.clear()
    source = write(tmp_path / "in.parquet", numbered(40))
    options = {"unit_rows": 10, "compression": "none"}

    def run(name):
        load = functools.partial(load_meeting, f"{name} {attempt}")
        return translate(source, OUT, load=load, **options)

    with without_locks(monkeypatch), ThreadPoolExecutor(2) as pool:
        found = list(pool.map(run, "ab"))
    assert [summary.rows for summary in found] == [40, 40]
    again = translate(source, OUT, load=load_nothing, **options)
    assert again.already_finished
    paths = [path for path in MemoryStore.paths() if path.endswith(".parquet")]
    sizes = {path.removeprefix(f"{OUT}/"): len(read_bytes(path)) for path in paths}
    assert again.manifest["output_bytes"] == sizes
    tables = [pq.read_table(io.BytesIO(read_bytes(path))) for path in paths]
    assert [text for table in tables for text in table["translation"].to_pylist()] == turned(40)
    assert not [path for path in MemoryStore.paths() if path.endswith(".tmp")]
    MemoryStore.clear()


@pytest.mark.parametrize("folder", ["mem://bucket/out", ""], ids=["object store", "local"])
@pytest.mark.parametrize("order", sorted(set(itertools.permutations("AABB"))), ids="".join)
def test_the_record_of_two_attempts_has_the_checksum_of_the_last_file(tmp_path, folder, order):
    """Each attempt first writes the output file, and then its record."""
    MemoryStore.clear()
    output = folder or str(tmp_path)
    (tmp_path / "_tt/units").mkdir(parents=True)
    options = types.SimpleNamespace(output=output, run_id="r")
    writer = TableWriter(
        file_format="jsonl", compression="none", temporary_folder=f"{output}/_tt", run_id="r"
    )
    written = {}
    for name in order:
        if name in written:
            size, checksum = written[name]
            statistics = UnitStatistics(
                output_path="a.jsonl", relative_path="a", first_row=0, rows=1, output_bytes=size,
                output_checksum=checksum, worker={"name": name},
            )  # fmt: skip
            returned = record_unit(statistics, options=options)
        else:
            table = pa.table({"text": [name]})
            written[name] = writer.write([table], f"{output}/a.jsonl")
    assert written["A"][0] == written["B"][0]
    found = read_statistics(output=output, path="_tt/units/a.json")
    assert (found.output_bytes, found.output_checksum) == file_state(f"{output}/a.jsonl")
    assert returned == found
    MemoryStore.clear()


def test_a_repeated_bundle_keeps_the_output_of_the_first_attempt(tmp_path):
    source, out = write(tmp_path / "in.parquet", numbered(40)), tmp_path / "out"
    options = {"unit_rows": 10, "compression": "none"}
    before = OtherScores.calls_of_all
    repeated = ("--direct_runner_bundle_repeat=1",)
    translate(source, out, load=OtherScores, arguments=repeated, **options)
    assert OtherScores.calls_of_all - before == 4, "the model translates each unit once"
    sizes = {path.name: path.stat().st_size for path in out.glob("*.parquet")}
    assert manifest(out)["output_bytes"] == sizes
    assert read_all(out)["translation"].to_pylist() == turned(40)
    assert translate(source, out, load=load_nothing, **options).already_finished


def test_an_output_file_that_is_deleted_during_the_job_is_a_one_line_error(tmp_path):
    source, out = write(tmp_path / "in.parquet", numbered(40)), tmp_path / "out"
    lost = out / "in-00002-of-00004.parquet"

    class Deleter(Reverser):
        def translate(self, inputs):
            translated = super().translate(inputs)
            if "row 30" in self.calls[-1]:
                Path(lost).unlink()
            return translated

    with pytest.raises(UnfinishedError) as caught:
        translate(source, out, unit_rows=10, load=Deleter)
    assert str(caught.value) == (
        f"{lost} was changed or deleted while the job was running. Run the same command again to "
        "translate this unit again"
    )
    assert translate(source, out, unit_rows=10).reused_units == 3
