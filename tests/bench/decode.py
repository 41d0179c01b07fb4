"""Measure the decoder against CTranslate2: same weights, same sentences, same cores.

    python tests/bench/decode.py run test.en.gz
    python tests/bench/decode.py run test.en.gz --beam-sizes 4 --rounds 9 --threads 2

The model is a run folder or an exported model folder. The text has one sentence per line. Each run
is a new process of `engine_alone.py`, pinned to the same cores, with the batch size that was
fastest for the engine. The engines take turns, in another order each round, and ratios are computed
within a round, so that other work on the machine has less weight. Both rank hypotheses only by
log-probability (a length penalty of 0), which allows both to stop early.

The exit code is 1 if a limit is missed, except with --no-limits.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from processes import CommandError, Target, available_cores, judge, run

_ALONE = Path(__file__).resolve().with_name("engine_alone.py")
_OURS, _PEER = "tt float32", "CTranslate2 float32"
_ENGINES = {  # engine and type
    _OURS: ("tensorflow", "float32"),
    _PEER: ("ctranslate2", "float32"),
    "CTranslate2 int8": ("ctranslate2", "int8"),
}
_GREEDY_LIMIT, _BEAM_LIMIT = 1.0, 0.95


def write_sentences(text: Path, output: Path, *, count: int) -> None:
    """Write the lines of a text or .gz file that are not empty, `count` of them if it is not 0."""
    with (gzip.open if text.suffix == ".gz" else open)(text, "rt", encoding="utf-8") as file:
        lines = [line.strip() for line in file if line.strip()]
    lines = list(itertools.islice(itertools.cycle(lines), count or len(lines)))
    output.write_bytes("".join(f"{line}\n" for line in lines).encode())


def measure(given: argparse.Namespace, beam_size: int, *, folder: Path) -> dict[str, list[float]]:
    """Return the sentences per second of each engine, round by round."""

    def alone(name: str, *arguments: str) -> dict[str, Any]:
        engine, compute_type = _ENGINES[name]
        command = [
            sys.executable, _ALONE, given.model, "sentences.txt", "--engine", engine,
            "--compute-type", compute_type, "--beam-size", str(beam_size), "--length-penalty", "0",
            "--threads", str(given.threads), *arguments,
        ]  # fmt: skip
        variables = {"TF_CPP_MIN_LOG_LEVEL": "3"}
        return run(command, cores=given.threads, folder=folder, environment=variables).json()

    rates: dict[str, list[float]] = {name: [] for name in _ENGINES}
    tried: dict[str, dict[str, float]] = {name: alone(name)["rates"] for name in _ENGINES}
    sizes = {name: max(found, key=found.__getitem__) for name, found in tried.items()}
    names = list(_ENGINES)
    for number in range(given.rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            rates[name].append(alone(name, "--size", sizes[name])["rate"])
        said = ", ".join(f"{name} {rate[-1]:.0f}/s" for name, rate in rates.items())
        print(f"beam {beam_size}  round {number + 1}/{given.rounds}: {said}", file=sys.stderr)
    return rates


def print_and_judge(rates: dict[str, list[float]], *, beam_size: int) -> Target:
    """Print one line per engine with medians over the rounds, and return the limit."""
    print(
        f"beam {beam_size}: {'':26s} {'sentences/s':>12s} {_OURS + ' / it':>16s} {'(range)':>12s}"
    )
    ratios = {
        name: [mine / its for mine, its in zip(rates[_OURS], rates[name], strict=True)]
        for name in rates
    }
    for name, paired in ratios.items():
        print(
            f"  {name:34s} {statistics.median(rates[name]):10,.1f} "
            f"{statistics.median(paired):16.2f} {f'{min(paired):.2f}-{max(paired):.2f}':>12s}"
        )
    return Target(
        rule=f"beam {beam_size}, float32, tt's speed relative to CTranslate2",
        value=statistics.median(ratios[_PEER]),
        bound=_GREEDY_LIMIT if beam_size == 1 else _BEAM_LIMIT,
    )


def main() -> None:
    """Measure all beam sizes, and report whether the limits are met."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path, help="Read a run folder or model folder.")
    parser.add_argument("text", type=Path, help="Translate this file (text or .gz).")
    parser.add_argument("--beam-sizes", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--sentences", type=int, default=0, help="Translate N sentences.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--threads", type=int, default=1, help="Give each engine this many threads and cores."
    )
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    given = parser.parse_args()
    if not 1 <= given.threads <= len(available_cores()):
        parser.error(f"--threads must be 1 to {len(available_cores())}. Received: {given.threads}")
    given.model = given.model.resolve()
    judged = []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as name:
        folder = Path(name)
        write_sentences(given.text, folder / "sentences.txt", count=given.sentences)
        for beam_size in given.beam_sizes:
            rates = measure(given, beam_size, folder=folder)
            judged.append(print_and_judge(rates, beam_size=beam_size))
    judge(judged, has_limits=not given.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
