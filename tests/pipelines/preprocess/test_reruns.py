"""Datasets have the same bytes for any distribution of work, and after interrupted runs."""

import dataclasses
import gzip
import os
import random
import socket
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from block_reading import facts_of
from corpora import (
    ONE_THREAD,
    PAIRS,
    TWO_THREADS,
    digest,
    open_named,
    options,
    preprocess,
    records,
    run_preprocess,
    sentence,
    texts,
    write_pairs,
)
from memory_store import MemoryStore

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.errors import UserError
from tt.model.storage import files
from tt.pipelines.preprocess import encode_steps, manifest, merge_steps, units
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.job import PreprocessJob
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import TextPair, Tsv
from tt.pipelines.runners.job_file import JobFile, RunnerJob

# Equal bytes.


def mixed_sources(folder):
    """Return three sources of different kinds with duplicates across them and empty texts."""
    chooser = random.Random(3)
    pool = [*PAIRS, *[("", "x")] * 20]
    parts = [chooser.choices(pool, k=170) for _ in range(3)]
    text = write_pairs(folder, parts[0])
    tsv = folder / "b.tsv.gz"
    tsv.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in parts[1]).encode()))
    parquet = folder / "c.parquet"
    sources, targets = zip(*parts[2], strict=True)
    pq.write_table(pa.table({"s": sources, "t": targets}), parquet, row_group_size=17)
    return [text, Tsv(str(tsv)), ParquetColumns(str(parquet), "s", "t")], parts


def test_result_does_not_depend_on_the_workers(tmp_path, monkeypatch):
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 20)  # 27 units
    sources, parts = mixed_sources(tmp_path)
    digests, manifests = [], []
    for i, arguments in enumerate(
        [
            ONE_THREAD,
            TWO_THREADS,
            ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
            [*ONE_THREAD, "--direct_runner_bundle_repeat=1"],
        ]
    ):
        output = tmp_path / f"out{i}"
        manifest = preprocess(
            sources=sources, options=options(output, shards=8), beam_arguments=arguments
        )
        manifests.append(manifest)
        digests.append(digest(output))
    assert digests == [digests[0]] * 4
    assert manifests == [manifests[0]] * 4
    assert len([name for name in digests[0] if name.startswith("train-")]) == 8
    assert len([name for name in digests[0] if name.startswith("rejected-0")]) > 10  # one per unit

    both = texts(output, "train") + texts(output, "validation")
    pairs = [pair for part in parts for pair in part if pair[0]]
    assert sorted(both) == sorted(set(pairs))
    assert manifests[0].lines_read == 510
    assert manifests[0].rejected == {
        "duplicate_pair": len(pairs) - len(both), "empty_source": 510 - len(pairs),
    }  # fmt: skip

    # With larger units, the order of the records stays the same.
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 1000)
    preprocess(sources=sources, options=options(tmp_path / "whole", shards=8))
    whole = digest(tmp_path / "whole")
    assert {name: whole[name] for name in digests[0] if not name.startswith("rejected-0")} == {
        name: value for name, value in digests[0].items() if not name.startswith("rejected-0")
    }


def test_size_of_slices_does_not_change_the_result(tmp_path, monkeypatch):
    sources, parts = mixed_sources(tmp_path)
    spans = [(f"{{a}} {sentence(i)}", f"{sentence(i)} {{a}}") for i in range(90)]
    given = {
        "sources": [*sources, write_pairs(tmp_path, spans, name="spans")],
        "validation_sources": [
            write_pairs(tmp_path, [*parts[0][:5], *spans[:9], *PAIRS[:40]], name="held_out")
        ],
        "beam_arguments": ONE_THREAD,
    }
    digests = []
    for rows in (4096, 7):
        monkeypatch.setattr(units, "_ROWS_AT_ONCE", rows)
        manifest = preprocess(options=options(tmp_path / f"by {rows}"), **given)
        digests.append(digest(tmp_path / f"by {rows}"))
    assert digests[0] == digests[1]
    assert manifest.rejected["held_out_pair"] > 9
    assert manifest.rejected["empty_source"] > 9


def test_seed_and_number_of_shards_change_only_the_order(tmp_path, corpus, dataset):
    one = options(tmp_path / "one", shards=1)
    preprocess(sources=[corpus], options=one)
    assert records(tmp_path / "one", "train") == records(dataset, "train")
    preprocess(sources=[corpus], options=options(tmp_path / "two", shards=1, seed=2))
    assert records(tmp_path / "two", "train") != records(dataset, "train")
    assert sorted(records(tmp_path / "two", "train")) == sorted(records(dataset, "train"))


# Repeated runs.


class KilledError(Exception):
    """Represents the end of the process."""


@pytest.mark.parametrize(
    ("module", "where"), [(merge_steps, "merge_bucket"), (manifest, "check_splits")]
)
def test_rerun_after_a_crash_reuses_finished_files(
    tmp_path, monkeypatch, corpus, dataset, module, where
):
    def crash(*args, **kwargs):
        raise KilledError

    with monkeypatch.context() as broken:
        broken.setattr(module, where, crash)
        with pytest.raises(Exception, match="KilledError"):
            preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert not (tmp_path / MANIFEST_FILE).exists()
    assert list(tmp_path.glob("_work/*/spill-*"))
    with pytest.raises(UserError, match="not a finished dataset folder"):
        DatasetManifest.load(tmp_path)
    plan = plan_preprocess(sources=[corpus], options=options(tmp_path))
    facts = facts_of(PreprocessJob(plan=plan, beam_arguments=ONE_THREAD).describe())
    assert facts["output"].endswith(", resumed after 1 unit")

    def crash_in_reading(self):
        raise KilledError
        yield

    for name in ("encode_unit", "train_vocabulary"):
        monkeypatch.setattr(encode_steps, name, crash)
    if where == "check_splits":  # All shards exist.
        monkeypatch.setattr(merge_steps, "merge_bucket", crash)
    monkeypatch.setattr(TextPair, "read_all", crash_in_reading)
    preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert digest(tmp_path) == digest(dataset)


def test_runner_that_rejects_the_job_deletes_no_finished_work(tmp_path, corpus):
    flink = ["--runner=FlinkRunner", "--environment_type=LOOPBACK"]
    flink.append("--flink_job_server_jar=/nope.jar")
    crash_in_merging(corpus, options(tmp_path))
    work = {path: path.read_bytes() for path in tmp_path.rglob("*.spm")}
    work |= {path: path.read_bytes() for path in tmp_path.glob("_work/*/spill-*")}
    assert len(work) >= 2
    with pytest.raises(UserError, match=r"did not accept the job .*/nope\.jar"):
        preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=flink)
    assert {path: path.read_bytes() for path in work} == work
    with pytest.raises(UserError, match=r"did not accept the job .*/nope\.jar"):
        preprocess(sources=[corpus], options=options(tmp_path / "new"), beam_arguments=flink)
    assert not (tmp_path / "new").exists(), "a new folder without finished work is deleted"


def files_below(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def crash_in_merging(corpus, chosen):
    """Run a job until it merges shards."""

    def crash(*args, **kwargs):
        raise KilledError

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(merge_steps, "merge_bucket", crash)
        with pytest.raises(Exception, match="KilledError"):
            preprocess(sources=[corpus], options=chosen, beam_arguments=ONE_THREAD)


def test_run_refused_because_of_a_running_job_writes_nothing(
    tmp_path, monkeypatch, corpus, dataset
):
    out = tmp_path / "out"
    crash_in_merging(corpus, options(out))
    job = RunnerJob(runner="FlinkRunner", name="n", place={"flink_master": "127.0.0.1:1"})
    JobFile(f"{out}/_work").write(job)
    before = files_below(out)
    with monkeypatch.context() as running:
        running.setattr(RunnerJob, "is_running", lambda job: True)
        with pytest.raises(UserError, match="n on FlinkRunner still runs for this folder"):
            preprocess(sources=[corpus], options=options(out), beam_arguments=ONE_THREAD)
    assert files_below(out) == before
    JobFile(f"{out}/_work").delete()
    preprocess(sources=[corpus], options=options(out), beam_arguments=ONE_THREAD)
    assert digest(out) == digest(dataset)


def test_one_run_at_a_time_uses_a_local_folder(tmp_path, monkeypatch, corpus, dataset):
    out = tmp_path / "out"
    found = []

    def run_second(*args, **kwargs):
        before = files_below(out)
        with pytest.raises(UserError) as refused:
            preprocess(sources=[corpus], options=options(out))
        found.append((str(refused.value), files_below(out) == before))
        raise UserError("the first run ends")

    with monkeypatch.context() as second:
        second.setattr("tt.pipelines.jobs.running.run_pipeline", run_second)
        with pytest.raises(UserError, match="the first run ends"):
            preprocess(sources=[corpus], options=options(out))
    assert found == [
        (
            f"another process works in {out}/_work (process {os.getpid()} on "
            f"{socket.gethostname()}). Wait until it ends, or choose another `output`",
            True,
        )
    ]
    assert not out.exists(), "the run file still belonged to the first run"
    (out / "_work").mkdir(parents=True)
    (out / "_work/lock").write_text("process 1 of a host")  # left by a killed run
    preprocess(sources=[corpus], options=options(out), beam_arguments=ONE_THREAD)
    assert digest(out) == digest(dataset)


def test_a_work_folder_of_the_user_is_refused(tmp_path, corpus):
    notes = tmp_path / "out/_work/notes.txt"
    notes.parent.mkdir(parents=True)
    notes.write_text("mine")
    with pytest.raises(UserError, match=r"contains other files \(_work/notes\.txt\)"):
        preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert notes.read_text() == "mine"


@pytest.mark.parametrize(("is_link", "is_damaged"), [(False, True), (True, False)])
def test_files_of_the_user_in_the_work_folder_are_kept(tmp_path, corpus, is_link, is_damaged):
    output, mine = tmp_path / "out", tmp_path / "mine"
    preprocess(sources=[corpus], options=options(output))
    if is_link:
        mine.mkdir()
        (output / "_work").symlink_to(mine)
    run = output / "_work/0123456789abcdef-4"
    run.mkdir(parents=True)
    (run / "run.json").write_text("of tt")
    notes = [output / "_work/notes.txt", run / "notes.txt", output / "_work/old/spill-000-00000"]
    for path in notes:
        path.parent.mkdir(exist_ok=True)
        path.write_text("mine")
    if is_damaged:  # so that the job runs again, and deletes its work folder
        next(output.glob("train-*")).write_bytes(b"")
    preprocess(sources=[corpus], options=options(output))
    left = [path for path in (output / "_work").rglob("*") if path.is_file()]
    assert sorted(left) == sorted(notes)
    assert {path.read_text() for path in notes} == {"mine"}
    assert (output / "_work").is_symlink() is is_link


@pytest.mark.parametrize("place", ["folder", "link"])
def test_a_mistake_leaves_an_empty_folder_and_links_of_the_user(tmp_path, place):
    (tmp_path / "c.tsv").write_text("a\tx\n" * 3)
    (tmp_path / "mine").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    output = tmp_path / {"folder": "new", "link": "link"}[place]
    with pytest.raises(UserError, match="no text to train"):
        preprocess(sources=[Tsv(str(tmp_path / "c.tsv"))], options=options(output))
    assert output.exists() is (place == "link")
    assert not list((tmp_path / "mine").iterdir())


def test_another_dataset_is_not_overwritten(tmp_path, corpus, dataset):
    with pytest.raises(UserError, match="belongs to another job: `seed` was 1 and is now"):
        preprocess(sources=[corpus], options=options(dataset, seed=9))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"contains other files \(notes\.txt\)\. Choose an empty"):
        preprocess(sources=[corpus], options=options(tmp_path))
    with pytest.raises(UserError, match=r"notes\.txt is a file, not a folder"):
        preprocess(sources=[corpus], options=options(tmp_path / "notes.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def write_tsv(folder, name, *, first=0, rows=50):
    lines = (f"{source}\t{target}\n" for source, target in PAIRS[first : first + rows])
    (folder / name).write_text("".join(lines))
    return Tsv(str(folder / name))


def test_changed_options_and_changed_corpora_are_in_one_message(tmp_path):
    kept, held_out = (write_tsv(tmp_path, f"{n}.tsv", first=100 * n) for n in range(2))
    changed, swapped = write_pairs(tmp_path, PAIRS[200:300]), write_tsv(tmp_path, "2.tsv", first=90)
    settled = options(tmp_path / "out", vocabulary_type="char")
    begun = plan_preprocess(
        sources=[kept, changed, swapped], validation_sources=[held_out], options=settled
    )
    run_preprocess(begun)
    with pytest.raises(UserError, match="other inputs, or another version of tt"):
        preprocess(sources=[swapped, kept, changed], validation_sources=[held_out], options=settled)
    write_pairs(tmp_path, PAIRS[200:290])
    other = Tsv(swapped.path, source_column=1, target_column=0)
    with pytest.raises(UserError, match="belongs to another job") as caught:
        preprocess(
            sources=[kept, changed, other, held_out],
            options=dataclasses.replace(settled, validation_fraction=0.3),
        )
    assert (
        f": `validation_fraction` was 0.01 and is now 0.3; the input {changed.name} has changed; "
        f"the input {other.path} has changed; the input {held_out.path} has changed. Run"
    ) in str(caught.value)


def test_dataset_on_another_file_system(corpus, dataset):
    """Corpus and dataset are on a remote file system."""
    MemoryStore.clear()
    for path in corpus.paths():
        text = Path(path).read_bytes()
        MemoryStore.put(f"mem://in/a{Path(path).suffix}.gz", gzip.compress(text))
    sources = open_named(corpora=["mem://in/a.en.gz+mem://in/a.de.gz"])
    remote = options("mem://out/data")
    manifest = preprocess(sources=sources, options=remote, beam_arguments=TWO_THREADS)
    found = {
        path.removeprefix("mem://out/data/"): files.read_bytes(path)
        for path in MemoryStore.paths()
        if path.startswith("mem://out/")
    }
    expected = {path.name: path.read_bytes() for path in dataset.iterdir()}
    assert set(found) == set(expected)  # The work folder has been deleted.
    assert {name for name in found if found[name] != expected[name]} == {MANIFEST_FILE}
    assert preprocess(sources=sources, options=remote) == manifest
    with pytest.raises(UserError, match="belongs to another job: `seed` was 1 and is now"):
        preprocess(sources=sources, options=options("mem://out/data", seed=9))
    with pytest.raises(UserError, match="the texts allow at most"):
        preprocess(sources=sources, options=options("mem://out/more", vocabulary_size=8000))
    assert not [path for path in MemoryStore.paths() if path.startswith("mem://out/more")]
