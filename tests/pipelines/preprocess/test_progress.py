"""What a plan says of itself, and the line that shows how far its run is."""

import json
import re
import time
from pathlib import Path

import pytest
from corpora import run_preprocess
from memory_filesystem import MemoryFileSystem

from model.errors import UserError
from model.text.normalization import TextNormalization
from model.text.vocabulary_training import TrainingStage
from pipelines.corpora.text import TextPair
from pipelines.pairs.filters import Filters
from pipelines.pairs.spills import write_spill
from pipelines.pairs.work_folder import WorkFolder
from pipelines.preprocess import encode_steps, job, progress, vocabulary_sample
from pipelines.preprocess.description import describe_plan
from pipelines.preprocess.job import PreprocessJob
from pipelines.preprocess.options import PreprocessOptions
from pipelines.preprocess.plan import plan_preprocess
from pipelines.preprocess.progress import Progress, ProgressWatch, count_sampled, note_stages
from pipelines.runners import runner
from pipelines.storage import files

ONE_WORKER = ["--direct_num_workers=1"]


@pytest.fixture
def plan(tmp_path):
    return make_plan(tmp_path)


def make_plan(folder, *, held_out=False, **changes):
    for side in ("en", "de"):
        if not (folder / f"a.{side}").exists():  # a file that is written again is another
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
        [],
        order=order,
        index=index,
        statistics=statistics,
        vocabulary={},
        work=plan.work,
    )


def index_of(*sizes):
    """Makes the index of units of these rows."""
    return json.dumps([{"rows": {"0": rows}, "chunk": True} for rows in sizes])


# The line.


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"sources": 3}, "cutting: source 1 of 3"),
        ({"sources": 3, "sources_cut": 1, "chunks": 1200}, "cutting: source 2 of 3, 1,200 chunks"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "rows": 9_000, "rows_sampled": 9_000,
          "phase_seconds": 42.3},
         "training the vocabulary: 0:42"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "phase_seconds": 42.3,
          "training": "vocabulary.spm", "stage": TrainingStage(rounds=5, of=12, seconds_left=61),
          "stage_seconds": 9},
         "training the vocabulary: 0:42, 5 of 12 rounds, 0:52 left"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "phase_seconds": 42.3,
          "training": "target.spm", "stage": TrainingStage(rounds=5, of=12, seconds_left=61),
          "stage_seconds": 70},
         "training the target vocabulary: 0:42, 5 of 12 rounds, 0:00 left"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "rows": 9_000, "rows_sampled": 3_000,
          "phase_seconds": 30},
         "sampling for the vocabulary: 3,000 of 9,000 pairs, 100 pairs/s, 1:00 left"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "has_vocabularies": True},
         "reading: unit 1 of 120"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "rows": 28_000_000, "units_done": 36,
          "rows_done": 9_014_555, "rejected": 102_211, "rows_done_here": 4_521_000,
          "phase_seconds": 100},
         # 18,985,445 rows are left at 45,210 a second: 419.9 s
         "reading: unit 37 of 120, 45,210 pairs/s, 8,912,344 kept, 102,211 rejected, 7:00 left"),
        ({"sources": 1, "sources_cut": 1, "units": 120, "rows": 120, "units_done": 36,
          "rows_done": 36, "phase_seconds": 9},  # all of an earlier run: no rate
         "reading: unit 37 of 120, 36 kept, 0 rejected"),
        ({"sources": 1, "sources_cut": 1, "units": 9, "units_done": 9, "shards": 16,
          "shards_done": 2}, "merging: shard 3 of 16"),
        ({"sources": 1, "sources_cut": 1, "units": 9, "units_done": 9, "shards": 16,
          "shards_done": 6, "shards_done_here": 4, "phase_seconds": 30},
         "merging: shard 7 of 16, 8 shards a minute, 1:15 left"),
        ({"sources": 1, "sources_cut": 1, "units": 9, "units_done": 9, "shards": 16,
          "shards_done": 16}, "writing the manifest"),
    ],
)  # fmt: skip
def test_the_line_of_each_phase(values, line):
    assert Progress(**values).describe() == line


def test_a_run_is_watched_through_its_folders(plan, tmp_path):
    watch = ProgressWatch(plan)
    assert watch.look(0).phase == "cutting", "no folder yet"
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "run.json").touch()
    (work / "chunk-000-00000.arrow").touch()
    (work / "chunk-000-00001.arrow.0123.tmp").touch()
    assert watch.look(1).describe() == "cutting: source 1 of 1, 1 chunks"
    (work / "units-000.json").write_text(index_of(100, 100, 50))
    assert watch.look(5).describe() == "training the vocabulary: 0:00"
    assert watch.look(8).describe() == "training the vocabulary: 0:03"
    count_sampled(plan.work.path, 100)
    watch.look(8)
    assert watch.look(9).describe() == (
        "sampling for the vocabulary: 100 of 250 pairs, 100 pairs/s, 0:02 left"
    )
    count_sampled(plan.work.path, 150)
    assert watch.look(9.5).describe() == "training the vocabulary: 0:04"
    (tmp_path / "out/vocabulary.spm").touch()
    assert watch.look(10).describe() == "reading: unit 1 of 3"
    spill(plan, 0, 1, rows=100, too_long=3, empty_source=1)
    assert watch.look(12).describe() == (
        "reading: unit 2 of 3, 50 pairs/s, 96 kept, 4 rejected, 0:03 left"
    )
    spill(plan, 0, 0, rows=100)
    spill(plan, 0, 2, rows=50)
    assert watch.look(14).describe() == "merging: shard 1 of 4"
    for name in ("train-00000", "train-00001", "train-00002", "validation-00000"):
        (work / f"shard-{name}.json").touch()
    assert watch.look(15).describe() == "writing the manifest"


def test_units_of_an_earlier_run_are_not_in_the_rate(plan, tmp_path):
    Path(plan.work.path).mkdir(parents=True)
    spill(plan, 0, 0, rows=100)
    Path(plan.work.index(0)).write_text(index_of(100, 100, 100))
    watch = ProgressWatch(plan)
    assert watch.look(0).describe() == "reading: unit 2 of 3, 100 kept, 0 rejected"
    spill(plan, 0, 1, rows=100, malformed=100)
    assert watch.look(4).describe() == (
        "reading: unit 3 of 3, 25 pairs/s, 100 kept, 100 rejected, 0:04 left"
    )


def test_files_are_read_once(plan, tmp_path, monkeypatch):
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "units-000.json").write_text(index_of(1, 1))
    spill(plan, 0, 0, rows=1)
    read = []
    for name in ("open_binary", "read_range"):
        real = getattr(files, name)
        counted = lambda path, *bounds, real=real: read.append(path) or real(path, *bounds)  # noqa: E731
        monkeypatch.setattr(files, name, counted)
    watch = ProgressWatch(plan)
    for now in range(3):
        watch.look(now)
    assert len(read) == len(set(read)) == 2


def test_separate_vocabularies_are_there_when_both_are(tmp_path):
    plan = make_plan(tmp_path, shared_vocabulary=False)
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "units-000.json").write_text(index_of(1))
    watch = ProgressWatch(plan)
    (tmp_path / "out/source.spm").touch()
    assert watch.look(0).phase == "vocabulary"
    (tmp_path / "out/target.spm").touch()
    assert watch.look(1).phase == "encoding"


def test_the_rounds_of_a_training_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "look_seconds", lambda **_: 0)
    plan = make_plan(tmp_path, shared_vocabulary=False)
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    (work / "units-000.json").write_text(index_of(1))
    note_source, note_target = (
        note_stages(plan.work, name) for name in ("source.spm", "target.spm")
    )
    note_source(TrainingStage(rounds=9, of=10, seconds_left=1))  # by a run that was killed
    watch = ProgressWatch(plan)
    assert watch.look(0).describe() == "training the vocabulary: 0:00"
    note_source(TrainingStage(rounds=1, of=10, seconds_left=50))
    assert watch.look(5).describe() == (
        "training the source vocabulary: 0:05, 1 of 10 rounds, 0:50 left"
    )
    assert watch.look(15).describe().endswith("0:15, 1 of 10 rounds, 0:40 left")
    note_source(TrainingStage(rounds=2, of=10, seconds_left=30))
    assert watch.look(20).describe().endswith("0:20, 2 of 10 rounds, 0:30 left")
    (tmp_path / "out/source.spm").touch()
    assert watch.look(30).describe() == "training the vocabulary: 0:30"
    note_target(TrainingStage(rounds=1, of=3, seconds_left=9))
    assert watch.look(31).describe() == (
        "training the target vocabulary: 0:31, 1 of 3 rounds, 0:09 left"
    )
    (tmp_path / "out/target.spm").touch()
    assert watch.look(32).describe() == "reading: unit 1 of 1"


def test_rounds_are_noted_seldom_and_where_it_can_be(plan, tmp_path):
    note = note_stages(plan.work, "vocabulary.spm")
    for rounds in range(100):
        note(TrainingStage(rounds=rounds, of=100, seconds_left=1))
    assert not Path(plan.work.path).exists(), "a training of less than a second writes nothing"
    (tmp_path / "out").write_text("no folder")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress, "look_seconds", lambda **_: 0)
        note_stages(plan.work, "vocabulary.spm")(TrainingStage(rounds=1, of=2, seconds_left=1))
    assert (tmp_path / "out").read_text() == "no folder"


def test_a_run_on_another_file_system_is_watched(tmp_path):
    MemoryFileSystem.clear()
    plan = make_plan(tmp_path, output="mem://bucket/out")
    watch = ProgressWatch(plan)
    assert watch.look(0).phase == "cutting"
    MemoryFileSystem.put(f"{plan.work.path}/units-000.json", index_of(7, 5).encode())
    MemoryFileSystem.put("mem://bucket/out/vocabulary.spm", b"")
    spill(plan, 0, 0, rows=7, too_long=2)
    assert watch.look(1).describe() == "reading: unit 2 of 2, 5 kept, 2 rejected"


def wait_for(condition):
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_truncated_list_of_units_is_not_counted(plan, tmp_path):
    work = Path(plan.work.path)
    work.mkdir(parents=True)
    index = work / "units-000.json"
    index.write_text("[1")
    seen = []
    with job._watched(plan, seen.append):
        wait_for(lambda: seen)
        index.write_text(index_of(1))
        wait_for(lambda: seen[-1].describe().startswith("training"))
    assert seen[0].describe().startswith("cutting")


def test_a_run_tells_how_far_it_is(plan, monkeypatch):
    """It waits for a look before it begins and before it encodes, however busy the machine is."""
    monkeypatch.setattr(job, "look_seconds", lambda **_: 0.02)
    seen = []
    for owner, name, looks in ((runner, "run_pipeline", 1), (encode_steps, "encode_unit", 2)):
        function = getattr(owner, name)

        def wrapper(*given, function=function, looks=looks, **named):
            wait_for(lambda: len({found.phase for found in seen}) >= looks)
            return function(*given, **named)

        monkeypatch.setattr(owner, name, wrapper)
    manifest = PreprocessJob(plan=plan, beam_arguments=ONE_WORKER).run(seen.append)
    assert manifest.lines_read == 40
    assert seen[0].describe() == "cutting: source 1 of 1"
    assert len({found.phase for found in seen}) > 1
    assert ProgressWatch(plan).look(0).rows_sampled == 40, "all rows, each once"


@pytest.mark.slow
def test_a_run_tells_the_rounds_of_a_long_training(tmp_path, monkeypatch):
    """And its dataset has the same bytes."""
    here = PreprocessJob(plan=make_plan(tmp_path), beam_arguments=ONE_WORKER).run()
    vocabulary = (tmp_path / "out/vocabulary.spm").read_bytes()
    monkeypatch.setattr(vocabulary_sample, "_LONG_BYTES", 0)
    monkeypatch.setattr(progress, "look_seconds", lambda **_: 0)
    monkeypatch.setattr(job, "look_seconds", lambda **_: 0.01)
    noted = []
    real = WorkFolder.write_text

    def write_text(work, path, text):
        noted.extend([text] if path == work.training("vocabulary.spm") else [])
        real(work, path, text)

    monkeypatch.setattr(WorkFolder, "write_text", write_text)
    plan = make_plan(tmp_path, output=str(tmp_path / "apart"))
    assert PreprocessJob(plan=plan, beam_arguments=ONE_WORKER).run() == here
    assert (tmp_path / "apart/vocabulary.spm").read_bytes() == vocabulary
    stages = [TrainingStage(**json.loads(text)) for text in noted]
    assert stages
    assert [each.rounds for each in stages] == list(range(1, stages[-1].of + 1))


# The plan.


def lines_of(plan, arguments=ONE_WORKER):
    """Returns the lines by what stands before the colon."""
    lines = describe_plan(plan, arguments=arguments, steps=job.STEPS)
    return dict(line.split(": ", 1) for line in lines)


def test_a_plan_says_what_would_be_done(tmp_path):
    filters = Filters(min_tokens=2, max_tokens=50, max_length_ratio=3.0)
    lines = lines_of(make_plan(tmp_path, filters=filters, validation_fraction=0.05))
    assert not (tmp_path / "out").exists(), "nothing is written"
    assert lines["source 1"].startswith("text  ")
    assert f"{tmp_path}/a.en + {tmp_path}/a.de" in lines["source 1"]
    assert re.fullmatch(r"about 0\.\d+ MB of text, in units of up to 16,384 pairs", lines["input"])
    assert lines["train"] == "3 shards"
    assert lines["validation"] == "1 shard"
    assert lines["held out"] == "0.05 of the pairs, by the hash of the source"
    assert lines["vocabulary"].startswith("to be trained, unigram, shared, 28 tokens, rule iden")
    assert "min tokens 2, max tokens 50, max length ratio 3.0" in lines["filters"]
    assert lines["duplicates"] == "of equal pairs the first stays"
    assert lines["normalisation"] == "unicode form NFC, clean whitespace"
    assert lines["placeholders"] == (
        "on both sides of a pair, for URLs, tags, variables, prices and the like"
    )
    assert lines["runner"] == "FnApiRunner, 1 worker, in_memory"
    assert lines["steps"].startswith("List units, Find held-out texts, ")
    assert lines["Beam options"] == " ".join(ONE_WORKER)
    assert lines["time"] == "less than a minute on 1 core of this machine, without start and end"
    assert "requests" not in lines
    assert lines["output"] == f"{tmp_path}/out, which holds nothing yet"


def test_a_plan_says_what_is_not_by_default(tmp_path):
    (tmp_path / "test.en").write_text("a\n")
    plan = make_plan(
        tmp_path, held_out=True, exclude=(str(tmp_path / "test.en"),), deduplicate="source",
        shared_vocabulary=False, source_vocabulary_type="bpe", byte_fallback=True,
        user_symbols=("<a>", "<b>"), character_coverage=0.99,
        normalization=TextNormalization(lowercase=True), protect=False,
    )  # fmt: skip
    lines = lines_of(plan, [])
    assert lines["source 2"].endswith(" (held out)")
    assert lines["held out"] == "all pairs of the held-out sources, unfiltered"
    assert lines["kept from training"] == (
        "held-out pairs, and held-out or excluded texts of more than 4 tokens on any side"
    )
    assert lines["excluded"] == f"pairs with a text of {tmp_path}/test.en"
    assert lines["duplicates"] == "of pairs with an equal source the first stays"
    assert lines["normalisation"] == "unicode form NFC, clean whitespace, lowercase"
    assert lines["placeholders"] == "none"
    assert "bpe and unigram, one a side, 28 tokens" in lines["vocabulary"]
    assert lines["vocabulary"].endswith("coverage 0.99, byte fallback, symbols <a> <b>")
    assert re.fullmatch(r"FnApiRunner, \d+ workers?, multi_threading", lines["runner"])


def test_a_plan_says_what_is_in_its_folder(plan, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    assert lines_of(plan)["output"].endswith("which holds nothing yet")
    (out / "thesis.tex").touch()
    assert lines_of(plan)["output"].endswith("something else (thesis.tex): it would be refused")
    (out / "thesis.tex").unlink()
    Path(plan.work.path).mkdir(parents=True)
    spill(plan, 0, 0, rows=1)
    assert lines_of(plan)["output"].endswith(
        "begun already, with 1 unit encoded: a run would go on from there"
    )
    run_preprocess(make_plan(tmp_path, output=str(tmp_path / "new")), beam_arguments=ONE_WORKER)
    finished = make_plan(tmp_path, output=str(tmp_path / "new"))
    assert re.search(r"finished already, with \d+ pairs: it would", lines_of(finished)["output"])
    other = make_plan(tmp_path, output=str(tmp_path / "new"), seed=2)
    assert lines_of(other)["output"].endswith("another finished dataset: it would be refused")
    file = make_plan(tmp_path, output=str(tmp_path / "a.en"))
    assert lines_of(file)["output"].endswith("which is a file: it would be refused")


def test_a_plan_checks_beams_flags(plan):
    with pytest.raises(UserError, match="--runner=Flnk"):
        describe_plan(plan, arguments=["--runner=Flnk"])
