"""Measure training with `tt` against a plain TensorFlow step and against PyTorch.

    make bench-train
    python tests/bench/train.py --only tiny-float32 --rounds 3 --no-peer
    python tests/bench/train.py --threads 2 --no-limits

Three processes train the same model on the same batches. `tt` uses `Trainer.train`, with its own
input pipeline, metrics and reports. `train_reference.py` and `train_peer.py` use batches in memory.
The processes are pinned to the same cores and take turns, in another order each round. Ratios are
computed within a round, so that other work on the machine has less weight. A round is an epoch of
a small dataset, so all rounds have the same pairs, in batches of few shapes, and the first round
has all shapes. The first rounds are a warm-up (traces, oneDNN's caches) and do not count.

The exit code is 1 if a limit is missed, unless --no-limits is given.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import itertools
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import tensorflow as tf
from preprocess import Target, judge
from processes import CommandError, available_cores
from product import COLUMNS, INNER, ROWS
from records_to_batches import write_dataset

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.manifest import TRAIN, DatasetManifest
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.transformer.config import TransformerConfig

_HERE = Path(__file__).resolve().parent
_TORCH_PYTHON = Path(sys.prefix, "torch", "bin", "python")

_TT, _REFERENCE, _PEER = "tt", "plain step", "PyTorch"

# The smallest ratios of tt's speed to the others. The plain step uses the same library and
# processor, so its limits are 5% below the last measurement, which makes a loss of 5% visible. A
# case without a limit has not been measured on an idle machine. PyTorch's ratio depends more on the
# processor: see `product.py`.
_STEP_LIMITS = {
    "tiny-float32": 0.95 * 1.17,
    "base-float32": 0.95 * 1.10,
    "tiny-bfloat16": 0.95 * 1.07,
    "base-bfloat16": 0.95 * 1.02,
}
_PEER_LIMIT = 1.15

_VOCABULARY_SIZES = {"tiny": 8192, "base": 32_000}
_SECONDS = re.compile(r"([\d.e-]+) seconds")
_NEVER = 10**9  # updates
_SHOWN_CHARACTERS = 2000  # of the output of a failed process

_NATIVE_BFLOAT16 = {"avx512_bf16", "amx_bf16", "avx_ne_convert", "bf16"}  # flags of x86 and Arm


@dataclasses.dataclass(frozen=True, kw_only=True)
class Case:
    """A model and its training.

    Attributes:
      preset: The model's size.
      compute_type: As in `TrainingConfig`.
      pairs: The number of pairs of the dataset, which one round trains on.
      batch_tokens: As in `TrainingConfig`.
      warm_ups: The number of rounds that do not count.
      rounds: The number of rounds that count.
    """

    preset: str
    compute_type: str
    pairs: int
    batch_tokens: int
    warm_ups: int
    rounds: int

    @property
    def name(self) -> str:
        """The name for --only and in the results."""
        return f"{self.preset}-{self.compute_type.removeprefix('mixed_')}"

    @property
    def is_bfloat16(self) -> bool:
        """Whether matrix products are in bfloat16."""
        return self.compute_type == "mixed_bfloat16"

    def model_config(self) -> TransformerConfig:
        """Return the architecture."""
        size = _VOCABULARY_SIZES[self.preset]
        return TransformerConfig.from_preset(
            self.preset,
            source_vocabulary_size=size,
            target_vocabulary_size=size,
            shared_vocabulary=True,
        )

    def training_config(self, *, log_every: int = 1) -> TrainingConfig:
        """Return the options of `tt`: without an end, validations or checkpoints."""
        return TrainingConfig(
            steps=_NEVER,
            batch_tokens=self.batch_tokens,
            compute_type=self.compute_type,
            validate_every=_NEVER,
            score_every=0,
            save_every=_NEVER,
            log_every=log_every,
        )


# These rounds are short, because PyTorch is ten times slower in bfloat16 if the CPU lacks it.
_CASES = [
    Case(preset="tiny", compute_type="float32", pairs=700, batch_tokens=4096, warm_ups=2, rounds=5),
    Case(
        preset="tiny",
        compute_type="mixed_bfloat16",
        pairs=170,
        batch_tokens=2048,
        warm_ups=2,
        rounds=3,
    ),
    Case(preset="base", compute_type="float32", pairs=150, batch_tokens=1024, warm_ups=1, rounds=4),
    Case(
        preset="base",
        compute_type="mixed_bfloat16",
        pairs=40,
        batch_tokens=512,
        warm_ups=1,
        rounds=3,
    ),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Job:
    """A prepared case in a folder.

    Attributes:
      case: The case.
      dataset: The dataset for `tt`.
      batches: The file for the other competitors; see `train_reference.py`.
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
    config = case.model_config()
    dataset = folder / f"{case.name}-dataset"
    manifest = write_dataset(
        dataset, pairs=case.pairs, vocabulary_size=config.target_vocabulary_size
    )
    steps = sum(1 for _ in _epoch(_batches(case, dataset, manifest), pairs=case.pairs))
    batches = list(
        itertools.islice(_batches(case, dataset, manifest), steps * (case.warm_ups + case.rounds))
    )
    arrays = {}
    for i, batch in enumerate(batches):
        arrays |= {f"source_{i}": batch.source, f"target_{i}": batch.target}
    values = {
        **dataclasses.asdict(config),
        "vocabulary_size": config.target_vocabulary_size,
        "label_smoothing": case.training_config().label_smoothing,
        "longest": max(array.shape[1] for array in arrays.values()),
    }
    path = folder / f"{case.name}.npz"
    np.savez(path, config=json.dumps(values), **arrays)
    real = [int(np.count_nonzero(batch.target[:, 1:])) for batch in batches]
    return Job(
        case=case,
        dataset=dataset,
        batches=path,
        steps=steps,
        target_tokens=[sum(real[i : i + steps]) for i in range(0, len(real), steps)],
    )


def _batches(case: Case, dataset: Path, manifest: DatasetManifest) -> Iterator[Any]:
    return TokenBatches(
        files=[dataset / name for name in manifest.splits[TRAIN].shards],
        max_tokens=case.batch_tokens,
        seed=case.training_config().seed,
    ).forever(Position())


def _epoch(batches: Iterator[Any], *, pairs: int) -> Iterator[Any]:
    """Yield batches until they contained this many pairs."""
    while pairs > 0:
        batch = next(batches)
        pairs -= np.count_nonzero(batch.source[:, 0])  # padding rows are not pairs
        yield batch


class Competitor:
    """A process that trains on some batches on each signal.

    Args:
      name: The name in the results.
      command: Reads lines "FIRST END" and answers with a line that begins "... seconds".
      folder: The folder for its stderr.
    """

    def __init__(self, name: str, command: Sequence[str | Path], *, folder: Path) -> None:
        self.name = name
        self._errors = folder / f"{name}.stderr"
        with self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
            )

    def seconds(self, first: int, end: int) -> float:
        """Return the seconds to train on the batches from `first` to before `end`.

        Raises:
          CommandError: The process has ended.
        """
        with contextlib.suppress(BrokenPipeError):
            self._input.write(f"{first} {end}\n")
            self._input.flush()
        assert self._process.stdout
        for line in self._process.stdout:
            if match := _SECONDS.match(line):
                return float(match[1])
        code = self._process.wait()
        said = self._errors.read_text(errors="replace")[-_SHOWN_CHARACTERS:]
        raise CommandError(f"{self.name} ended with exit code {code}:\n{said}")

    def stop(self) -> None:
        """Stop the process."""
        self._process.kill()
        self._process.wait()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin
        return self._process.stdin


def measure(job: Job, *, folder: Path, threads: int, torch: Path | None) -> dict[str, list[float]]:
    """Return the target tokens per second of each competitor, round by round."""
    case = job.case
    options = [f"--threads={threads}"]
    bfloat16 = ["--bfloat16"] if case.is_bfloat16 else []
    this_python = Path(sys.executable)
    loop = ["--loop", case.name, job.dataset, folder / f"{case.name}-run", str(job.steps)]
    commands = {
        _TT: [this_python, __file__, *loop, *options, "--no-peer"],
        _REFERENCE: [this_python, _HERE / "train_reference.py", job.batches, *options, *bfloat16],
    }
    if torch:
        commands[_PEER] = [torch, _HERE / "train_peer.py", job.batches, *options, *bfloat16]
    rates: dict[str, list[float]] = {name: [] for name in commands}
    with contextlib.ExitStack() as stack:
        competitors = []
        for name, command in commands.items():
            competitors.append(Competitor(name, command, folder=folder))
            stack.callback(competitors[-1].stop)
        for number, tokens in enumerate(job.target_tokens):
            first = number * job.steps
            turn = number % len(competitors)
            seconds = {}
            for competitor in competitors[turn:] + competitors[:turn]:
                seconds[competitor.name] = competitor.seconds(first, first + job.steps)
            is_counted = number >= case.warm_ups
            if is_counted:
                for name in commands:
                    rates[name].append(tokens / seconds[name])
            label = f"round {number - case.warm_ups + 1}/{case.rounds}" if is_counted else "warm-up"
            said = ", ".join(f"{name} {seconds[name]:.1f} s" for name in commands)
            print(f"{case.name}  {label}: {tokens:,} tokens, {said}", file=sys.stderr, flush=True)
    return rates


def train_on_signal(case: Case, *, dataset: Path, run: Path, steps: int) -> None:
    """Act as the competitor `tt`: an unmodified `Trainer.train` that waits in its callback.

    Args:
      case: The case.
      dataset: Its dataset.
      run: A new folder.
      steps: The number of batches per round. They are taken in order, whatever the signal says.
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

    request = TrainRequest(
        dataset=dataset,
        run=run,
        model=case.model_config(),
        training=case.training_config(log_every=steps),
    )
    trainer = request.plan().start(make_strategy("one-device"))
    wait()
    trainer.train(report)


# Output


def paired_ratios(rates: dict[str, list[float]], to: str) -> list[float]:
    """Return the ratio of `tt`'s speed to another's, round by round."""
    return [ours / theirs for ours, theirs in zip(rates[_TT], rates[to], strict=True)]


def print_table(results: dict[str, dict[str, list[float]]]) -> None:
    """Print one line per competitor and case, with medians over the rounds."""
    print(f"{'case':15s} {'':25s} {'target tokens/s':>16s} {'ratio':>8s} {'(range)':>12s}")
    for case, rates in results.items():
        for name, measured in rates.items():
            described = f"PyTorch (eager, on {cpu_vendor()})" if name == _PEER else name
            line = f"{case:15s} {described:25s} {statistics.median(measured):16,.0f}"
            if name != _TT:
                ratios = paired_ratios(rates, name)
                line += f" {statistics.median(ratios):8.2f}"
                line += f" {f'{min(ratios):.2f}-{max(ratios):.2f}':>12s}"
            print(line)


def cpu_vendor() -> str:
    """Return the vendor of this processor, such as "AMD"."""
    with contextlib.suppress(OSError):
        if found := re.search(r"vendor_id\s*:\s*(\S+)", Path("/proc/cpuinfo").read_text()):
            return {"AuthenticAMD": "AMD", "GenuineIntel": "Intel"}.get(found[1], found[1])
    return platform.machine()


def print_products(*, threads: int, torch: Path | None) -> None:
    """Print the speed of a product in each library, because it explains a part of the ratios."""
    pythons = {"numpy": Path(sys.executable), "tensorflow": Path(sys.executable)}
    if torch:
        pythons["torch"] = torch
    said = []
    for library, python in pythons.items():
        command = [python, _HERE / "product.py", library, f"--threads={threads}"]
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        )
        if ended.returncode:
            raise CommandError(f"product.py {library} ended with exit code {ended.returncode}")
        said.append(f"{library} {float(ended.stdout):.0f}")
    shape = f"[{ROWS}, {INNER}] by [{INNER}, {COLUMNS}]"
    print(f"GFLOP/s of one product, float32 {shape}, {threads} thread(s): {', '.join(said)}")


def targets(results: dict[str, dict[str, list[float]]]) -> list[Target]:
    """Return the limits of the measured cases."""
    return [
        Target(
            rule=f"{case}, ratio of tt's speed to {name}",
            value=statistics.median(paired_ratios(rates, name)),
            bound=_PEER_LIMIT if name == _PEER else _STEP_LIMITS[case],
        )
        for case, rates in results.items()
        for name in rates
        if name != _TT
    ]


def _has_native_bfloat16() -> bool:
    with contextlib.suppress(OSError):
        return not _NATIVE_BFLOAT16.isdisjoint(Path("/proc/cpuinfo").read_text().split())
    return False


def _parse() -> argparse.Namespace:
    names = [case.name for case in _CASES]
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--rounds", type=int, help="Count this many rounds in all cases.")
    parser.add_argument(
        "--threads", type=int, default=1, help="Give each competitor this many threads and cores."
    )
    parser.add_argument(
        "--torch",
        type=Path,
        default=_TORCH_PYTHON,
        metavar="PYTHON",
        help="Run PyTorch with this interpreter.",
    )
    parser.add_argument("--no-peer", action="store_true", help="Leave out PyTorch.")
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    parser.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="Keep datasets and batches in FOLDER."
    )
    # This program starts itself with case, dataset, run and steps, for the competitor `tt`.
    parser.add_argument("--loop", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not 1 <= options.threads <= len(available_cores()):
        parser.error(
            f"--threads must be 1 to {len(available_cores())}, the cores of this process. "
            f"Received: {options.threads}"
        )
    if options.rounds is not None and options.rounds < 1:
        parser.error(f"--rounds must be 1 or more. Received: {options.rounds}")
    if not options.no_peer and not options.torch.exists():
        parser.error(
            f"{options.torch} does not exist. Run `make bench-train`, choose a Python that has "
            "PyTorch with --torch, or leave PyTorch out with --no-peer"
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
        (case,) = (case for case in _CASES if case.name == name)
        train_on_signal(case, dataset=Path(dataset), run=Path(run), steps=int(steps))
        return
    results = {}
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as scratch:
        folder = options.keep or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for case in _CASES:
            if options.only and case.name not in options.only:
                continue
            if options.rounds:
                case = dataclasses.replace(case, rounds=options.rounds)
            results[case.name] = measure(
                prepare(case, folder=folder),
                folder=Path(scratch),
                threads=options.threads,
                torch=None if options.no_peer else options.torch,
            )
    print_table(results)
    print_products(threads=options.threads, torch=None if options.no_peer else options.torch)
    if not _has_native_bfloat16():
        print("This CPU has no native bfloat16 and emulates it.")
    judged = targets(results)
    judge(judged, has_limits=not options.no_limits)


if __name__ == "__main__":
    try:
        main()
    except CommandError as error:
        sys.exit(f"bench: error: {error}")
