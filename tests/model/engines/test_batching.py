"""Batches of rows: their shapes, the order of results, and lack of memory."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tt.model.engines import batching
from tt.model.engines.batching import TokenBudget, count_work, pad, translate_in_batches
from tt.model.engines.translator import Work
from tt.model.errors import UserError
from tt.model.text.vocabulary import PAD_ID

ROWS = st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=30), max_size=40)


class Machine:
    """Reverses the rows of a batch and records its shape.

    A batch with more than `fits` padded positions raises a MemoryError.
    """

    def __init__(self, fits):
        self.fits = fits
        self.shapes = []

    def __call__(self, rows):
        longest = max(map(len, rows))
        self.shapes.append((len(rows), longest))
        if len(rows) * longest > self.fits:
            raise MemoryError("too large")
        return [row[::-1] for row in rows], count_work(rows, target_tokens=len(rows))


def run(rows, machine, budget):
    return translate_in_batches(
        rows,
        budget=budget,
        translate_batch=machine,
        is_memory_error=lambda error: isinstance(error, MemoryError),
    )


@given(rows=ROWS, tokens=st.integers(1, 200))
def test_each_row_is_in_one_batch_within_the_budget(rows, tokens):
    machine = Machine(fits=10**6)
    found, work = run(rows, machine, TokenBudget(tokens))
    assert found == [row[::-1] for row in rows]
    assert sum(count for count, _ in machine.shapes) == len(rows)
    assert all(count == 1 or count * longest <= tokens for count, longest in machine.shapes)
    lengths = [longest for _, longest in machine.shapes]
    assert lengths == sorted(lengths, reverse=True)
    assert work == Work(
        sources=len(rows),
        source_tokens=sum(map(len, rows)),
        padded_tokens=sum(count * longest for count, longest in machine.shapes),
        target_tokens=len(rows),
    )


@given(rows=ROWS, tokens=st.integers(30, 400), fits=st.integers(30, 100))
def test_lack_of_memory_shrinks_the_budget_without_changing_results(rows, tokens, fits):
    machine, budget = Machine(fits), TokenBudget(tokens)
    found, work = run(rows, machine, budget)
    assert found == [row[::-1] for row in rows]
    failed = sum(count * longest > fits for count, longest in machine.shapes)
    assert work.memory_backoffs == failed
    assert work.sources == len(rows)
    again, work = run(rows, machine, budget)
    assert again == found
    assert work.memory_backoffs == 0


@pytest.mark.parametrize("count", [1500, 8192])
def test_large_batches_have_at_most_a_tenth_of_padding(count):
    lengths = np.random.default_rng(1).gamma(1.2, 14, count).astype(int) + 3
    shares = []

    def note(rows):
        work = count_work(rows, target_tokens=0)
        if work.padded_tokens > 2048:
            shares.append(1 - work.source_tokens / work.padded_tokens)
        return rows, work

    run([[7] * length for length in lengths], note, TokenBudget(8192))
    assert shares
    assert max(shares) <= 0.1
    assert len(shares) <= sum(lengths) / 8192 + 12, "there are too many small batches"


def test_small_batches_are_not_cut_because_of_padding():
    machine = Machine(fits=10**6)
    run([[7] * length for length in range(1, 41)], machine, TokenBudget(8192))
    assert machine.shapes == [(40, 40)]


def test_batch_beyond_the_memory_is_halved():
    machine, budget = Machine(fits=25), TokenBudget(80)
    _, work = run([[7] * 10] * 8, machine, budget)
    assert machine.shapes == [(8, 10), (4, 10), (2, 10), (2, 10), (2, 10), (2, 10)]
    assert (work.memory_backoffs, budget.tokens) == (2, 20)


def test_a_process_warns_once_which_batch_fits(monkeypatch, caplog):
    monkeypatch.setattr(batching, "_may_warn", threading.Semaphore(1))
    run([[7] * 10] * 8, Machine(fits=25), TokenBudget(320, beam_size=4))
    run([[7] * 10] * 8, Machine(fits=25), TokenBudget(320, beam_size=4))
    [line] = [record.getMessage() for record in caplog.records]
    assert line.endswith("Next time, set `batch_tokens=80`, which fits")
    _, work = run([[7] * 10] * 8, Machine(fits=25), TokenBudget(80, beam_size=4))
    assert work.memory_backoffs == 0


def test_nothing_is_advised_if_the_size_of_batches_is_no_option(monkeypatch, caplog):
    monkeypatch.setattr(batching, "_may_warn", threading.Semaphore(1))
    run([[7] * 10] * 8, Machine(fits=25), TokenBudget(80, is_option=False))
    assert caplog.text == ""
    with pytest.raises(MemoryError, match="too large"):
        run([[7] * 26], Machine(fits=25), TokenBudget(80, is_option=False))


def test_row_beyond_the_memory_is_an_error():
    machine, budget = Machine(fits=25), TokenBudget(80)
    with pytest.raises(UserError, match=r"single source of 26 tokens\. .*lower `beam_size`"):
        run([[7] * 26, [7] * 5], machine, budget)
    assert machine.shapes == [(2, 26), (1, 26)]
    assert budget.tokens == 26


def test_other_errors_are_not_retried():
    calls = []

    def fail(rows):
        calls.append(rows)
        raise ValueError("no such id")

    with pytest.raises(ValueError, match="no such id"):
        run([[7], [8]], fail, TokenBudget(80))
    assert len(calls) == 1


def test_threads_that_fail_together_halve_the_budget_once():
    budget = TokenBudget(80)
    both_failed = threading.Barrier(2)

    class OneMachine(Machine):
        def __call__(self, rows):
            if len(rows) == 8:
                both_failed.wait(timeout=60)
            return super().__call__(rows)

    machine = OneMachine(fits=40)
    threads = [threading.Thread(target=run, args=([[7] * 10] * 8, machine, budget)) for _ in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert budget.tokens == 40
    assert sorted(machine.shapes) == [(4, 10)] * 4 + [(8, 10)] * 2


@given(st.lists(st.lists(st.integers(1, 99), min_size=1, max_size=9), min_size=1, max_size=9))
def test_pad_keeps_the_rows(rows):
    padded = pad(rows)
    assert padded.dtype == np.int32
    assert [[i for i in row if i != PAD_ID] for row in padded.tolist()] == rows
