"""The reports of a training: progress and validations, in `train.jsonl` and TensorBoard."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.errors import UserError
from tt.model.remote_files import read_text, write_text
from tt.model.training.run_folder import LOG_FILE, TENSORBOARD_FOLDER, RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """The updates since the last report, by their real tokens."""

    step: int  # updates done
    steps: int  # updates in all
    epoch: int  # passes over the data done
    loss: float  # what is minimised: mean cross-entropy of a target token, smoothed, in nats
    nll: float  # mean negative log-likelihood of a target token in nats, without smoothing
    perplexity: float  # exp of `nll`
    accuracy: float  # share of target tokens whose logit is the greatest
    learning_rate: float  # of the last update
    gradient_norm: float  # mean global norm of the updates' gradients, before clipping
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float  # share of the positions of both sides
    seconds_left: float  # to the last update, at the speed since the last report


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """The validation split under the weights of a step, with loss to accuracy as in `Progress`."""

    step: int
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    bleu: float | None = None  # of greedy translations, 0 to 100; None where nothing is translated
    chrf: float | None = None  # the same
    bleu_signature: str = ""  # sacreBLEU's
    chrf_signature: str = ""
    # Quantiles of the log-probability of a token in those translations, by their names.
    token_scores: dict[str, float] | None = None
    # The first sentences: "source", "reference" and the "translation" under these weights.
    samples: list[dict[str, str]] | None = None
    is_best: bool = False  # better than every one before, by the run's metric


Report = Callable[[Progress | Validation], None]


def read_log_lines(text: str, *, path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields the whole lines of a log, each with what it says.

    Args:
      text: The log's content; a last line without its end is being written, and left out.
      path: What messages call the log.

    Raises:
      UserError: A line is damaged.
    """
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            continue
        try:
            values = json.loads(line)
            if not isinstance(values["kind"], str) or not isinstance(values["step"], int):
                raise ValueError(values)
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"line {number} of {path} is damaged ({error!r}): delete that line, or the file"
            ) from error
        yield line, values


class RunLog:
    """`train.jsonl`: a JSON object per line, with "step", "kind" and the measured values."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> list[dict[str, Any]]:
        """Return the values of all lines but a last line that was cut off.

        Raises:
          UserError: A line is damaged.
        """
        return [values for _, values in self._lines()]

    def token_scores(self, *, step: int) -> dict[str, float]:
        """Return the token scores of the last validation up to a step; {} if none translated.

        Raises:
          UserError: A line is damaged.
        """
        lines = [values for values in self.read() if values["step"] <= step]
        found = [values["token_scores"] for values in lines if "token_scores" in values]
        return dict(found[-1]) if found else {}

    def keep_until(self, *, step: int, validated: int) -> float:
        """Drop the lines of later steps and validations; return the seconds up to the last line."""
        kept = [
            (line, values)
            for line, values in self._lines()
            if values["step"] <= (validated if values["kind"] == "validation" else step)
        ]
        if tf.io.gfile.exists(self._path):
            write_text(self._path, "".join(line for line, _ in kept))
        return float(max((values.get("seconds", 0.0) for _, values in kept), default=0.0))

    def write(self, **values: Any) -> None:
        """Append a line."""
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(values) + "\n")

    def _lines(self) -> list[tuple[str, dict[str, Any]]]:
        if not tf.io.gfile.exists(self._path):
            return []
        return list(read_log_lines(read_text(self._path), path=self._path))


class Reporter:
    """Writes reports into a run folder and passes them on to the caller's `report`.

    It drops the lines of updates after `step` and of validations after `validated`. Seconds
    continue from the last line that stays, so pauses and repeated updates do not count.
    """

    def __init__(self, run: RunFolder, *, step: int, validated: int, report: Report) -> None:
        self._run, self._step, self._report = run, step, report
        self._log = RunLog(run.inside(LOG_FILE))
        with run.errors():
            earlier = self._log.keep_until(step=step, validated=validated)
            self._start = time.monotonic() - earlier
            self._writer = tf.summary.create_file_writer(run.inside(TENSORBOARD_FOLDER))

    def begin(self, **values: Any) -> None:
        """Write the line of a command that trains, with `values` that describe it."""
        now = round(time.time(), 3)
        with self._run.errors():
            self._log.write(
                kind="start", step=self._step, time=now, seconds=self._seconds(), **values
            )

    def _seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)

    def tell(self, what: Progress | Validation) -> None:
        """Pass a report on to the log, TensorBoard and the caller."""
        kind = "validation" if isinstance(what, Validation) else "train"
        values = {k: v for k, v in dataclasses.asdict(what).items() if v not in (None, "")}
        with self._run.errors():
            self._log.write(kind=kind, **values, seconds=self._seconds())
            with self._writer.as_default(what.step):
                for name, value in values.items():
                    if isinstance(value, float):
                        tf.summary.scalar(f"{kind}/{name}", value)
            self._writer.flush()
        self._report(what)

    def show(self, name: str, images: list[np.ndarray], *, step: int) -> None:
        """Write images, uint8 [height, width, 3] each, to TensorBoard."""
        with self._run.errors():
            with self._writer.as_default(step):
                for i, image in enumerate(images):
                    tf.summary.image(f"{name}/layer_{i}", image[None])
            self._writer.flush()

    def close(self) -> None:
        """Close TensorBoard's file."""
        self._writer.close()
