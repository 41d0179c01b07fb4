"""The same bytes whoever works on what, and whatever was finished before the run was cut short."""

import dataclasses
import gzip
import hashlib
import json
import random
import tempfile
import unicodedata
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sentencepiece
from apache_beam.runners.portability.local_job_service import LocalJobServicer
from corpora import (
    ONE_THREAD,
    PAIRS,
    TWO_THREADS,
    digest,
    options,
    records,
    texts,
    write_pairs,
)
from memory_filesystem import MemoryFileSystem

from model.dataset.manifest import MANIFEST_FILE, DatasetManifest
from model.errors import UserError
from pipelines.corpora.opening import ParquetColumns, TextPair, Tsv, sources_from_options
from pipelines.preprocess import encode_steps as transforms
from pipelines.preprocess import job
from pipelines.preprocess import merge_steps as merging
from pipelines.preprocess import plan as preprocess_plan
from pipelines.preprocess.job import describe_earlier, plan_preprocess, preprocess
from pipelines.storage import files

# The same bytes.


def mixed_sources(folder):
    """Makes three sources of different kinds with duplicates across them, and empty texts."""
    chooser = random.Random(3)
    pool = [*PAIRS, *[("", "x")] * 20]
    parts = [chooser.choices(pool, k=170) for _ in range(3)]
    text = write_pairs(folder, parts[0])
    tsv = folder / "b.tsv.gz"
    tsv.write_bytes(gzip.compress("".join(f"{s}\t{t}\n" for s, t in parts[1]).encode()))
    parquet = folder / "c.parquet"
    sources, targets = zip(*parts[2], strict=True)
    pq.write_table(pa.table({"s": sources, "t": targets}), parquet, row_group_size=20)
    return [text, Tsv(str(tsv)), ParquetColumns(str(parquet), "s", "t")], parts


@pytest.fixture(scope="module")
def job_service():
    """The portable job service on a port of its own; its workers live in this process."""
    service = LocalJobServicer(tempfile.mkdtemp())
    port = service.start_grpc_server()
    yield f"localhost:{port}"
    service.stop()


def test_the_result_does_not_depend_on_the_runner(tmp_path, monkeypatch, job_service):
    monkeypatch.setattr(preprocess_plan, "MAX_UNIT_PAIRS", 20)  # 27 units
    sources, parts = mixed_sources(tmp_path)
    portable = [
        "--runner=PortableRunner", f"--job_endpoint={job_service}", "--environment_type=LOOPBACK",
    ]  # fmt: skip
    digests, manifests = [], []
    for i, arguments in enumerate(
        [
            ONE_THREAD,
            TWO_THREADS,
            ["--direct_num_workers=2", "--direct_running_mode=multi_processing"],
            portable,
            [*ONE_THREAD, "--direct_runner_bundle_repeat=1"],
        ]
    ):
        output = tmp_path / f"out{i}"
        manifest = preprocess(
            sources=sources, options=options(output, shards=8), beam_arguments=arguments
        )
        manifests.append(manifest)
        digests.append(digest(output))
    assert digests == [digests[0]] * 5
    assert manifests == [manifests[0]] * 5
    assert len([name for name in digests[0] if name.startswith("train-")]) == 8
    assert len([name for name in digests[0] if name.startswith("rejected-0")]) > 10  # of units

    both = texts(output, "train") + texts(output, "validation")
    pairs = [pair for part in parts for pair in part if pair[0]]
    assert sorted(both) == sorted(set(pairs))
    assert manifests[0].lines_read == 510
    assert manifests[0].rejected == {
        "duplicate_pair": len(pairs) - len(both), "empty_source": 510 - len(pairs),
    }  # fmt: skip

    # Units may be larger: then the places are the same, and so are the records.
    monkeypatch.setattr(preprocess_plan, "MAX_UNIT_PAIRS", 1000)
    preprocess(sources=sources, options=options(tmp_path / "whole", shards=8))
    whole = digest(tmp_path / "whole")
    assert {name: whole[name] for name in digests[0] if not name.startswith("rejected-0")} == {
        name: value for name, value in digests[0].items() if not name.startswith("rejected-0")
    }


def test_the_seed_and_the_number_of_shards_change_only_the_order(tmp_path, corpus, dataset):
    one = options(tmp_path / "one", shards=1)
    preprocess(sources=[corpus], options=one)
    assert records(tmp_path / "one", "train") == records(dataset, "train")
    preprocess(sources=[corpus], options=options(tmp_path / "two", shards=1, seed=2))
    assert records(tmp_path / "two", "train") != records(dataset, "train")
    assert sorted(records(tmp_path / "two", "train")) == sorted(records(dataset, "train"))


def test_many_buckets_give_the_same_shards(tmp_path, monkeypatch, corpus, dataset):
    monkeypatch.setattr(preprocess_plan, "_BUCKET_BYTES", 300)
    preprocess(sources=[corpus], options=options(tmp_path / "out"))
    assert digest(tmp_path / "out") == digest(dataset)


# Runs that are started again.


class KilledError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("where", ["merge_bucket", "check_splits"])
def test_a_rerun_after_a_crash_reuses_what_is_finished(
    tmp_path, monkeypatch, corpus, dataset, where
):
    def crash(*args, **kwargs):
        raise KilledError

    with monkeypatch.context() as broken:
        broken.setattr(merging, where, crash)
        with pytest.raises(Exception, match="KilledError"):
            preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert not (tmp_path / MANIFEST_FILE).exists()
    assert list(tmp_path.glob("_work/*/spill-*"))
    with pytest.raises(UserError, match="not a finished dataset folder"):
        DatasetManifest.load(tmp_path)

    def crash_in_reading(self):
        raise KilledError
        yield

    for name in ("encode_unit", "train_vocabulary"):
        monkeypatch.setattr(transforms, name, crash)
    if where == "check_splits":  # all shards are written
        monkeypatch.setattr(merging, "merge_bucket", crash)
    monkeypatch.setattr(TextPair, "read_tables", crash_in_reading)
    preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert digest(tmp_path) == digest(dataset)


def test_shards_that_an_older_tt_counted_otherwise_are_merged_again(
    tmp_path, monkeypatch, corpus, dataset
):
    def crash(*args, **kwargs):
        raise KilledError

    with monkeypatch.context() as broken:
        broken.setattr(merging, "check_splits", crash)
        with pytest.raises(Exception, match="KilledError"):
            preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    done = sorted(tmp_path.glob("_work/*/shard-*"))
    assert done
    for path in done:
        counts = json.loads(path.read_text())
        del counts["size"]
        path.write_text(json.dumps(counts))
    preprocess(sources=[corpus], options=options(tmp_path), beam_arguments=ONE_THREAD)
    assert digest(tmp_path) == digest(dataset)


def test_what_a_user_error_ends_deletes_nothing_behind_links(tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    (other / "vocabulary.spm").write_text("of another")
    (tmp_path / "out/deep").mkdir(parents=True)
    (tmp_path / "out/deep/x.spm").write_text("of another")
    (tmp_path / "out/linked").symlink_to(other)
    (tmp_path / "out/own.spm").write_text("begun")
    job._abandon(str(tmp_path / "out"))
    assert not (tmp_path / "out/own.spm").exists()
    assert (tmp_path / "out/deep/x.spm").exists()
    assert (other / "vocabulary.spm").read_text() == "of another"


def test_a_finished_folder_is_left_as_it_is(tmp_path, corpus, dataset, monkeypatch):
    stamps = {path: path.stat().st_mtime_ns for path in dataset.iterdir()}
    monkeypatch.setattr(job, "run_pipeline", None)
    manifest = preprocess(sources=[corpus], options=options(dataset))
    assert manifest == DatasetManifest.load(dataset)
    assert {path: path.stat().st_mtime_ns for path in dataset.iterdir()} == stamps


def test_work_left_behind_a_finished_folder_is_deleted(tmp_path, corpus):
    preprocess(sources=[corpus], options=options(tmp_path))
    (tmp_path / "_work/x").mkdir(parents=True)
    preprocess(sources=[corpus], options=options(tmp_path))
    assert not (tmp_path / "_work").exists()


def test_another_data_set_is_not_overwritten(tmp_path, corpus, dataset):
    with pytest.raises(UserError, match=r"finished dataset of 400 pairs .* choose another"):
        preprocess(sources=[corpus], options=options(dataset, seed=9))
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds something else \(notes\.txt\): choose another"):
        preprocess(sources=[corpus], options=options(tmp_path))
    with pytest.raises(UserError, match=r"notes\.txt is a file, not a folder"):
        preprocess(sources=[corpus], options=options(tmp_path / "notes.txt"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def earlier_fingerprint(manifest):
    """Returns what a dataset of these inputs and options was named by before `held_out_by`."""
    chosen = {name: value for name, value in manifest.options.items() if name != "held_out_by"}
    chosen["sentencepiece_rule"] = "nmt_nfkc"  # the default of then
    counts = ("is_held_out", "read", "kept", "rejected")
    identities = [
        {name: value for name, value in source.items() if name not in counts}
        for source in manifest.sources
    ]
    described = {
        "sources": identities,
        "held_out_from": [source["is_held_out"] for source in manifest.sources].count(False),
        "options": chosen,
        "corpus": "",
        "result_version": 2,
        "manifest_format": 1,
        "sentencepiece": sentencepiece.__version__,
        "unicode": unicodedata.unidata_version,
    }
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def test_a_finished_folder_of_before_there_was_held_out_by_is_left_as_it_is(
    tmp_path, monkeypatch, corpus
):
    held_out = write_pairs(tmp_path, [("held", "out")], name="held")
    excluded = tmp_path / "test.txt"
    excluded.write_text("none\n")

    def make(folder="out", validation=(held_out,), **changes):
        chosen = options(tmp_path / folder, vocabulary_type="char", **changes)
        return preprocess(sources=[corpus], validation_sources=validation, options=chosen)

    manifest = make()
    values = json.loads(manifest.to_json())
    del values["options"]["held_out_by"]
    values["options"]["sentencepiece_rule"] = "nmt_nfkc"
    values["fingerprint"] = earlier_fingerprint(manifest)
    (tmp_path / "out" / MANIFEST_FILE).write_text(json.dumps(values))
    with monkeypatch.context() as broken:
        broken.setattr(job, "run_pipeline", None)
        assert make().fingerprint == make(held_out_by="side").fingerprint == values["fingerprint"]
    plan = plan_preprocess(
        sources=[corpus],
        validation_sources=[held_out],
        options=options(tmp_path / "out", vocabulary_type="char"),
    )
    assert describe_earlier(manifest, plan) == ""
    assert describe_earlier(DatasetManifest.load(tmp_path / "out"), plan).startswith(
        "kept held-out texts of any length from training, filtered validation corpora"
    )
    # But not for the one who asks for another rule.
    for by in ("long-side", "pair", "source"):
        difference = f"with other options .held_out_by 'side' instead of '{by}'."
        with pytest.raises(UserError, match=difference):
            make(held_out_by=by)
    # Where nothing is named that is held out, no such rule makes a difference.
    plain = make("plain", validation=())
    assert make("plain", validation=(), held_out_by="pair") == plain
    assert make("excluded", validation=(), exclude=(str(excluded),)).fingerprint != (
        earlier_fingerprint(DatasetManifest.load(tmp_path / "excluded"))
    )


def test_an_unfinished_run_with_other_options_is_not_overwritten(tmp_path, monkeypatch, corpus):
    monkeypatch.setattr(job, "run_pipeline", lambda pipeline: None)
    with pytest.raises(UserError, match="not a finished dataset folder"):
        preprocess(sources=[corpus], options=options(tmp_path))
    with pytest.raises(UserError, match=r"unfinished .* other options .seed 1 instead of 9."):
        preprocess(sources=[corpus], options=options(tmp_path, seed=9))


# Folders of the version before, which trained by SentencePiece's rule nmt_nfkc if not told.


@pytest.fixture
def before(monkeypatch):
    """Has plans made as the version before made them, until what it yields is called."""
    plan = preprocess_plan.plan_preprocess

    def earlier(**given):
        made = plan(**given)
        chosen = dataclasses.replace(given["options"], sentencepiece_rule="nmt_nfkc")
        return dataclasses.replace(made, fingerprint=made.earlier_fingerprint, options=chosen)

    with monkeypatch.context() as patched:
        patched.setattr(job, "plan_preprocess", earlier)
        yield patched.undo


def test_a_dataset_that_the_version_before_finished_stays(tmp_path, corpus, before):
    made = preprocess(sources=[corpus], options=options(tmp_path))
    before()
    assert made.options["sentencepiece_rule"] == "nmt_nfkc"
    stamps = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    for rule in (None, "nmt_nfkc"):
        again = options(tmp_path, sentencepiece_rule=rule)
        assert preprocess(sources=[corpus], options=again) == made
    assert {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == stamps
    difference = r"other options \(.*sentencepiece_rule 'nmt_nfkc' instead of 'identity'\)"
    with pytest.raises(UserError, match=rf"finished dataset of 400 pairs made with {difference}"):
        preprocess(sources=[corpus], options=options(tmp_path, sentencepiece_rule="identity"))


def test_a_dataset_that_the_version_before_began_is_refused(tmp_path, corpus, before, monkeypatch):
    monkeypatch.setattr(job, "run_pipeline", lambda pipeline: None)
    with pytest.raises(UserError, match="not a finished dataset folder"):
        preprocess(sources=[corpus], options=options(tmp_path))
    before()
    monkeypatch.setattr(job, "run_pipeline", None)
    with pytest.raises(UserError, match=r"unfinished dataset that an older version of tt began, .*"
                       r"has other bytes: choose another --output, or remove"):  # fmt: skip
        preprocess(sources=[corpus], options=options(tmp_path))


def test_the_fingerprint_of_the_version_before(monkeypatch):
    """The digest is what that version printed; if it changes, its datasets are known no more."""
    monkeypatch.setattr(preprocess_plan.sentencepiece, "__version__", "1")
    monkeypatch.setattr(preprocess_plan.unicodedata, "unidata_version", "2")
    assert (
        preprocess_plan._fingerprint(
            [{"name": "a", "files": []}],
            held_out_from=1,
            options=preprocess_plan.PreprocessOptions(output="x"),
            corpus="c",
            is_earlier=True,
        )
        == "d388a6a3c1d01c307de9d91956957b21547956d25cb11293bb0f6d8021163880"
    )


def test_any_file_system_will_do(corpus, dataset):
    """Corpus, held-out texts, vocabulary and dataset lie on a file system that is not local."""
    MemoryFileSystem.clear()
    for path in corpus.paths():
        text = Path(path).read_bytes()
        MemoryFileSystem.put(f"mem://in/a{Path(path).suffix}.gz", gzip.compress(text))
    sources = sources_from_options(corpora=["mem://in/a.en.gz+mem://in/a.de.gz"])
    remote = options("mem://out/data")
    manifest = preprocess(sources=sources, options=remote, beam_arguments=TWO_THREADS)
    found = {
        path.removeprefix("mem://out/data/"): files.read_bytes(path)
        for path in MemoryFileSystem.paths()
        if path.startswith("mem://out/")
    }
    expected = {path.name: path.read_bytes() for path in dataset.iterdir()}
    assert set(found) == set(expected)  # and so nothing is left of _work
    assert {name for name in found if found[name] != expected[name]} == {MANIFEST_FILE}
    assert preprocess(sources=sources, options=remote) == manifest
    with pytest.raises(UserError, match=r"finished dataset of 400 pairs .* choose another"):
        preprocess(sources=sources, options=options("mem://out/data", seed=9))
    with pytest.raises(UserError, match="larger than this corpus"):
        preprocess(sources=sources, options=options("mem://out/more", vocabulary_size=8000))
    assert not [path for path in MemoryFileSystem.paths() if path.startswith("mem://out/more")]
