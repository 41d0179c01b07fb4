"""Where a Beam job runs, and how its failure reaches the user."""

from __future__ import annotations

import contextlib
import io
import logging
import re
import sys
from collections.abc import Sequence
from typing import TextIO

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.runner import PipelineResult, PipelineState

from model.errors import UserError

# Beam's plain DirectRunner tries to download another runner first, so machines would differ.
LOCAL_RUNNER = "FnApiRunner"

# How a worker's traceback, which the runner hands on as text, ends.
_USER_ERROR = re.compile(r"^(?:\w+\.)*UserError: (.*?)(?: \[while running '[^\n]*)?$", re.MULTILINE)

# Where Beam logs a worker's exception with its traceback before the runner raises it.
_WORKER_LOGGERS = ("apache_beam.runners.common", "apache_beam.runners.worker.sdk_worker")


def make_pipeline(beam_arguments: Sequence[str]) -> beam.Pipeline:
    """Makes a pipeline from Beam's own flags; without `--runner` it runs on this machine.

    Raises:
      UserError: Beam does not know the runner, or cannot read a flag.
    """
    arguments = list(beam_arguments)
    if not any(a == "--runner" or a.startswith("--runner=") for a in arguments):
        arguments.append(f"--runner={LOCAL_RUNNER}")
    try:
        return beam.Pipeline(options=PipelineOptions(arguments))
    except (ValueError, SystemExit) as error:
        shown = " ".join(beam_arguments)
        raise UserError(f"Beam cannot take the options {shown!r}: {error}") from error


def run_pipeline(pipeline: beam.Pipeline) -> PipelineResult:
    """Runs a pipeline to its end; a worker's UserError is raised here and not logged there.

    Raises:
      UserError: A worker raised one; the runner's wrapping is taken off.
      RuntimeError: The pipeline ended in another state than done.
    """
    for name in _WORKER_LOGGERS:
        logging.getLogger(name).addFilter(_is_no_user_error)
    try:
        with contextlib.redirect_stderr(_WithoutUserErrors(sys.stderr)):
            result = pipeline.run()
            result.wait_until_finish()
    except Exception as error:
        message = user_error_message(error)
        if message is None:
            raise
        raise UserError(message) from error
    if result.state != PipelineState.DONE:
        raise RuntimeError(f"the pipeline ended in the state {result.state}")
    return result


def user_error_message(error: BaseException) -> str | None:
    r"""Finds the message of the UserError that an exception wraps, as object or as text.

    >>> user_error_message(RuntimeError("Traceback ...\nmodel.errors.UserError: no model"))
    'no model'
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        text = f"UserError: {link}" if isinstance(link, UserError) else str(link)
        found = _USER_ERROR.findall(text)
        if found:
            return str(found[-1])
        link = link.__cause__ or link.__context__
    return None


class _WithoutUserErrors(io.TextIOBase):
    """A stream that leaves out a worker's traceback of a UserError, which Beam prints as one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._left_out = False

    def write(self, text: str) -> int:
        is_end_of_line = self._left_out and text == "\n"
        self._left_out = text.startswith("Traceback") and _USER_ERROR.search(text) is not None
        if not (self._left_out or is_end_of_line):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()


def _is_no_user_error(record: logging.LogRecord) -> bool:
    error = record.exc_info[1] if record.exc_info else None
    return user_error_message(error or Exception(record.getMessage())) is None
