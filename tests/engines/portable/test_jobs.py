"""Both jobs on Beam's portable job service write the bytes of a local run."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import socket
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import last_error, run, write_corpus
from toy import toy_sentences

from tt.pipelines.preprocess import sizes as preprocess_sizes

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digests(folder, suffix):
    """Return the digest of each file in a folder, by its path in the folder."""
    found = {
        path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.rglob(f"*{suffix}")
    }
    assert found
    return found


@pytest.mark.headline
def test_preprocess_writes_the_same_shards(folder, capsys, monkeypatch, portable):
    monkeypatch.setattr(preprocess_sizes, "MAX_UNIT_PAIRS", 500)
    write_corpus(folder, count=3000)
    # Rejected rows contain the paths of the command, and workers get absolute paths.
    texts = ("--source", folder / "a.en", "--target", folder / "a.xx")
    command = ("preprocess", *texts, "--vocabulary-size", "36", "--shards", "3")
    assert run(*command, "--output", "here") == 0
    assert run(*command, "--output", "there", "--", *portable) == 0, capsys.readouterr().err
    assert len(list((folder / "there").glob("rejected-0*.parquet"))) == 6  # one per unit
    for suffix in (".tfrecord", ".parquet"):
        assert digests(folder / "there", suffix) == digests(folder / "here", suffix)
    assert not (folder / "there/_work").exists()


def test_translate_batch_writes_the_same_files(folder, capsys, portable, trained_toy):
    texts = [source for source, _ in toy_sentences(300, seed=11)]
    texts[5:8] = None, "", "x" * 3000
    for part in range(3):
        rows = range(100 * part, 100 * part + 100)
        table = pa.table({"id": rows, "text": [texts[row] for row in rows]})
        pq.write_table(table, f"part{part}.parquet", row_group_size=40)
    command = ("translate-batch", "part*.parquet", "--model", trained_toy.run, "--beam-size", 2,
               "--text-column", "text", "--unit-rows", 64)  # fmt: skip
    # A process like a worker, because TensorFlow has other settings in this process.
    local = [sys.executable, "-m", "tt.cli.main", *map(str, command), "--output", "here"]
    subprocess.run(local, env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=300)
    assert run(*command, "--output", "there", "--", *portable) == 0, capsys.readouterr().err
    found = digests(folder / "there", ".parquet")
    assert found == digests(folder / "here", ".parquet")
    tables = [pq.read_table(folder / "there" / name) for name in sorted(found)]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(300))


def test_workers_without_tensorflow_load_the_converted_model(
    folder, capsys, bare_pool, trained_toy, monkeypatch
):
    """The workers have another cache, too, like workers on other machines."""
    table = {"text": [source for source, _ in toy_sentences(40, seed=11)]}
    pq.write_table(pa.table(table), "in.parquet")
    (folder / "terms.tsv").write_text("".join(f"term {n}\tterm {n}\n" for n in range(100)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    command = ("translate-batch", "in.parquet", "--model", trained_toy.run, "--unit-rows", 20)
    command = (*command, "--engine", "ctranslate2", "--glossary", "terms.tsv")
    assert run(*command, "--output", "here") == 0
    assert run(*command, "--output", "there", "--", *bare_pool) == 0, capsys.readouterr().err
    assert digests(folder / "there", ".parquet") == digests(folder / "here", ".parquet")
    assert not list((folder / "there").rglob("model.bin")), "the model for the workers is deleted"
    assert run(*command, "--output", "here", "--", *bare_pool) == 0, "the plan is the same"
    assert "Already finished" in capsys.readouterr().err
    command = (*command[:-4], "--output", "plain", "--", *bare_pool)
    assert run(*command) == 2
    assert "no TensorFlow here" in last_error(capsys)


def test_workers_with_another_version_end_the_job(folder, capsys, older_pool):
    write_corpus(folder, count=50)
    command = ("preprocess", "--source", "a.en", "--target", "a.xx", "--vocabulary-size", "36")
    assert run(*command, "--output", "there", "--", *older_pool) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert printed.splitlines()[-1] == (
        f"tt: error: the worker on {socket.gethostname()} has tt 0.0.9 instead of "
        f"{importlib.metadata.version('tt-translate')}. Install the versions of the machine that "
        "submits the job, for example with an image that you build there from deploy/Dockerfile"
    )
    assert not list((folder / "there").rglob("*.tfrecord"))
