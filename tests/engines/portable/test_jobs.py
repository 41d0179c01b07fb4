"""The two jobs on Beam's portable job service: the bytes of the local run."""

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

from tt.pipelines.preprocess import plan

ROOT = Path(__file__).parents[3]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def digests(folder, suffix):
    """Returns the digest of each file of a folder, by its path in there."""
    found = {
        path.relative_to(folder).as_posix(): hashlib.md5(path.read_bytes()).hexdigest()
        for path in folder.rglob(f"*{suffix}")
    }
    assert found
    return found


def run_both(*command, capsys, portable, is_alone=False):
    """Runs a command here and on the job service, into the folders here/ and there/."""
    local = (*command, "--output", "here")
    if not is_alone:
        assert run(*local) == 0, capsys.readouterr().err
    else:  # in a process whose TensorFlow has the threads that `tt` gives it, as workers have
        subprocess.run(
            [sys.executable, "-m", "tt.cli.main", *map(str, local)],
            env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True, timeout=300,
        )  # fmt: skip
    assert run(*command, "--output", "there", "--", *portable) == 0, capsys.readouterr().err


def test_preprocess_makes_the_same_shards(folder, capsys, monkeypatch, portable):
    monkeypatch.setattr(plan, "MAX_UNIT_PAIRS", 500)
    write_corpus(folder, count=3000)
    # Rejected rows name their files as the command does; workers get them absolute.
    texts = ("--source", folder / "a.en", "--target", folder / "a.xx")
    run_both(
        "preprocess", *texts, "--vocabulary-size", "36", "--shards", "3",
        capsys=capsys, portable=portable,
    )  # fmt: skip
    assert len(list((folder / "there").glob("rejected-0*.parquet"))) == 6  # units
    for suffix in (".tfrecord", ".parquet"):
        assert digests(folder / "there", suffix) == digests(folder / "here", suffix)
    assert not (folder / "there/_work").exists()


def test_translate_batch_makes_the_same_files(folder, capsys, portable, trained_toy):
    texts = [source for source, _ in toy_sentences(300, seed=11)]
    texts[5:8] = None, "", "x" * 3000
    for part in range(3):
        rows = range(100 * part, 100 * part + 100)
        table = pa.table({"id": rows, "text": [texts[row] for row in rows]})
        pq.write_table(table, f"part{part}.parquet", row_group_size=40)
    run_both(
        "translate-batch", "part*.parquet", "--model", trained_toy.run, "--beam-size", 2,
        "--text-column", "text", "--unit-rows", 64, capsys=capsys, portable=portable,
        is_alone="--environment_type=LOOPBACK" not in portable,
    )  # fmt: skip
    found = digests(folder / "there", ".parquet")
    assert found == digests(folder / "here", ".parquet")
    tables = [pq.read_table(folder / "there" / name) for name in sorted(found)]
    assert pa.concat_tables(tables)["id"].to_pylist() == list(range(300))


def test_workers_without_tensorflow_load_what_was_converted_where_the_job_started(
    folder, capsys, bare_pool, trained_toy, monkeypatch
):
    """The workers have another cache, too, as those of other machines."""
    table = {"text": [source for source, _ in toy_sentences(40, seed=11)]}
    pq.write_table(pa.table(table), "in.parquet")
    (folder / "terms.tsv").write_text("".join(f"term {n}\tterm {n}\n" for n in range(100)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
    command = ("translate-batch", "in.parquet", "--model", trained_toy.run, "--unit-rows", 20)
    command = (*command, "--engine", "ctranslate2", "--glossary", "terms.tsv")
    pool = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL",
            f"--environment_config={bare_pool}"]  # fmt: skip
    assert run(*command, "--output", "here") == 0
    assert run(*command, "--output", "there", "--", *pool) == 0, capsys.readouterr().err
    assert digests(folder / "there", ".parquet") == digests(folder / "here", ".parquet")
    assert not list((folder / "there").rglob("model.bin")), "what workers needed is deleted"
    assert run(*command, "--output", "here", "--", *pool) == 0, "it is the same plan"
    assert "Already finished" in capsys.readouterr().err
    command = (*command[:-4], "--output", "plain", "--", *pool)
    assert run(*command) == 2
    assert "no TensorFlow here" in last_error(capsys)


@pytest.mark.parametrize("command", ["preprocess", "translate-batch"])
def test_workers_of_another_version_end_the_job(folder, capsys, older_pool, command, trained_toy):
    write_corpus(folder, count=50)
    pq.write_table(pa.table({"text": ["one"]}), "in.parquet")
    arguments = {
        "preprocess": ("--source", "a.en", "--target", "a.xx", "--vocabulary-size", "36"),
        "translate-batch": ("in.parquet", "--model", trained_toy.run),
    }[command]
    pool = ["--runner=PortableRunner", "--job_endpoint=embed", "--environment_type=EXTERNAL",
            f"--environment_config={older_pool}"]  # fmt: skip
    assert run(command, *arguments, "--output", "there", "--", *pool) == 2
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    assert printed.splitlines()[-1] == (
        f"tt: error: the worker on {socket.gethostname()} has tt 0.0.9 where the job was submitted "
        f"by {importlib.metadata.version('tt-translate')}: give it the same versions, as by an "
        "image of deploy/Dockerfile built from what submits the job"
    )
    assert not list((folder / "there").rglob("*.parquet"))
    assert not list((folder / "there").rglob("*.tfrecord"))
