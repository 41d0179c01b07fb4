"""What a training will do, as lines of text: its learning rate, and what its masks hide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from model.dataset.batches import WINDOW
from model.dataset.manifest import DatasetManifest
from model.summaries.batches import summarize_batches
from model.summaries.run import rate_points
from model.summaries.vocabularies import token_names
from model.text.vocabulary import VocabularyPair
from model.training.options import TrainingConfig
from model.transformer.attention import look_ahead_bias, padding_bias

_POINTS = 12  # of the schedule
_BAR = 40  # characters
_ROWS = 4  # of a batch
_SEEN, _HIDDEN = "#", "."


def describe_schedule(training: TrainingConfig, *, width: int) -> list[str]:
    """Returns the learning rate of some updates, the first, the peak's and the last among them.

    >>> config = TrainingConfig(steps=400, warmup_steps=100, peak_learning_rate=0.002)
    >>> for line in describe_schedule(config, width=512)[:4]:
    ...     print(line)
    Learning rate: up in a line to 0.002 at step 100, then inverse-sqrt; 0.001 at step 400
           step  rate
              1  2e-05
             37  0.00074   ###############
    """
    points = rate_points(training, width=width, points=_POINTS)
    rates = {point.step: point.rate for point in points}
    top, end = min(training.warmup_steps, training.steps), training.steps
    heading = f"Learning rate: up in a line to {rates[top]:.3g} at step {top:,}"
    if top < end:
        heading += f", then {training.schedule}; {rates[end]:.3g} at step {end:,}"
    else:
        heading += f", where the training ends; its warm-up has {training.warmup_steps:,}"
    rows = [
        f"{step:>11,}  {f'{rate:.3g}':<8}  {'#' * round(_BAR * rate / rates[top])}".rstrip()
        for step, rate in rates.items()
    ]
    return [heading, f"{'step':>11}  rate", *rows]


def describe_masks(
    folder: Path,
    manifest: DatasetManifest,
    vocabularies: VocabularyPair,
    *,
    training: TrainingConfig,
) -> list[str]:
    """Returns what the masks of a narrow training batch hide, as the model computes them.

    Raises:
      UserError: A shard is missing, cut off or damaged.
    """
    batch = summarize_batches(
        folder, manifest, vocabularies, batch_tokens=training.batch_tokens, pairs=WINDOW
    ).batch
    rows = min(_ROWS, len(batch.source))
    shown = np.linspace(0, len(batch.source) - 1, rows).astype(int).tolist()
    source = [batch.source[row] for row in shown]
    source_tokens = [batch.source_tokens[row] for row in shown]
    target_tokens = token_names(vocabularies.target, batch.decoder_input[0])
    return [
        f"Masks of a batch of {batch.rows:,} rows: {_SEEN} is seen, {_HIDDEN} is hidden",
        f"Padding mask, {rows} rows: what each position of the encoder, and of the decoder in "
        "cross-attention, sees of the source",
        *_padding_lines(source, source_tokens),
        "Look-ahead mask, the same for all rows: what each position of the decoder sees of the "
        "target; padding stands at the end, and so is hidden, too",
        *_look_ahead_lines(target_tokens),
    ]


def _padding_lines(ids: list[list[int]], names: list[list[str]]) -> list[str]:
    biases = padding_bias(tf.constant(ids, tf.int32)).numpy()  # [B, 1, 1, S]
    return [
        f"  {_marks(bias[0, 0])}  {' '.join(tokens)}"
        for bias, tokens in zip(biases, names, strict=True)
    ]


def _look_ahead_lines(tokens: Sequence[str]) -> list[str]:
    biases = look_ahead_bias(tf.constant(len(tokens))).numpy()[0, 0]  # [T, T]
    return [f"  {_marks(bias)}  {token}" for bias, token in zip(biases, tokens, strict=True)]


def _marks(bias: np.ndarray) -> str:
    return "".join(_SEEN if each == 0 else _HIDDEN for each in bias)
