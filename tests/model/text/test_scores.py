"""Paired tests of two systems, compared with the command line of sacreBLEU."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys

import pytest

from tt.model.errors import UserError
from tt.model.text.scores import compare_systems

ROW = re.compile(r"([\d.]+)(?: \(([\d.]+) ± ([\d.]+)\))?(?: \(p = ([\d.]+)\)\*?)?")
LETTERS = "abcdefghijkl"


def worsened(text, *, share, draw):
    """Return a text without a share of its words."""
    return " ".join(word for word in text.split() if draw.random() > share) or "nothing"


@pytest.fixture
def systems(tmp_path, monkeypatch):
    """Return references, a system and a slightly better baseline, which are also files."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    draw = random.Random(3)
    references = [" ".join(draw.choices(LETTERS, k=draw.randint(3, 20))) for _ in range(60)]
    system = [worsened(text, share=0.20, draw=draw) for text in references]
    baseline = [worsened(text, share=0.16, draw=draw) for text in references]
    for name, texts in (("ref", references), ("system", system), ("baseline", baseline)):
        (tmp_path / name).write_text("".join(f"{text}\n" for text in texts))
    return [references], system, baseline


def by_sacrebleu(*flags, seed=None):
    """Return the rows of sacreBLEU's table: score, mean, interval and p-value of both metrics."""
    environment = os.environ | {"NO_COLOR": "1"} | ({"SACREBLEU_SEED": str(seed)} if seed else {})
    words = [sys.executable, "-m", "sacrebleu", "ref", "-i", "baseline", "system"]
    done = subprocess.run(
        [*words, "-m", "bleu", "chrf", "-w", "6", "-f", "latex", *flags],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [line.split("&")[1:] for line in done.stdout.splitlines() if " & " in line]
    numbers = [[ROW.search(cell).groups() for cell in cells] for cells in rows[1:]]
    signatures = re.findall(r"^ - (?:BLEU|chrF2) +(\S+)$", done.stdout, re.MULTILINE)
    return numbers, signatures


def shown(estimate, p_value=None):
    """Return the numbers of an estimate as sacreBLEU's table shows them."""
    numbers = [f"{each:.6f}" if each is not None else None for each in estimate]
    return (*numbers, None if p_value is None else f"{p_value:.4f}")


@pytest.mark.parametrize(
    ("test", "samples", "seed", "flags"),
    [
        ("bootstrap", 300, 7, ("--paired-bs", "--paired-bs-n", "300")),
        ("randomization", None, None, ("--paired-ar",)),
    ],
)
def test_paired_tests_equal_those_of_the_command_line(systems, test, samples, seed, flags):
    references, system, baseline = systems
    given = {"seed": seed} if seed else {}
    found = compare_systems(system, baseline, references, test=test, samples=samples, **given)
    (of_baseline, of_system), signatures = by_sacrebleu(*flags, seed=seed)
    assert [each.metric for each in found] == ["BLEU", "chrF2"]
    assert [shown(each.baseline) for each in found] == of_baseline
    assert [shown(each.system, each.p_value) for each in found] == of_system
    assert [each.signature for each in found] == signatures
    assert 0.001 < found[0].p_value < 0.99, "the example must not be trivial"
    assert (found[0].system.mean is None) == (test == "randomization")


def test_seed_changes_only_the_samples_and_leaves_the_environment(systems, monkeypatch):
    references, system, baseline = systems
    first, again, other = (
        compare_systems(system, baseline, references, samples=100, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first[0].system.score == other[0].system.score
    assert first[0].system.mean != other[0].system.mean
    assert "SACREBLEU_SEED" not in os.environ
    monkeypatch.setenv("SACREBLEU_SEED", "5")
    assert compare_systems(system, baseline, references, samples=100, seed=1) == first
    assert os.environ["SACREBLEU_SEED"] == "5"


def test_too_many_samples_are_refused(systems):
    references, system, baseline = systems
    with pytest.raises(UserError, match=r"`samples=100000000000`\. Choose fewer `samples`"):
        compare_systems(system, baseline, references, samples=10**11)
