"""Scripts of `make bench` and `make bench-translate` run in their smallest form, without limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from toy import toy_sentences

BENCH = Path(__file__).resolve().parent / "bench"
ENGLISH = "She reads the old book", "The dog sleeps", "We walk to the river", "It rains again"
GERMAN = "Sie liest das alte Buch", "Der Hund schläft", "Wir gehen zum Fluss", "Es regnet wieder"


def run_script(name, *arguments):
    ended = subprocess.run(
        [sys.executable, BENCH / name, *map(str, arguments)],
        capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    """Two files with 20,000 different lines each."""
    folder = tmp_path_factory.mktemp("texts")
    for code, sentences in (("en", ENGLISH), ("de", GERMAN)):
        lines = [f"{sentences[i % 4]}, {i % 97} and {i // 97}." for i in range(20_000)]
        (folder / f"train.{code}").write_text("\n".join(lines) + "\n", "utf-8")
    return [folder / "train.en", folder / "train.de"]


def test_preprocess_is_compared_with_sentencepiece(texts, tmp_path):
    said = run_script(
        "preprocess.py", "--pairs", 20_000, "--rounds", 1, "--cache", tmp_path,
        "--only", "bare", "one", "--texts", *texts,
    )  # fmt: skip
    assert "one, ratio to bare" in said


def test_training_is_compared_with_another_version(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    options = ("--only", "tiny", "--rounds", 1, "--no-peer", "--no-limits")
    said = run_script("train.py", *options, "--before", sys.executable)
    assert "tiny, ratio of tt's speed to tt before" in said


def test_tables_are_compared_with_another_version(tmp_path):
    options = ("--pairs", 20_000, "--rounds", 1, "--only", "read", "job", "--no-limits")
    said = run_script("tables.py", "--before", sys.executable, "--cache", tmp_path, *options)
    assert "read csv, line ends in cells, ratio of the speed to before" in said
    assert "job parquet to csv, ratio of the speed to before" in said


def test_texts_are_compared_with_another_version(shared_data, tmp_path):
    options = ("--rounds", 1, "--only", "plain", "HTML", "--cache", tmp_path)
    said = run_script("texts.py", "--before", sys.executable, *options)
    assert said.count("HTML with a tag") == 2
    assert "two processes" in said


def test_memory_of_translation_is_measured():
    assert "2 times the rows" in run_script("translate_memory.py", "--rows", 1000, "--factor", 2)


def test_the_decoder_is_compared_with_ctranslate2(trained_toy, tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"{source}\n" for source, _ in toy_sentences(200, seed=3)))
    options = ("--rounds", 1, "--beam-sizes", 1, "--no-limits")
    said = run_script("decode.py", trained_toy.run, text, *options)
    assert "beam 1, float32, tt's speed relative to CTranslate2" in said


def test_a_job_is_compared_with_its_engine(trained_toy, tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"{source}\n" for source, _ in toy_sentences(2000, seed=3)))
    options = ("--rows", 2000, "--rounds", 1, "--engine", "ctranslate2", "--no-limits")
    said = run_script("translate.py", trained_toy.run, text, *options)
    assert "ctranslate2, ratio of the job's speed to the decoder's" in said
