"""Reports written into a run folder: `train.jsonl` and TensorBoard."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from model.folders.remote import publish_file, read_text, write_text
from model.training.reports import Progress, Report, Validation, read_log_lines
from model.training.run_folder import LOG_FILE, TENSORBOARD_FOLDER, RunFolder


class Reporter:
    """Writes reports into a run folder and passes them on to the caller's `report`.

    What was written of updates after `step`, and validations after `validated`, is dropped. Seconds
    go on from the last line that stays, so that neither pauses nor what is trained anew counts.
    """

    def __init__(self, run: RunFolder, *, step: int, validated: int, report: Report) -> None:
        self._report = report
        with run.errors():
            self._log = RunLog(run.inside(LOG_FILE))
            self._log.keep_until(step=step, validated=validated)
            self._step, self._earlier = step, self._log.seconds()
            self._began = time.monotonic()
            folder = run.inside(TENSORBOARD_FOLDER)
            drop_later_events(folder, step=step, validated=validated)
            self._run = run
            self._writer = tf.summary.create_file_writer(folder)

    def begin(
        self, *, command: str, versions: Mapping[str, str], machine: Mapping[str, Any]
    ) -> None:
        """Writes the line of a run of the command that trains or goes on.

        Args:
          command: As it was typed; "" where Python trains.
          versions: Versions of packages, by their names.
          machine: What is trained on.
        """
        with self._run.errors():
            self._log.write(
                kind="start",
                step=self._step,
                time=round(time.time(), 3),
                seconds=self._seconds(),
                command=command,
                versions=dict(versions),
                machine=dict(machine),
            )

    def _seconds(self) -> float:
        return round(self._earlier + time.monotonic() - self._began, 3)

    def tell(self, what: Progress | Validation) -> None:
        """Passes a report on, to the log, to TensorBoard and to the caller."""
        kind = "validation" if isinstance(what, Validation) else "train"
        values = {k: v for k, v in dataclasses.asdict(what).items() if v not in (None, "")}
        values.pop("took", None)
        with self._run.errors():
            self._log.write(kind=kind, **values, seconds=self._seconds())
            with self._writer.as_default(what.step):
                for name, value in values.items():
                    if isinstance(value, float):
                        tf.summary.scalar(f"{kind}/{name}", value)
            self._writer.flush()
        self._report(what)

    def show(self, name: str, images: list[np.ndarray], *, step: int) -> None:
        """Writes pictures, uint8 [height, width, 3] each, to TensorBoard."""
        with self._run.errors():
            with self._writer.as_default(step):
                for i, image in enumerate(images):
                    tf.summary.image(f"{name}/layer_{i}", image[None])
            self._writer.flush()

    def close(self) -> None:
        """Ends the files."""
        self._writer.close()


def drop_later_events(folder: str, *, step: int, validated: int) -> None:
    """Rewrites TensorBoard's files without what a killed run wrote after its last checkpoint."""
    if not tf.io.gfile.exists(folder):
        return
    for name in tf.io.gfile.listdir(folder):
        path = f"{folder}/{name}"
        if not name.startswith("events.out.tfevents"):
            continue  # a profile, for example
        if name.endswith(".tmp"):
            tf.io.gfile.remove(path)
            continue
        events = list(_read_events(path))
        kept = [each for each in events if each.step <= (step if _is_train(each) else validated)]
        if len(kept) < len(events):
            with tf.io.TFRecordWriter(f"{path}.tmp") as writer:
                for event in kept:
                    writer.write(event.SerializeToString())
            publish_file(f"{path}.tmp", path)


def _read_events(path: str) -> Iterator[Any]:
    records = tf.data.TFRecordDataset(path).as_numpy_iterator()
    try:
        for record in records:
            yield tf.compat.v1.Event.FromString(record)
    except tf.errors.DataLossError:
        return  # the last one was being written when the run was killed


def _is_train(event: Any) -> bool:
    return all(value.tag.startswith("train/") for value in event.summary.value)


class RunLog:
    """`train.jsonl`: a JSON object a line, with "step", "kind" and what was measured."""

    def __init__(self, path: str) -> None:
        self._path = path

    def read(self) -> list[dict[str, Any]]:
        """Returns what the lines hold, but for a last line that was cut off.

        Raises:
          UserError: A line is damaged.
        """
        return [values for _, values in self._lines()]

    def token_scores(self, *, step: int) -> dict[str, float]:
        """Returns those of the last validation up to a step; {} if none translated.

        Raises:
          UserError: A line is damaged.
        """
        found = [
            values["token_scores"]
            for values in self.read()
            if values["step"] <= step and "token_scores" in values
        ]
        return dict(found[-1]) if found else {}

    def seconds(self) -> float:
        """Returns the seconds of training up to the last line; 0 in the log of an older `tt`.

        Raises:
          UserError: A line is damaged.
        """
        return float(max((values.get("seconds", 0.0) for values in self.read()), default=0.0))

    def keep_until(self, *, step: int, validated: int) -> None:
        """Drops the lines of later steps and validations, and a last line that was cut off."""
        if not tf.io.gfile.exists(self._path):
            return
        kept = [
            line
            for line, values in self._lines()
            if values["step"] <= (validated if values["kind"] == "validation" else step)
        ]
        write_text(self._path, "".join(kept))

    def _lines(self) -> list[tuple[str, dict[str, Any]]]:
        if not tf.io.gfile.exists(self._path):
            return []
        return list(read_log_lines(read_text(self._path), path=self._path))

    def write(self, **values: Any) -> None:
        """Appends a line."""
        with tf.io.gfile.GFile(self._path, "a") as file:
            file.write(json.dumps(values) + "\n")
