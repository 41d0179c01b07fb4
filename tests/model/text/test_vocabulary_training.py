"""SentencePiece in a process of its own: the same bytes, and how far it is."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from model.errors import UserError
from model.text import vocabulary_training
from model.text.vocabulary_training import (
    LogReader,
    TrainingStage,
    train_pieces,
    train_pieces_apart,
)

OPTIONS = {"model_type": "unigram", "vocab_size": 300, "num_threads": 4}


def batches(lines=2000, *, seed=1):
    """Returns lines of words that share parts, so that a vocabulary has something to find."""
    draw = random.Random(seed)
    parts = ["".join(draw.choices("abcdefgh", k=3)) for _ in range(60)]
    words = ["".join(draw.choices(parts, k=draw.randint(1, 4))) for _ in range(800)]
    made = [" ".join(draw.choices(words, k=8)) for _ in range(lines)]
    return [made[first : first + 500] for first in range(0, lines, 500)]


def alive(child):
    return child.poll() is None


@pytest.fixture
def children(monkeypatch):
    """Returns the processes that are started."""
    found = []
    start = vocabulary_training._start

    def noted(result):
        found.append(start(result))
        return found[-1]

    monkeypatch.setattr(vocabulary_training, "_start", noted)
    yield found
    assert not any(map(alive, found))


# The log. A unigram model of 8,000 pieces ends at 8,800.

LOG = """
I0000 00:00:1795454183 1 trainer_interface.cc:461] Adding meta_piece: <pad>
I0000 00:00:1795454183 1 trainer_interface.cc:601] Alphabet size=69
10 Using 65175 sentences for EM training
11 EM sub_iter=0 size=37614 obj=11.1442 num_tokens=1675754 bytes/tok=5.87914
14 EM sub_iter=1 size=30816 obj=8.82741 num_tokens=1676791 bytes/tok=5.8755
15 EM sub_iter=0 size=23104 obj=8.80279 num_tokens=1689034 bytes/tok=5.83292
16 EM sub_iter=1 size=23087 obj=8.78555 num_tokens=1689518 bytes/tok=5.83125
16.5 EM sub_iter=0 size=17314 obj=8.89266 num_tokens=1712421 bytes/tok=5.75325
17 EM sub_iter=1 size=17313 obj=8.87086 num_tokens=1712491 bytes/tok=5.75302
18 EM sub_iter=1 size=12984 obj=8.99461 num_tokens=1744422 bytes/tok=5.64771
19 EM sub_iter=1 size=9737 obj=9.15379 num_tokens=1785883 bytes/tok=5.5166
19.2 PruneUnreachableSentencePieces pruned 0 unreachable pieces out of 8800
""".strip().splitlines()  # what SentencePiece 0.2.3 wrote, with other times


def test_the_log_tells_the_rounds_that_are_left():
    reader = LogReader(size=8000)
    found = []
    for line in LOG:
        stage = reader.read(line, now=float(line.split()[0]) if line[0] != "I" else 9)
        found += [stage] if stage else []
    assert [(each.rounds, each.of) for each in found] == [(1, 5), (2, 5), (3, 5), (4, 5), (5, 5)]
    # The first took 4 s: the next ones take 3.6, 3.24, 2.916 and 2.6244 s.
    assert found[0].seconds_left == pytest.approx(12.3804)
    assert found[1].seconds_left == pytest.approx(2 * (0.9 + 0.81 + 0.729))
    assert found[-1].seconds_left == 0


@pytest.mark.parametrize("line", ["", "EM sub_iter=1 size=", "Merged: freq=87 merges=3700 piece=a"])
def test_other_lines_tell_nothing(line):
    assert LogReader(size=8000).read(line, now=1) is None


# The process.


@pytest.mark.parametrize("changes", [{}, {"model_type": "bpe"}, {"user_defined_symbols": ["<a>"]}])
def test_the_bytes_are_those_of_a_training_in_this_process(children, changes):
    options = OPTIONS | changes
    stages: list[TrainingStage] = []
    made = train_pieces_apart(batches(), options, tell=stages.append)
    assert made == train_pieces(batches(), options)
    if options["model_type"] == "unigram":
        assert [each.rounds for each in stages] == list(range(1, len(stages) + 1))
        assert stages[-1].of == len(stages) > 1
    assert len(children) == 1


def test_nothing_of_it_is_shown(capfd):
    train_pieces_apart(batches(), OPTIONS, tell=lambda stage: None)
    assert capfd.readouterr() == ("", "")


def test_lines_may_hold_anything(children):
    lines = [["a b\nc", "d\te\0f", ""], [], ["ä\u2028ö", *"abcdef"]]
    options = {"model_type": "unigram", "vocab_size": 14, "hard_vocab_limit": False}
    assert train_pieces_apart(lines, options, tell=print) == train_pieces(lines, options)


def test_modules_of_the_current_folder_are_not_taken_for_pythons(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("pickle", "model", "sentencepiece"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not me')\n")
    assert train_pieces_apart(batches(), OPTIONS, tell=lambda stage: None)


@pytest.mark.parametrize("changes", [{"vocab_size": 100_000}, {"no_such_option": 1}])
def test_a_refusal_is_the_trainers(children, changes):
    with pytest.raises(vocabulary_training.REFUSALS) as there:
        train_pieces_apart(batches(), OPTIONS | changes, tell=lambda stage: None)
    with pytest.raises(vocabulary_training.REFUSALS) as here:
        train_pieces(batches(), OPTIONS | changes)
    assert str(there.value) == str(here.value)


@pytest.mark.parametrize(
    ("script", "error", "message"),
    [
        ("import os; os.kill(os.getpid(), 9)", UserError, "by signal 9: if memory ran out, pass a"),
        ("raise SystemExit('no room')", ChildProcessError, "ended with an error: no room"),
    ],
)
def test_a_process_that_does_not_end_well_is_told(monkeypatch, script, error, message):
    def start(result):
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE}
        return subprocess.Popen([sys.executable, "-c", script], stdout=result, **pipes)

    monkeypatch.setattr(vocabulary_training, "_start", start)
    few, many = batches(40_000), [[line for batch in batches(8192) for line in batch]] * 9
    for lines in (few, many):  # of many, some are still to be written when it has ended
        with pytest.raises(error, match=message):
            train_pieces_apart(lines, OPTIONS, tell=lambda stage: None)


def test_lines_that_cannot_be_read_end_it(children):
    def broken():
        yield from batches()
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        train_pieces_apart(broken(), OPTIONS, tell=lambda stage: None)


def test_whoever_is_told_may_end_it(children):
    def tell(stage):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        train_pieces_apart(batches(), OPTIONS, tell=tell)


def test_ctrl_c_is_left_to_the_process_that_began_it(children):
    def tell(stage):
        os.kill(children[0].pid, signal.SIGINT)

    assert train_pieces_apart(batches(), OPTIONS, tell=tell) == train_pieces(batches(), OPTIONS)


# Trains without end on what it is given.
ENDLESS = """
from model.text import vocabulary_training
train_pieces = vocabulary_training.train_pieces

def train_on(batches, options):
    batches = list(batches)
    while True:
        train_pieces(batches, options)

vocabulary_training.train_pieces = train_on
vocabulary_training.serve()
"""


def test_it_ends_with_the_process_that_began_it(tmp_path):
    command = [sys.executable, "-c", ENDLESS]
    pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with (tmp_path / "result").open("wb") as result:
        child = subprocess.Popen(command, stdout=result, env=environment, **pipes)
    try:
        vocabulary_training._feed(child, batches(60_000), OPTIONS)
        time.sleep(0.3)
        assert alive(child)
        child.stdin.close()  # as the system does where that process was killed
        assert child.wait(30) == 1
    finally:
        child.kill()  # unless it has ended
    assert (tmp_path / "result").read_bytes() == b""
