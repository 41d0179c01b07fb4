"""Measure an update with the options that `tt train` chooses, and estimate the training hours.

    python tests/bench/training_hours.py
    python tests/bench/training_hours.py --updates 20 --tokens 28

The benchmark covers three corpus sizes. Each preset trains some updates on generated pairs, with
its own batches. CPU seconds are printed next to wall-clock seconds, because other work on the
machine changes them less. The whole training of the Multi30k recipe has been timed, so the ratio
to that recipe applies to the machine of that timing.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import statistics
import tempfile
import time
from pathlib import Path

os.environ.setdefault(
    "TF_ENABLE_ONEDNN_OPTS", "1"
)  # `tt train` sets it, too, before it imports TensorFlow

from records_to_batches import write_dataset

from tt.model.errors import UserError
from tt.model.training.defaults import choose_options
from tt.model.training.options import TrainingConfig
from tt.model.training.reports import Progress
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.transformer.config import TransformerConfig

_PAIRS = (20_000, 200_000, 5_000_000)
_VOCABULARY_SIZE = 8000
_NEVER = 10**6  # updates, so that training neither validates nor saves
_RECIPE = {"preset": "tiny", "heads": 4, "d_ff": 256, "norm": "pre"}  # multi30k-en-de.yaml


class _EnoughError(UserError):
    """All updates to measure are done."""


def seconds_an_update(
    dataset: Path, run: Path, *, fields: dict[str, object], batch_tokens: int, updates: int
) -> tuple[float, float]:
    """Train a little; return the medians of wall-clock and CPU seconds per update."""
    config = TransformerConfig.from_preset(
        **fields,
        source_vocabulary_size=_VOCABULARY_SIZE,
        target_vocabulary_size=_VOCABULARY_SIZE,
        shared_vocabulary=True,
    )
    training = TrainingConfig(
        steps=_NEVER, batch_tokens=batch_tokens, validate_every=_NEVER, save_every=_NEVER,
        score_every=0, log_every=1,
    )  # fmt: skip
    times: list[tuple[float, float]] = []

    def note(report: object) -> None:
        assert isinstance(report, Progress)
        times.append((time.monotonic(), time.process_time()))
        if len(times) > 2 * updates:
            raise _EnoughError

    request = TrainRequest(dataset=dataset, run=run, model=config, training=training)
    trainer = request.plan().start(make_strategy("one-device"))
    with contextlib.suppress(_EnoughError):
        trainer.train(note)
    times = times[updates:]  # the first updates trace and warm up
    laps = [[b - a for a, b in itertools.pairwise(side)] for side in zip(*times, strict=True)]
    clock, processor = map(statistics.median, laps)
    return clock, processor


def main() -> None:
    """Print one line for the recipe and one per size."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--updates", type=int, default=10, help="Count N updates after N uncounted ones."
    )
    parser.add_argument(
        "--tokens", type=int, default=28, help="Assume this many tokens per sentence."
    )
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_dataset(folder / "dataset", pairs=20_000, vocabulary_size=_VOCABULARY_SIZE)

        def measure(name: str, fields: dict[str, object], batch_tokens: int) -> tuple[float, float]:
            return seconds_an_update(
                folder / "dataset", folder / name, fields=fields, batch_tokens=batch_tokens,
                updates=given.updates,
            )  # fmt: skip

        _, of_recipe = measure("recipe", _RECIPE, 2048)
        print(f"Multi30k recipe: {of_recipe:.2f} CPU s per update", flush=True)
        for pairs in _PAIRS:
            chosen = choose_options({}, tokens=pairs * given.tokens, longest=200)
            fields = {"preset": chosen["preset"], "dropout": chosen["dropout"]}
            clock, processor = measure(str(pairs), fields, chosen["batch_tokens"])
            print(
                f"{pairs:,} pairs: {chosen['preset']}, {chosen['steps']:,} updates of "
                f"{chosen['batch_tokens']:,} tokens; {processor:.2f} CPU s per update, "
                f"{processor / of_recipe:.1f} times the recipe; {clock:.2f} s per update on this "
                f"machine, {clock * chosen['steps'] / 3600:.1f} h in total",
                flush=True,
            )


if __name__ == "__main__":
    main()
