"""Signals that stop a training, and signals that the user's program handles."""

from __future__ import annotations

import contextlib
import signal
import threading

import pytest

from tt.model.training.stops import StopRequest


@contextlib.contextmanager
def handled(number, handler):
    before = signal.signal(number, handler)
    try:
        yield
    finally:
        signal.signal(number, before)


class Calls:
    """Counts calls, and lets a test wait for them."""

    def __init__(self):
        self._made = threading.Semaphore(0)

    def __call__(self):
        self._made.release()

    def wait(self):
        assert self._made.acquire(timeout=60)

    def are_none(self):
        return not self._made.acquire(blocking=False)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGALRM, signal.SIGCHLD])
def test_other_signals_do_not_stop_a_training(number):
    received, stop, interrupts, seconds = [], StopRequest(), Calls(), Calls()
    with (
        handled(number, lambda found, frame: received.append(found)),
        stop.from_signals(on_interrupt=interrupts, on_second=seconds),
    ):
        signal.raise_signal(number)
        assert received == [number]
        # The thread reads signals in order, so it has read the first one when it reads SIGINT.
        signal.raise_signal(signal.SIGINT)
        interrupts.wait()
        assert stop.signal == signal.SIGINT
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGINT)
        seconds.wait()
    assert interrupts.are_none()
    assert seconds.are_none()


def test_sigterm_requests_a_stop_and_the_old_handler_is_restored():
    received, stop = [], StopRequest()

    def handler(number, frame):
        received.append(number)

    with handled(signal.SIGTERM, handler):
        with stop.from_signals(on_interrupt=Calls(), on_second=Calls()):
            signal.raise_signal(signal.SIGTERM)
            assert stop.is_made()
            assert received == []
        assert signal.getsignal(signal.SIGTERM) is handler
        signal.raise_signal(signal.SIGTERM)
        assert received == [signal.SIGTERM]


def test_ignored_signal_stays_ignored():
    stop = StopRequest()
    with handled(signal.SIGINT, signal.SIG_IGN):
        with stop.from_signals(on_interrupt=Calls(), on_second=Calls()):
            signal.raise_signal(signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    assert not stop.is_made()
