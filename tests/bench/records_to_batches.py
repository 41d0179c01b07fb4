"""Measure the speed of the training input, or check that training neither grows nor traces again.

    python tests/bench/records_to_batches.py
    python tests/bench/records_to_batches.py --memory

The first command reads all epochs of a generated dataset of about 5 million ids through
`TokenBatches`, on one core. The second trains a small model through `Trainer.train`, with
checkpoints and validations. The exit code is 1 if a limit is missed, unless --no-limits is given.
`train.py` uses these datasets, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import sentencepiece
import tensorflow as tf
from processes import available_cores

from tt.model.dataset.batches import Position, TokenBatches
from tt.model.dataset.manifest import (
    HISTOGRAM_STEP,
    MANIFEST_FILE,
    TRAIN,
    VALIDATION,
    DatasetManifest,
    SplitInfo,
    shard_name,
)
from tt.model.dataset.tfrecords import ExampleWriter, framed_runs, with_texts
from tt.model.text.normalization import TextNormalization
from tt.model.text.vocabulary import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    SHARED_MODEL,
    UNK_ID,
    VOCABULARY_FILE,
    FlatIds,
    vocabulary_json,
)
from tt.model.training.options import TrainingConfig
from tt.model.training.request import TrainRequest
from tt.model.training.strategies import make_strategy
from tt.model.training.trainer import Trainer
from tt.model.transformer.config import TransformerConfig

_FIRST_WORD = 4  # the ids below are special
_ZIPF_EXPONENT = 1.05
_SHORTEST, _LONGEST = 5, 40  # ids per side, including BOS and EOS
_MEDIAN_LENGTH = 20
_LENGTH_DEVIATION = 0.5  # of the logarithm of the length
_RATIO_DEVIATION = 0.12  # of target ids to source ids
_VALIDATION_PAIRS = 32

_PAIRS = 120_000  # about 5 million ids
_VOCABULARY_SIZE = 32_000
_BATCH_TOKENS = 4096
_LEAST_TOKENS_A_SECOND = 2_000_000

_STEPS = 2000
_EARLY_STEP = 200
_SAVE_EVERY = 100  # some checkpoints and validations precede the early measurement
_MOST_GROWTH = 1.05


def write_dataset(
    folder: Path, *, pairs: int, vocabulary_size: int, seed: int = 1
) -> DatasetManifest:
    """Write a finished dataset of random ids: Zipf's law over the ids, lengths like sentences'.

    Args:
      folder: The output folder. It is made if it is missing.
      pairs: The number of training records. A few validation records are added.
      vocabulary_size: The number of pieces of the shared vocabulary, a multiple of 8.
      seed: The seed of the records. The same seed gives the same records.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_vocabulary(folder, size=vocabulary_size)
    generator = np.random.default_rng(seed)
    splits = {
        name: _write_split(
            folder, name, pairs=count, vocabulary_size=vocabulary_size, generator=generator
        )
        for name, count in ((TRAIN, pairs), (VALIDATION, _VALIDATION_PAIRS))
    }
    manifest = DatasetManifest(
        fingerprint=f"bench-{pairs}-{vocabulary_size}-{seed}",
        version="0",
        corpus="bench",
        source_language="",
        target_language="",
        source_vocabulary_size=vocabulary_size,
        target_vocabulary_size=vocabulary_size,
        shared_vocabulary=True,
        lines_read=pairs + _VALIDATION_PAIRS,
        pairs_kept=pairs + _VALIDATION_PAIRS,
        rejected={},
        sources=[],
        splits=splits,
        options={},
    )
    (folder / MANIFEST_FILE).write_text(manifest.to_json())
    return manifest


def _write_vocabulary(folder: Path, *, size: int) -> None:
    """Write a vocabulary of whole words that are numbers."""
    prefix = folder / "words"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=(f"{i}" for i in range(size)),
        model_prefix=str(prefix),
        model_type="word",
        vocab_size=size,
        pad_id=PAD_ID,
        unk_id=UNK_ID,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        minloglevel=2,
    )
    prefix.with_suffix(".model").rename(folder / SHARED_MODEL)
    prefix.with_suffix(".vocab").unlink()
    (folder / VOCABULARY_FILE).write_text(
        vocabulary_json(shared=True, normalization=TextNormalization())
    )


def _write_split(
    folder: Path, name: str, *, pairs: int, vocabulary_size: int, generator: np.random.Generator
) -> SplitInfo:
    source_lengths = generator.lognormal(np.log(_MEDIAN_LENGTH), _LENGTH_DEVIATION, pairs)
    target_lengths = source_lengths * generator.normal(1, _RATIO_DEVIATION, pairs)
    sides = [
        _random_texts(
            np.clip(lengths, _SHORTEST, _LONGEST).astype(np.int64),
            vocabulary_size=vocabulary_size,
            generator=generator,
        )
        for lengths in (source_lengths, target_lengths)
    ]
    shard = shard_name(name, 0, 1)
    with (folder / shard).open("wb") as file:
        records = ExampleWriter(vocabulary_size).serialize(*sides)
        if name == VALIDATION:  # the validation reads the references of its records
            with_reference = [with_texts(each.as_py(), "0", "0") for each in records]
            records = pa.array(with_reference, records.type)
        file.writelines(framed_runs(records))
    source, target = sides
    return SplitInfo(
        shards=[shard],
        records=pairs,
        source_tokens=len(source.ids),
        target_tokens=len(target.ids),
        longest=int(max(source.lengths.max(), target.lengths.max())),
        source_lengths=np.bincount(source.lengths // HISTOGRAM_STEP).tolist(),
        target_lengths=np.bincount(target.lengths // HISTOGRAM_STEP).tolist(),
    )


def _random_texts(
    lengths: npt.NDArray[np.int64], *, vocabulary_size: int, generator: np.random.Generator
) -> FlatIds:
    """Draw a text of each length, including BOS and EOS."""
    ends = np.cumsum(lengths)
    words = vocabulary_size - _FIRST_WORD
    # The bounded Pareto distribution, rounded down, is Zipf's law over the ranks 1 to `words`.
    power = 1 - _ZIPF_EXPONENT
    uniform = generator.random(ends[-1])
    ranks = (1 - uniform * (1 - (words + 1.0) ** power)) ** (1 / power)
    ids = _FIRST_WORD - 1 + np.minimum(ranks, words).astype(np.int32)
    ids[ends - lengths] = BOS_ID
    ids[ends - 1] = EOS_ID
    return FlatIds(ids, ends)


# The speed of the input


def measure_speed(folder: Path, *, pairs: int, epochs: int) -> float:
    """Print the speed of each epoch, and return the median in ids per second, of both sides."""
    # This also pins TensorFlow's threads to one core, because they start later.
    os.sched_setaffinity(0, available_cores()[:1])
    split = write_dataset(folder, pairs=pairs, vocabulary_size=_VOCABULARY_SIZE).splits[TRAIN]
    print(f"{split.records:,} pairs, {split.source_tokens + split.target_tokens:,} ids")
    batches = TokenBatches(
        files=[folder / name for name in split.shards], max_tokens=_BATCH_TOKENS, seed=1
    ).forever(Position())
    rates = []
    for epoch in range(epochs + 1):
        seconds = _seconds_of_rows(batches, rows=split.records)
        source, target = split.source_tokens / seconds, split.target_tokens / seconds
        note = "  (warm-up, not counted)" if epoch == 0 else ""
        print(
            f"epoch {epoch}: {source:,.0f} source + {target:,.0f} target "
            f"= {source + target:,.0f} ids/s{note}",
            flush=True,
        )
        rates.append(source + target)
    return statistics.median(rates[1:])


def _seconds_of_rows(batches: Any, *, rows: int) -> float:
    """Take batches until they contained this many rows, which is an epoch."""
    start = time.perf_counter()
    while rows > 0:
        rows -= np.count_nonzero(next(batches).source[:, 0])  # padding rows are not pairs
    return time.perf_counter() - start


# Memory during training


def measure_memory(folder: Path, *, steps: int) -> tuple[float, int]:
    """Train, and return the growth of memory (as a factor) and the number of added traces.

    Both are counted from the early step to the last step.
    """
    write_dataset(folder / "dataset", pairs=20_000, vocabulary_size=1000)
    early = min(_EARLY_STEP, steps // 2)
    request = TrainRequest(
        dataset=folder / "dataset",
        run=folder / "run",
        model=TransformerConfig(
            source_vocabulary_size=1000,
            target_vocabulary_size=1000,
            shared_vocabulary=True,
            layers=1,
            d_model=32,
            heads=2,
            d_ff=64,
        ),
        training=TrainingConfig(
            steps=steps,
            batch_tokens=512,
            validate_every=min(_SAVE_EVERY, early),
            score_every=0,
            save_every=min(_SAVE_EVERY, early),
            log_every=min(50, early),
        ),
    )
    trainer = request.plan().start(make_strategy("one-device"))
    memory, traces = {}, {}

    def report(progress: Any) -> None:
        if progress.step in (early, steps):
            memory[progress.step] = _resident_bytes()
            traces[progress.step] = _traces(trainer)

    trainer.train(report)
    for step in (early, steps):
        print(f"step {step:,}: {memory[step] / 1e6:,.1f} MB resident, {traces[step]} traces")
    return memory[steps] / memory[early], traces[steps] - traces[early]


def _traces(trainer: Trainer) -> int:
    """Return how often TensorFlow has traced the functions of the training step."""
    kind = tf.types.experimental.PolymorphicFunction
    functions = [each for each in vars(trainer._step).values() if isinstance(each, kind)]
    assert functions, "the training step has no compiled function"
    return sum(each.experimental_get_tracing_count() for each in functions)


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--memory", action="store_true", help="Measure memory during training.")
    parser.add_argument("--pairs", type=int, default=_PAIRS, help="Read this many records.")
    parser.add_argument("--epochs", type=int, default=3, help="Read N epochs after the first.")
    parser.add_argument("--steps", type=int, default=_STEPS, help="Train N steps with --memory.")
    parser.add_argument("--no-limits", action="store_true", help="Never exit with code 1.")
    return parser.parse_args()


def main() -> None:
    """Measure speed or memory, and report whether the limits are met."""
    options = _parse()
    tf.config.threading.set_intra_op_parallelism_threads(1)
    with tempfile.TemporaryDirectory(prefix="tt-bench-") as folder:
        if options.memory:
            growth, traces = measure_memory(Path(folder), steps=options.steps)
            is_met = growth < _MOST_GROWTH and traces == 0
            print(f"memory x{growth:.3f} (limit x{_MOST_GROWTH}), {traces} new traces (limit 0)")
        else:
            rate = measure_speed(Path(folder), pairs=options.pairs, epochs=options.epochs)
            is_met = rate >= _LEAST_TOKENS_A_SECOND
            print(f"median {rate:,.0f} ids/s (limit {_LEAST_TOKENS_A_SECOND:,})")
    print("limits met" if is_met else "limits NOT met")
    if not is_met and not options.no_limits:
        sys.exit(1)


if __name__ == "__main__":
    main()
