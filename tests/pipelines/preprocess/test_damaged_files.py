"""Truncated files of an unfinished dataset count as missing; a run repairs a damaged dataset."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import ONE_THREAD, PAIRS, digest, options, preprocess

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.errors import UserError
from tt.pipelines.preprocess import manifest, merge_steps, units
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.job import DatasetWatch, PreprocessJob
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv


class KilledError(Exception):
    """Represents the end of the process."""


@pytest.fixture(scope="module", autouse=True)
def small_units():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 100)
        yield


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """A text file and a Parquet file of two units each, with duplicates and empty texts."""
    folder = tmp_path_factory.mktemp("sources")
    pairs = [*PAIRS[:120], *PAIRS[:20], ("", "x"), ("", "y")]
    (folder / "a.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    source, target = zip(*PAIRS[100:250], strict=True)
    table = pa.table({"source": source, "target": target})
    pq.write_table(table, folder / "b.parquet", row_group_size=50)
    parquet = ParquetColumns(str(folder / "b.parquet"), "source", "target")
    return [Tsv(str(folder / "a.tsv")), parquet]


def make(sources, output, **changes):
    return preprocess(
        sources=sources, options=options(output, **changes), beam_arguments=ONE_THREAD
    )


@pytest.fixture(scope="module")
def whole(tmp_path_factory, sources):
    """A finished dataset without any damage. Tests only read it."""
    output = tmp_path_factory.mktemp("whole") / "data"
    make(sources, output)
    return output


def kill_in(sources, output, module, name, **changes):
    """Run a job until it calls a function, which kills it."""

    def kill(*args, **kwargs):
        raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, name, kill)
        with pytest.raises(Exception, match="KilledError"):
            make(sources, output, **changes)


@pytest.fixture(scope="module")
def half_done(tmp_path_factory, sources):
    """A dataset whose job was killed before it wrote the manifest. Tests only read it."""
    output = tmp_path_factory.mktemp("half done") / "data"
    kill_in(sources, output, manifest, "check_splits")
    return output


def truncate(path, share):
    content = path.read_bytes()
    assert content
    path.write_bytes(content[: int(share * len(content))])


FILES = [
    "_work/*/spill-000-00000",
    "_work/*/chunk-000-00001.arrow",
    "_work/*/units-000.json",
    "_work/*/shard-train-00001.json",
    "_work/*/run.json",
    "_work/*/sources.jsonl",
    MANIFEST_FILE,
    "vocabulary.json",
    "vocabulary.spm",
    "train-00001-of-00003.tfrecord",
    "rejected-000-00001.parquet",
    "rejected-train-00001-of-00003.parquet",
]


@pytest.mark.parametrize("pattern", FILES)
def test_truncated_file_counts_as_missing(tmp_path, sources, whole, half_done, pattern):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    shutil.copy(whole / MANIFEST_FILE, output)
    if pattern != MANIFEST_FILE:
        (output / MANIFEST_FILE).unlink()
    [path] = output.glob(pattern)
    truncate(path, 0.5 * (FILES.index(pattern) % 2))  # half of them become empty
    make(sources, output)
    assert digest(output) == digest(whole)
    assert DatasetManifest.load(output) == DatasetManifest.load(whole)


def test_finished_chunks_of_a_killed_run_are_not_written_again(
    tmp_path, sources, whole, half_done, monkeypatch
):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    for pattern in ("_work/*/units-000.json", "_work/*/chunk-000-00001.arrow"):
        [path] = output.glob(pattern)
        path.unlink()
    written = []
    write = units._write_chunk
    monkeypatch.setattr(
        units,
        "_write_chunk",
        lambda path, *args, **kw: written.append(path) or write(path, *args, **kw),
    )
    make(sources, output)
    assert [Path(path).name for path in written] == ["chunk-000-00001.arrow"]
    assert digest(output) == digest(whole)


# Vocabularies of unfinished datasets.


@pytest.fixture(scope="module")
def other_vocabulary(tmp_path_factory, sources):
    """A vocabulary of the same size that was trained on a part of the texts."""
    output = tmp_path_factory.mktemp("other") / "data"
    make(sources[1:], output)
    return (output / "vocabulary.spm").read_bytes()


def test_replaced_vocabulary_of_an_unfinished_dataset_is_trained_again(
    tmp_path, sources, whole, half_done, other_vocabulary
):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    assert (output / "vocabulary.spm").read_bytes() != other_vocabulary
    (output / "vocabulary.spm").write_bytes(other_vocabulary)
    make(sources, output)
    assert digest(output) == digest(whole)


# Finished datasets.


def cut(path):
    truncate(path, 0.5)


def append(path):
    with path.open("ab") as file:
        file.write(b"more")


def delete(path):
    path.unlink()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("train-00001-of-00003.tfrecord", cut), ("train-00001-of-00003.tfrecord", delete),
        ("vocabulary.spm", append), ("vocabulary.json", delete),
    ],
)  # fmt: skip
def test_damaged_dataset_is_made_again(tmp_path, sources, whole, name, damage):
    output = tmp_path / "data"
    shutil.copytree(whole, output)
    damage(output / name)
    told = []
    plan = plan_preprocess(sources=sources, options=options(output))
    job = PreprocessJob(plan=plan, beam_arguments=ONE_THREAD)
    assert not job.is_finished
    job.run(report=told.append)
    assert told[0] == f"{output}/{name} is missing or damaged: tt makes the dataset again"
    assert digest(output) == digest(whole)
    assert DatasetManifest.load(output) == DatasetManifest.load(whole)
    assert job.is_finished


def test_run_that_repairs_a_dataset_can_be_interrupted(tmp_path, sources, whole):
    output = tmp_path / "data"
    shutil.copytree(whole, output)
    cut(output / "train-00001-of-00003.tfrecord")
    kill_in(sources, output, merge_steps, "merge_bucket")
    assert not (output / MANIFEST_FILE).exists(), "a manifest would declare the shard complete"
    make(sources, output)
    assert digest(output) == digest(whole)


def test_user_error_does_not_delete_a_damaged_dataset(tmp_path, monkeypatch, sources, whole):
    def refuse(*args, **kwargs):
        raise UserError("there is no such jar")

    output = tmp_path / "data"
    shutil.copytree(whole, output)
    cut(output / "train-00001-of-00003.tfrecord")
    before = digest(output)
    monkeypatch.setattr("tt.pipelines.jobs.running.run_pipeline", refuse)
    with pytest.raises(UserError, match="no such jar"):
        make(sources, output)
    shutil.rmtree(output / "_work")
    assert digest(output) == before


def test_damaged_manifest_of_a_finished_dataset_is_one_clear_error(tmp_path, sources, whole):
    output = tmp_path / "a folder"
    shutil.copytree(whole, output)
    truncate(output / MANIFEST_FILE, 0.5)
    with pytest.raises(UserError) as refused:
        make(sources, output)
    assert str(refused.value) == (
        f"the output folder {output} contains other files (dataset.json, ...). Choose an empty or "
        "a new folder"
    )


def test_the_files_of_a_run_show_its_progress(tmp_path, sources, half_done):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    plan = plan_preprocess(sources=sources, options=options(output))
    work = Path(plan.work.run_file).parent
    found = []
    for names in ("none", "shard-train-00001*", "shard-*", "spill-001*", "spill-*", "units-001*"):
        for path in work.glob(names):
            path.unlink()
        if names == "spill-*":
            (output / "vocabulary.spm").unlink()
        progress = DatasetWatch(plan).find_phase()
        found.append((progress.phase, progress.done, progress.total, progress.noun))
    assert found == [
        ("writing the manifest", 0, 0, ""),
        ("merging", 3, 4, "shards"),
        ("merging", 0, 4, "shards"),
        ("encoding", 142, 292, "pairs"),
        ("training the vocabulary", 0, 0, ""),
        ("cutting", 1, 2, "sources"),
    ]
