"""Pipes as corpora: the sizes of units, buckets and shards follow from the text that was read."""

import os
import threading

import pytest
from command_line import run
from corpora import PAIRS, open_named, options, run_preprocess, sentence, texts

from tt.pipelines.preprocess import sizes as preprocess_sizes
from tt.pipelines.preprocess.plan import plan_preprocess

TSV = "".join(f"{source}\t{target}\n" for source, target in PAIRS)


@pytest.fixture
def fifo(tmp_path):
    """Return a pipe to which a thread writes `TSV` as soon as somebody reads it."""
    path = tmp_path / "pipe.tsv"
    os.mkfifo(path)
    writer = threading.Thread(target=path.write_text, args=[TSV], daemon=True)
    writer.start()
    yield path
    if not writer.is_alive():
        writer.join()


@pytest.fixture
def small(monkeypatch):
    """Let small corpora have many units and buckets."""
    monkeypatch.setattr(preprocess_sizes, "SLICE_PAIRS", 20)
    monkeypatch.setattr(preprocess_sizes, "_PAIR_BYTES", 1)
    monkeypatch.setattr(preprocess_sizes, "_BUCKET_BYTES", 300)


def make(tmp_path, corpora, **given):
    plan = plan_preprocess(
        options=options(tmp_path / "out", shards=0, shard_megabytes=0.002, **given), **corpora
    )
    return run_preprocess(plan), texts(tmp_path / "out", "train")


@pytest.mark.parametrize("role", ["train", "validation"])
def test_a_pipe_gives_the_same_dataset_as_a_file(tmp_path, fifo, small, role):
    (tmp_path / "file.tsv").write_text(TSV)
    (tmp_path / "other.tsv").write_text("".join(f"{sentence(-i)}\tx {i}\n" for i in range(1, 99)))
    made = {}
    for name in ("file", "pipe"):
        [source] = open_named(corpora=[f"n={tmp_path}/{name}.tsv"])
        [other] = open_named(corpora=[f"o={tmp_path}/other.tsv"])
        sources = {"sources": [source]}
        if role == "validation":
            sources = {"sources": [other], "validation_sources": [source]}
        (tmp_path / name).mkdir()
        manifest, records = make(tmp_path / name, sources)
        made[name] = (manifest.splits, records, manifest.lines_read)
    assert made["pipe"] == made["file"]
    assert len(manifest.splits[role].shards) > 1 or role == "validation"


def test_the_command_says_that_it_reads_a_pipe(tmp_path, fifo, capsys):
    corpus = ("preprocess", fifo, "--output", tmp_path / "out", "--vocabulary-size", "48")
    assert run(*corpus, "--dry-run") == 0
    assert "reading the pipe" not in capsys.readouterr().err
    assert run(*corpus) == 0
    assert f"reading the pipe {fifo}; this waits until its writer" in capsys.readouterr().err
