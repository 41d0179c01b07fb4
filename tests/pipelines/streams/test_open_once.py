"""What is open once in a process."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from pipelines.streams.open_once import OpenOnce


def test_threads_that_ask_at_once_get_the_same():
    made = []
    both = threading.Barrier(8, timeout=10)
    opened = OpenOnce(lambda key: made.append(key) or object())

    def find(_):
        both.wait()
        return opened.find("a")

    with ThreadPoolExecutor(8) as threads:
        found = set(threads.map(find, range(8)))
    assert len(found) == 1
    assert made == ["a"]


def test_what_is_taken_is_opened_anew():
    opened = OpenOnce(lambda key: [key])
    first = opened.find("a")
    assert opened.take("a") is first
    assert opened.take("a") is None
    assert opened.find("a") is not first


def test_what_does_not_open_is_tried_again():
    answers = iter([KeyError("no"), None])

    def make(key):
        if error := next(answers):
            raise error
        return key

    opened = OpenOnce(make)
    with pytest.raises(KeyError):
        opened.find("a")
    assert opened.find("a") == "a"
