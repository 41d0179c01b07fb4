"""Tables are read ahead by one while a source is cut into units."""

import threading

import pytest

from tt.model.dataset.tfrecords import one_ahead


def test_exactly_one_table_is_read_ahead():
    read, is_read = [], threading.Semaphore(0)

    def tables():
        for number in range(4):
            read.append(number)
            is_read.release()
            yield number, f"table {number}"

    found = one_ahead(tables())
    assert next(found) == (0, "table 0")
    for _ in range(2):
        assert is_read.acquire(timeout=10), "the next table is read ahead"
    assert read == [0, 1]
    assert list(found) == [(number, f"table {number}") for number in range(1, 4)]


def test_reading_error_is_raised_after_the_earlier_tables():
    def tables():
        yield 0, "first"
        raise OSError("gone")

    found = one_ahead(tables())
    assert next(found) == (0, "first")
    with pytest.raises(OSError, match="gone"):
        next(found)


def test_closed_reader_leaves_no_thread():
    before = threading.active_count()
    found = one_ahead((number, "table") for number in range(4))
    next(found)
    found.close()
    assert threading.active_count() == before
