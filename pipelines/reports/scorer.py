"""Score translations with a program in another environment, such as COMET or MetricX.

`tt` starts the program and writes one JSON object per row to its stdin. The program writes one
JSON object `{"score": 0.5}` per row to its stdout, in the same order, and exits at the end of its
input. If the program crashes, `tt` starts it again for the rows that have no score yet.
"""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from typing import IO, NamedTuple

from tt.model.errors import UserError, counted
from tt.model.long_work import Work, call_in_thread, long_work
from tt.pipelines.reports.requests import split_command
from tt.pipelines.runners.formatting import as_read

MOST_RESTARTS = 3  # maximum number of restarts without a new score
_SHOWN = 80  # characters of a wrong line in a message
_STDERR_END = 4096  # bytes at the end of stderr that contain the last line


class ScorerRow(NamedTuple):
    """A row for a scorer."""

    place: str  # such as "row 5 of a.de", for messages
    texts: dict[str, str]  # "translation" and, if known, "source" and "reference"


class ScorerResult(NamedTuple):
    """The result of a scorer."""

    scores: list[float]  # one per row
    restarts: int


def score_rows(command: str, rows: Sequence[ScorerRow]) -> ScorerResult:
    """Start a scorer, and return its score for each row.

    Raises:
      UserError: The command cannot be started, crashes again and again at the same row, or does
        not print one finite score per row.
    """
    words = split_command(command)
    scores: list[float] = []
    crashes = restarts = 0  # crashes since the last new score
    with long_work("scoring with the scorer", total=len(rows), unit="rows") as work:
        while len(scores) < len(rows):
            before = len(scores)
            code, last_line = _run(words, rows, scores, work=work)
            if len(scores) == len(rows):
                break
            place = rows[len(scores)].place
            if code == 0:
                raise UserError(
                    f"the scorer {words[0]} ended after {len(scores):,} of "
                    f"{counted(len(rows), 'score')}; the next is for {place}. Let it print one "
                    "score per row"
                )
            crashes = 1 if len(scores) > before else crashes + 1
            if crashes > MOST_RESTARTS:
                kind = f"signal {-code}" if code < 0 else f"exit code {code}"
                raise UserError(
                    f"the scorer {words[0]} crashed {crashes} times before its score for {place}, "
                    f"with {kind} ({last_line}). Fix the scorer"
                )
            restarts += 1
    return ScorerResult(scores, restarts)


def _run(
    words: Sequence[str], rows: Sequence[ScorerRow], scores: list[float], *, work: Work
) -> tuple[int, str]:
    """Run a scorer for the rows without a score, and append the new scores.

    Returns:
      The exit code, which is -N after signal N, and the last line of stderr.
    """
    # A file takes any amount of stderr, but a pipe would block the scorer when it is full.
    with tempfile.TemporaryFile() as stderr:
        try:
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr
            )
        except (OSError, ValueError) as error:  # ValueError for a null character
            reason = getattr(error, "strerror", None) or error
            raise UserError(
                f"the scorer {words[0]} cannot be started: {reason}. Check the command in `scorer`"
            ) from error
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            # A thread writes the rows, because the scorer may wait for a reader of its scores.
            stdin, waiting = process.stdin, rows[len(scores) :]
            writer = call_in_thread(lambda: _write(stdin, waiting), name="scorer-input")
            cut_line = _read(process.stdout, rows, scores, work=work)
            code = process.wait()
            if cut_line and code == 0:  # After a crash, a line without its end is incomplete.
                _add(cut_line, rows, scores, work=work)
            writer.result()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        return code, _last_line(stderr)


def _write(stdin: IO[bytes], rows: Iterable[ScorerRow]) -> None:
    # If the scorer has ended, its missing scores are reported instead.
    with contextlib.suppress(BrokenPipeError), stdin:
        for row in rows:
            stdin.write(json.dumps(row.texts).encode() + b"\n")


def _read(
    stdout: IO[bytes], rows: Sequence[ScorerRow], scores: list[float], *, work: Work
) -> bytes:
    """Append the scores of complete lines, and return the last line if it is not complete."""
    for line in stdout:
        if not line.endswith(b"\n"):
            return line
        _add(line, rows, scores, work=work)
    return b""


def _add(line: bytes, rows: Sequence[ScorerRow], scores: list[float], *, work: Work) -> None:
    shown = as_read(line.decode(errors="replace").strip()[:_SHOWN])
    if len(scores) == len(rows):
        raise UserError(
            f"the scorer printed more than {counted(len(rows), 'score')}: {shown}. Let it "
            "print one score per row to stdout, and other output to stderr"
        )
    place = rows[len(scores)].place
    try:
        # As a float, an integer of any size is either exact enough or infinite.
        found = json.loads(line, parse_int=float)
    except (ValueError, RecursionError):
        found = None
    score = found.get("score") if isinstance(found, dict) else None
    if not isinstance(score, float):
        raise UserError(
            f"the scorer printed {shown or 'an empty line'} instead of a score for {place}. Let "
            'it print lines such as {"score": 0.5} to stdout, and other output to stderr'
        )
    if not math.isfinite(score * len(rows)):  # the mean must be finite, too
        raise UserError(
            f"the score for {place} is not finite, or too large: {shown}. Fix the scorer"
        )
    scores.append(score)
    work.add(1)


def _last_line(stderr: IO[bytes]) -> str:
    stderr.seek(max(0, stderr.seek(0, 2) - _STDERR_END))
    lines = [line.strip() for line in stderr.read().decode(errors="replace").splitlines()]
    return as_read(next(filter(None, reversed(lines)), "nothing on stderr"))
