"""Progress and validation reports of a training, in `train.jsonl` and TensorBoard."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tt.model.errors import UserError
from tt.model.json_files import parse_fields, parse_json
from tt.model.storage import files, listing
from tt.model.storage.paths import is_local
from tt.model.training.run_folder import LOG_FILE, TENSORBOARD_FOLDER, RunFolder


@dataclasses.dataclass(frozen=True, kw_only=True)
class Progress:
    """A report on the updates since the last report; padding does not count as tokens."""

    step: int  # number of updates so far
    steps: int  # number of updates in the whole run
    epoch: int  # number of finished passes over the data
    loss: float  # minimized loss: mean label-smoothed cross-entropy per target token, in nats
    nll: float  # mean negative log-likelihood per target token in nats, without smoothing
    perplexity: float  # exp of `nll`
    accuracy: float  # share of target tokens that have the greatest logit
    learning_rate: float  # learning rate of the last update
    gradient_norm: float  # global norm of the gradients before clipping, averaged over the updates
    source_tokens_per_second: float
    target_tokens_per_second: float
    padding: float  # share of padding in the positions of both sides
    seconds_left: float  # estimated seconds to the last update, at the speed of these updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Validation:
    """A report on the validation split; `loss` to `accuracy` are defined as in `Progress`."""

    step: int  # number of updates before the validation
    loss: float
    nll: float
    perplexity: float
    accuracy: float
    # Scores of the greedy translations, 0 to 100; None if the validation translates nothing.
    bleu: float | None = None
    chrf: float | None = None
    bleu_signature: str = ""  # signature from sacreBLEU
    chrf_signature: str = ""
    # Quantiles of the translations' mean log-probabilities per token, by the quantile's name.
    token_scores: dict[str, float] | None = None
    # The first sentences of the split: "source", "reference" and "translation".
    samples: list[dict[str, str]] | None = None
    is_best: bool = False  # whether it is better than all earlier ones by the run's metric


@dataclasses.dataclass(frozen=True)
class _Line:
    """The values of a log line that have these types; all other values are numbers."""

    kind: str
    step: int
    command: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    machine: dict[str, Any] = dataclasses.field(default_factory=dict)
    bleu_signature: str = ""
    chrf_signature: str = ""
    token_scores: dict[str, float] = dataclasses.field(default_factory=dict)
    samples: list[dict[str, str]] = dataclasses.field(default_factory=list)


_NOT_NUMBERS = {field.name for field in dataclasses.fields(_Line)}
Report = Callable[[Progress | Validation], None]


def read_log_lines(text: str, *, path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each complete line of a log, and its values.

    Args:
      text: Content of the log. A last line without a line break is skipped, because another process
        is still writing it.
      path: Path of the log, for messages.

    Raises:
      UserError: A line is damaged.
    """
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            continue
        try:
            values = parse_json(line, dict)
            parse_fields(_Line, values)
            for name, value in values.items():
                if name not in _NOT_NUMBERS and not isinstance(value, int | float | None):
                    raise TypeError(f"`{name}` must be a number")
        except (ValueError, TypeError) as error:
            raise UserError(
                f"line {number} of {path} is damaged ({error}). Delete the line or the file"
            ) from error
        yield line, values


class RunLog:
    """The file `train.jsonl`: one JSON object per line, with "step", "kind" and measured values.

    Nothing can be appended to an object, so each new line on an object store rewrites it.
    """

    def __init__(self, run: RunFolder) -> None:
        self._run, self._path = run, run.inside(LOG_FILE)
        self._text = ""  # the lines that `keep_until` kept, and those written since then

    def read(self) -> list[dict[str, Any]]:
        """Return the values of all complete lines.

        Raises:
          UserError: A line is damaged.
        """
        return [values for _, values in self._lines()]

    def token_scores(self, *, step: int) -> dict[str, float]:
        """Return the token scores of the last validation with translations up to a step, or {}.

        Raises:
          UserError: A line is damaged.
        """
        lines = [values for values in self.read() if values["step"] <= step]
        found = [values["token_scores"] for values in lines if "token_scores" in values]
        return dict(found[-1]) if found else {}

    def keep_until(self, *, step: int, validated: int) -> float:
        """Delete reports and validations that the resumed run will write again.

        Args:
          step: Last step to keep.
          validated: Step of the last validation to keep.

        Returns:
          The training time up to the last line that stays, in seconds.

        Raises:
          UserError: A line is damaged.
        """
        kept = [
            (line, values)
            for line, values in self._lines()
            if values["step"] <= (validated if values["kind"] == "validation" else step)
        ]
        self._text = "".join(line for line, _ in kept)
        if listing.exists(self._path):
            self._run.write(self._text.encode(), LOG_FILE)
        return float(max((values.get("seconds", 0.0) for _, values in kept), default=0.0))

    def write(self, **values: Any) -> None:
        """Append a line."""
        line = json.dumps(values) + "\n"
        if is_local(self._path):
            with Path(self._path).open("a", encoding="utf-8") as file:
                file.write(line)
        else:
            self._text += line
            self._run.write(self._text.encode(), LOG_FILE)

    def _lines(self) -> list[tuple[str, dict[str, Any]]]:
        try:
            text = files.read_text(self._path)
        except FileNotFoundError:
            return []
        return list(read_log_lines(text, path=self._path))


class Reporter:
    """Writes reports into a run folder and passes them to the caller.

    TensorFlow writes TensorBoard's file of a run on an object store to a scratch folder, from which
    each validation and the end of the training upload it.

    The constructor deletes the lines of a resumed run that the run will write again. The training
    time continues from the last line that stays, so pauses and repeated updates do not count.

    Args:
      run: The run folder.
      step: Step at which the training starts; reports on later steps are deleted.
      validated: Step of the last validation; later validations are deleted.
      report: Called with each report.
    """

    def __init__(self, run: RunFolder, *, step: int, validated: int, report: Report) -> None:
        self._run, self._step, self._report = run, step, report
        self._log = RunLog(run)
        with run.errors():
            earlier = self._log.keep_until(step=step, validated=validated)
            self._start = time.monotonic() - earlier
            folder = run.inside(TENSORBOARD_FOLDER)
            self._scratch = None if is_local(folder) else tempfile.TemporaryDirectory()
            self._curves = self._scratch.name if self._scratch else folder
            self._writer = tf.summary.create_file_writer(self._curves)

    def begin(self, **values: Any) -> None:
        """Write the line that marks the start of a command.

        Args:
          **values: Values that describe the command.
        """
        now = round(time.time(), 3)
        with self._run.errors():
            self._log.write(
                kind="start", step=self._step, time=now, seconds=self._seconds(), **values
            )

    def _seconds(self) -> float:
        return round(time.monotonic() - self._start, 3)

    def tell(self, what: Progress | Validation) -> None:
        """Write a report to the log and TensorBoard, and pass it to the caller."""
        kind = "validation" if isinstance(what, Validation) else "train"
        values = {k: v for k, v in dataclasses.asdict(what).items() if v not in (None, "")}
        with self._run.errors():
            self._log.write(kind=kind, **values, seconds=self._seconds())
            with self._writer.as_default(what.step):
                for name, value in values.items():
                    if isinstance(value, float):
                        tf.summary.scalar(f"{kind}/{name}", value)
            self._flush(is_uploaded=kind == "validation")
        self._report(what)

    def show(self, name: str, images: list[np.ndarray], *, step: int) -> None:
        """Write images to TensorBoard.

        Args:
          name: Name of the images' group.
          images: One image per decoder layer, uint8 [height, width, 3].
          step: Step of the images.
        """
        with self._run.errors():
            with self._writer.as_default(step):
                for i, image in enumerate(images):
                    tf.summary.image(f"{name}/layer_{i}", image[None])
            self._flush(is_uploaded=False)

    def _flush(self, *, is_uploaded: bool) -> None:
        self._writer.flush()
        if self._scratch and is_uploaded:
            for file in Path(self._curves).iterdir():
                files.copy(str(file), self._run.inside(TENSORBOARD_FOLDER, file.name))

    def close(self) -> None:
        """Close the TensorBoard file, and upload it if the run is on an object store."""
        with self._run.errors(), self._scratch or contextlib.nullcontext():
            self._flush(is_uploaded=True)
            self._writer.close()
