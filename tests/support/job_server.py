"""Runs preprocess jobs in children that can be killed; a process of its own, without TensorFlow.

Reads one JSON a line on stdin, {"output": ..., "file_limit": ..., "report": ...}; for each, forks a
child that leads a process group, prints its id, and once it has ended how it ended. Forking saves
each job the seconds that importing Beam takes.
"""

import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path

from model.errors import UserError
from pipelines.corpora.opening import sources_from_options
from pipelines.pairs.filters import Filters
from pipelines.preprocess import encode_steps as transforms
from pipelines.preprocess import plan as preprocess_plan
from pipelines.preprocess.job import PreprocessOptions, preprocess

UNIT_PAIRS = 100


def run(request: dict) -> None:
    """Makes the dataset and reports how many units were encoded, or the user's error."""
    encoded = []
    encode_unit = transforms.encode_unit

    def count_encoded(unit, *args, **kwargs):
        encoded.append(unit.label)
        return encode_unit(unit, *args, **kwargs)

    transforms.encode_unit = count_encoded
    preprocess_plan.MAX_UNIT_PAIRS = UNIT_PAIRS
    if request["file_limit"]:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then writing beyond it is an OSError
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_limit"],) * 2)
    report = {"error": ""}
    try:
        preprocess(
            sources=sources_from_options(corpora=request["corpora"]),
            options=PreprocessOptions(
                output=request["output"],
                shards=8,
                vocabulary_size=120,
                filters=Filters(min_letters=0, max_length_ratio=0),
            ),
            beam_arguments=request["beam"],
        )
    except UserError as error:
        report["error"] = f"{type(error).__name__}: {error}"
    report["encoded"] = len(encoded)
    Path(request["report"]).write_text(json.dumps(report))


def main() -> None:
    """Serves requests until stdin ends."""
    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        os.setpgid(child, child)  # in both: whichever comes first
        if child == 0:
            code = 1
            try:
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
