"""Truncated files of an unfinished dataset count as missing; a run repairs a damaged dataset."""

import contextlib
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from corpora import ONE_THREAD, PAIRS, digest, options, preprocess, records, texts

from tt.model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from tt.model.dataset.tfrecords import read_records
from tt.model.errors import UnfinishedError, UserError
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import Vocabulary
from tt.pipelines.preprocess import encode_steps, manifest, merge_steps
from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.job import DatasetWatch, PreprocessJob
from tt.pipelines.preprocess.parquet_columns import ParquetColumns
from tt.pipelines.preprocess.plan import plan_preprocess
from tt.pipelines.preprocess.sources import Tsv
from tt.pipelines.preprocess.vocabularies import write_vocabulary


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


@pytest.mark.parametrize("share", [0, 0.5])
@pytest.mark.parametrize("pattern", FILES)
def test_truncated_file_counts_as_missing(tmp_path, sources, whole, half_done, pattern, share):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    shutil.copy(whole / MANIFEST_FILE, output)
    if pattern != MANIFEST_FILE:
        (output / MANIFEST_FILE).unlink()
    [path] = output.glob(pattern)
    truncate(path, share)
    make(sources, output)
    assert digest(output) == digest(whole)
    assert DatasetManifest.load(output) == DatasetManifest.load(whole)


@pytest.mark.parametrize("share", [0, 0.5])
def test_damaged_description_of_another_run_is_one_clear_error(tmp_path, sources, half_done, share):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    [path] = output.glob("_work/*/run.json")
    truncate(path, share)
    with pytest.raises(UserError) as refused:
        make(sources, output, seed=7)
    assert str(refused.value) == (
        f"the output folder {output} belongs to another job: other inputs, or another version of "
        "tt or of its libraries. Run that job's command, choose another `output`, or remove "
        f"{output}"
    )


def test_progress_ignores_truncated_files(tmp_path, sources, half_done):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    watch = DatasetWatch(plan_preprocess(sources=sources, options=options(output)))
    assert watch.measure(0).phase == "writing the manifest"
    for pattern in ("units-000.json", "spill-001-00000"):
        [path] = output.glob(f"_work/*/{pattern}")
        truncate(path, 0.5)
    watch = DatasetWatch(plan_preprocess(sources=sources, options=options(output)))
    assert watch.measure(0).describe() == "cutting: 1 of 2 sources (1 earlier)"


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


def test_vocabulary_cut_between_two_tokens_is_trained_again(tmp_path, sources, whole, half_done):
    """SentencePiece loads such a file, but with fewer tokens."""
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    path = output / "vocabulary.spm"
    content = path.read_bytes()
    for size in range(len(content) // 2, 0, -1):
        path.write_bytes(content[:size])
        with contextlib.suppress(UserError):
            assert 8 < Vocabulary(path, TextNormalization()).piece_count < 48
            break
    assert size > 1
    make(sources, output)
    assert digest(output) == digest(whole)


def test_units_of_another_vocabulary_are_encoded_again(
    tmp_path, sources, whole, half_done, other_vocabulary
):
    output = tmp_path / "data"
    shutil.copytree(half_done, output)
    plan = plan_preprocess(sources=sources, options=options(output))
    write_vocabulary(plan, "vocabulary.spm", other_vocabulary)
    for path in output.glob("_work/*/shard-*"):
        path.unlink()
    make(sources, output)
    assert (output / "vocabulary.spm").read_bytes() == other_vocabulary
    assert texts(output, "train") == texts(whole, "train")
    assert records(output, "train") != records(whole, "train")


def test_vocabulary_replaced_while_the_job_runs_is_an_error(
    tmp_path, sources, whole, other_vocabulary
):
    output = tmp_path / "data"

    def write_and_replace(plan, name, content):
        digest_of = write_vocabulary(plan, name, content)
        (output / name).write_bytes(other_vocabulary)
        return digest_of

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_steps, "write_vocabulary", write_and_replace)
        with pytest.raises(UnfinishedError) as refused:
            make(sources, output)
    assert str(refused.value) == (
        f"{output}/vocabulary.spm has changed since the job began. Run the same command again to "
        "make the file again"
    )
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


@pytest.mark.parametrize("damage", [cut, append, delete])
@pytest.mark.parametrize(
    "name", ["train-00001-of-00003.tfrecord", "vocabulary.spm", "vocabulary.json"]
)
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


def test_deleted_shard_is_made_again(tmp_path, sources, whole):
    output = tmp_path / "data"
    shutil.copytree(whole, output)
    shard = output / "train-00001-of-00003.tfrecord"
    content = shard.read_bytes()
    shard.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    with pytest.raises(UserError) as refused:
        list(read_records([shard]))
    assert str(refused.value).endswith(
        "Copy the shard again from its source, or delete it and repeat the `tt preprocess` command"
    )
    shard.unlink()
    make(sources, output)
    assert digest(output) == digest(whole)


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


def test_damaged_dataset_of_another_command_is_not_replaced(tmp_path, sources, whole):
    output = tmp_path / "data"
    shutil.copytree(whole, output)
    cut(output / "train-00001-of-00003.tfrecord")
    with pytest.raises(UserError, match="belongs to another job: `seed` was 1 and is now 7"):
        make(sources, output, seed=7)


@pytest.mark.parametrize("share", [0, 0.5])
def test_damaged_manifest_of_a_finished_dataset_is_one_clear_error(tmp_path, sources, whole, share):
    output = tmp_path / "a folder"
    shutil.copytree(whole, output)
    truncate(output / MANIFEST_FILE, share)
    with pytest.raises(UserError) as refused:
        make(sources, output)
    assert str(refused.value) == (
        f"the output folder {output} contains other files (dataset.json, ...). Choose an empty or "
        "a new folder"
    )
