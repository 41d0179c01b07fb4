"""What a training that cannot go on tells its user."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import tensorflow as tf

from model.dataset.windows import Batch
from model.errors import UserError
from model.runs.run_folder import RunFolder, write_text
from model.transformer.config import TrainingConfig

_SHOWN = 5  # records of many


def not_finite(what: str, *, step: int, steps: int, last_good: str, read: str = "") -> UserError:
    """Returns what is said where a loss or a gradient is no number.

    Args:
      what: Which number, and what it is.
      step: Updates done, this one included.
      steps: Updates in all.
      last_good: The last checkpoint.
      read: See `describe_records`.
    """
    remedy = f". {read}: look at them, or lower" if read else ": lower"
    return UserError(
        f"the {what} at step {step} of {steps}, so training stopped (last good checkpoint: "
        f"{last_good}){remedy} --peak-learning-rate, raise --warmup-steps or set --clip-norm, in a "
        "new --run"
    )


def describe_records(batches: Sequence[Batch], *, step: int, run: RunFolder, writes: bool) -> str:
    """Says which records an update read.

    Args:
      batches: Of the update.
      step: Its number.
      run: Where all of them are listed, in `not_finite.json`.
      writes: Whether this process writes there.
    """
    start = batches[0].start
    records = [record for batch in batches for record in batch.records]
    path = run.inside("not_finite.json")
    if writes:
        details = {"step": step, "position": start._asdict(), "records": records}
        try:
            with run.errors():
                write_text(path, json.dumps(details) + "\n")
        except UserError as error:
            path = f"a list that could not be written ({error})"
    shown = ", ".join(f"{Path(shard).name}:{number}" for shard, number in records[:_SHOWN])
    return (
        f"The update read {len(batches)} batch(es), from number {start.batch} of window "
        f"{start.window} of epoch {start.epoch} on: records {shown} and "
        f"{max(0, len(records) - _SHOWN)} more, all in {path}"
    )


def out_of_memory_for_model(error: tf.errors.ResourceExhaustedError) -> UserError:
    """Returns what is said where a device has no memory for the weights."""
    return UserError(
        f"out of memory for the model itself ({_reason(error)}): make it smaller by --preset, "
        "--layers, --d-model or --d-ff, or its vocabulary by `tt preprocess --vocabulary-size`"
    )


def out_of_memory_in_step(
    error: tf.errors.ResourceExhaustedError,
    *,
    batch: Batch,
    step: int,
    training: TrainingConfig,
    replicas: int,
    last_good: str,
) -> UserError:
    """Returns what is said where a device has no memory to train on a batch.

    Args:
      error: TensorFlow's.
      batch: For all replicas together.
      step: Number of the update.
      training: How it is trained.
      replicas: That share the batch.
      last_good: The last checkpoint.
    """
    rows, source = batch.source.shape
    tokens = training.effective_batch_size or training.batch_tokens * replicas
    return _out_of_memory(
        error,
        where=f"at step {step} of {training.steps}, in a batch of {rows} rows of {source} source "
        f"and {batch.target.shape[1]} target ids, for {replicas} replica(s)",
        last_good=last_good,
        remedy=f"lower --batch-tokens (received: {training.batch_tokens}) in a new --run, with "
        f"--effective-batch-size {tokens} if updates are to stay as large",
    )


def out_of_memory_in_validation(
    error: tf.errors.ResourceExhaustedError, *, step: int, last_good: str
) -> UserError:
    """Returns what is said where a device has no memory to validate after a step."""
    return _out_of_memory(
        error,
        where=f"in the validation at step {step}",
        last_good=last_good,
        remedy="leave its translations out with --score-every 0; if that is not enough, lower "
        "--batch-tokens in a new --run",
    )


def _out_of_memory(
    error: tf.errors.ResourceExhaustedError, *, where: str, last_good: str, remedy: str
) -> UserError:
    return UserError(
        f"out of memory {where} ({_reason(error)}; last good checkpoint: {last_good}): {remedy}"
    )


def _reason(error: tf.errors.ResourceExhaustedError) -> str:
    lines = str(error.message).splitlines()
    # What comes before is the place in our code.
    found = next((line[line.index("OOM") :] for line in lines if "OOM" in line), lines[0])
    return found.split(" [Op:")[0]
