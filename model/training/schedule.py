"""The schedule of the learning rate."""

from __future__ import annotations

from tt.model.training.options import TrainingConfig


def learning_rate(update: int, training: TrainingConfig, *, width: int) -> float:
    """Return the learning rate of an update (equation 3 of the paper).

    Args:
      update: Number of the update; the first one is 1.
      training: The options `peak_learning_rate`, `warmup_steps` and `schedule`.
      width: Width of the model.
    """
    ratio = update / training.warmup_steps
    after = ratio**-0.5 if training.schedule == "inverse-sqrt" else 1.0
    return peak_rate(training, width=width) * min(ratio, after)


def peak_rate(training: TrainingConfig, *, width: int) -> float:
    """Return the learning rate at the end of the warm-up for a model of this width."""
    return training.peak_learning_rate or width**-0.5 * training.warmup_steps**-0.5
