"""Measure how much faster a model with few decoder layers translates than one with many.

    python tests/bench/depths.py deep.run shallow.run test.en
    python tests/bench/depths.py deep.run shallow.run test.en --beam-size 4 --rounds 9

Both are run folders or model folders that translate the text, which has one sentence per line.
tests/bench/distillation.sh trains two such models. Each runs in a separate process, under tt in
float32 and under CTranslate2 in int8, pinned to the same cores. The processes take turns as in
decode.py, and ratios are computed within a round.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
from pathlib import Path

from processes import CommandError, available_cores
from train import Competitor

# The project folder is not on the path if this file is run and not imported.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tt.model.engines.loading import convert
from tt.pipelines.reports.evaluate import read_lines

_DECODE = Path(__file__).with_name("decode.py")
_ENGINES = ("tt float32", "CTranslate2 int8")  # their names in decode.py


def start(
    model: str, engine: str, *, options: argparse.Namespace, folder: Path, name: str
) -> Competitor:
    """Start a process that translates the text on each signal."""
    path = model if engine.startswith("tt") else str(convert(model))
    command = [
        "env", "TF_ENABLE_ONEDNN_OPTS=0", sys.executable, str(_DECODE), path, options.text,
        "--serve", engine, "--beam-sizes", str(options.beam_size),
        "--threads", str(options.threads),
    ]  # fmt: skip
    return Competitor(name, command, folder=folder)


def main() -> None:
    """Measure both models under both engines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("deep", help="Read the first model from this run folder or model folder.")
    parser.add_argument("shallow", help="Read the model with fewer decoder layers here.")
    parser.add_argument("text", help="Translate this file (text or .gz), one sentence per line.")
    parser.add_argument("--beam-size", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=1, help="Give each process this many threads and cores."
    )
    options = parser.parse_args()
    os.sched_setaffinity(0, available_cores()[: options.threads])  # also for its child processes
    count = sum(bool(line.strip()) for line in read_lines(options.text))
    sides = {"deep": options.deep, "shallow": options.shallow}
    rates: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as name, contextlib.ExitStack() as stack:
        competitors = {}
        for engine, side in itertools.product(_ENGINES, sides):
            competitor = start(
                sides[side], engine, options=options, folder=Path(name), name=f"{engine} {side}"
            )
            stack.callback(competitor.stop)
            competitor.seconds(0, 1)  # the warm-up, one after the other
            competitors[engine, side] = competitor
        for number in range(options.rounds):
            keys = list(competitors)
            turn = number % len(keys)
            for key in keys[turn:] + keys[:turn]:
                rates.setdefault(key, []).append(count / competitors[key].seconds(0, 1))
            print(f"round {number + 1}/{options.rounds}", file=sys.stderr)
    print(f"beam {options.beam_size}: {'':16s} {'deep':>8s} {'shallow':>8s} {'ratio':>6s}  (range)")
    for engine in _ENGINES:
        deep, shallow = rates[engine, "deep"], rates[engine, "shallow"]
        ratios = [fast / slow for fast, slow in zip(shallow, deep, strict=True)]
        print(
            f"  {engine:22s} {statistics.median(deep):8,.1f} {statistics.median(shallow):8,.1f} "
            f"{statistics.median(ratios):6.2f}  {min(ratios):.2f}-{max(ratios):.2f}"
        )


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
