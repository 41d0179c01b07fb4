"""Measure training with `tt` against PyTorch and against another version of `tt`.

    make bench-train
    python tests/bench/train.py --only tiny --rounds 3 --no-peer
    python tests/bench/train.py --no-peer --before ~/.cache/tt/before/COMMIT/bin/python

The processes train the same model on the same batches, in float32. `tt` uses `Trainer.train`, with
its own input pipeline, metrics and reports. `train_peer.py` uses batches in memory. --before is the
Python of an environment with an earlier version. The processes are pinned to the same cores and
take turns, in another order each round. Ratios are computed within a round, so that other work on
the machine has less weight. A round is an epoch of a small dataset, so all rounds have the same
pairs, in batches of few shapes, and the first round has all shapes. The first rounds are a warm-up
(traces, oneDNN's caches) and do not count.

The exit code is 1 if a limit is missed, except with --no-limits.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import tensorflow as tf
from corpus import make_corpus, make_vocabulary
from processes import (
    CommandError,
    Competitor,
    Target,
    available_cores,
    cache_folder,
    judge,
    run,
)

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.manifest import TRAIN, DatasetManifest
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.transformer.config import TransformerConfig

_HERE = Path(__file__).resolve().parent
_TT = Path(sys.executable).with_name("tt")
_TORCH_PYTHON = Path(sys.prefix, "torch", "bin", "python")
_OURS, _PEER, _BEFORE = "tt", "PyTorch", "tt before"
_VOCABULARY_PAIRS = 20_000
_MOST_TOKENS = 40  # per side, so that all lengths occur in the first round
_LIMITS = {_PEER: 1.15, _BEFORE: 0.98}  # the smallest ratios of tt's speed to theirs
_SECONDS = re.compile(r"([\d.e-]+) seconds")
_NEVER = 10**9  # updates


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model and its training.

    Attributes:
      preset: The model's size.
      vocabulary_size: The number of pieces of both sides.
      pairs: The number of pairs of the corpus; one round trains on those that are not too long.
      batch_tokens: As in `TrainingConfig`.
      warm_ups: The number of rounds that do not count.
      rounds: The number of rounds that count.
    """

    preset: str
    vocabulary_size: int
    pairs: int
    batch_tokens: int
    warm_ups: int
    rounds: int

    def model_config(self, manifest: DatasetManifest) -> TransformerConfig:
        """Return the architecture for the vocabulary of a dataset."""
        size = manifest.target_vocabulary_size
        return TransformerConfig.from_preset(
            self.preset, source_vocabulary_size=size, target_vocabulary_size=size,
            shared_vocabulary=True,
        )  # fmt: skip

    def training_config(self, *, log_every: int = 1) -> TrainingConfig:
        """Return the options of `tt`: without an end, validations or checkpoints."""
        return TrainingConfig(
            steps=_NEVER, batch_tokens=self.batch_tokens, validate_every=_NEVER, score_every=0,
            save_every=_NEVER, log_every=log_every,
        )  # fmt: skip


_CASES = {
    case.preset: case
    for case in (
        Case(preset="tiny", vocabulary_size=8192, pairs=2000, batch_tokens=4096, warm_ups=2,
             rounds=5),
        Case(preset="base", vocabulary_size=32_000, pairs=500, batch_tokens=1024, warm_ups=1,
             rounds=4),
    )
}  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A prepared case in a folder.

    Attributes:
      case: The case.
      dataset: The dataset for `tt`.
      batches: The file for PyTorch; see `train_peer.py`.
      steps: The number of batches per round.
      target_tokens: The real tokens that each round predicts, including warm-ups.
    """

    case: Case
    dataset: Path
    batches: Path
    steps: int
    target_tokens: list[int]


def prepare(case: Case, *, folder: Path) -> Job:
    """Write the dataset of a case, and the batches that `Trainer` will make from it."""
    dataset = folder / f"{case.preset}-dataset"
    cache = cache_folder()
    texts = pq.read_table(make_corpus(_VOCABULARY_PAIRS, cache=cache))
    size = case.vocabulary_size
    vocabulary = make_vocabulary(cache=cache, name="training", table=texts, size=size)
    run(
        [
            *(_TT, "preprocess", make_corpus(case.pairs, cache=cache), "--output", dataset),
            *("--source-column", "source", "--target-column", "target", "--shards", "1"),
            *("--vocab", vocabulary, "--max-tokens", str(_MOST_TOKENS), "--no-language-filter"),
        ],
        cores=1,
        folder=folder,
    )
    manifest = DatasetManifest.load(dataset)
    pairs = manifest.splits[TRAIN].records
    steps = sum(1 for _ in _epoch(_batches(case, dataset, manifest), pairs=pairs))
    rounds = case.warm_ups + case.rounds
    batches = list(itertools.islice(_batches(case, dataset, manifest), steps * rounds))
    arrays = {}
    for i, batch in enumerate(batches):
        arrays |= {f"source_{i}": batch.source, f"target_{i}": batch.target}
    values = {
        **dataclasses.asdict(case.model_config(manifest)),
        "vocabulary_size": manifest.target_vocabulary_size,
        "label_smoothing": case.training_config().label_smoothing,
        "longest": max(array.shape[1] for array in arrays.values()),
    }
    path = folder / f"{case.preset}.npz"
    np.savez(path, config=json.dumps(values), **arrays)
    real = [int(np.count_nonzero(batch.target[:, 1:])) for batch in batches]
    tokens = [sum(real[i : i + steps]) for i in range(0, len(real), steps)]
    return Job(case=case, dataset=dataset, batches=path, steps=steps, target_tokens=tokens)


def _batches(case: Case, dataset: Path, manifest: DatasetManifest) -> Iterator[Any]:
    files = [dataset / name for name in manifest.splits[TRAIN].shards]
    seed = case.training_config().seed
    return TokenBatches(files=files, max_tokens=case.batch_tokens, seed=seed).forever(Position())


def _epoch(batches: Iterator[Any], *, pairs: int) -> Iterator[Any]:
    """Yield batches until they contained this many pairs."""
    while pairs > 0:
        batch = next(batches)
        pairs -= np.count_nonzero(batch.source[:, 0])  # padding rows are not pairs
        yield batch


def measure(job: Job, *, folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the target tokens per second of each competitor, round by round."""
    case = job.case
    threads = f"--threads={options.threads}"

    def loop(python: str | Path, name: str) -> list[str | Path]:
        run = folder / f"{case.preset}-{name}"
        return [python, __file__, "--loop", case.preset, job.dataset, run, str(job.steps), threads]

    commands = {_OURS: loop(sys.executable, "run")}
    if options.before:
        commands[_BEFORE] = loop(options.before, "run-before")
    if not options.no_peer:
        commands[_PEER] = [_TORCH_PYTHON, _HERE / "train_peer.py", job.batches, threads]
    rates: dict[str, list[float]] = {name: [] for name in commands}
    with contextlib.ExitStack() as stack:
        competitors = []
        for name, command in commands.items():
            errors = folder / f"{name}.stderr"
            competitors.append(Competitor(name, command, errors=errors))
            stack.callback(competitors[-1].stop)
        for number, tokens in enumerate(job.target_tokens):
            first = number * job.steps
            turn = number % len(competitors)
            for competitor in competitors[turn:] + competitors[:turn]:
                said = competitor.ask(f"{first} {first + job.steps}", answer=_SECONDS)
                seconds = float(said[1])
                if number >= case.warm_ups:
                    rates[competitor.name].append(tokens / seconds)
            last = ", ".join(f"{name} {found[-1]:,.0f}" for name, found in rates.items() if found)
            label = f"{case.preset}  round {number + 1} of {len(job.target_tokens)}"
            print(f"{label}: {last or 'warm-up'}", file=sys.stderr, flush=True)
    return rates


def train_on_signal(case: Case, *, dataset: Path, run: Path, steps: int) -> None:
    """Act as a competitor: an unmodified `Trainer.train` that waits in its callback.

    Args:
      case: The case.
      dataset: Its dataset.
      run: A new folder.
      steps: The number of batches per round. Each round uses them in order.
    """
    start = 0.0

    def wait() -> None:
        nonlocal start
        if not sys.stdin.readline():
            sys.exit()
        start = time.perf_counter()

    def report(progress: Any) -> None:
        seconds = time.perf_counter() - start
        print(f"{seconds} seconds, loss {progress.loss:.4f}", flush=True)
        wait()

    model = case.model_config(DatasetManifest.load(dataset))
    training = case.training_config(log_every=steps)
    request = TrainRequest(dataset=dataset, run=run, model=model, training=training)
    trainer = request.plan().start(make_strategy("one-device"))
    wait()
    trainer.train(report)


def print_and_judge(preset: str, rates: dict[str, list[float]]) -> list[Target]:
    """Print one line per competitor with medians over the rounds, and return the limits."""
    targets = []
    for name, measured in rates.items():
        ratios = [ours / theirs for ours, theirs in zip(rates[_OURS], measured, strict=True)]
        median = statistics.median(ratios)
        print(
            f"{preset:6s} {name:10s} {statistics.median(measured):9,.0f} target tokens/s, ratio of "
            f"tt's speed to it {median:.3f} ({min(ratios):.3f}-{max(ratios):.3f})"
        )
        if name in _LIMITS:
            rule = f"{preset}, ratio of tt's speed to {name}"
            targets.append(Target(rule=rule, value=median, bound=_LIMITS[name]))
    return targets


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=_CASES, default=list(_CASES))
    parser.add_argument("--rounds", type=int, help="Count this many rounds in all cases.")
    parser.add_argument(
        "--threads", type=int, default=1, help="Give each competitor this many threads and cores."
    )
    parser.add_argument("--no-peer", action="store_true", help="Leave out PyTorch.")
    parser.add_argument("--before", metavar="PYTHON", help="Compare with this environment's `tt`.")
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    # This program starts itself with case, dataset, run and steps, for the competitor `tt`.
    parser.add_argument("--loop", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not (options.loop or options.no_peer or _TORCH_PYTHON.exists()):
        parser.error(
            f"{_TORCH_PYTHON} does not exist. Run `make bench-train`, or leave PyTorch out with "
            "--no-peer"
        )
    return options


def main() -> None:
    """Measure all cases, and report whether the limits are met."""
    options = _parse()
    os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # as `tt train` does
    os.sched_setaffinity(0, available_cores()[: options.threads])  # also for its child processes
    tf.config.threading.set_intra_op_parallelism_threads(options.threads)
    tf.config.threading.set_inter_op_parallelism_threads(options.threads)
    if options.loop:
        name, dataset, run, steps = options.loop
        train_on_signal(_CASES[name], dataset=Path(dataset), run=Path(run), steps=int(steps))
        return
    judged = []
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as scratch:
        for name in options.only:
            case = _CASES[name]
            if options.rounds:
                case = dataclasses.replace(case, rounds=options.rounds)
            job = prepare(case, folder=Path(scratch))
            judged += print_and_judge(name, measure(job, folder=Path(scratch), options=options))
    judge(judged, has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
