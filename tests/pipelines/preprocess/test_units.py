"""Tests of how sources are cut into units."""

import threading

import pytest

from tt.model.dataset.tfrecords import one_ahead


def test_one_table_is_read_while_another_is_worked_on_and_no_more():
    read, is_read = [], threading.Semaphore(0)

    def tables():
        for number in range(4):
            read.append(number)
            is_read.release()
            yield number, f"table {number}"

    found = one_ahead(tables())
    assert next(found) == (0, "table 0")
    for _ in range(2):
        assert is_read.acquire(timeout=10), "the next is read meanwhile"
    assert read == [0, 1]
    assert list(found) == [(number, f"table {number}") for number in range(1, 4)]


def test_what_reading_raises_is_raised_behind_what_was_read_before():
    def tables():
        yield 0, "first"
        raise OSError("gone")

    found = one_ahead(tables())
    assert next(found) == (0, "first")
    with pytest.raises(OSError, match="gone"):
        next(found)


def test_whoever_stops_early_leaves_no_thread():
    before = threading.active_count()
    found = one_ahead((number, "table") for number in range(4))
    next(found)
    found.close()
    assert threading.active_count() == before
