"""Each script of `make bench` runs in its smallest form, without PyTorch, Kafka and limits."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
        "--only", "bare", "one", "one-least-filters", "--texts", *texts,
    )  # fmt: skip
    assert "one core, default filters, ratio to bare" in said


def test_training_input_and_memory_are_measured():
    assert "ids/s" in run_script(
        "records_to_batches.py", "--pairs", 2000, "--epochs", 1, "--no-limits"
    )
    assert " 0 new traces" in run_script(
        "records_to_batches.py", "--memory", "--steps", 20, "--no-limits"
    )


def test_training_is_compared_with_a_plain_step():
    said = run_script(
        "train.py", "--only", "tiny-float32", "--rounds", 1, "--no-peer", "--no-limits"
    )
    assert "ratio of tt's speed to plain step" in said


def test_memory_of_translation_is_measured():
    run_script("translate_memory.py", "--rows", 1000, "--factor", 2)
