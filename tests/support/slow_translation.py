"""A slow Parquet job, so that a kill interrupts its work."""

import contextlib
import io
import time

from commands import run_tt
from fakes import Reverser
from translation_jobs import TWO_WORKERS, translate

from tt.model.errors import UserError
from tt.pipelines.inference import model_loading
from tt.pipelines.tables import writing

UNIT_ROWS = 30
PAUSE = 0.02  # seconds, during the translation and during the write of a unit


class SlowReverser(Reverser):
    """A slow translator, so that a kill interrupts its work."""

    def translate(self, inputs):
        time.sleep(PAUSE)
        return super().translate(inputs)


@contextlib.contextmanager
def write_slowly(path, **options):
    """Leave half of the bytes in the file for a while."""
    content = io.BytesIO()
    with write_whole(path, **options) as file:
        yield content
        half = len(content.getvalue()) // 2
        file.write(content.getvalue()[:half])
        file.flush()
        time.sleep(PAUSE)
        file.write(content.getvalue()[half:])


write_whole = writing.write_whole


def run_tt_slowly(arguments):
    """Run the command line in a child process, with a slow translator in place of the model."""
    model_loading.load_translator = lambda *_, **__: SlowReverser()
    run_tt(arguments)


def translate_slowly(source, output, options=()):
    """Translate in a child process; return the number of reused units, or the error.

    Args:
      source: The input folder.
      output: The output folder.
      options: Pairs of the names and values of further options.
    """
    writing.write_whole = write_slowly
    try:
        summary = translate(
            source,
            output,
            unit_rows=UNIT_ROWS,
            text_columns=("text",),
            load=SlowReverser,
            arguments=TWO_WORKERS,
            **dict(options),
        )
    except UserError as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return {"error": "", "reused_units": summary.reused_units}
