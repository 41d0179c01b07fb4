"""Why a training stops early: signals, and what cannot go on."""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from model.dataset.batches import Batch
from model.dataset.manifest import TRAIN
from model.errors import UserError, counted, first_line
from model.folders.remote import write_text
from model.training.run_folder import RunFolder
from model.training.saving import RunSaver
from model.training.splits import TrainingDataset
from model.training.state import TrainedBatch
from model.training.step import StepResult
from model.training.strategies import Workers

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ACTION_BYTES = 1024  # more than any system's `struct sigaction` has
_SHOWN = 5  # records of many


class Terminated(Exception):  # noqa: N818 (it is no error)
    """The run was told to stop, and is saved."""


class StopRequest:
    """Whether a run is to stop where it can go on later, and what said so."""

    def __init__(self) -> None:
        # number of the first signal that said so; None where no signal did
        self.signal: int | None = None
        self._made = threading.Event()

    def make(self, number: int | None = None) -> None:
        """Tells the run to stop; `number` is that of a signal."""
        if not self._made.is_set():
            self.signal = number
            self._made.set()

    def is_made(self) -> bool:
        """Says whether the run is to stop."""
        return self._made.is_set()

    def check(self, workers: Workers) -> None:
        """Raises `Terminated` if any worker is to stop; all must call this."""
        told: float = self.is_made()
        if workers.are_several:  # so all of them stop at the same place
            told = workers.sum(np.array([told]))[0]
        if told:
            raise Terminated

    @contextlib.contextmanager
    def from_signals(
        self, *, on_interrupt: Callable[[], None], on_second: Callable[[], None]
    ) -> Iterator[None]:
        """Treat SIGTERM and SIGINT as requests, if called in the main thread.

        Signals that this process ignores stay ignored, such as SIGINT in a background job. The
        handlers of all other signals work as before. `on_interrupt` is called at the first signal
        if it is SIGINT, and `on_second` at each later SIGINT. A thread calls them at once, because
        Python runs its own handlers only when TensorFlow returns.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def note(number: int, frame: Any) -> None:
            self.make(number)

        def watch() -> None:
            is_first = True
            while received := heard.recv(1):
                if received[0] not in taken:  # Python writes all signals that it handles
                    continue
                self.make(received[0])
                if received[0] == signal.SIGINT:
                    (on_interrupt if is_first else on_second)()
                is_first = False

        heard, told = socket.socketpair()
        told.setblocking(False)
        watcher = threading.Thread(target=watch, name="signals", daemon=True)
        taken = [number for number in _SIGNALS if signal.getsignal(number) != signal.SIG_IGN]
        actions = {number: _read_action(number) for number in taken}
        handlers = {number: signal.signal(number, note) for number in taken}
        descriptor = signal.set_wakeup_fd(told.fileno(), warn_on_full_buffer=False)
        watcher.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(descriptor)
            for number, handler in handlers.items():
                # Python has no object for a handler of another library: only the C library has it.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)
                _write_action(number, actions[number])
            told.close()
            watcher.join()
            heard.close()


def _read_action(number: int) -> Any:
    """Return the action of a signal as a `struct sigaction` of the C library."""
    action = ctypes.create_string_buffer(_ACTION_BYTES)
    _check(ctypes.CDLL(None, use_errno=True).sigaction(number, None, action))
    return action


def _write_action(number: int, action: Any) -> None:
    """Set the action of a signal to the result of `_read_action`."""
    _check(ctypes.CDLL(None, use_errno=True).sigaction(number, action, None))


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Failures:
    """The errors that end a training; each names the last good checkpoint.

    `not_finite.json` in the run folder lists the records of an update.
    """

    def __init__(self, run: RunFolder, *, data: TrainingDataset, saver: RunSaver) -> None:
        self._run = run
        self._data = data
        self._training = data.training
        self._saver = saver

    def not_finite_update(self, result: StepResult, trained: TrainedBatch) -> UserError:
        """Returns the error for a loss or gradient that is no number, with the records."""
        # They are read again: most of its batches may be forgotten, or from before a stop.
        before = itertools.takewhile(
            lambda batch: batch.start != trained.batch.start,
            self._data.batches(TRAIN).forever(trained.update_start),
        )
        return self._not_finite(
            f"loss is {result.sums.loss} and the gradient's norm {result.gradient_norm}",
            step=trained.step,
            remedy=f"{self._records([*before, trained.batch], trained.step)}: look at them, or",
        )

    def not_finite_validation(self, loss: float, step: int) -> UserError:
        """Returns the error for a validation whose loss is no number."""
        return self._not_finite(f"validation's loss is {loss}", step=step, remedy="To go on,")

    def out_of_memory_in_step(
        self, error: tf.errors.ResourceExhaustedError, *, batch: Batch, step: int
    ) -> UserError:
        """Returns the error for a device without memory to train on a batch."""
        training, replicas = self._training, self._data.replicas
        rows, source = batch.source.shape
        tokens = training.effective_batch_size or training.batch_tokens * replicas
        return self._out_of_memory(
            error,
            where=f"at step {step} of {training.steps}, in a batch of {rows} rows of {source} "
            f"source and {batch.target.shape[1]} target tokens, for {counted(replicas, 'replica')}",
            remedy=f"lower `batch_tokens` (received: {training.batch_tokens}) in a new `run`, with "
            f"`effective_batch_size` {tokens} if updates are to stay as large",
        )

    def out_of_memory_in_validation(
        self, error: tf.errors.ResourceExhaustedError, step: int
    ) -> UserError:
        """Returns the error for a device without memory to validate after a step."""
        return self._out_of_memory(
            error,
            where=f"in the validation at step {step}",
            remedy="leave its translations out with `score_every` 0; if that is not enough, lower "
            "`batch_tokens` in a new `run`",
        )

    def _not_finite(self, what: str, *, step: int, remedy: str) -> UserError:
        return UserError(
            f"the {what} at step {step} of {self._training.steps}, so training stopped (last good "
            f"checkpoint: {self._saver.last_good()}). {remedy} lower `peak_learning_rate`, raise "
            "`warmup_steps` or set `clip_norm`, in a new `run`"
        )

    def _records(self, batches: Sequence[Batch], step: int) -> str:
        """Lists the records of an update in the run folder; returns a sentence about them."""
        start = batches[0].start
        records = [record for batch in batches for record in batch.records]
        path = self._run.inside("not_finite.json")
        if self._saver.writes:
            details = {"step": step, "position": start._asdict(), "records": records}
            try:
                with self._run.errors():
                    write_text(path, json.dumps(details) + "\n")
            except UserError as error:
                path = f"a list that could not be written ({error})"
        shown = ", ".join(f"{Path(shard).name}:{number}" for shard, number in records[:_SHOWN])
        read = "1 batch" if len(batches) == 1 else f"{len(batches):,} batches"
        return (
            f"The update read {read}, from number {start.batch} of window "
            f"{start.window} of epoch {start.epoch} on: records {shown} and "
            f"{max(0, len(records) - _SHOWN)} more, all in {path}"
        )

    def _out_of_memory(
        self, error: tf.errors.ResourceExhaustedError, *, where: str, remedy: str
    ) -> UserError:
        return UserError(
            f"out of memory {where} ({_reason(error)}; last good checkpoint: "
            f"{self._saver.last_good()}): {remedy}"
        )


def out_of_memory_for_model(error: tf.errors.ResourceExhaustedError) -> UserError:
    """Returns the error for a device without memory for the weights."""
    return UserError(
        f"out of memory for the model itself ({_reason(error)}): make it smaller by `preset`, "
        "`layers`, `d_model` or `d_ff`, or its vocabulary by `tt preprocess --vocabulary-size`"
    )


def _reason(error: tf.errors.ResourceExhaustedError) -> str:
    lines = str(error.message).splitlines()
    # What comes before is the place in our code.
    found = next((line[line.index("OOM") :] for line in lines if "OOM" in line), None)
    found = found or first_line(error.message or error)
    return found.split(" [Op:")[0]
