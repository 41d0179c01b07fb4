"""The description of a plan in a dry run, and the progress of its run."""

import json
import re
import time
from pathlib import Path

import pytest
from block_reading import facts_of
from memory_filesystem import MemoryFileSystem

from tt.model.errors import UserError
from tt.pipelines.jobs import running
from tt.pipelines.preprocess import encode_steps
from tt.pipelines.preprocess.filters import Filters
from tt.pipelines.preprocess.job import DatasetWatch, PreprocessJob
from tt.pipelines.preprocess.options import PreprocessOptions
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import TextPair
from tt.pipelines.preprocess.spills import write_spill
from tt.pipelines.storage import files

ONE_WORKER = ["--direct_num_workers=1"]


@pytest.fixture
def plan(tmp_path):
    return make_plan(tmp_path)


def make_plan(folder, *, held_out=False, **changes):
    for side in ("en", "de"):
        if not (folder / f"a.{side}").exists():  # Another write would change the identity.
            (folder / f"a.{side}").write_text("".join(f"{side} {i * i}\n" for i in range(40)))
    source = TextPair(str(folder / "a.en"), str(folder / "a.de"))
    values = {"output": str(folder / "out"), "vocabulary_size": 28, "shards": 3} | changes
    return plan_preprocess(
        sources=[source],
        validation_sources=[source] if held_out else [],
        options=PreprocessOptions(**values),
    )


def spill(plan, order, index, *, rows, **rejected):
    reasons = [[order, reason, count] for reason, count in rejected.items()]
    statistics = {"order": order, "index": index, "rows": [[order, rows]], "rejected": reasons}
    write_spill(
        plan.work.spill(f"{order:03d}-{index:05d}"),
        {},
        plans={},
        order=order,
        index=index,
        statistics=statistics,
        vocabulary={},
        work=plan.work,
    )


def index_of(*sizes):
    """Return the index of a group whose units have these numbers of rows."""
    return json.dumps([{"rows": {"0": rows}, "chunk": True} for rows in sizes])


def test_progress_is_derived_from_the_files_of_a_run(plan, tmp_path):
    watch = DatasetWatch(plan)
    assert watch.measure(0).describe() == "cutting: 0 of 1 sources"
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "run.json").touch()
    (work / "chunk-000-00000.arrow").touch()
    (work / "units-000.json").write_text(index_of(100, 100, 50))
    assert watch.measure(5).describe() == "training the vocabulary: 0:00"
    assert watch.measure(8).describe() == "training the vocabulary: 0:03"
    (tmp_path / "out/vocabulary.spm").touch()
    assert watch.measure(10).describe() == "encoding: 0 of 250 pairs"
    spill(plan, 0, 1, rows=100, too_long=3, empty_source=1)
    assert watch.measure(12).describe() == ("encoding: 100 of 250 pairs, 50 pairs/s, 0:03 left")
    spill(plan, 0, 0, rows=100)
    spill(plan, 0, 2, rows=50)
    assert watch.measure(14).describe() == "merging: 0 of 4 shards"
    for name in ("train-00000", "train-00001", "train-00002", "validation-00000"):
        (work / f"shard-{name}.json").touch()
    assert watch.measure(15).describe() == "writing the manifest: 0:00"


def test_units_of_an_earlier_run_do_not_count_in_the_rate(plan, tmp_path):
    Path(plan.work.path).mkdir(parents=True)
    spill(plan, 0, 0, rows=100)
    Path(plan.work.index(0)).write_text(index_of(100, 100, 100))
    watch = DatasetWatch(plan)
    assert watch.measure(0).describe() == "encoding: 100 of 300 pairs (100 earlier)"
    spill(plan, 0, 1, rows=100, malformed=100)
    assert watch.measure(4).describe() == (
        "encoding: 200 of 300 pairs (100 earlier), 25 pairs/s, 0:04 left"
    )


def test_deleted_work_folder_means_that_the_manifest_is_written(plan):
    Path(plan.work.path).mkdir(parents=True)
    index = Path(plan.work.index(0))
    index.write_text(index_of(100))
    watch = DatasetWatch(plan)
    watch.measure(0)
    index.unlink()
    assert watch.measure(1).phase == "writing the manifest"


def test_progress_reads_the_list_of_units_once(plan, tmp_path, monkeypatch):
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "units-000.json").write_text(index_of(1, 1))
    spill(plan, 0, 0, rows=1)
    read = []
    for name in ("open_binary", "read_range"):
        real = getattr(files, name)
        counted = lambda path, *bounds, real=real: read.append(path) or real(path, *bounds)  # noqa: E731
        monkeypatch.setattr(files, name, counted)
    watch = DatasetWatch(plan)
    for now in range(3):
        watch.measure(now)
    assert len(read) == 1, "the list of units"


def test_training_phase_ends_when_both_vocabularies_exist(tmp_path):
    plan = make_plan(tmp_path, shared_vocabulary=False)
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "units-000.json").write_text(index_of(1))
    watch = DatasetWatch(plan)
    (tmp_path / "out/source.spm").touch()
    assert watch.measure(0).phase == "training the vocabulary"
    (tmp_path / "out/target.spm").touch()
    assert watch.measure(1).phase == "encoding"


def test_progress_on_another_file_system(tmp_path):
    MemoryFileSystem.clear()
    plan = make_plan(tmp_path, output="mem://bucket/out")
    watch = DatasetWatch(plan)
    assert watch.measure(0).phase == "cutting"
    MemoryFileSystem.put(f"{plan.work.path}/units-000.json", index_of(7, 5).encode())
    MemoryFileSystem.put("mem://bucket/out/vocabulary.spm", b"")
    spill(plan, 0, 0, rows=7, too_long=2)
    assert watch.measure(1).describe() == ("encoding: 7 of 12 pairs (7 earlier)")


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_truncated_list_of_units_is_not_counted(plan, tmp_path):
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    index = work / "units-000.json"
    index.write_text("[1")
    seen = []
    watch = DatasetWatch(plan)
    seen.append(watch.measure(0))
    index.write_text(index_of(1))
    seen.append(watch.measure(1))
    assert seen[1].describe().startswith("training")
    assert seen[0].describe().startswith("cutting")


def test_run_reports_its_progress(plan, monkeypatch):
    """The run waits for a report before it begins and before it encodes, even on a busy machine."""
    monkeypatch.setattr(running, "listing_interval", lambda **_: 0.02)
    seen = []
    for owner, name, looks in ((running, "run_pipeline", 1), (encode_steps, "encode_unit", 2)):
        function = getattr(owner, name)

        def wrapper(*given, function=function, looks=looks, **named):
            wait_for(lambda: len({found.phase for found in seen}) >= looks)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, wrapper)
    manifest = PreprocessJob(plan=plan, beam_arguments=ONE_WORKER).run(seen.append)
    assert manifest.lines_read == 40
    assert seen[0].describe() == "cutting: 0 of 1 sources"
    assert len({found.phase for found in seen}) > 1


# The plan.


def lines_of(plan, arguments=ONE_WORKER):
    """Return the facts of a dry run, by name."""
    return facts_of(PreprocessJob(plan=plan, beam_arguments=arguments).describe())


def test_dry_run_describes_the_plan(tmp_path):
    filters = Filters(min_tokens=2, max_length_ratio=9.0)
    lines = lines_of(make_plan(tmp_path, filters=filters, validation_fraction=0.05))
    assert not (tmp_path / "out").exists(), "a dry run writes nothing"
    assert lines["source 1"].startswith("text  ")
    assert f"{tmp_path}/a.en + {tmp_path}/a.de" in lines["source 1"]
    assert re.fullmatch(r"about 0\.\d+ MB of text, in units of up to 16,384 pairs", lines["input"])
    assert (lines["train"], lines["validation"]) == ("3 shards", "1 shard")
    assert lines["options"] == (
        "shards=3, vocabulary_size=28, min_tokens=2, max_length_ratio=9.0, validation_fraction=0.05"
    )
    assert lines["runner"] == "FnApiRunner, 1 worker, in_memory"
    assert lines["steps"].startswith("List units, Find held-out texts, ")
    assert lines["Beam options"] == " ".join(ONE_WORKER)
    assert lines["output"] == f"{tmp_path}/out"


def test_dry_run_shows_held_out_sources_and_finished_units(tmp_path):
    plan = make_plan(tmp_path, held_out=True)
    lines = lines_of(plan, [])
    assert lines["source 2"].endswith(" (held out)")
    assert re.fullmatch(r"FnApiRunner, \d+ workers?, multi_threading", lines["runner"])
    Path(plan.work.path).mkdir(parents=True)
    spill(plan, 0, 0, rows=1)
    assert lines_of(plan)["output"].endswith(", resumed after 1 unit")


def test_dry_run_checks_beam_options(plan):
    with pytest.raises(UserError, match="--runner=Flnk"):
        lines_of(plan, ["--runner=Flnk"])
