"""Runs Parquet jobs in children that can be killed; a process of its own, without TensorFlow.

Reads one JSON a line on stdin, {"input": ..., "output": ..., "report": ..., "file_limit": ...};
for each, forks a child that leads a process group, prints its id, and once it has ended how it
ended. Forking saves each job the seconds that importing Beam takes.
"""

import io
import json
import os
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

import translation_jobs
from translation_jobs import Reverser, translate

from model.errors import UserError
from pipelines.storage import parquet

UNIT_ROWS = 30
PAUSE = 0.02  # seconds, in the middle of translating and of writing a unit


class SlowReverser(Reverser):
    """Takes its time, so that a kill meets it at work."""

    def translate_ids(self, source_ids):
        time.sleep(PAUSE)
        return super().translate_ids(source_ids)


def write_slowly(table, handle, **options):
    """Leaves half of the bytes in the file for a while."""
    content = io.BytesIO()
    write_table(table, content, **options)
    half = len(content.getvalue()) // 2
    handle.write(content.getvalue()[:half])
    handle.flush()
    time.sleep(PAUSE)
    handle.write(content.getvalue()[half:])


write_table = parquet.write_table


def run(request: dict) -> None:
    """Translates, and reports the user's error or how many units had been there."""
    parquet.write_table = write_slowly
    if request["file_limit"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing beyond it is an OSError
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    report = {"error": ""}
    try:
        summary = translate(
            request["input"],
            request["output"],
            unit_rows=UNIT_ROWS,
            load=SlowReverser,
            arguments=translation_jobs.TWO_WORKERS,
        )
        report["reused_units"] = summary.reused_units
    except UserError as error:
        report["error"] = f"{type(error).__name__}: {error}"
    Path(request["report"]).write_text(json.dumps(report))


def main() -> None:
    """Serves requests until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setsid()
                run(request)
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
