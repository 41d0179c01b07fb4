"""The program of one worker among several, which test_multi_worker.py starts."""

from __future__ import annotations

import collections
import contextlib
import dataclasses
from pathlib import Path
from unittest import mock

import numpy as np
from commands import run_tt
from graphs import nodes_of

REPLICAS = 2
TRAINING = {
    "steps": 1000, "batch_tokens": 64, "peak_learning_rate": 0.001, "warmup_steps": 5, "seed": 3,
}  # fmt: skip


def make_trainer(dataset, run, strategy, **fields):
    """Return a trainer of the toy model; `fields` are fields of its configuration."""
    from toy import toy_config

    from tt.model.training.options import TrainingConfig
    from tt.model.training.request import TrainRequest

    request = TrainRequest(
        dataset=dataset, run=run, model=toy_config(layers=1, **fields),
        training=TrainingConfig(**TRAINING),
    )  # fmt: skip
    return request.plan().start(strategy)


def probe_pairs():
    """Return global batches [B, S] and [B, T] that two replicas share unevenly.

    In the first batch, one replica has four long rows and the other has three short rows. In the
    second batch, one replica has the only row.
    """
    generator = np.random.default_rng(5)

    def rows(lengths):
        ids = generator.integers(4, 14, (len(lengths), max(lengths))).astype(np.int32)
        ids[np.arange(max(lengths)) >= np.array(lengths)[:, None]] = 0
        return ids

    return [(rows([9, 2, 8, 2, 9, 3, 7]), rows([8, 3, 9, 2, 9, 2, 6])), (rows([5]), rows([7]))]


def probe(trainer):
    """Train for an epoch of batches for two replicas; return results that must not depend on them.

    Returns:
      The gradients of `probe_pairs` as "gradient-<batch>-<variable>", the loss of every batch as
      "losses", the final weights as "weight-<variable>", and "rows": the rows on which this
      process trained, [rows, 3 + columns], with the replica's number, the lengths of source and
      target, and the ids of both.
    """
    from toy import gradients_of

    from tt.model.dataset.batches import Position

    found = {}
    gradients = gradients_of(trainer)
    for i, (source, target) in enumerate(probe_pairs()):
        for j, gradient in enumerate(gradients(source, target)):
            found[f"gradient-{i}-{j}"] = gradient
    losses = []
    batches = dataclasses.replace(trainer.data.batches("train"), replicas=REPLICAS)
    keep_unread = mock.patch("tt.model.training.trainer._MOST_UNREAD", 10**9)
    with keep_unread, recorded_rows() as rows:
        for batch in batches.epoch(Position()):
            trainer._train_on(batch)
            sums = trainer._step.read(trainer._unread[-1][1]).sums
            losses.append(sums.loss / sums.tokens)
    found["losses"] = np.array(losses)
    for j, variable in enumerate(trainer.model.trainable_variables):
        found[f"weight-{j}"] = variable.numpy()
    found["rows"] = np.array([_as_line(*row) for row in rows])
    return found


@contextlib.contextmanager
def recorded_rows():
    """Yield a list that gets (replica, source ids, target ids) for each row of the training.

    Enter it before a step runs for the first time, because the step is then traced.
    """
    import tensorflow as tf

    from tt.model.training import step

    rows = []
    batch_sums = step.batch_sums

    def note(replica, source, target):
        for pair in zip(source, target, strict=True):
            ids = [tuple(side[side != 0].tolist()) for side in pair]
            if any(ids):  # the last rows of a window may be only padding
                rows.append((int(replica), *ids))
        return np.int32(len(source))

    def noting(model, source, target, **options):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        noted = tf.numpy_function(note, [replica, source, target], tf.int32)
        with tf.control_dependencies([noted]):
            return batch_sums(model, tf.identity(source), target, **options)

    with mock.patch.object(step, "batch_sums", noting):
        yield rows


def count_pairs(rows):
    """Return how often each pair occurs in the rows of `recorded_rows`."""
    return collections.Counter((source, target) for _, source, target in rows)


def count_dataset(dataset):
    """Return how often each pair of ids occurs in the training split."""
    import tensorflow as tf
    from toy import parse_record

    shards = sorted(str(file) for file in Path(dataset).glob("train-*"))
    return collections.Counter(
        tuple(map(tuple, parse_record(record)))
        for record in tf.data.TFRecordDataset(shards).as_numpy_iterator()
    )


def _as_line(replica, source, target, columns=32):
    ids = [*source, *target]
    return [replica, len(source), len(target), *ids, *[0] * (columns - len(ids))]


def read_rows(lines):
    """Return the rows of `recorded_rows` from the array of `probe`."""
    return [
        (replica, tuple(ids[:source]), tuple(ids[source : source + target]))
        for replica, source, target, *ids in lines.tolist()
    ]


def probe_worker(dataset, run, results):
    """Write the results of `probe` on a worker that TF_CONFIG describes."""
    from tt.model.training.strategies import make_strategy

    np.savez(results, **probe(make_trainer(dataset, run, make_strategy("multi-worker"))))


def trace_exchange(dataset, run, results):
    """Write the hints of the exchange in an update on a worker that seems to have a GPU."""
    from tt.model.training import strategies

    with mock.patch.object(strategies, "count_gpus", return_value=1):
        strategy = strategies.make_strategy("multi-worker")
    trainer = make_trainer(dataset, run, strategy)
    hints = [
        node.attr["communication_hint"].s.decode()
        for node in nodes_of(trainer._step._update.get_concrete_function())
        if node.op.startswith("CollectiveReduce")
    ]
    Path(results).write_text("\n".join(hints))


@contextlib.contextmanager
def little_memory(*, replica, tokens):
    """Let a replica run out of memory in batches with more than this number of target positions.

    The replica then allocates 16 TB. Enter the context before a step runs for the first time.
    """
    import tensorflow as tf

    from tt.model.training import step

    batch_sums = step.batch_sums

    def greedy(model, source, target, **options):
        own = tf.distribute.get_replica_context().replica_id_in_sync_group
        is_too_large = tf.equal(own, replica) & (tf.size(target) > tokens)
        side = tf.where(is_too_large, 2**21, 1)
        zero = tf.cast(tf.reduce_sum(tf.zeros([side, side])), tf.int32)
        return batch_sums(model, source + zero, target, **options)

    with mock.patch.object(step, "batch_sums", greedy):
        yield


def train_with_little_memory(arguments, replica, tokens):
    """Run `tt` on a worker; see `little_memory`."""
    with little_memory(replica=replica, tokens=tokens):
        train_worker(arguments)


def train_worker(arguments):
    """Run `tt` on a worker that TF_CONFIG describes."""
    from tt.model.training import validation

    with mock.patch.object(validation, "_SENTENCES_AT_ONCE", 8):  # for several passes
        run_tt(arguments)
