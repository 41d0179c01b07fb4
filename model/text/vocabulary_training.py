"""SentencePiece trained, in a process of its own where that is to say how far it is.

The trainer tells it on file descriptor 2 alone, which all threads of a process share: who turns it
away, as the trainer's own `logstream` does, also takes the messages of the others, and a notebook
has none to turn away.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import json
import math
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any

import sentencepiece

from model.errors import UserError

# What the trainer raises where options and texts do not go together.
REFUSALS = (RuntimeError, ValueError, TypeError, OverflowError)

Child = subprocess.Popen[bytes]

_TALKATIVE, _QUIET = 0, 2  # log levels: all, and errors
_END = None  # stands behind all batches
_FACTOR_OF_A_ROUND = 0.75  # the trainer's default, as is the number of steps of a round
_LAST_STEP = 1
_FACTOR_OF_THE_END = 1.1  # of the wanted size: at this the rounds end, and the rest is cut off
_NEXT_ROUND = 0.9  # of the time of the one before, about, as measured
_LAST_WORDS = 2000  # characters of a log that a message quotes


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainingStage:
    """How far the training of a unigram model is."""

    rounds: int  # done
    of: int  # rounds in all
    seconds_left: float  # about

    @classmethod
    def from_json(cls, text: bytes) -> TrainingStage:
        """Reads what `dataclasses.asdict` gave.

        Raises:
          ValueError: It is something else.
        """
        try:
            return cls(**json.loads(text))
        except TypeError as error:
            raise ValueError(f"no stage of a training: {error}") from error


class LogReader:
    """Tells how far the training of a unigram model is by the lines of its log.

    The model begins with all frequent substrings and loses a quarter of its pieces in each round
    (Kudo 2018, section 3.2), so that the rounds left are known. How long the search for substrings
    takes is not known.
    """

    def __init__(self, *, size: int) -> None:
        self._end = int(_FACTOR_OF_THE_END * size)
        self._rounds = 0
        self._began = 0.0  # the round

    def read(self, line: str, *, now: float) -> TrainingStage | None:
        """Reads a line, at a time in seconds; returns how far the training is at a round's end."""
        if re.search(r"Using \d+ sentences for EM training", line):
            self._began = now
        found = re.search(r"EM sub_iter=(\d+) size=(\d+)", line)
        if found is None or int(found[1]) != _LAST_STEP:
            return None
        self._rounds += 1
        left = count_rounds(int(found[2]), end=self._end)
        times = sum(_NEXT_ROUND**number for number in range(1, left + 1))
        seconds, self._began = times * (now - self._began), now
        return TrainingStage(rounds=self._rounds, of=self._rounds + left, seconds_left=seconds)


def count_rounds(size: int, *, end: int) -> int:
    """Returns the rounds that are left to a unigram model of so many pieces.

    >>> count_rounds(1000, end=500), count_rounds(500, end=500)  # 1000, 750, 562.5
    (2, 0)
    """
    if size <= end:
        return 0
    return int(math.log(end / size) / math.log(_FACTOR_OF_A_ROUND))


def train_pieces(batches: Iterable[list[str]], options: Mapping[str, Any]) -> bytes:
    """Trains a SentencePiece model on batches of lines; returns the bytes of its file.

    Raises:
      RuntimeError, ValueError, TypeError, OverflowError: See `REFUSALS`.
    """
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(line for batch in batches for line in batch),
        model_writer=model,
        **{"minloglevel": _QUIET, **options},
    )
    return model.getvalue()


def train_pieces_apart(
    batches: Iterable[list[str]],
    options: Mapping[str, Any],
    *,
    tell: Callable[[TrainingStage], object],
) -> bytes:
    """Trains as `train_pieces` does, to the same bytes, in another process; tells how far it is.

    Raises:
      RuntimeError: The options and the texts do not go together, as `REFUSALS` of `train_pieces`.
      UserError: The system has ended the process.
      ChildProcessError: The process has failed by itself.
    """
    with tempfile.TemporaryFile() as result, _start(result) as child:
        with ThreadPoolExecutor(1, "vocabulary") as pool:
            try:
                fed = pool.submit(_feed, child, batches, options)
                said = _follow(child, LogReader(size=options["vocab_size"]), tell)
            finally:
                child.kill()  # unless it has ended
        with contextlib.suppress(BrokenPipeError):
            _input_of(child).close()  # what it did not read is still to be written
        fed.result()
        if child.returncode < 0:
            raise UserError(
                f"the training of a vocabulary was ended by signal {-child.returncode}: if memory "
                "ran out, pass a smaller `vocabulary_sample`"
            )
        if child.returncode:
            raise ChildProcessError(f"training a vocabulary ended with an error: {said}")
        result.seek(0)
        found = pickle.load(result)
    if isinstance(found, Exception):
        raise found
    return bytes(found)


def _start(result: IO[bytes]) -> Child:
    # The folder of this package may be on the path as "", the current one, alone.
    own = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([*filter(None, sys.path), own]))
    return subprocess.Popen(
        # -P: what lies in the current folder is none of Python's.
        [sys.executable, "-P", "-c", f"import {__name__} as training; training.serve()"],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE, stdout=result, stderr=subprocess.PIPE,
    )  # fmt: skip


def _feed(child: Child, batches: Iterable[list[str]], options: Mapping[str, Any]) -> None:
    """Gives the other process its work, and leaves the pipe open: it ends where that is closed."""
    given = _input_of(child)
    try:
        for each in itertools.chain([dict(options)], batches, [_END]):
            pickle.dump(each, given)
        given.flush()
    except BrokenPipeError:  # it has ended, and its exit code says why
        pass
    except BaseException:
        child.kill()
        raise


def _input_of(child: Child) -> IO[bytes]:
    assert child.stdin is not None
    return child.stdin


def _follow(child: Child, reader: LogReader, tell: Callable[[TrainingStage], object]) -> str:
    """Tells how far the other process is until it ends; returns the end of its log."""
    assert child.stderr is not None
    said = ""
    for line in io.TextIOWrapper(child.stderr, "utf-8", errors="replace"):
        said = (said + line)[-_LAST_WORDS:]
        if stage := reader.read(line, now=time.monotonic()):
            tell(stage)
    child.wait()
    return said


def serve() -> None:
    """Trains in the other process: options and lines come by the standard input."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that has begun this
    given = sys.stdin.buffer
    options = {**pickle.load(given), "minloglevel": _TALKATIVE}
    found: bytes | Exception
    try:
        found = train_pieces(_take(given), options)
    except REFUSALS as error:
        found = RuntimeError(str(error))
    with open(sys.stdout.fileno(), "wb", closefd=False) as result:
        pickle.dump(found, result)
    os._exit(0)  # without waiting for the thread that reads


def _take(given: IO[bytes]) -> Iterator[list[str]]:
    while (batch := pickle.load(given)) is not _END:
        yield batch
    threading.Thread(target=_end_with_giver, args=(given.fileno(),), daemon=True).start()


def _end_with_giver(given: int) -> None:
    """Ends this process when nobody is left who waits for it: one that was killed, say."""
    os.read(given, 1)
    os._exit(1)
