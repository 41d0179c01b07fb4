"""A Parquet job that takes its time, so that a kill meets it at work."""

import contextlib
import io
import time

from fakes import Reverser
from translation_jobs import TWO_WORKERS, translate

from tt.model.errors import UserError
from tt.pipelines.tables import parquet

UNIT_ROWS = 30
PAUSE = 0.02  # seconds, in the middle of translating and of writing a unit


class SlowReverser(Reverser):
    """Takes its time, so that a kill meets it at work."""

    def translate_ids(self, source_ids):
        time.sleep(PAUSE)
        return super().translate_ids(source_ids)


@contextlib.contextmanager
def slow_writer(handle, schema, **options):
    """Leaves half of the bytes in the file for a while."""
    content = io.BytesIO()
    with table_writer(content, schema, **options) as write:
        yield write
    half = len(content.getvalue()) // 2
    handle.write(content.getvalue()[:half])
    handle.flush()
    time.sleep(PAUSE)
    handle.write(content.getvalue()[half:])


table_writer = parquet.table_writer


def translate_slowly(source, output):
    """Translates in a process of its own; returns how many units had been there, or the error."""
    parquet.table_writer = slow_writer
    try:
        summary = translate(
            source,
            output,
            unit_rows=UNIT_ROWS,
            text_columns=("text",),
            load=SlowReverser,
            arguments=TWO_WORKERS,
        )
    except UserError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "reused_units": summary.reused_units}
