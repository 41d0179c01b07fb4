"""Jobs that write tables, and that fail or are killed before or after their commit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading

import pytest
from slow_translation import SlowReverser
from translation_jobs import TWO_WORKERS, translate

from tt.pipelines.tables import lakehouse

UNIT_ROWS = 30


def translate_to_table(source, output, delay=None):
    """Translate a table; kill the process so many seconds after the commit has begun."""
    publish = lakehouse.publish

    def publish_and_die(*arguments, **options):
        if delay is not None:
            kill = (os.getpgrp(), signal.SIGKILL)
            threading.Timer(delay, os.killpg, kill).start()
        publish(*arguments, **options)

    lakehouse.publish = publish_and_die
    translate(
        source,
        output,
        unit_rows=UNIT_ROWS,
        text_columns=("text",),
        load=SlowReverser,
        arguments=TWO_WORKERS,
    )


def translate_with_options(job):
    """Translate the input, output and options of a job."""
    source, output, options = job
    translate(source, output, **options)


@contextlib.contextmanager
def failing(*, after_commit=False):
    """Expect that a job fails just before or just after it commits a table."""
    publish = lakehouse.publish

    def fail(*arguments, **options):
        if after_commit:
            publish(*arguments, **options)
        raise OSError("the machine is gone")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lakehouse, "publish", fail)
        with pytest.raises(Exception, match="the machine is gone"):
            yield
